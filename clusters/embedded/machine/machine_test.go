package machine

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestParseStartTime(t *testing.T) {
	const stat = "42 (a ) S (b) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 777 1000 10\n"
	if got := parseStartTime(stat); got != "777" {
		t.Errorf("got %q", got)
	}
	if got := parseStartTime("garbage"); got != "" {
		t.Errorf("of garbage: %q", got)
	}
}

func TestReadStatus(t *testing.T) {
	dir := t.TempDir()
	s, err := ReadStatus(dir)
	if err != nil || s.Supervisor.PID != 0 || s.Supervisor.Alive() {
		t.Errorf("before the supervisor writes: %+v, %v", s, err)
	}
	want := Status{Supervisor: Process{Name: "supervisor", PID: 7, Started: "1"}, Components: []Process{{Name: "etcd", Exit: "exit status 1"}}}
	if err := writeJSON(statusFile(dir), want); err != nil {
		t.Fatal(err)
	}
	s, err = ReadStatus(dir)
	if err != nil || s.Supervisor != want.Supervisor || s.Components[0] != want.Components[0] {
		t.Errorf("got %+v, %v", s, err)
	}
	if err := os.WriteFile(statusFile(dir), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadStatus(dir); err == nil {
		t.Error("half a file gives no error")
	}
}

func TestLogFile(t *testing.T) {
	if got, want := LogFile("/s/n1", "kubelet"), filepath.Join("/s/n1", "log", "kubelet.log"); got != want {
		t.Errorf("got %s", got)
	}
}

// listen opens a loopback port for the time of a test.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// A request and its answer pass, and so does the end of each direction.
func TestForward(t *testing.T) {
	server, front := listen(t), listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		accept(ctx, front, Forward{Name: "test", To: server.Addr().String()})
		close(stopped)
	}()
	served := make(chan error, 1)
	go func() {
		conn, err := server.Accept()
		if err != nil {
			served <- err
			return
		}
		defer conn.Close()
		all, err := io.ReadAll(conn) // ends with the client's half-close
		if err == nil {
			_, err = fmt.Fprintf(conn, "you said %s", all)
		}
		served <- err
	}()
	conn, err := net.Dial("tcp", front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "hello")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || string(answer) != "you said hello" {
		t.Errorf("answer %q, %v", answer, err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	cancel()
	<-stopped
}

// Nobody listens behind the forward: the client must see an end, not a hang.
func TestForwardToNobody(t *testing.T) {
	server, front := listen(t), listen(t)
	server.Close()
	go accept(t.Context(), front, Forward{Name: "test", To: server.Addr().String()})
	conn, err := net.Dial("tcp", front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if b, err := io.ReadAll(conn); len(b) != 0 {
		t.Errorf("read %q, %v", b, err)
	}
}
