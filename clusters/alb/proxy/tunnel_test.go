package proxy

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/scripted"
)

const upgradeRequest = "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n"

// upgrading answers 101 and the first bytes at once, and then every line.
func upgrading(x *scripted.Exchange) {
	r := x.Request()
	if r == nil || r.Header.Get("Upgrade") != "websocket" || !strings.EqualFold(r.Header.Get("Connection"), "upgrade") || r.Header.Get("Sec-Websocket-Key") != "k" {
		x.Say("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
		return
	}
	x.Say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: a\r\n\r\nhello\n")
	for {
		line, err := x.Reader.ReadString('\n')
		if err != nil {
			x.Say("bye\n") // after the client's FIN
			return
		}
		x.Say("echo " + line)
	}
}

func TestWebSocket(t *testing.T) {
	t.Parallel()
	for _, encrypted := range []bool{false, true} {
		start, kind := startPlainTarget, "ws"
		if encrypted {
			start, kind = startTLSTarget, "wss"
		}
		target := start(t, upgrading)
		f := frontWith(t, []string{target.Address()}, func(w *world) {
			if encrypted {
				secure(w, t)
				w.pool.TLS = &tls.Config{}
			}
		})
		var c interface {
			io.ReadWriter
			CloseWrite() error
		} = f.dial()
		if encrypted {
			tc, err := tls.Dial("tcp", f.addr(), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				t.Fatal(err)
			}
			defer tc.Close()
			c = tc
		}
		// What the client sends early is not lost.
		if _, err := io.WriteString(c, upgradeRequest+"early\n"); err != nil {
			t.Fatal(err)
		}
		br := bufio.NewReader(c)
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "websocket" || resp.Header.Get("Connection") != "Upgrade" || resp.Header.Get("Sec-Websocket-Accept") != "a" {
			t.Errorf("%s: answer %d, %v", kind, resp.StatusCode, resp.Header)
		}
		for _, step := range []struct{ say, hear string }{{"", "hello\n"}, {"", "echo early\n"}, {"one\n", "echo one\n"}} {
			if _, err := io.WriteString(c, step.say); err != nil {
				t.Fatal(err)
			}
			if got, err := br.ReadString('\n'); got != step.hear {
				t.Errorf("%s: got %q, %v; want %q", kind, got, err, step.hear)
			}
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(br); string(got) != "bye\n" || err != nil {
			t.Errorf("%s: got %q, %v; want bye", kind, got, err)
		}
		l := f.line()
		wantLine(t, l, 101, 101, accesslog.PhaseDone, "")
		if l.Type != kind || l.Received != int64(len("early\none\n")) || l.Sent != int64(len("hello\necho early\necho one\nbye\n")) {
			t.Errorf("log: type %s, received %d, sent %d", l.Type, l.Received, l.Sent)
		}
	}
}

func startPlainTarget(t *testing.T, serve func(*scripted.Exchange)) *scripted.Target {
	return startTarget(t, serve)
}

func TestTunnelEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		idle time.Duration
		end  func(*front)
		want string
	}{
		"idle":         {100 * time.Millisecond, func(*front) {}, "ETIMEDOUT"},
		"deregistered": {10 * time.Second, func(f *front) { f.pool().Close(CauseDeregistered) }, accesslog.ErrorDeregistered},
		"stopped":      {10 * time.Second, func(f *front) { f.l.Close() }, accesslog.ErrorStopped},
	} {
		target := startTarget(t, upgrading)
		f := frontWith(t, []string{target.Address()}, func(w *world) { w.lim.Idle = c.idle })
		conn := f.dial()
		f.write(conn, upgradeRequest)
		br := bufio.NewReader(conn)
		if _, err := http.ReadResponse(br, nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := br.ReadString('\n'); err != nil {
			t.Fatalf("%s: got %q, %v", name, got, err)
		}
		c.end(f)
		if _, err := io.ReadAll(br); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: %v", name, err)
		}
		l := f.line()
		wantLine(t, l, 101, 101, accesslog.PhaseBody, c.want)
		if got := f.w.router.done(); len(got) != 1 || got[0] != 101 {
			t.Errorf("%s: Done got %v, want one 101", name, got)
		}
	}
}

func TestTunnelIdleIsResetByEitherSide(t *testing.T) {
	t.Parallel()
	target := startTarget(t, func(x *scripted.Exchange) {
		x.Request()
		x.Say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(io.Discard, x.Reader)
		x.Say("end")
	})
	f := frontWith(t, []string{target.Address()}, func(w *world) { w.lim.Idle = resetIdle })
	c := f.dial()
	f.write(c, upgradeRequest)
	br := bufio.NewReader(c)
	if _, err := http.ReadResponse(br, nil); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(resetGap)
	defer tick.Stop()
	for range resetN { // only the client speaks
		<-tick.C
		f.write(c, "x")
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(br); string(got) != "end" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if l := f.line(); l.Received != resetN {
		t.Errorf("log: received %d, want %d", l.Received, resetN)
	}
}

func TestUpgradeThatIsNotTaken(t *testing.T) {
	t.Parallel()
	target := startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, nil)
	c := f.dial()
	br := bufio.NewReader(c)
	for range 2 { // the connection stays usable
		f.write(c, upgradeRequest)
		if a := answers(t, br, 1)[0]; a.status != 200 || a.body != "ok" {
			t.Errorf("status %d, body %q", a.status, a.body)
		}
	}
	if l := f.lines(2)[1]; l.Type != "http" || !l.Reused {
		t.Errorf("log: type %s, reused %v", l.Type, l.Reused)
	}
}

func TestHTTP2IsNotOfferedToTargets(t *testing.T) {
	t.Parallel()
	r := headOf(t, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n")
	for _, name := range []string{"Upgrade", "Connection", "Http2-Settings"} {
		if r.Header[name] != nil {
			t.Errorf("target got %s: %q", name, r.Header[name])
		}
	}
}
