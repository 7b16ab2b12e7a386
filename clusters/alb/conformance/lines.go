package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"

	"lameduck/clusters/alb/accesslog"
)

// lines is a Sink that keeps them.
type lines struct {
	mu  sync.Mutex
	all []accesslog.Line
}

// Add implements accesslog.Sink. Strings may lie in buffers that are used
// again: they are copied.
func (s *lines) Add(l *accesslog.Line) {
	keep := *l
	v := reflect.ValueOf(&keep).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.String {
			f.SetString(strings.Clone(f.String()))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, keep)
}

func (s *lines) copy() []accesslog.Line {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]accesslog.Line(nil), s.all...)
}

// fileLines are those of a side log on disk.
type fileLines struct{ path string }

// read decodes a file of JSON lines. What is not complete yet is left out.
func read[V any](t *T, path string) []V {
	data, err := os.ReadFile(path)
	t.must(err)
	var all []V
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var v V
		t.must(json.Unmarshal(line, &v))
		all = append(all, v)
	}
	return all
}

// wait returns the lines when there are n.
func (s *lines) wait(t *T, n int) []accesslog.Line {
	var got []accesslog.Line
	t.eventually(fmt.Sprintf("%d log lines", n), func() bool {
		got = s.copy()
		return len(got) >= n
	})
	return got
}

func (f fileLines) copy(t *T) []accesslog.Line { return read[accesslog.Line](t, f.path) }

func (f fileLines) wait(t *T, n int) []accesslog.Line {
	var got []accesslog.Line
	t.eventually(fmt.Sprintf("%d log lines", n), func() bool {
		got = f.copy(t)
		return len(got) >= n
	})
	return got
}

func (f fileLines) only(t *T) accesslog.Line { return onlyLine(t, f.wait(t, 1)) }

func (s *lines) only(t *T) accesslog.Line { return onlyLine(t, s.wait(t, 1)) }

func onlyLine(t *T, got []accesslog.Line) accesslog.Line {
	if len(got) != 1 {
		t.Fatalf("log has %d lines, want 1: %+v", len(got), got)
	}
	return got[0]
}

// wantLine compares what matters of a log line.
func wantLine(t *T, l accesslog.Line, status, targetStatus int, phase accesslog.Phase, name string) {
	if l.Status != status || l.TargetStatus != targetStatus || l.Phase != phase || l.Error != name {
		t.Errorf("log: status %d, target status %d, phase %s, error %q; want %d, %d, %s, %q",
			l.Status, l.TargetStatus, l.Phase, l.Error, status, targetStatus, phase, name)
	}
}
