package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"lameduck/harness"
)

func TestMain(m *testing.M) {
	what := os.Getenv(helperVariable)
	if what == "" {
		os.Exit(m.Run())
	}
	if err := beHelper(what); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

const helperVariable = "LAMEDUCK_LOAD_TEST"

// helper is this test binary as another program.
func helper(ctx context.Context, what string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), helperVariable+"="+what)
	return cmd
}

// beHelper is what this binary does when it is another program: a worker, a
// server, or a worker that goes wrong.
func beHelper(what string) error {
	const request = `{"request":{"id":"r0","pl":1,"at":2,"lat":3,"o":"ok"}}` + "\n"
	stats := func(sent int) string { return fmt.Sprintf(`{"stats":{"sent":%d}}`+"\n", sent) }
	says := map[string]string{
		"garbled":   request + "hello\n",
		"torn":      request + request[:20],
		"empty":     request + "{}\n",
		"no stats":  request,
		"lost":      request + stats(2),
		"no stream": request + `{"stats":{"sent":1,"streams":1}}` + "\n",
		"goes on":   request + stats(1) + request,
		"own error": request + `{"error":"own fault"}` + "\n",
		"exit 3":    request + stats(1),
	}
	switch say, ok := says[what]; {
	case ok:
		fmt.Print(say)
		fmt.Fprintln(os.Stderr, strings.Repeat("noise ", 10000)+"last words")
		if what == "exit 3" || what == "own error" {
			os.Exit(3)
		}
		return nil
	case what == "worker":
		return Worker(context.Background(), os.Stdin, os.Stdout)
	case what == "server":
		return serveTrivially()
	default:
		return fmt.Errorf("%s=%s", helperVariable, what)
	}
}

// workerProcess is a Process whose child it keeps for the test.
func workerProcess(what string) (Process, func() *exec.Cmd) {
	var cmd *exec.Cmd
	return Process{Command: func(ctx context.Context) *exec.Cmd {
		cmd = helper(ctx, what)
		return cmd
	}}, func() *exec.Cmd { return cmd }
}

func TestProcess(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	spec := attackSpec(server.URL, 200*time.Millisecond)
	spec.Target.ControlURL, spec.Load.ControlRate = server.URL, 50
	process, cmd := workerProcess("worker")
	ids := map[string]bool{}
	stats, err := process.Attack(t.Context(), spec, func(r harness.Request) {
		if r.Outcome != harness.OutcomeOK || r.Pod != "app-1" || r.Status != 200 || r.Attempts != 1 || r.Sent < r.Planned {
			t.Errorf("request %+v", r)
		}
		ids[r.ID] = true
	})
	if err != nil {
		t.Fatal(err)
	}
	if stats.Sent != 50 || len(ids) != 50 || !ids["r39"] || !ids["rc9"] {
		t.Errorf("stats %+v and ids %v: want r0 to r39 and rc0 to rc9", stats, ids)
	}
	if !cmd().ProcessState.Success() {
		t.Errorf("the worker ended with %s", cmd().ProcessState)
	}
}

// TestProcessLoad wants every kind of load to get to the worker and back.
func TestProcessLoad(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			endless(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if r.ProtoMajor != 2 || r.Method != http.MethodPost || err != nil || len(body) != 100 {
			t.Errorf("%s %s with %d bytes (%v), want a POST by HTTP/2 with 100", r.Proto, r.Method, len(body), err)
		}
		echo(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	spec := attackSpec(server.URL, 200*time.Millisecond)
	spec.Load.HTTP2, spec.Load.BodySize = true, 100
	spec.Load.Connections, spec.Load.LongLived = harness.ConnectionsLongLived, 3
	spec.Load.Streams, spec.Target.StreamURL = 2, server.URL+"/stream"
	process, _ := workerProcess("worker")
	streams := 0
	stats, err := process.Attack(t.Context(), spec, func(r harness.Request) {
		if r.Failed() {
			t.Errorf("request %+v", r)
		}
		if r.Stream {
			streams++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if stats.Sent != 40 || stats.Streams != 2 || streams != 2 {
		t.Errorf("stats %+v and %d streams: want 40 requests and 2 streams", stats, streams)
	}
}

// TestProcessStop ends the context at the first request that arrives: it must
// arrive without waiting for a full buffer, and the one in flight must be
// waited for.
func TestProcessStop(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(harness.RequestIDHeader) == "r1" {
			<-ctx.Done()
		}
		echo(w, r)
	}))
	defer server.Close()
	process, _ := workerProcess("worker")
	var requests []harness.Request
	spec := attackSpec(server.URL, time.Hour)
	spec.Load.Rate = 20
	stats, err := process.Attack(ctx, spec, func(r harness.Request) {
		requests = append(requests, r)
		if len(requests) == 5 {
			stop()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	held := false
	for _, r := range requests {
		held = held || r.ID == "r1" && r.Outcome == harness.OutcomeOK
	}
	if !held || stats.Sent != len(requests) {
		t.Errorf("%+v, of %d sent: want r1, which was in flight, to be ok", requests, stats.Sent)
	}
}

// TestProcessKilled kills the worker in the middle of the attack.
func TestProcessKilled(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	process, cmd := workerProcess("worker")
	delivered := 0
	_, err := process.Attack(t.Context(), attackSpec(server.URL, time.Hour), func(harness.Request) {
		if delivered++; delivered == 10 {
			if err := cmd().Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	})
	if err == nil || !strings.Contains(err.Error(), "signal: killed") || delivered < 10 {
		t.Errorf("after %d requests: %v, want an error that tells of the kill", delivered, err)
	}
}

// TestProcessGoesWrong wants an error for each way in which a worker can fail.
func TestProcessGoesWrong(t *testing.T) {
	t.Parallel()
	for what, want := range map[string]string{
		"garbled":   `"hello`,
		"torn":      "torn line",
		"empty":     "{}",
		"no stats":  "after 1 requests without stats",
		"lost":      "told of 1 requests but sent 2",
		"no stream": "told of 0 streams but had 1",
		"goes on":   "out of place",
		"own error": "own fault (exit status 3)",
		"exit 3":    "exit status 3",
	} {
		process, _ := workerProcess(what)
		delivered := 0
		_, err := process.Attack(t.Context(), attackSpec("http://127.0.0.1:1", time.Second), func(harness.Request) { delivered++ })
		if err == nil || !strings.Contains(err.Error(), want) || delivered != 1 {
			t.Errorf("%s: error is %.300v after %d requests, want 1 and %s", what, err, delivered, want)
			continue
		}
		killed := what == "garbled" || what == "empty" || what == "goes on" // perhaps before its last words
		if len(err.Error()) > 6000 || !killed && !strings.HasSuffix(err.Error(), "last words") {
			t.Errorf("%s: error has %d characters and ends in %q, want the end of stderr", what, len(err.Error()), err.Error()[len(err.Error())-20:])
		}
	}
	missing := Process{Command: func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, "./no-such-program") }}
	_, err := missing.Attack(t.Context(), attackSpec("http://127.0.0.1:1", time.Second), func(harness.Request) {})
	if err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("no program: error is %v, want its name", err)
	}
}

// TestWorkerOutlivesNoParent does to a worker what the death of its parent
// does: it ends its stdin and, in the second case, its stdout too.
func TestWorkerOutlivesNoParent(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(echo))
	defer server.Close()
	line, err := json.Marshal(attackSpec(server.URL, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, silent := range []bool{false, true} {
		cmd := helper(t.Context(), "worker")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		in.Write(append(line, '\n'))
		lines := bufio.NewScanner(out)
		if !lines.Scan() {
			t.Fatal("the worker says nothing")
		}
		if silent {
			out.Close() // nothing more is read
		}
		in.Close()
		last := ""
		for !silent && lines.Scan() {
			last = lines.Text()
		}
		err = cmd.Wait()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); silent && ok {
			if !status.Signaled() || status.Signal() != syscall.SIGPIPE {
				t.Errorf("without a reader the worker ended with %s, want SIGPIPE", cmd.ProcessState)
			}
		} else if err != nil || !strings.HasPrefix(last, `{"stats":`) {
			t.Errorf("the worker ended with %v after %q, want stats", err, last)
		}
	}
}

func TestWorkerRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"":                            "one line of JSON",
		`{"load":{}}`:                 "one line of JSON", // no end of line: a torn spec
		"hello\n":                     "invalid character",
		`{"load":{"speed":1}}` + "\n": `unknown field "speed"`,
	} {
		var out bytes.Buffer
		err := Worker(t.Context(), strings.NewReader(in), &out)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error is %v, want %s", in, err, want)
		}
		var m message
		if json.Unmarshal(out.Bytes(), &m) != nil || !strings.Contains(m.Error, want) {
			t.Errorf("%q: wrote %q, want the error", in, &out)
		}
	}
}

// TestWriterKeepsItsError wants a failed write not to be lost.
func TestWriterKeepsItsError(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	out := newMessageWriter(w)
	_ = out.write(message{Error: "x"})
	if err := out.close(); err == nil {
		t.Error("a write to a closed pipe is no error")
	}
}
