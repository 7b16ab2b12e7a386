package elb

import (
	"encoding/base64"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"lameduck/clusters/alb/proxy"
)

// The cookies of stickiness (user guide, Sticky sessions). AWS encrypts their
// values; here they are only encoded. The CORS twin has SameSite=None.
const (
	targetCookie     = "AWSALB"
	targetCookieCORS = "AWSALBCORS"
	groupCookie      = "AWSALBTG"
	groupCookieCORS  = "AWSALBTGCORS"
)

// stickyValue says what was chosen and until when that holds.
func stickyValue(chosen string, until time.Time) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(until.Unix(), 10) + " " + chosen))
}

// readSticky is what the request's cookie says was chosen, "" if there is none
// that still holds.
func readSticky(r proxy.Request, names ...string) string {
	for _, header := range r.Header("Cookie") {
		for _, name := range names {
			value := cookie(header, name)
			if value == "" {
				continue
			}
			b, err := base64.RawURLEncoding.DecodeString(value)
			if err != nil {
				continue
			}
			until, chosen, _ := strings.Cut(string(b), " ")
			if seconds, err := strconv.ParseInt(until, 10, 64); err == nil && r.Time().Unix() < seconds {
				return chosen
			}
		}
	}
	return ""
}

// cookie finds a cookie in a Cookie header.
func cookie(header, name string) string {
	for part := range strings.SplitSeq(header, ";") {
		if value, ok := strings.CutPrefix(strings.TrimSpace(part), name+"="); ok {
			return value
		}
	}
	return ""
}

func setCookies(chosen string, duration time.Duration, now time.Time, name, corsName string) []string {
	until := now.Add(duration)
	attributes := "=" + stickyValue(chosen, until) + "; Expires=" + until.UTC().Format(http.TimeFormat) + "; Path=/"
	return []string{name + attributes, corsName + attributes + "; SameSite=None"}
}

func targetCookies(addr netip.AddrPort, duration time.Duration, now time.Time) []string {
	return setCookies(addr.String(), duration, now, targetCookie, targetCookieCORS)
}

// stuck is the target that the request's cookie names, nil if there is none or
// it gets no requests any more.
func (s *serving) stuck(r proxy.Request) *nodeTarget {
	chosen := readSticky(r, targetCookie, targetCookieCORS)
	if chosen == "" {
		return nil
	}
	for _, t := range s.targets {
		if t.addr.String() == chosen {
			return t
		}
	}
	return nil
}
