// Package network makes the network of an embedded cluster out of named network
// namespaces: one is the router of a small "VPC", the others are its hosts.
//
//	                   router: bridge vpc0 198.18.0.1, routes to all pods
//	    ┌───────────┬───────┴───┬─────────────┬───────────┐
//	   cp          n1          n2            lb        client
//	198.18.0.2  198.18.0.11  198.18.0.12  198.18.0.5  198.18.0.6
//	            pods         pods
//	            198.19.1.0/24  198.19.2.0/24
//
// Every interface is created inside of a namespace, both ends of a pair. The
// namespace of the machine itself gets no interface, no route and no setting,
// and two clusters with equal addresses do not see each other.
package network
