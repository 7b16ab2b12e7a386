package elb

import (
	"encoding/base64"
	"encoding/binary"
	"net/netip"
	"strings"
	"time"

	"lameduck/clusters/alb/proxy"
)

// The cookies of stickiness (D: user guide, Sticky sessions). AWS encrypts
// their contents; here they are what a node needs to know, so that every node
// understands those of the others.
const (
	targetCookie = "AWSALB"
	groupCookie  = "AWSALBTG"
	// appCookie is set besides the application's own. AWS numbers these.
	appCookie = "AWSALBAPP-0"
	// corsSuffix is of the second cookie, which is also sent with requests that
	// come from another site.
	corsSuffix = "CORS"
)

// stick is the target that a request's cookie names, if it is still among the
// group's usable ones.
func (ng *nodeGroup) stick(t *table, cookies string, now time.Time) *entry {
	name := targetCookie
	if t.stickiness.AppCookie != "" {
		name = appCookie
	}
	for _, name := range [...]string{name, name + corsSuffix} {
		group, addr, _ := strings.Cut(readToken(cookieValue(cookies, name), now), "\x00")
		if group != ng.name {
			continue
		}
		if target, err := netip.ParseAddrPort(addr); err == nil {
			if i, ok := t.byAddr[target]; ok {
				return &t.entries[i]
			}
		}
	}
	return nil
}

// setTargetCookies binds the client to the target for the group's duration,
// anew with each answer. The application's cookie is waited for: it comes with
// the target's answer.
func (ng *nodeGroup) setTargetCookies(route *proxy.Route, t *table, e *entry, scheme string, now time.Time) {
	token := makeToken(ng.name+"\x00"+e.nt.target.addr.String(), now.Add(t.stickiness.Duration))
	if t.stickiness.AppCookie == "" {
		route.Cookies = append(route.Cookies, setCookies(targetCookie, token, scheme, now.Add(t.stickiness.Duration))...)
		return
	}
	route.CookiesWith = t.stickiness.AppCookie
	route.Cookies = append(route.Cookies, setCookies(appCookie, token, scheme, now.Add(t.stickiness.Duration))[0])
}

// setCookies returns a cookie and its twin for requests from other sites.
// SameSite=None is for secure cookies only, so the attribute goes with https.
func setCookies(name, token, scheme string, expires time.Time) []string {
	end := "; Expires=" + expires.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT") + "; Path=/"
	cors := "; SameSite=None"
	if scheme == "https" {
		cors += "; Secure"
	}
	return []string{name + "=" + token + end, name + corsSuffix + "=" + token + end + cors}
}

// makeToken is a cookie's value: text, and when it ends.
func makeToken(text string, expires time.Time) string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(text)), uint64(expires.UnixNano()))
	return base64.RawURLEncoding.EncodeToString(append(b, text...))
}

// readToken is the text of a token, "" if it has ended or is none.
func readToken(token string, now time.Time) string {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) < 8 || int64(binary.BigEndian.Uint64(b)) <= now.UnixNano() {
		return ""
	}
	return string(b[8:])
}

// cookieValue finds a cookie in a Cookie header, "" if it is not there.
func cookieValue(header, name string) string {
	for header != "" {
		var pair string
		pair, header, _ = strings.Cut(header, ";")
		if key, value, ok := strings.Cut(strings.TrimSpace(pair), "="); ok && key == name {
			return value
		}
	}
	return ""
}
