package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"lameduck/clusters/alb/elb"
)

// actionPrefix names the annotation of a backend whose port is useAnnotation:
// actions.<name of the backend>.
const (
	actionPrefix  = "actions."
	useAnnotation = "use-annotation"
)

// Limits of actions (API reference: FixedResponseActionConfig,
// RedirectActionConfig, TargetGroupTuple, TargetGroupStickinessConfig; user
// guide, Quotas).
const (
	maxGroupsOfAction = 5
	maxWeight         = 999
	maxGroupSticky    = 604800 // seconds
	maxMessageBody    = 1024
	maxRedirectField  = 128
)

// actionJSON is the form of an action (annotations page, Traffic Routing).
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
		ServiceName    *string             `json:"serviceName"`
		ServicePort    *intstr.IntOrString `json:"servicePort"`
		Weight         *int                `json:"weight"`
	} `json:"targetGroups"`
	TargetGroupStickinessConfig *struct {
		Enabled         bool `json:"enabled"`
		DurationSeconds *int `json:"durationSeconds"`
	} `json:"targetGroupStickinessConfig"`
}

type fixedResponseJSON struct {
	ContentType string `json:"contentType"`
	MessageBody string `json:"messageBody"`
	StatusCode  string `json:"statusCode"`
}

type redirectJSON struct {
	Host       *string `json:"host"`
	Path       *string `json:"path"`
	Port       *string `json:"port"`
	Protocol   *string `json:"protocol"`
	Query      *string `json:"query"`
	StatusCode string  `json:"statusCode"`
}

// unmarshalJSON does not mind unknown fields, as the original does not.
func unmarshalJSON(value string, v any) error { return json.Unmarshal([]byte(value), v) }

// problems collects what is wrong with a JSON annotation. The value is not
// repeated for each.
type problems struct {
	annotation string
	errs       []error
}

func (p *problems) want(ok bool, field, value, want string) {
	if !ok {
		p.errs = append(p.errs, fmt.Errorf("annotation %s: %s is %q: want %s", p.annotation, field, value, want))
	}
}

// forwardGroup is a target group as an action names it.
type forwardGroup struct {
	service string // "": a targetGroupARN, which is nothing here
	port    networkingv1.ServiceBackendPort
	weight  int
}

// parsedAction has one of: groups, fixed or redirect.
type parsedAction struct {
	groups   []forwardGroup
	sticky   time.Duration
	fixed    *elb.FixedResponse
	redirect *elb.Redirect
}

// parseAction reads an action without looking at Services.
func parseAction(annotation, value string) (parsedAction, error) {
	var in actionJSON
	if err := unmarshalJSON(value, &in); err != nil {
		return parsedAction{}, badValue(annotation, value, "JSON of an action: "+err.Error())
	}
	p := &problems{annotation: annotation}
	var out parsedAction
	switch in.Type {
	case "forward":
		one := (in.TargetGroupARN != nil) != (in.ForwardConfig != nil)
		p.want(one, "forward", value, "either forwardConfig or targetGroupARN")
		switch {
		case !one:
		case in.ForwardConfig != nil:
			in.ForwardConfig.read(p, &out)
		default:
			out.groups = []forwardGroup{{weight: 1}}
		}
	case "fixed-response":
		p.want(in.FixedResponseConfig != nil, "fixedResponseConfig", "", "statusCode, contentType and messageBody")
		if in.FixedResponseConfig != nil {
			out.fixed = in.FixedResponseConfig.read(p)
		}
	case "redirect":
		p.want(in.RedirectConfig != nil, "redirectConfig", "", "statusCode and where to: protocol, host, port, path, query")
		if in.RedirectConfig != nil {
			out.redirect = in.RedirectConfig.read(p)
		}
	default:
		p.want(false, "type", in.Type, "forward, fixed-response or redirect")
	}
	return out, errors.Join(p.errs...)
}

func (f *forwardJSON) read(p *problems, out *parsedAction) {
	n := len(f.TargetGroups)
	p.want(n >= 1 && n <= maxGroupsOfAction, "forwardConfig.targetGroups", strconv.Itoa(n)+" groups", fmt.Sprintf("1..%d", maxGroupsOfAction))
	for i, g := range f.TargetGroups {
		field := fmt.Sprintf("forwardConfig.targetGroups[%d]", i)
		p.want((g.TargetGroupARN != nil) != (g.ServiceName != nil), field, "", "either serviceName or targetGroupARN")
		group := forwardGroup{weight: 1}
		if g.ServiceName != nil {
			group.service = *g.ServiceName
			p.want(g.ServicePort != nil, field+".servicePort", "", "the number or name of a port of the Service")
			if g.ServicePort != nil {
				group.port = backendPort(*g.ServicePort)
			}
		}
		if g.Weight != nil {
			group.weight = *g.Weight
			p.want(group.weight >= 0 && group.weight <= maxWeight, field+".weight", strconv.Itoa(group.weight), fmt.Sprintf("0..%d", maxWeight))
		}
		p.want(g.Weight != nil || n == 1, field+".weight", "", "a weight for each of several groups")
		out.groups = append(out.groups, group)
	}
	if s := f.TargetGroupStickinessConfig; s != nil && s.Enabled {
		const field = "forwardConfig.targetGroupStickinessConfig.durationSeconds"
		want := fmt.Sprintf("1..%d", maxGroupSticky)
		p.want(s.DurationSeconds != nil, field, "", want)
		if d := s.DurationSeconds; d != nil {
			p.want(*d >= 1 && *d <= maxGroupSticky, field, strconv.Itoa(*d), want)
			out.sticky = time.Duration(*d) * time.Second
		}
	}
}

// backendPort takes "80" for a number, as the original does.
func backendPort(p intstr.IntOrString) networkingv1.ServiceBackendPort {
	if p = intstr.Parse(p.String()); p.Type == intstr.Int {
		return networkingv1.ServiceBackendPort{Number: p.IntVal}
	}
	return networkingv1.ServiceBackendPort{Name: p.StrVal}
}

var fixedStatus = regexp.MustCompile(`^[245]\d\d$`)

func (f *fixedResponseJSON) read(p *problems) *elb.FixedResponse {
	p.want(fixedStatus.MatchString(f.StatusCode), "fixedResponseConfig.statusCode", f.StatusCode, `"2XX", "4XX" or "5XX"`)
	p.want(len(f.MessageBody) <= maxMessageBody, "fixedResponseConfig.messageBody", fmt.Sprintf("%d bytes", len(f.MessageBody)), fmt.Sprintf("at most %d", maxMessageBody))
	switch f.ContentType {
	case "text/plain", "text/css", "text/html", "application/javascript", "application/json":
	case "":
		f.ContentType = "text/plain"
	default:
		p.want(false, "fixedResponseConfig.contentType", f.ContentType, "text/plain, text/css, text/html, application/javascript or application/json")
	}
	status, _ := strconv.Atoi(f.StatusCode) // checked above
	return &elb.FixedResponse{Status: status, ContentType: f.ContentType, Body: f.MessageBody}
}

func (r *redirectJSON) read(p *problems) *elb.Redirect {
	field := func(v *string, byDefault string) string {
		if v == nil {
			return byDefault
		}
		return *v
	}
	out := &elb.Redirect{
		Protocol: field(r.Protocol, "#{protocol}"),
		Host:     field(r.Host, "#{host}"),
		Port:     field(r.Port, "#{port}"),
		Path:     field(r.Path, "/#{path}"),
		Query:    field(r.Query, "#{query}"),
	}
	switch r.StatusCode {
	case "HTTP_301":
		out.Status = 301
	case "HTTP_302":
		out.Status = 302
	default:
		p.want(false, "redirectConfig.statusCode", r.StatusCode, "HTTP_301 or HTTP_302")
	}
	n, err := strconv.Atoi(out.Port)
	p.want(out.Port == "#{port}" || err == nil && n >= 1 && n <= 65535, "redirectConfig.port", out.Port, "1..65535 or #{port}")
	switch out.Protocol {
	case "#{protocol}", "HTTP", "HTTPS":
	default:
		p.want(false, "redirectConfig.protocol", out.Protocol, "HTTP, HTTPS or #{protocol}")
	}
	p.want(len(out.Host) >= 1 && len(out.Host) <= maxRedirectField, "redirectConfig.host", out.Host, "1..128 characters")
	p.want(strings.HasPrefix(out.Path, "/") && len(out.Path) <= maxRedirectField, "redirectConfig.path", out.Path, "a path that begins with /, of at most 128 characters")
	p.want(!strings.HasPrefix(out.Query, "?") && len(out.Query) <= maxRedirectField, "redirectConfig.query", out.Query, "at most 128 characters, without the leading ?")
	p.want(out.Protocol != "#{protocol}" || out.Host != "#{host}" || out.Port != "#{port}" || out.Path != "/#{path}",
		"redirectConfig", "a loop", "another protocol, host, port or path than the request's")
	return out
}
