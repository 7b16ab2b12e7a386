package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestProgressCounts(t *testing.T) {
	p := startProgress(&bytes.Buffer{}, false, "kube")
	defer p.stop()
	expect := func(want string) {
		t.Helper()
		if got := p.String(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	w := &lineWriter{line: p.line}
	expect("kube: looking at what to compile, 0s")
	fmt.Fprint(w, "go: downloading example.org/a v1.2.3\ngo: downl")
	expect("kube: 1 modules downloaded")
	fmt.Fprint(w, "oading example.org/b v0.1.0\n")
	expect("kube: 2 modules downloaded")
	p.expect(3)
	fmt.Fprint(w, "internal/abi\nexample.org/a/v2\n")
	expect("kube: 2 of 3 packages compiled")
	fmt.Fprint(w, "example.org/a\n")
	expect("kube: 3 packages compiled, linking")
}

func TestProgressKeepsTheEndOfOtherOutput(t *testing.T) {
	p := startProgress(&bytes.Buffer{}, false, "kube")
	defer p.stop()
	w := &lineWriter{line: p.line}
	for i := range 2 * tailLines {
		fmt.Fprintf(w, "main.go:%d: wrong\nsome/package\n", i)
	}
	fmt.Fprint(w, "the last line, without an end")
	w.flush()
	tail := p.tail()
	if len(tail) != tailLines || tail[tailLines-1] != "the last line, without an end" {
		t.Errorf("got %d lines, the last one %q", len(tail), tail[len(tail)-1])
	}
}

func TestProgressRedrawsOnATerminal(t *testing.T) {
	var out bytes.Buffer
	p := startProgress(&out, true, "kube")
	time.Sleep(2 * redrawEvery)
	p.stop()
	text := out.String()
	if strings.Contains(text, "\n") || !strings.HasPrefix(text, "\r\x1b[Kkube: ") || !strings.HasSuffix(text, "\r\x1b[K") {
		t.Errorf("drawn: %q", text)
	}
}

func TestRoughly(t *testing.T) {
	for d, want := range map[time.Duration]string{
		200 * time.Millisecond: "1 s",
		42 * time.Second:       "42 s",
		90 * time.Second:       "1.5 min",
		523 * time.Second:      "9 min",
	} {
		if got := roughly(d); got != want {
			t.Errorf("roughly(%s) is %q, want %q", d, got, want)
		}
	}
}
