package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// ok is a request that was served, with every field set.
func ok() Line {
	start := time.Date(2026, 7, 2, 22, 22, 48, 364000000, time.UTC)
	return Line{
		Time: start, End: start.Add(1234567 * time.Microsecond), ID: "r-1", Node: "127.0.0.11", Type: "http", Client: "198.18.0.6:2817",
		Method: "GET", Path: "/a?b=c", Rule: 1, Action: "forward", Group: "ns/app:80", Target: "198.18.0.1:80", TargetState: "healthy",
		Local: "198.18.0.9:4000", Status: 200, TargetStatus: 200, Phase: PhaseDone, Received: 5, Sent: 366,
		Micros:        Micros{Connect: 100, Sent: 1400, FirstByte: 1234000, Total: 1234567},
		ReceivedTotal: 34, SentTotal: 400, Proto: "HTTP/1.1", Scheme: "http", Host: "www.example.com:80", Port: "80", UserAgent: "curl/7.46.0",
		TraceID: "Root=1-58337262-36d228ad5d99923122bbe354",
	}
}

// with is ok with some fields changed.
func with(edit func(*Line)) Line {
	l := ok()
	edit(&l)
	return l
}

func TestEntry(t *testing.T) {
	const (
		created = "2026-07-02T22:22:48.364000Z"
		ended   = "2026-07-02T22:22:49.598567Z"
		trace   = `"Root=1-58337262-36d228ad5d99923122bbe354"`
	)
	id := loadBalancerID("ns", "app")
	group := groupARN("ns/app:80")
	for name, c := range map[string]struct {
		line Line
		want string
	}{
		"served": {ok(), `http ` + ended + ` ` + id + ` 198.18.0.6:2817 198.18.0.1:80 0.001 1.233 0.000 200 200 34 400 ` +
			`"GET http://www.example.com:80/a?b=c HTTP/1.1" "curl/7.46.0" - - ` + group + ` ` + trace + ` "-" "-" 1 ` + created +
			` "forward" "-" "-" "198.18.0.1:80" "200" "-" "-"`},
		"HTTP/2 with SNI": {with(func(l *Line) {
			l.Type, l.Proto, l.Scheme, l.Port, l.Host = "h2", "HTTP/2.0", "https", "443", "[::1]:443"
			l.TLSCipher, l.TLSProtocol, l.ServerName = "ECDHE-RSA-AES128-GCM-SHA256", "TLSv1.2", "www.example.com"
		}), `h2 ` + ended + ` ` + id + ` 198.18.0.6:2817 198.18.0.1:80 0.001 1.233 0.000 200 200 34 400 ` +
			`"GET https://[::1]:443/a?b=c HTTP/2.0" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 ` + group + ` ` + trace +
			` "www.example.com" "` + certARN + `" 1 ` + created + ` "forward" "-" "-" "198.18.0.1:80" "200" "-" "-"`},
		"RST while connecting": {with(func(l *Line) {
			l.Status, l.TargetStatus, l.Phase, l.Error = 502, 0, PhaseConnect, "ECONNREFUSED"
			l.Micros = Micros{-1, -1, -1, 300}
		}), `http ` + ended + ` ` + id + ` 198.18.0.6:2817 198.18.0.1:80 -1 -1 -1 502 - 34 400 ` +
			`"GET http://www.example.com:80/a?b=c HTTP/1.1" "curl/7.46.0" - - ` + group + ` ` + trace + ` "-" "-" 1 ` + created +
			` "forward" "-" "-" "198.18.0.1:80" "-" "-" "-"`},
		"closed by the target": {with(func(l *Line) {
			l.Status, l.TargetStatus, l.Phase, l.Error = 502, 0, PhaseWait, ErrorEOF
			l.Micros = Micros{100, 1000, -1, 4206000}
		}), `http ` + ended + ` ` + id + ` 198.18.0.6:2817 198.18.0.1:80 0.001 4.205 -1 502 - 34 400 ` +
			`"GET http://www.example.com:80/a?b=c HTTP/1.1" "curl/7.46.0" - - ` + group + ` ` + trace + ` "-" "-" 1 ` + created +
			` "forward" "-" "-" "198.18.0.1:80" "-" "-" "-"`},
		"redirect": {with(func(l *Line) {
			l.Rule, l.Action, l.Group, l.Target, l.Status, l.TargetStatus = 0, "redirect", "", "", 301, 0
			l.RedirectURL, l.UserAgent = "https://www.example.com:443/", ""
			l.Micros = Micros{-1, -1, -1, 10}
		}), `http ` + ended + ` ` + id + ` 198.18.0.6:2817 - -1 -1 -1 301 - 34 400 ` +
			`"GET http://www.example.com:80/a?b=c HTTP/1.1" "-" - - - ` + trace + ` "-" "-" 0 ` + created +
			` "redirect" "https://www.example.com:443/" "-" "-" "-" "-" "-"`},
		"malformed": {Line{
			Time: ok().Time, End: ok().End, Type: "http", Client: "198.18.0.6:2817", Scheme: "http", Host: "127.0.0.11", Port: "80", Rule: -1,
			Status: 400, Phase: PhaseRoute, Error: ErrorRefused, Micros: Micros{-1, -1, -1, 5}, ReceivedTotal: 12, SentTotal: 100,
		}, `http ` + ended + ` ` + id + ` 198.18.0.6:2817 - -1 -1 -1 400 - 12 100 "- http://127.0.0.11:80- -" "-" - - - "-" "-" "-" - ` +
			created + ` "-" "-" "-" "-" "-" "Severe" "BadHeader"`},
	} {
		got := string(c.line.appendEntry(nil, id, map[bool]string{true: group}[c.line.Group != ""]))
		if got != c.want+"\n" {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

// TestEntryStaysOneLine gives a client's bytes to every column that has some.
func TestEntryStaysOneLine(t *testing.T) {
	evil := "a\"b\\c\nd\x00\xff é"
	l := with(func(l *Line) {
		l.Method, l.Path, l.Host, l.UserAgent, l.TraceID, l.ServerName, l.RedirectURL = evil, evil, evil, evil, evil, evil, evil
	})
	got := string(l.appendEntry(nil, "e", "a"))
	if strings.Count(got, "\n") != 1 || strings.Count(got, `"`) != 24 {
		t.Errorf("%q", got)
	}
	if !strings.Contains(got, `a\x22b\x5Cc\x0Ad\x00\xFF \xC3\xA9`) {
		t.Errorf("%q", got)
	}
	l.UserAgent = strings.Repeat("x", maxUserAgent+1)
	if got := string(l.appendEntry(nil, "e", "a")); !strings.Contains(got, `"`+strings.Repeat("x", maxUserAgent)+`"`) {
		t.Error("a long User-Agent is not cut")
	}
}

func TestSeconds(t *testing.T) {
	for micros, want := range map[int64]string{-1: "-1", 0: "0.000", 499: "0.000", 500: "0.001", 60001000: "60.001", 3600000000: "3600.000"} {
		if got := string(appendSeconds(nil, micros)); got != want {
			t.Errorf("%d: %s, want %s", micros, got, want)
		}
	}
}

func TestOriginForm(t *testing.T) {
	for in, want := range map[string]string{"": "", "/a": "/a", "*": "*", "http://h/a?b": "/a?b", "http://h?b": "?b", "http://h": "/", "h:80": "h:80"} {
		if got := originForm(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestJSONIsWhatMarshalGives(t *testing.T) {
	for _, l := range []Line{ok(), {}, with(func(l *Line) { l.ID, l.Path, l.Reused = "a\"\n\xff\u2028<", "/\\", true })} {
		l.Time = l.Time.UTC()
		want, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.appendJSON(nil); string(got) != string(want)+"\n" {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
}

func TestLogAppends(t *testing.T) {
	dir := t.TempDir()
	failed := func(err error) { t.Error(err) }
	for range 2 {
		g, err := Open(dir, "ns", "app", time.Hour, failed)
		if err != nil {
			t.Fatal(err)
		}
		l := ok()
		g.Add(&l)
		g.Add(&l) // waits for the hour, or Close
		g.Target([]byte(`{"state":"healthy"}`))
		g.Settings([]byte(`{"loadBalancer":"ns/app"}`))
		for range 2 {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		}
		g.Add(&l)
	}
	for suffix, want := range map[string]int{".jsonl": 4, ".log": 4, ".targets.jsonl": 2, ".settings.jsonl": 2} {
		data, err := os.ReadFile(filepath.Join(dir, "ns", "app"+suffix))
		if err != nil || bytes.Count(data, []byte("\n")) != want {
			t.Errorf("app%s: %v, %q; want %d lines", suffix, err, data, want)
		}
	}
	if _, err := Open(filepath.Join(dir, "ns", "app.log"), "ns", "app", 0, failed); err == nil {
		t.Error("a log below a file opens")
	}
}

func TestFirstLineIsWrittenAtOnce(t *testing.T) {
	g, err := Open(t.TempDir(), "ns", "app", time.Hour, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	l := ok()
	g.Add(&l)
	waitFor(t, "line", func() bool { return g.sizes(t) > 0 })
}

func (g *Log) sizes(t *testing.T) int64 {
	info, err := g.entries.out.(*os.File).Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for range 10000 {
		if cond() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("no %s", what)
}

// disk fails as it is told to.
type disk struct {
	bytes.Buffer
	full  atomic.Bool   // takes three bytes of a write
	hangs chan struct{} // nil, or writes wait for it
	wrote atomic.Int64  // calls
}

func (d *disk) Write(b []byte) (int, error) {
	d.wrote.Add(1)
	if d.hangs != nil {
		<-d.hangs
	}
	if d.full.Load() {
		n, _ := d.Buffer.Write(b[:3])
		return n, syscall.ENOSPC
	}
	return d.Buffer.Write(b)
}

func (d *disk) Truncate(size int64) error { d.Buffer.Truncate(int(size)); return nil }
func (d *disk) Close() error              { return nil }

func TestFullDiskLosesWholeLines(t *testing.T) {
	d := &disk{}
	told := make(chan error, 10)
	f := newFile(d, 0, maxPending, 0, func(err error) { told <- err })
	write := func(line string) {
		t.Helper()
		before := d.wrote.Load()
		f.add([]byte(line))
		waitFor(t, "write", func() bool { return d.wrote.Load() > before })
	}
	write("one\n")
	d.full.Store(true)
	write("two two\n")
	write("three\n")
	if err := <-told; !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("told %v, want ENOSPC", err)
	}
	d.full.Store(false)
	f.add([]byte("four\n"))
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	if got := d.String(); got != "one\nfour\n" {
		t.Errorf("%q", got)
	}
	if len(told) != 0 {
		t.Errorf("told again: %v", <-told)
	}
}

func TestHangingDiskHoldsUpNobody(t *testing.T) {
	d := &disk{hangs: make(chan struct{})}
	told := make(chan error, 10)
	f := newFile(d, 0, 100, 0, func(err error) { told <- err })
	f.add([]byte("first\n"))
	waitFor(t, "write", func() bool { return d.wrote.Load() == 1 })
	for range 100 {
		f.add([]byte("0123456789\n"))
	}
	if err := <-told; !strings.Contains(err.Error(), "does not keep up") {
		t.Error(err)
	}
	close(d.hangs)
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	if got, want := d.String(), "first\n"+strings.Repeat("0123456789\n", 9); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAddDoesNotAllocate(t *testing.T) {
	g := openBench(t)
	l := ok()
	// A run in ten thousand may: the buffers grow, the collector empties the pool.
	if n := testing.AllocsPerRun(10000, func() { g.Add(&l) }); n != 0 {
		t.Errorf("%v allocations per request", n)
	}
}

func openBench(t testing.TB) *Log {
	t.Helper()
	g, err := Open(t.TempDir(), "ns", "app", 50*time.Millisecond, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// BenchmarkAdd is what both logs cost a request.
func BenchmarkAdd(b *testing.B) {
	g := openBench(b)
	l := ok()
	b.ReportAllocs()
	for b.Loop() {
		g.Add(&l)
	}
}

// What a killed process has left of a line goes before the next one is written.
func TestTornLineIsCutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.jsonl")
	for left, want := range map[string]string{
		"": "", "whole\n": "whole\n", "whole\ntorn": "whole\n", "torn": "",
		strings.Repeat("x", 9000): "", "whole\n" + strings.Repeat("x", 9000): "whole\n",
	} {
		if err := os.WriteFile(path, []byte(left), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := openFile(path, 0, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		f.add([]byte("next\n"))
		if err := f.close(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want+"next\n" {
			t.Errorf("after %.20q: %.40q, %v; want %q", left, got, err, want+"next\n")
		}
	}
}
