package elb

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lameduck/clusters/alb/proxy"
)

// client keeps cookies, as a browser would for one site.
type client struct {
	w       *world
	cookies map[string]*http.Cookie
}

// get sends a request of the client to a node and returns the target.
func (c *client) get(node int) (string, proxy.Route) {
	c.w.t.Helper()
	var pairs []string
	for name, cookie := range c.cookies {
		pairs = append(pairs, name+"="+cookie.Value)
	}
	route := c.w.route(node, &request{headers: map[string]string{"Cookie": strings.Join(pairs, "; ")}})
	if route.Target == nil {
		c.w.t.Fatalf("%+v", route)
	}
	route.Target.Done(200)
	for _, line := range route.Cookies {
		cookie, err := http.ParseSetCookie(line)
		c.w.must(err)
		c.cookies[cookie.Name] = cookie
	}
	return route.Target.(*nodeTarget).target.addr.String(), route
}

func (w *world) client() *client { return &client{w: w, cookies: make(map[string]*http.Cookie)} }

func sticky(s Stickiness) func(*worldOptions) {
	return func(o *worldOptions) { o.group.Stickiness = s }
}

func TestStickiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, unchecked, sticky(Stickiness{Duration: time.Minute}))
		w.register(addrs(5)...)
		c := w.client()
		first, route := c.get(0)
		if len(route.Cookies) != 2 || route.CookiesWith != "" {
			t.Errorf("cookies %q with %q, want two", route.Cookies, route.CookiesWith)
		}
		for _, name := range []string{"AWSALB", "AWSALBCORS"} {
			got := c.cookies[name]
			if got == nil || got.Path != "/" || !got.Expires.Equal(time.Now().Add(time.Minute)) || (got.SameSite == http.SameSiteNoneMode) != (name == "AWSALBCORS") || got.Secure {
				t.Errorf("%s: %+v", name, got)
			}
		}
		for i := range 10 { // on both nodes
			time.Sleep(50 * time.Second) // each answer prolongs it
			if again, _ := c.get(i % 2); again != first {
				t.Errorf("request %d went to %s, the first to %s", i, again, first)
			}
		}
		delete(c.cookies, "AWSALB") // the other one is enough
		if again, _ := c.get(0); again != first {
			t.Errorf("with AWSALBCORS only it went to %s, want %s", again, first)
		}
		time.Sleep(time.Minute) // the client sends cookies that have expired
		others := 0
		for range 5 {
			old := w.client()
			old.cookies["AWSALB"] = c.cookies["AWSALB"]
			if again, _ := old.get(0); again != first {
				others++
			}
		}
		if others != 4 {
			t.Errorf("%d of 5 requests with an expired cookie went elsewhere, want 4", others)
		}
		again, _ := c.get(0)
		w.deregister(mustAddr(again))
		if moved, _ := c.get(0); moved == again {
			t.Errorf("still sent to %s, which is deregistered", moved)
		}
		w.close()
	})
}

func TestForgedCookies(t *testing.T) {
	w := newWorld(t, unchecked, sticky(Stickiness{Duration: time.Minute}))
	w.register(addrs(2)...)
	later := time.Now().Add(time.Hour)
	for _, value := range []string{"", "x", "====", "AAAA", makeToken("", later), makeToken(groupName, later), makeToken(groupName+"\x00nonsense", later),
		makeToken(groupName+"\x00198.19.9.9:80", later), makeToken("other\x00198.18.0.1:80", later)} {
		seen := make(map[string]bool)
		for range 2 {
			c := w.client()
			c.cookies["AWSALB"] = &http.Cookie{Value: value}
			target, _ := c.get(0)
			seen[target] = true
		}
		if len(seen) != 2 {
			t.Errorf("%q binds to a target: %v", value, seen)
		}
	}
}

func TestAppCookie(t *testing.T) {
	w := newWorld(t, unchecked, sticky(Stickiness{Duration: time.Minute, AppCookie: "SESSION"}))
	w.register(addrs(3)...)
	c := w.client()
	first, route := c.get(0)
	if len(route.Cookies) != 1 || !strings.HasPrefix(route.Cookies[0], "AWSALBAPP-0=") || route.CookiesWith != "SESSION" {
		t.Errorf("cookies %q with %q", route.Cookies, route.CookiesWith)
	}
	for range 3 {
		if again, _ := c.get(1); again != first {
			t.Errorf("went to %s, the first to %s", again, first)
		}
	}
}

func TestSecureCookie(t *testing.T) {
	for _, line := range setCookies("X", "v", "https", time.Now()) {
		if c, err := http.ParseSetCookie(line); err != nil || c.Secure != (c.Name == "XCORS") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestGroupStickiness(t *testing.T) {
	w := blueGreen(t, func(o *worldOptions) { o.lb.Default.Sticky = time.Minute })
	w.weigh(1, 1)
	seen := make(map[string]bool)
	var blue *client
	for range 40 { // all in one group once in 2^39 times
		c := w.client()
		first, route := c.get(0)
		seen[first] = true
		if len(route.Cookies) != 2 || c.cookies["AWSALBTG"] == nil || c.cookies["AWSALBTGCORS"] == nil {
			t.Fatalf("cookies %q", route.Cookies)
		}
		for range 3 {
			if again, _ := c.get(1); again != first {
				t.Errorf("went to %s, the first to %s", again, first)
			}
		}
		if first == "198.18.0.1:80" {
			blue = c
		}
	}
	if len(seen) != 2 || blue == nil {
		t.Fatalf("all clients went to %v", seen)
	}
	w.weigh(0, 1)
	if got, _ := blue.get(0); got != "198.18.0.2:80" {
		t.Errorf("with weight 0 still sent to %s", got)
	}
}

// TestBothCookies: a sticky group in a sticky forward.
func TestBothCookies(t *testing.T) {
	w := blueGreen(t, sticky(Stickiness{Duration: time.Minute}), func(o *worldOptions) { o.lb.Default.Sticky = time.Minute })
	c := w.client()
	c.get(0)
	if len(c.cookies) != 4 {
		t.Errorf("cookies %v, want four", c.cookies)
	}
}
