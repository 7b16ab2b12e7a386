package controller

import (
	"errors"
	"fmt"
	"net/netip"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lameduck/clusters/alb/elb"
)

// conditionPrefix names the annotation with a backend's further conditions:
// conditions.<name of the backend>.
const conditionPrefix = "conditions."

// Limits of conditions (user guide, Condition types for listener rules).
const (
	maxValuesOfCondition = 3
	maxValuesOfRule      = 5
	maxWildcardsOfRule   = 5
	maxConditionValue    = 128
	maxHeaderName        = 40
)

// conditionJSON is the form of a condition (annotations page, Traffic Routing).
type conditionJSON struct {
	Field                   string           `json:"field"`
	HostHeaderConfig        *valuesJSON      `json:"hostHeaderConfig"`
	PathPatternConfig       *valuesJSON      `json:"pathPatternConfig"`
	HTTPHeaderConfig        *headerJSON      `json:"httpHeaderConfig"`
	HTTPRequestMethodConfig *valuesJSON      `json:"httpRequestMethodConfig"`
	QueryStringConfig       *queryStringJSON `json:"queryStringConfig"`
	SourceIPConfig          *valuesJSON      `json:"sourceIPConfig"`
}

type valuesJSON struct {
	Values      []string `json:"values"`
	RegexValues []string `json:"regexValues"`
}

type headerJSON struct {
	HTTPHeaderName string `json:"httpHeaderName"`
	valuesJSON
}

type queryStringJSON struct {
	Values []struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	} `json:"values"`
}

var methodPattern = regexp.MustCompile(`^[A-Z_-]{1,40}$`)

// addConditions adds an annotation's conditions to a rule.
func addConditions(rule *elb.Rule, annotation, value string) error {
	var in []conditionJSON
	if err := unmarshalJSON(value, &in); err != nil {
		return badValue(annotation, value, "JSON of a list of conditions: "+err.Error())
	}
	p := &problems{annotation: annotation}
	seen := make(map[string]bool)
	for i, c := range in {
		field := fmt.Sprintf("[%d]", i)
		if c.Field != "http-header" && c.Field != "query-string" {
			p.want(!seen[c.Field], field+".field", c.Field, "only one condition of it")
			seen[c.Field] = true
		}
		switch c.Field {
		case "host-header":
			for _, v := range c.HostHeaderConfig.read(p, field+".hostHeaderConfig") {
				rule.Hosts = append(rule.Hosts, strings.ToLower(v))
			}
		case "path-pattern":
			rule.Paths = append(rule.Paths, c.PathPatternConfig.read(p, field+".pathPatternConfig")...)
		case "http-request-method":
			rule.Methods = c.HTTPRequestMethodConfig.read(p, field+".httpRequestMethodConfig")
			for _, m := range rule.Methods {
				p.want(methodPattern.MatchString(m), field+".httpRequestMethodConfig.values", m, "an upper-case method of at most 40 characters")
			}
		case "source-ip":
			for _, v := range c.SourceIPConfig.read(p, field+".sourceIpConfig") {
				prefix, err := netip.ParsePrefix(v)
				p.want(err == nil, field+".sourceIpConfig.values", v, "CIDRs like 192.0.2.0/24")
				rule.Sources = append(rule.Sources, prefix.Masked())
			}
		case "http-header":
			c.HTTPHeaderConfig.add(rule, p, field+".httpHeaderConfig")
		case "query-string":
			c.QueryStringConfig.add(rule, p, field+".queryStringConfig")
		default:
			p.want(false, field+".field", c.Field, "host-header, path-pattern, http-header, http-request-method, query-string or source-ip")
		}
	}
	return errors.Join(p.errs...)
}

func (v *valuesJSON) read(p *problems, field string) []string {
	if v == nil {
		p.want(false, field, "", "values")
		return nil
	}
	p.want(len(v.RegexValues) == 0, field+".regexValues", strings.Join(v.RegexValues, " "), "values: this stand-in has no regular expressions")
	wantCount(p, field, len(v.Values))
	for _, s := range v.Values {
		wantLength(p, field, s)
	}
	return v.Values
}

func wantCount(p *problems, field string, n int) {
	p.want(n >= 1 && n <= maxValuesOfCondition, field+".values", strconv.Itoa(n)+" values", fmt.Sprintf("1..%d of them", maxValuesOfCondition))
}

func wantLength(p *problems, field, s string) {
	p.want(s != "" && len(s) <= maxConditionValue, field+".values", s, fmt.Sprintf("1..%d characters", maxConditionValue))
}

func (h *headerJSON) add(rule *elb.Rule, p *problems, field string) {
	if h == nil {
		p.want(false, field, "", "httpHeaderName and values")
		return
	}
	p.want(h.HTTPHeaderName != "" && len(h.HTTPHeaderName) <= maxHeaderName, field+".httpHeaderName", h.HTTPHeaderName, fmt.Sprintf("1..%d characters", maxHeaderName))
	name := textproto.CanonicalMIMEHeaderKey(h.HTTPHeaderName)
	p.want(name != "Host", field+".httpHeaderName", h.HTTPHeaderName, "a host-header condition for it")
	p.want(rule.Headers[name] == nil, field+".httpHeaderName", h.HTTPHeaderName, "one condition for each header: this stand-in cannot ask for two values of one")
	if rule.Headers == nil {
		rule.Headers = make(map[string][]string)
	}
	rule.Headers[name] = h.read(p, field)
}

// add puts the first query-string condition into Query and further ones, each
// of which must match, into AllQueries.
func (q *queryStringJSON) add(rule *elb.Rule, p *problems, field string) {
	if q == nil {
		p.want(false, field, "", "values with key and value")
		return
	}
	wantCount(p, field, len(q.Values))
	var conditions []elb.QueryCondition
	for _, v := range q.Values {
		wantLength(p, field, v.Value)
		p.want(len(v.Key) <= maxConditionValue, field+".values.key", v.Key, fmt.Sprintf("at most %d characters", maxConditionValue))
		conditions = append(conditions, elb.QueryCondition{Key: v.Key, Value: v.Value})
	}
	if rule.Query == nil {
		rule.Query = conditions
		return
	}
	rule.AllQueries = append(rule.AllQueries, conditions)
}

// checkRule counts what AWS limits for a rule as a whole.
func checkRule(r *elb.Rule) error {
	values := len(r.Methods) + len(r.Sources)
	wildcards := 0
	count := func(patterns ...string) {
		values += len(patterns)
		for _, p := range patterns {
			wildcards += strings.Count(p, "*") + strings.Count(p, "?")
		}
	}
	count(r.Hosts...)
	count(r.Paths...)
	for _, v := range r.Headers {
		count(v...)
	}
	for _, q := range slices.Concat(append(r.AllQueries, r.Query)...) {
		count(q.Key + "=" + q.Value)
	}
	if values > maxValuesOfRule || wildcards > maxWildcardsOfRule {
		return fmt.Errorf("rule for hosts %q and paths %q has %d values and %d wildcards in its conditions: want at most %d and %d (a Prefix path has two values)",
			r.Hosts, r.Paths, values, wildcards, maxValuesOfRule, maxWildcardsOfRule)
	}
	return nil
}
