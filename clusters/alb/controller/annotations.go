package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"lameduck/clusters/alb/elb"
)

// annotationPrefix is in front of every annotation of the AWS Load Balancer
// Controller.
const annotationPrefix = "alb.ingress.kubernetes.io/"

// annotations are those of one object under annotationPrefix, without it.
type annotations map[string]string

func annotationsOf(all map[string]string) annotations {
	a := make(annotations)
	for name, value := range all {
		if suffix, ok := strings.CutPrefix(name, annotationPrefix); ok {
			a[suffix] = value
		}
	}
	return a
}

// over returns the annotations of a Service over those of its Ingress: for
// target groups the Service's win.
func (a annotations) over(ingress annotations) annotations {
	merged := maps.Clone(ingress)
	maps.Copy(merged, a)
	return merged
}

// known are the annotations that mean something here. False: they are accepted,
// but change nothing, which a Warning Event says.
var known = map[string]bool{
	"listen-ports":                 true,
	"load-balancer-attributes":     true,
	"scheme":                       true, // an address is an address here
	"target-type":                  true,
	"target-group-attributes":      true,
	"target-node-labels":           true,
	"backend-protocol":             true,
	"backend-protocol-version":     true,
	"healthcheck-protocol":         true,
	"healthcheck-port":             true,
	"healthcheck-path":             true,
	"healthcheck-interval-seconds": true,
	"healthcheck-timeout-seconds":  true,
	"healthy-threshold-count":      true,
	"unhealthy-threshold-count":    true,
	"success-codes":                true,
}

// families are annotations whose names end with that of a backend.
var families = []string{"actions.", "conditions."}

// ignored are the names, sorted, of the annotations that change nothing.
func (a annotations) ignored() []string {
	var names []string
	for name := range a {
		family := slices.ContainsFunc(families, func(f string) bool { return strings.HasPrefix(name, f) })
		if !known[name] && !family {
			names = append(names, annotationPrefix+name)
		}
	}
	slices.Sort(names)
	return names
}

// badValue is the error for an annotation whose value is not accepted.
func badValue(name, value, want string) error {
	return fmt.Errorf("annotation %s%s is %q: want %s", annotationPrefix, name, value, want)
}

// oneOf reads an annotation with a fixed set of values; the first is the
// default.
func (a annotations) oneOf(name string, values ...string) (string, error) {
	v, ok := a[name]
	if !ok {
		return values[0], nil
	}
	if !slices.Contains(values, v) {
		return "", badValue(name, v, "one of "+strings.Join(values, ", "))
	}
	return v, nil
}

// number reads an annotation with a range.
func (a annotations) number(name string, byDefault, low, high int) (int, error) {
	v, ok := a[name]
	if !ok {
		return byDefault, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < low || n > high {
		return 0, badValue(name, v, fmt.Sprintf("%d..%d", low, high))
	}
	return n, nil
}

// listenPorts reads listen-ports: [{"HTTP": 80}, {"HTTPS": 443}].
func (a annotations) listenPorts() ([]elb.Listener, error) {
	const name = "listen-ports"
	value, ok := a[name]
	if !ok {
		return []elb.Listener{{Port: 80, Protocol: elb.HTTP}}, nil
	}
	const want = `a JSON list like [{"HTTP": 80}, {"HTTPS": 443}] with ports 1..65535`
	var entries []map[string]int
	if err := json.Unmarshal([]byte(value), &entries); err != nil || len(entries) == 0 {
		return nil, badValue(name, value, want)
	}
	var all []elb.Listener
	for _, entry := range entries {
		for protocol, port := range entry {
			l := elb.Listener{Port: uint16(port), Protocol: elb.Protocol(protocol)}
			switch {
			case l.Protocol != elb.HTTP && l.Protocol != elb.HTTPS, port < 1, port > 65535:
				return nil, badValue(name, value, want)
			case slices.ContainsFunc(all, func(x elb.Listener) bool { return x.Port == l.Port }):
				return nil, badValue(name, value, fmt.Sprintf("port %d only once", port))
			}
			all = append(all, l)
		}
	}
	if len(all) == 0 {
		return nil, badValue(name, value, want)
	}
	return all, nil
}
