package controller

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"lameduck/clusters/alb/elb"
)

// healthCheck reads how a target group checks its targets. Defaults are the
// controller's, which differ from ELBv2's (AWS Load Balancer Controller guide,
// Ingress annotations, Health Check). port is "", or what healthcheck-port says
// if that is not the traffic port.
func (a annotations) healthCheck() (h elb.HealthCheck, port string, err error) {
	var errs []error
	number := func(name string, byDefault, low, high int) int {
		n, err := a.number(name, byDefault, low, high)
		errs = append(errs, err)
		return n
	}
	protocol, err := a.oneOf("healthcheck-protocol", string(elb.HTTP), string(elb.HTTPS))
	errs = append(errs, err)
	h = elb.HealthCheck{
		Protocol:  elb.Protocol(protocol),
		Path:      "/",
		Interval:  time.Duration(number("healthcheck-interval-seconds", 15, 5, 300)) * time.Second,
		Timeout:   time.Duration(number("healthcheck-timeout-seconds", 5, 2, 120)) * time.Second,
		Healthy:   number("healthy-threshold-count", 2, 2, 10),
		Unhealthy: number("unhealthy-threshold-count", 2, 2, 10),
	}
	if v, ok := a["healthcheck-path"]; ok {
		if !strings.HasPrefix(v, "/") || len(v) > 1024 || strings.ContainsAny(v, " \r\n\t") {
			errs = append(errs, badValue("healthcheck-path", v, "a path that begins with /, of at most 1024 characters, without white space"))
		}
		h.Path = v
	}
	if v, ok := a["healthcheck-port"]; ok && v != "traffic-port" {
		if n, err := strconv.Atoi(v); v == "" || err == nil && (n < 1 || n > 65535) {
			errs = append(errs, badValue("healthcheck-port", v, "traffic-port, 1..65535 or the name of a port of the Service"))
		}
		port = v
	}
	h.Codes, err = a.successCodes()
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return elb.HealthCheck{}, "", err
	}
	if h.Timeout >= h.Interval {
		return elb.HealthCheck{}, "", badValue("healthcheck-timeout-seconds", strconv.Itoa(int(h.Timeout.Seconds())),
			fmt.Sprintf("less than healthcheck-interval-seconds, which is %d", int(h.Interval.Seconds())))
	}
	return h, port, nil
}

// healthCheckPort resolves healthcheck-port for a target type: a number is
// itself, a name is a port of the Service (its nodePort or its targetPort).
func healthCheckPort(port string, t elb.TargetType, svc *corev1.Service) (uint16, error) {
	if port == "" {
		return 0, nil
	}
	if n, err := strconv.Atoi(port); err == nil {
		return uint16(n), nil
	}
	for _, p := range svc.Spec.Ports {
		if p.Name != port {
			continue
		}
		if t == elb.TargetInstance {
			return uint16(p.NodePort), nil
		}
		if p.TargetPort.IntValue() > 0 {
			return uint16(p.TargetPort.IntValue()), nil
		}
		return 0, badValue("healthcheck-port", port, "a port whose targetPort is a number, with target-type ip")
	}
	return 0, badValue("healthcheck-port", port, fmt.Sprintf("the name of a port of Service %s/%s", svc.Namespace, svc.Name))
}

// successCodes reads "200", "200,301" or "200-299".
func (a annotations) successCodes() ([]elb.CodeRange, error) {
	value, ok := a["success-codes"]
	if !ok {
		return []elb.CodeRange{{Low: 200, High: 200}}, nil
	}
	var codes []elb.CodeRange
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
		codes = append(codes, elb.CodeRange{Low: l, High: h})
	}
	return codes, nil
}
