package controller

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"lameduck/clusters/alb/elb"
)

// trafficPort is the value of healthcheck-port for the port of the target.
const trafficPort = "traffic-port"

// healthCheck reads how a target group checks its targets. Defaults are the
// controller's, which differ from ELBv2's (annotations page, Health Check);
// ranges are those of the API reference, CreateTargetGroup.
func (a annotations) healthCheck(svc *corev1.Service, targetType elb.TargetType, backend elb.Protocol) (elb.HealthCheck, error) {
	var errs []error
	number := func(name string, byDefault, low, high int) int {
		n, err := a.number(name, byDefault, low, high)
		errs = append(errs, err)
		return n
	}
	seconds := func(name string, byDefault, low, high int) time.Duration {
		return time.Duration(number(name, byDefault, low, high)) * time.Second
	}
	h := elb.HealthCheck{
		Path:      "/",
		Interval:  seconds("healthcheck-interval-seconds", 15, 5, 300),
		Timeout:   seconds("healthcheck-timeout-seconds", 5, 2, 120),
		Healthy:   number("healthy-threshold-count", 2, 2, 10),
		Unhealthy: number("unhealthy-threshold-count", 2, 2, 10),
		Protocol:  backend,
	}
	if _, ok := a["healthcheck-protocol"]; ok {
		protocol, err := a.oneOf("healthcheck-protocol", string(elb.HTTP), string(elb.HTTPS))
		errs = append(errs, err)
		h.Protocol = elb.Protocol(protocol)
	}
	if v, ok := a["healthcheck-path"]; ok {
		if !strings.HasPrefix(v, "/") || len(v) > 1024 {
			errs = append(errs, badValue(annotationPrefix+"healthcheck-path", v, "a path that begins with /, of at most 1024 characters"))
		}
		h.Path = v
	}
	var err error
	h.Port, err = a.healthCheckPort(svc, targetType)
	errs = append(errs, err)
	h.Codes, err = a.successCodes()
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return elb.HealthCheck{}, err
	}
	if h.Timeout >= h.Interval {
		return elb.HealthCheck{}, badValue(annotationPrefix+"healthcheck-timeout-seconds", strconv.Itoa(int(h.Timeout.Seconds())),
			fmt.Sprintf("less than healthcheck-interval-seconds, which is %d", int(h.Interval.Seconds())))
	}
	return h, nil
}

// healthCheckPort reads healthcheck-port, 0 for the traffic port. The name of a
// Service port stands for its nodePort or its targetPort, whichever the target
// type has (controller, pkg/ingress/model_build_target_group.go).
func (a annotations) healthCheckPort(svc *corev1.Service, targetType elb.TargetType) (uint16, error) {
	const name = annotationPrefix + "healthcheck-port"
	v, ok := a["healthcheck-port"]
	if !ok || v == trafficPort {
		return 0, nil
	}
	const want = trafficPort + ", 1..65535 or the name of a port of the Service"
	if n, err := strconv.Atoi(v); err == nil || v == "" {
		if n < 1 || n > 65535 {
			return 0, badValue(name, v, want)
		}
		return uint16(n), nil
	}
	port, err := findPort(svc, networkingv1.ServiceBackendPort{Name: v})
	switch {
	case err != nil:
		return 0, badValue(name, v, want)
	case targetType == elb.TargetInstance:
		return uint16(port.NodePort), nil
	case port.TargetPort.Type == intstr.String:
		return 0, badValue(name, v, "a number: with target-type ip a name whose targetPort is a name too may be a different port in each pod")
	case port.TargetPort.IntVal == 0: // not set: the same as port
		return uint16(port.Port), nil
	}
	return uint16(port.TargetPort.IntVal), nil
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
			return nil, badValue(annotationPrefix+"success-codes", value, "codes or ranges within 200..499, like 200,301 or 200-299")
		}
		codes = append(codes, elb.CodeRange{Low: l, High: h})
	}
	return codes, nil
}
