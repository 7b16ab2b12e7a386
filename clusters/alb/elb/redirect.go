package elb

import (
	"strings"

	"lameduck/clusters/alb/proxy"
)

// withDefaults fills in what is left open: the same as in the request (D: API
// reference, RedirectActionConfig).
func (r Redirect) withDefaults() Redirect {
	orDefault(&r.Status, 302)
	orDefault(&r.Protocol, "#{protocol}")
	orDefault(&r.Host, "#{host}")
	orDefault(&r.Port, "#{port}")
	orDefault(&r.Path, "/#{path}")
	orDefault(&r.Query, "#{query}")
	return r
}

// answer fills in the placeholders. The port is always named (O: Location of
// real ALBs has :443).
func (r *Redirect) answer(req proxy.Request) proxy.Answer {
	s := subject{req: req}
	path := s.target()
	fill := strings.NewReplacer(
		"#{protocol}", req.Scheme(), "#{host}", s.hostName(), "#{port}", req.Port(),
		"#{path}", strings.TrimPrefix(path, "/"), "#{query}", s.query,
	)
	to := strings.ToLower(fill.Replace(r.Protocol)) + "://" + fill.Replace(r.Host) + ":" + fill.Replace(r.Port) + fill.Replace(r.Path)
	if q := fill.Replace(r.Query); q != "" {
		to += "?" + q
	}
	return proxy.Answer{Status: r.Status, Location: to}
}
