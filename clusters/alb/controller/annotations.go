package controller

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"lameduck/clusters/alb/elb"
)

// annotationPrefix is in front of every annotation of the AWS Load Balancer
// Controller.
const annotationPrefix = "alb.ingress.kubernetes.io/"

// annotations are those of one object under annotationPrefix, without it.
type annotations map[string]string

func annotationsOf(all map[string]string) annotations { return withPrefix(all, annotationPrefix) }

func withPrefix(all map[string]string, prefix string) map[string]string {
	a := make(map[string]string)
	for name, value := range all {
		if suffix, ok := strings.CutPrefix(name, prefix); ok {
			a[suffix] = value
		}
	}
	return a
}

// over returns the annotations of a Service over those of its Ingress: for
// target groups the Service's win (annotations page).
func over(service, ingress map[string]string) map[string]string {
	merged := maps.Clone(ingress)
	maps.Copy(merged, service)
	return merged
}

// effect is what an annotation of the original comes to here.
type effect int

const (
	acts    effect = iota + 1
	nothing        // about AWS things that are not needed here: quietly accepted
	missing        // it would change what clients get, and does not: a Warning
)

// known are the annotations of the original (controller,
// pkg/annotations/constants.go), besides actions.* and conditions.*.
var known = map[string]effect{
	"listen-ports":                 acts,
	"ssl-redirect":                 acts,
	"group.name":                   acts,
	"group.order":                  acts,
	"load-balancer-attributes":     acts,
	"target-type":                  acts,
	"target-node-labels":           acts,
	"target-group-attributes":      acts,
	"backend-protocol":             acts,
	"backend-protocol-version":     acts,
	"healthcheck-protocol":         acts,
	"healthcheck-port":             acts,
	"healthcheck-path":             acts,
	"healthcheck-interval-seconds": acts,
	"healthcheck-timeout-seconds":  acts,
	"healthy-threshold-count":      acts,
	"unhealthy-threshold-count":    acts,
	"success-codes":                acts,

	"scheme":                              nothing, // an address is an address here
	"certificate-arn":                     nothing, // makes HTTPS the default listener; the certificate is self-signed
	"ssl-policy":                          nothing,
	"load-balancer-name":                  nothing,
	"tags":                                nothing,
	"ip-address-type":                     nothing,
	"subnets":                             nothing,
	"customer-owned-ipv4-pool":            nothing,
	"ipam-ipv4-pool-id":                   nothing,
	"security-groups":                     nothing,
	"manage-backend-security-group-rules": nothing,
	"minimum-load-balancer-capacity":      nothing,
	"shield-advanced-protection":          nothing,
	"create-acm-cert":                     nothing,
	"acm-pca-arn":                         nothing,

	"inbound-cidrs":                   missing,
	"security-group-prefix-lists":     missing,
	"wafv2-acl-arn":                   missing,
	"wafv2-acl-name":                  missing,
	"waf-acl-id":                      missing,
	"web-acl-id":                      missing,
	"auth-type":                       missing,
	"auth-idp-cognito":                missing,
	"auth-idp-oidc":                   missing,
	"auth-on-unauthenticated-request": missing,
	"auth-scope":                      missing,
	"auth-session-cookie":             missing,
	"auth-session-timeout":            missing,
	"jwt-validation":                  missing,
	"mutual-authentication":           missing,
	"multi-cluster-target-group":      missing,
	"target-control-port":             missing,
	"enable-frontend-nlb":             missing,
	"use-regex-path-match":            missing,
	"dry-run-plan":                    missing,
}

// ignored are the annotations that change nothing though they should: those
// that are missing here, and those that nobody knows. Both are sorted.
func (a annotations) ignored() (unsupported, unknown []string) {
	for name := range a {
		if strings.HasPrefix(name, actionPrefix) || strings.HasPrefix(name, conditionPrefix) {
			continue // these are looked up by the backends that name them
		}
		isNLB := strings.HasPrefix(name, "frontend-nlb-")
		switch _, isListener := strings.CutPrefix(name, "listener-attributes."); {
		case known[name] == missing, isNLB, isListener, strings.HasPrefix(name, "transforms."):
			unsupported = append(unsupported, annotationPrefix+name)
		case known[name] == 0:
			unknown = append(unknown, annotationPrefix+name)
		}
	}
	slices.Sort(unsupported)
	slices.Sort(unknown)
	return unsupported, unknown
}

// badValue is the error for an annotation whose value is not accepted. The
// annotation's name is the whole one.
func badValue(annotation, value, want string) error {
	return fmt.Errorf("annotation %s is %q: want %s", annotation, value, want)
}

// oneOf reads an annotation with a fixed set of values; the first is the
// default.
func (a annotations) oneOf(name string, values ...string) (string, error) {
	v, ok := a[name]
	if !ok {
		return values[0], nil
	}
	if !slices.Contains(values, v) {
		return "", badValue(annotationPrefix+name, v, "one of "+strings.Join(values, ", "))
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
		return 0, badValue(annotationPrefix+name, v, fmt.Sprintf("%d..%d", low, high))
	}
	return n, nil
}

// listenPorts reads listen-ports: [{"HTTP": 80}, {"HTTPS": 443}]. Its default
// depends on whether there is a certificate (annotations page).
func (a annotations) listenPorts() ([]elb.Listener, error) {
	const name = "listen-ports"
	value, ok := a[name]
	if !ok {
		if _, ok := a["certificate-arn"]; ok {
			return []elb.Listener{{Port: 443, Protocol: elb.HTTPS}}, nil
		}
		return []elb.Listener{{Port: 80, Protocol: elb.HTTP}}, nil
	}
	bad := func(want string) ([]elb.Listener, error) {
		return nil, badValue(annotationPrefix+name, value, want)
	}
	const want = `a JSON list like [{"HTTP": 80}, {"HTTPS": 443}] with ports 1..65535`
	var entries []map[elb.Protocol]int
	if err := unmarshalJSON(value, &entries); err != nil {
		return bad(want)
	}
	var listeners []elb.Listener
	for _, entry := range entries {
		for _, protocol := range slices.Sorted(maps.Keys(entry)) {
			port := entry[protocol]
			if protocol != elb.HTTP && protocol != elb.HTTPS || port < 1 || port > 65535 {
				return bad(want)
			}
			if slices.ContainsFunc(listeners, func(l elb.Listener) bool { return l.Port == uint16(port) }) {
				return bad(fmt.Sprintf("port %d only once", port))
			}
			listeners = append(listeners, elb.Listener{Port: uint16(port), Protocol: protocol})
		}
	}
	if len(listeners) == 0 {
		return bad(want)
	}
	return listeners, nil
}

// sslRedirect reads ssl-redirect: the HTTPS port to which every HTTP listener
// redirects; 0 without it.
func (a annotations) sslRedirect(listeners []elb.Listener) (uint16, error) {
	port, err := a.number("ssl-redirect", 0, 1, 65535)
	if err != nil || port == 0 {
		return 0, err
	}
	if !slices.Contains(listeners, elb.Listener{Port: uint16(port), Protocol: elb.HTTPS}) {
		return 0, badValue(annotationPrefix+"ssl-redirect", a["ssl-redirect"], "a port that listen-ports has as HTTPS")
	}
	return uint16(port), nil
}

// nodeLabels reads target-node-labels: "role=web, zone=a". Without it all nodes
// are meant.
func (a annotations) nodeLabels() (labels.Set, error) {
	const name = "target-node-labels"
	value, ok := a[name]
	if !ok {
		return nil, nil
	}
	set := make(labels.Set)
	for _, item := range strings.Split(value, ",") {
		key, v, ok := strings.Cut(strings.TrimSpace(item), "=")
		if !ok {
			return nil, badValue(annotationPrefix+name, value, "a list like role=web,zone=a")
		}
		set[strings.TrimSpace(key)] = strings.TrimSpace(v)
	}
	if _, err := labels.ValidatedSelectorFromSet(set); err != nil {
		return nil, badValue(annotationPrefix+name, value, "labels as nodes have them: "+err.Error())
	}
	return set, nil
}
