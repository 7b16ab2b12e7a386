package alb

import (
	"net"
	"strings"
)

// routes is a listener's rules in order of priority.
type routes struct {
	rules    []route
	fallback *group // the default backend
	hasFall  bool
}

type route struct {
	host  string // lower case, with wildcards; "" is any
	paths []string
	group *group // nil: the Service does not exist
}

// match returns the target group for a request. ok is false if no rule
// matches and there is no default backend.
func (t *routes) match(host, uri string) (g *group, ok bool) {
	path, _, _ := strings.Cut(uri, "?")
	if !strings.HasPrefix(path, "/") {
		path = absolutePath(path)
	}
	name := ""
	for i := range t.rules {
		r := &t.rules[i]
		if r.host != "" {
			if name == "" {
				name = hostName(host)
			}
			if !matchPattern(r.host, name) {
				continue
			}
		}
		for _, p := range r.paths {
			if matchPattern(p, path) {
				return r.group, true
			}
		}
	}
	return t.fallback, t.hasFall
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
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(host)
}

// matchPattern matches as listener rules do: * is any number of characters, ?
// is one (AWS user guide, Listener rules: path and host conditions).
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
