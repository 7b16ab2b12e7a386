package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lameduck/harness"
)

// program is the built binary: what it does on a signal and at its exit can
// only be seen from outside the process.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "target-test-")
	if err == nil {
		program = filepath.Join(dir, "target")
		build := exec.Command("go", "build", "-o", program, ".")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "build target:", err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// limit is when a test gives up waiting; nothing is expected to take long.
const limit = 30 * time.Second

// process is a running target.
type process struct {
	*testing.T
	cmd   *exec.Cmd
	addr  string
	lines chan logLine
}

// logLine is any line of the log: an event, or a request.
type logLine struct {
	Time           time.Time
	Event, Detail  string
	Code           *int
	ID, Path, Conn string
	Status         int
	Received       int64
	Micros         int64
}

func launch(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{T: t, cmd: exec.Command(program, append([]string{"--listen", "127.0.0.1:0"}, args...)...), lines: make(chan logLine, 1000)}
	p.cmd.Env = append(os.Environ(), "POD_NAME=app-1")
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			var line logLine
			if err := json.Unmarshal(s.Bytes(), &line); err != nil || line.Time.IsZero() {
				t.Errorf("log line %q: %v, want JSON with a time", s.Text(), err)
			}
			p.lines <- line
		}
	}()
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	return p
}

// start launches a target and waits until it listens.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := launch(t, args...)
	p.addr = p.await("listening").Detail
	return p
}

// line is the log's next line; false at its end.
func (p *process) line() (logLine, bool) {
	p.Helper()
	select {
	case line, ok := <-p.lines:
		return line, ok
	case <-time.After(limit):
		p.Fatal("the log says nothing more")
		return logLine{}, false
	}
}

// await skips to an event.
func (p *process) await(name string) logLine {
	p.Helper()
	for {
		line, ok := p.line()
		if !ok {
			p.Fatalf("the log ended without %q", name)
		}
		if line.Event == name {
			return line
		}
	}
}

func (p *process) sigterm() {
	p.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.Fatal(err)
	}
}

// exits waits for the end of the process and checks how it ended.
func (p *process) exits(code int) {
	p.Helper()
	if e := p.await("exit"); e.Code == nil || *e.Code != code {
		p.Errorf("the log's exit is %+v, want code %d", e, code)
	}
	p.cmd.Wait()
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.Errorf("exit code is %d, want %d", got, code)
	}
}

// conn is one connection, so that a test decides which one a request uses.
type conn struct {
	*testing.T
	net.Conn
	r *bufio.Reader
}

func (p *process) dial() *conn {
	p.Helper()
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		p.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(limit))
	p.Cleanup(func() { c.Close() })
	return &conn{p.T, c, bufio.NewReader(c)}
}

func (c *conn) send(method, path, id string) {
	c.Helper()
	if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: app\r\n%s: %s\r\n\r\n", method, path, harness.RequestIDHeader, id); err != nil {
		c.Fatal(err)
	}
}

func (c *conn) receive() (*http.Response, string) {
	c.Helper()
	answer, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.Fatal(err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		c.Fatal(err)
	}
	return answer, string(body)
}

// get wants an answer, and says whether it ends the connection.
func (c *conn) get(path, id string) (closes bool) {
	c.Helper()
	c.send("GET", path, id)
	answer, _ := c.receive()
	if answer.StatusCode != http.StatusOK {
		c.Errorf("GET %s: %s, want 200", path, answer.Status)
	}
	return answer.Close
}

// closed waits until the other end closes the connection.
func (c *conn) closed() {
	c.Helper()
	var timeout net.Error
	if b, err := c.r.ReadByte(); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		c.Errorf("read %q, %v: want a closed connection", b, err)
	}
}

// steady is a response time without chance.
func steady(d string) string { return "--response-time=p50=" + d + ",p99=" + d }

func TestAnswer(t *testing.T) {
	t.Parallel()
	p := start(t, steady("1ms"), "--version", "blue")
	c := p.dial()
	c.send("GET", "/any//path/../x", "r17")
	answer, body := c.receive()
	if answer.StatusCode != http.StatusOK || answer.Close {
		t.Errorf("answer is %s, close %v: want 200 on a connection that stays", answer.Status, answer.Close)
	}
	if got := answer.Header.Get(harness.PodHeader); got != "app-1" {
		t.Errorf("%s is %q, want app-1", harness.PodHeader, got)
	}
	if got := answer.Header.Get(harness.VersionHeader); got != "blue" {
		t.Errorf("%s is %q, want blue", harness.VersionHeader, got)
	}
	if body != "r17\napp-1\n" || answer.ContentLength != int64(len(body)) {
		t.Errorf("body is %q with Content-Length %d: want the id and the pod", body, answer.ContentLength)
	}
	if c.get("/healthz", "") {
		t.Error("/healthz ended the connection")
	}
	p.sigterm()
	got, _ := p.line()
	if got.ID != "r17" || got.Path != "/any//path/../x" || got.Status != 200 || got.Micros < 1000 || got.Conn != c.LocalAddr().String() {
		t.Errorf("logged %+v, want request r17 from %s, at least 1000 microseconds", got, c.LocalAddr())
	}
	// Probes are not logged.
	if line, _ := p.line(); line.Event != "sigterm" {
		t.Errorf("next line is %+v, want sigterm", line)
	}
}

func TestBody(t *testing.T) {
	t.Parallel()
	p := start(t, steady("1ms"))
	c := p.dial()
	const size = 100_000
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: app\r\n%s: r1\r\nContent-Length: %d\r\n\r\n%s", harness.RequestIDHeader, size, strings.Repeat("x", size))
	if answer, body := c.receive(); answer.StatusCode != http.StatusOK || body != "r1\napp-1\n" {
		t.Errorf("answer is %s %q, want 200 and the id", answer.Status, body)
	}
	if line, _ := p.line(); line.ID != "r1" || line.Received != size {
		t.Errorf("logged %+v, want %d bytes received", line, size)
	}
}

func TestClientGone(t *testing.T) {
	t.Parallel()
	p := start(t, steady("1h"))
	c := p.dial()
	c.send("GET", "/", "r1")
	c.Close()
	if line, _ := p.line(); line.ID != "r1" || line.Status != statusClientGone {
		t.Errorf("logged %+v, want r1 with status %d", line, statusClientGone)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	p := start(t, "--on-sigterm", "wait=10s", "--response-time", "p50=5ms,p99=50ms", "--slow", "share=0.25,time=4s",
		"--start-delay", "1ms", "--keep-alive", "75s", "--version", "v2", "--close-while-draining", "--fail-readiness")
	c := p.dial()
	c.send("GET", "/lameduck/config", "")
	answer, body := c.receive()
	if got := answer.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type is %q", got)
	}
	want := `{"pod":"app-1","version":"v2","onSigterm":"wait","sigtermWait":"10s","drainIdle":"1s","drainTimeout":"25s",` +
		`"closeWhileDraining":true,"failReadiness":true,` +
		`"responseTime":{"p50":"5ms","p99":"50ms","slowShare":0.25,"slow":"4s"},"startDelay":"1ms","keepAlive":"1m15s"}` + "\n"
	if body != want {
		t.Errorf("config is %s want %s", body, want)
	}
}

func TestKeepAlive(t *testing.T) {
	t.Parallel()
	p := start(t, steady("1ms"), "--keep-alive", "20ms")
	c := p.dial()
	if c.get("/", "r1") {
		t.Error("the answer announces a close")
	}
	c.closed()

	none := start(t, steady("1ms"), "--keep-alive", "0")
	c = none.dial()
	if !c.get("/", "r1") {
		t.Error("--keep-alive 0: the answer does not announce a close")
	}
	c.closed()
}

func TestBurn(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := p.dial()
	for _, try := range []struct {
		query string
		want  int
	}{{"", 400}, {"?millicores=x", 400}, {"?millicores=-1", 400}, {"?millicores=1000000000", 400}, {"?millicores=300", 200}} {
		c.send("POST", "/lameduck/burn"+try.query, "")
		if answer, body := c.receive(); answer.StatusCode != try.want {
			t.Errorf("burn%s: %s %q, want %d", try.query, answer.Status, body, try.want)
		}
	}
	c.send("GET", "/lameduck/burn?millicores=0", "")
	if answer, _ := c.receive(); answer.StatusCode != http.StatusMethodNotAllowed || answer.Header.Get("Allow") != "POST" {
		t.Errorf("GET: %s, want 405", answer.Status)
	}

	// Far more than these requests cost.
	before := p.ticks()
	for deadline := time.Now().Add(limit); p.ticks() < before+20; {
		if time.Now().After(deadline) {
			t.Fatal("burning uses no CPU")
		}
	}
	c.send("POST", "/lameduck/burn?millicores=0", "")
	if answer, _ := c.receive(); answer.StatusCode != http.StatusOK {
		t.Errorf("stop: %s", answer.Status)
	}
}

// ticks is the process's CPU time (proc(5), utime), in hundredths of a second.
func (p *process) ticks() (n int) {
	p.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.Skip("needs /proc:", err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	if _, err := fmt.Sscan(strings.Fields(rest)[11], &n); err != nil {
		p.Fatal(err)
	}
	return n
}

func TestSleep(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command(program, "sleep", "1ms").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("sleep 1ms: %v, %q", err, out)
	}
	long := exec.Command(program, "sleep", "1h")
	if err := long.Start(); err != nil {
		t.Fatal(err)
	}
	if err := long.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := long.Wait(); err == nil {
		t.Error("sleep 1h was over at once, want an end by the signal")
	}
}
