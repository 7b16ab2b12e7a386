package elb

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"lameduck/clusters/alb/proxy"
)

// conditions of a rule. All must be fulfilled; an empty one is (D: user guide,
// Listener rules, Condition types).
type conditions struct {
	hosts, paths, methods, ports []string
	headers                      []headerCondition
	queries                      [][]QueryCondition
	sources                      []netip.Prefix
}

type headerCondition struct {
	name   string
	values []string // lower case
}

func compileConditions(r Rule) conditions {
	c := conditions{hosts: lower(r.Hosts), paths: slices.Clone(r.Paths), methods: slices.Clone(r.Methods), sources: slices.Clone(r.Sources)}
	for _, p := range r.Ports {
		c.ports = append(c.ports, strconv.Itoa(int(p)))
	}
	for name, values := range r.Headers {
		c.headers = append(c.headers, headerCondition{name, lower(values)})
	}
	for _, list := range append([][]QueryCondition{r.Query}, r.AllQueries...) {
		var l []QueryCondition
		for _, q := range list {
			l = append(l, QueryCondition{strings.ToLower(q.Key), strings.ToLower(q.Value)})
		}
		if len(l) > 0 {
			c.queries = append(c.queries, l)
		}
	}
	return c
}

func lower(values []string) []string {
	var l []string
	for _, v := range values {
		l = append(l, strings.ToLower(v))
	}
	return l
}

// subject is what conditions look at, worked out when it is first needed.
type subject struct {
	req         proxy.Request
	split       bool
	path, query string
	host        string
	params      [][2]string
}

// matchAny says whether any pattern matches; none is no condition.
func matchAny(patterns []string, s string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return matchPattern(p, s) })
}

func (c *conditions) match(s *subject) bool {
	if len(c.ports) > 0 && !slices.Contains(c.ports, s.req.Port()) {
		return false
	}
	if len(c.hosts) > 0 && !matchAny(c.hosts, s.hostName()) {
		return false
	}
	if len(c.paths) > 0 && !matchAny(c.paths, s.target()) {
		return false
	}
	if len(c.methods) > 0 && !slices.Contains(c.methods, s.req.Method()) {
		return false
	}
	for i := range c.headers {
		v := s.req.Header(c.headers[i].name)
		if v == "" || !matchAny(c.headers[i].values, strings.ToLower(v)) {
			return false
		}
	}
	for _, list := range c.queries {
		if !slices.ContainsFunc(list, s.hasParameter) {
			return false
		}
	}
	return len(c.sources) == 0 || c.fromSource(s.req.ClientIP())
}

func (c *conditions) fromSource(client string) bool {
	ip, err := netip.ParseAddr(client)
	return err == nil && slices.ContainsFunc(c.sources, func(p netip.Prefix) bool { return p.Contains(ip.Unmap()) })
}

// target is the path; it also finds the query.
func (s *subject) target() string {
	if !s.split {
		s.split = true
		s.path, s.query, _ = strings.Cut(s.req.Target(), "?")
		if !strings.HasPrefix(s.path, "/") {
			s.path = absolutePath(s.path)
		}
	}
	return s.path
}

func (s *subject) hostName() string {
	if s.host == "" {
		s.host = hostName(s.req.Host())
	}
	return s.host
}

// hasParameter says whether a parameter of the query fulfils a condition. Case
// does not matter.
func (s *subject) hasParameter(q QueryCondition) bool {
	s.target()
	if s.params == nil {
		s.params = parameters(s.query)
	}
	return slices.ContainsFunc(s.params, func(p [2]string) bool {
		return (q.Key == "" || matchPattern(q.Key, p[0])) && matchPattern(q.Value, p[1])
	})
}

// parameters are those of a query in lower case. What cannot be decoded is
// taken as it is.
func parameters(query string) [][2]string {
	params := [][2]string{}
	decode := func(s string) string {
		if d, err := url.QueryUnescape(s); err == nil {
			s = d
		}
		return strings.ToLower(s)
	}
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if pair != "" {
			key, value, _ := strings.Cut(pair, "=")
			params = append(params, [2]string{decode(key), decode(value)})
		}
	}
	return params
}

// absolutePath is the path of a request target in absolute form.
func absolutePath(target string) string {
	_, rest, ok := strings.Cut(target, "://")
	if !ok {
		return target
	}
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[i:]
	}
	return "/"
}

// hostName is a Host header without its port, in lower case.
func hostName(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 {
		host = host[:i]
	}
	return strings.ToLower(host)
}

// matchPattern matches as listener rules do: * is any number of characters, ?
// is one (D: user guide, Listener rules: path and host conditions).
func matchPattern(pattern, s string) bool {
	if pattern == "/*" {
		return strings.HasPrefix(s, "/")
	}
	p, i := 0, 0
	star, from := -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0: // let the last star take one more
			from++
			p, i = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
