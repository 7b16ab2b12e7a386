package elb

import (
	"net"
	"strings"
)

// splitTarget is the path and the query of a request target, which may have the
// absolute form.
func splitTarget(target string) (path, query string) {
	path, query, _ = strings.Cut(target, "?")
	if strings.HasPrefix(path, "/") {
		return path, query
	}
	_, rest, absolute := strings.Cut(path, "://")
	if !absolute {
		return path, query
	}
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[i:], query
	}
	return "/", query
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
