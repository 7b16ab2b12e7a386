package controller

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"lameduck/clusters/alb/elb"
)

// The JSON of the annotations actions.<name> and conditions.<name> (AWS Load
// Balancer Controller guide, Ingress annotations: actions, conditions).

type actionJSON struct {
	Type                string             `json:"type"`
	TargetGroupARN      *string            `json:"targetGroupARN"`
	ForwardConfig       *forwardJSON       `json:"forwardConfig"`
	FixedResponseConfig *fixedResponseJSON `json:"fixedResponseConfig"`
	RedirectConfig      *redirectJSON      `json:"redirectConfig"`
}

type forwardJSON struct {
	TargetGroups []struct {
		TargetGroupARN *string             `json:"targetGroupARN"`
		ServiceName    string              `json:"serviceName"`
		ServicePort    *intstr.IntOrString `json:"servicePort"`
		Weight         *int                `json:"weight"`
	} `json:"targetGroups"`
	Stickiness *struct {
		Enabled         bool `json:"enabled"`
		DurationSeconds int  `json:"durationSeconds"`
	} `json:"targetGroupStickinessConfig"`
}

type fixedResponseJSON struct {
	ContentType string `json:"contentType"`
	StatusCode  string `json:"statusCode"`
	MessageBody string `json:"messageBody"`
}

type redirectJSON struct {
	Host       string `json:"host"`
	Path       string `json:"path"`
	Port       string `json:"port"`
	Protocol   string `json:"protocol"`
	Query      string `json:"query"`
	StatusCode string `json:"statusCode"`
}

type conditionJSON struct {
	Field      string      `json:"field"`
	HostHeader *valuesJSON `json:"hostHeaderConfig"`
	Path       *valuesJSON `json:"pathPatternConfig"`
	Method     *valuesJSON `json:"httpRequestMethodConfig"`
	SourceIP   *valuesJSON `json:"sourceIPConfig"`
	Header     *struct {
		Name   string   `json:"httpHeaderName"`
		Values []string `json:"values"`
	} `json:"httpHeaderConfig"`
	Query *struct {
		Values []struct {
			Key   string `json:"key"`
			Value string `json:"value"`
		} `json:"values"`
	} `json:"queryStringConfig"`
}

type valuesJSON struct {
	Values []string `json:"values"`
}

// strictJSON refuses fields that do not exist: a misspelt one would be left out
// in silence.
func strictJSON(text string, into any) error {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// action reads actions.<name>. forward finds the group of a Service's port.
func (a annotations) action(name string, forward func(service string, port networkingv1.ServiceBackendPort) string) (elb.Action, error) {
	key := "actions." + name
	text, ok := a[key]
	if !ok {
		return elb.Action{}, fmt.Errorf("backend %s has port use-annotation: want an annotation %s%s", name, annotationPrefix, key)
	}
	var j actionJSON
	if err := strictJSON(text, &j); err != nil {
		return elb.Action{}, badValue(key, text, "JSON of an action: "+err.Error())
	}
	bad := func(want string) (elb.Action, error) { return elb.Action{}, badValue(key, text, want) }
	switch {
	case j.TargetGroupARN != nil:
		return bad("Services of this cluster: target groups by ARN exist on AWS only")
	case j.Type == "forward" && j.ForwardConfig != nil:
		act, err := j.ForwardConfig.action(forward)
		if err != nil {
			return bad(err.Error())
		}
		return act, nil
	case j.Type == "fixed-response" && j.FixedResponseConfig != nil:
		f := j.FixedResponseConfig
		status, err := strconv.Atoi(f.StatusCode)
		if err != nil || status < 200 || status > 599 || status >= 300 && status < 400 {
			return bad("a statusCode within 200..299 or 400..599, as a string")
		}
		if len(f.MessageBody) > 1024 {
			return bad("a messageBody of at most 1024 bytes")
		}
		return elb.Action{Fixed: &elb.FixedResponse{Status: status, ContentType: f.ContentType, Body: f.MessageBody}}, nil
	case j.Type == "redirect" && j.RedirectConfig != nil:
		r := j.RedirectConfig
		status, ok := map[string]int{"HTTP_301": http.StatusMovedPermanently, "HTTP_302": http.StatusFound}[r.StatusCode]
		if !ok {
			return bad("a statusCode HTTP_301 or HTTP_302")
		}
		if p := strings.ToUpper(r.Protocol); p != "" && p != "HTTP" && p != "HTTPS" && p != "#{PROTOCOL}" {
			return bad("a protocol HTTP, HTTPS or #{protocol}")
		}
		return elb.Action{Redirect: &elb.Redirect{Status: status, Protocol: r.Protocol, Host: r.Host, Port: r.Port, Path: r.Path, Query: r.Query}}, nil
	}
	return bad("type forward with forwardConfig, fixed-response with fixedResponseConfig or redirect with redirectConfig")
}

func (f *forwardJSON) action(forward func(string, networkingv1.ServiceBackendPort) string) (elb.Action, error) {
	if n := len(f.TargetGroups); n < 1 || n > elb.MaxGroupsPerAction {
		return elb.Action{}, fmt.Errorf("1..%d targetGroups", elb.MaxGroupsPerAction)
	}
	var act elb.Action
	for _, g := range f.TargetGroups {
		weight := 1
		if g.Weight != nil {
			weight = *g.Weight
		}
		switch {
		case g.TargetGroupARN != nil:
			return elb.Action{}, errors.New("Services of this cluster: target groups by ARN exist on AWS only")
		case g.ServiceName == "" || g.ServicePort == nil:
			return elb.Action{}, errors.New("serviceName and servicePort in each of the targetGroups")
		case weight < 0 || weight > 999:
			return elb.Action{}, errors.New("weights within 0..999")
		}
		port := networkingv1.ServiceBackendPort{Name: g.ServicePort.StrVal, Number: g.ServicePort.IntVal}
		if n, err := strconv.Atoi(port.Name); err == nil { // "80" is a number too
			port = networkingv1.ServiceBackendPort{Number: int32(n)}
		}
		act.Forward = append(act.Forward, elb.WeightedGroup{GroupID: forward(g.ServiceName, port), Weight: weight})
	}
	if s := f.Stickiness; s != nil && s.Enabled {
		if s.DurationSeconds < 1 || s.DurationSeconds > 604800 {
			return elb.Action{}, errors.New("durationSeconds within 1..604800")
		}
		act.Sticky = time.Duration(s.DurationSeconds) * time.Second
	}
	return act, nil
}

// conditions adds conditions.<name> to a rule.
func (a annotations) conditions(name string, rule *elb.Rule) error {
	key := "conditions." + name
	text, ok := a[key]
	if !ok {
		return nil
	}
	var list []conditionJSON
	if err := strictJSON(text, &list); err != nil {
		return badValue(key, text, "a JSON list of conditions: "+err.Error())
	}
	for _, c := range list {
		if !c.apply(rule) {
			return badValue(key, text, "a field host-header, path-pattern, http-header, http-request-method, query-string or source-ip (CIDR blocks), with its Config and at least one value")
		}
	}
	return nil
}

// apply says whether the condition is one that there is. A rule's own hosts and
// paths and those of its conditions are alternatives, as the controller joins
// them.
func (c conditionJSON) apply(rule *elb.Rule) bool {
	values := func(v *valuesJSON) bool { return v != nil && len(v.Values) > 0 }
	switch {
	case c.Field == "host-header" && values(c.HostHeader):
		for _, h := range c.HostHeader.Values {
			rule.Hosts = append(rule.Hosts, strings.ToLower(h))
		}
	case c.Field == "path-pattern" && values(c.Path):
		rule.Paths = append(rule.Paths, c.Path.Values...)
	case c.Field == "http-request-method" && values(c.Method):
		rule.Methods = append(rule.Methods, c.Method.Values...)
	case c.Field == "http-header" && c.Header != nil && c.Header.Name != "" && len(c.Header.Values) > 0:
		if rule.Headers == nil {
			rule.Headers = make(map[string][]string)
		}
		name := http.CanonicalHeaderKey(c.Header.Name)
		rule.Headers[name] = append(rule.Headers[name], c.Header.Values...)
	case c.Field == "query-string" && c.Query != nil && len(c.Query.Values) > 0:
		for _, v := range c.Query.Values {
			rule.Query = append(rule.Query, elb.QueryCondition{Key: v.Key, Value: v.Value})
		}
	case c.Field == "source-ip" && values(c.SourceIP):
		for _, v := range c.SourceIP.Values {
			p, err := netip.ParsePrefix(v)
			if err != nil {
				return false
			}
			rule.Sources = append(rule.Sources, p)
		}
	default:
		return false
	}
	return true
}
