// Package proxy is the data plane of one load balancer node: it takes the
// requests of clients, asks a Router where each goes, and gives it to one
// target on one connection.
//
//	client --HTTP/1.1, HTTP/2--> Listener --Router--> Target --Pool--> address:port
//	                                |
//	                                +--> accesslog.Sink   one Line per request
//
// In the order of the data:
//
//	settings.go     what AWS documents as fixed; options
//	router.go       who decides where requests go
//	listener.go     one port
//	client.go       one connection of a client
//	header.go       how a head is read, on both sides
//	request.go      what is accepted as a request of HTTP/1
//	http1.go        its body, and the answer to it
//	http2.go        the same over HTTP/2
//	exchange.go     one request, from receipt to log line
//	forward.go      what is sent to the target
//	upload.go       a request's body on its way
//	response.go     what is accepted as a target's answer
//	relay.go        a response's body on its way
//	tunnel.go       WebSocket, and other protocols after a 101
//	answer.go       the load balancer's own answers
//	failure.go      which status and which name a failure gets
//	pool.go, target.go   keep-alive connections to one target
//	guard.go        the idle timeout of a connection, and how it is cancelled
//	hangup_*.go     how it is noticed that the other end has gone
//
// Three decisions shape it. There is exactly one target and one connection per
// request and never a retry, so the target side is not http.Transport, which
// sends a request again when a reused connection dies early. The log tells the
// local port, the errno and the phase of a failure. And a node must forward at
// least half as fast as HAProxy, so that it is not what a test measures: the
// client side is not http.Server, which took most of the time, and a head that
// is passed on is parsed once, kept in the order and spelling it came in, and
// costs one allocation.
package proxy
