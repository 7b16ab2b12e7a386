package alb

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
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

// known are the annotations that mean something here. False: they are checked,
// but change nothing yet, which a Warning Event says.
var known = map[string]bool{
	"listen-ports":                 true,
	"load-balancer-attributes":     true,
	"scheme":                       true, // an address is an address here
	"target-type":                  true,
	"target-group-attributes":      true,
	"backend-protocol":             true,
	"backend-protocol-version":     true,
	"healthcheck-protocol":         false,
	"healthcheck-port":             false,
	"healthcheck-path":             false,
	"healthcheck-interval-seconds": false,
	"healthcheck-timeout-seconds":  false,
	"healthy-threshold-count":      false,
	"unhealthy-threshold-count":    false,
	"success-codes":                false,
}

// ignored are the names, sorted, of the annotations that change nothing.
func (a annotations) ignored() []string {
	var names []string
	for name := range a {
		if !known[name] {
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

// listenPorts reads listen-ports: [{"HTTP": 80}, {"HTTP": 8080}].
func (a annotations) listenPorts() ([]uint16, error) {
	const name = "listen-ports"
	value, ok := a[name]
	if !ok {
		return []uint16{80}, nil
	}
	const want = `a JSON list like [{"HTTP": 80}] with ports 1..65535`
	var entries []map[string]int
	if err := json.Unmarshal([]byte(value), &entries); err != nil || len(entries) == 0 {
		return nil, badValue(name, value, want)
	}
	var ports []uint16
	for _, entry := range entries {
		for protocol, port := range entry {
			switch {
			case protocol == "HTTPS":
				return nil, badValue(name, value, "HTTP only: HTTPS is not supported yet by this stand-in")
			case protocol != "HTTP", port < 1, port > 65535:
				return nil, badValue(name, value, want)
			case slices.Contains(ports, uint16(port)):
				return nil, badValue(name, value, fmt.Sprintf("port %d only once", port))
			}
			ports = append(ports, uint16(port))
		}
	}
	if len(ports) == 0 {
		return nil, badValue(name, value, want)
	}
	return ports, nil
}

// healthCheck is how a target group checks its targets. Defaults are the
// controller's, which differ from ELBv2's (AWS Load Balancer Controller guide,
// Ingress annotations, Health Check).
type healthCheck struct {
	port         string // "traffic-port", a number, or the name of a Service port
	path         string
	interval     time.Duration
	timeout      time.Duration
	healthy      int
	unhealthy    int
	successCodes []codeRange
}

// codeRange is a range of HTTP status codes, both ends included.
type codeRange struct{ low, high int }

func (a annotations) healthCheck() (healthCheck, error) {
	var errs []error
	number := func(name string, byDefault, low, high int) int {
		n, err := a.number(name, byDefault, low, high)
		errs = append(errs, err)
		return n
	}
	h := healthCheck{
		port:      "traffic-port",
		path:      "/",
		interval:  time.Duration(number("healthcheck-interval-seconds", 15, 5, 300)) * time.Second,
		timeout:   time.Duration(number("healthcheck-timeout-seconds", 5, 2, 120)) * time.Second,
		healthy:   number("healthy-threshold-count", 2, 2, 10),
		unhealthy: number("unhealthy-threshold-count", 2, 2, 10),
	}
	_, err := a.oneOf("healthcheck-protocol", "HTTP")
	errs = append(errs, err)
	if v, ok := a["healthcheck-path"]; ok {
		if !strings.HasPrefix(v, "/") || len(v) > 1024 {
			errs = append(errs, badValue("healthcheck-path", v, "a path that begins with /, of at most 1024 characters"))
		}
		h.path = v
	}
	if v, ok := a["healthcheck-port"]; ok {
		if n, err := strconv.Atoi(v); v == "" || err == nil && (n < 1 || n > 65535) {
			errs = append(errs, badValue("healthcheck-port", v, "traffic-port, 1..65535 or the name of a port of the Service"))
		}
		h.port = v
	}
	h.successCodes, err = a.successCodes()
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return healthCheck{}, err
	}
	if h.timeout >= h.interval {
		return healthCheck{}, badValue("healthcheck-timeout-seconds", strconv.Itoa(int(h.timeout.Seconds())),
			fmt.Sprintf("less than healthcheck-interval-seconds, which is %d", int(h.interval.Seconds())))
	}
	return h, nil
}

// successCodes reads "200", "200,301" or "200-299".
func (a annotations) successCodes() ([]codeRange, error) {
	value, ok := a["success-codes"]
	if !ok {
		return []codeRange{{200, 200}}, nil
	}
	var codes []codeRange
	for _, item := range strings.Split(value, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(item), "-")
		if !isRange {
			high = low
		}
		l, errLow := strconv.Atoi(low)
		h, errHigh := strconv.Atoi(high)
		if errLow != nil || errHigh != nil || l < 200 || h > 499 || l > h {
			return nil, badValue("success-codes", value, "codes or ranges within 200..499, like 200,301 or 200-299")
		}
		codes = append(codes, codeRange{l, h})
	}
	return codes, nil
}
