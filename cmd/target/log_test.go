package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"sync"
	"testing"
	"time"
)

// BenchmarkLog is what one line of the log costs the target and a reader of its
// pipe, as a container runtime is one: as before SIGTERM and as after.
func BenchmarkLog(b *testing.B) {
	for _, immediate := range []bool{false, true} {
		name := map[bool]string{false: "collected", true: "immediate"}[immediate]
		b.Run(name, func(b *testing.B) {
			r, w, err := os.Pipe()
			if err != nil {
				b.Fatal(err)
			}
			var reader sync.WaitGroup
			reader.Go(func() {
				for lines := bufio.NewScanner(r); lines.Scan(); {
				}
			})
			log := logger{out: w, immediate: immediate}
			line := access{Time: time.Now(), ID: "r12345", Path: "/", Status: 200, Micros: 20123, Conn: "127.0.0.1:40000"}
			b.ReportAllocs()
			for b.Loop() {
				log.request(line)
			}
			log.event(event{Event: "exit"})
			w.Close()
			reader.Wait()
			io.Copy(io.Discard, r)
			r.Close()
		})
	}
}

// A line of a request waits until a step of the process's life, or from SIGTERM
// on not at all.
func TestLogOrder(t *testing.T) {
	var out bytes.Buffer
	log := logger{out: &out}
	lines := func() int { return bytes.Count(out.Bytes(), []byte("\n")) }
	log.mu.Lock() // no flush by time in this test
	log.timed = true
	log.mu.Unlock()
	log.request(access{ID: "r1"})
	log.request(access{ID: "r2"})
	if n := lines(); n != 0 {
		t.Errorf("%d lines were written at once, want them collected", n)
	}
	log.stopping("drain")
	if n := lines(); n != 3 {
		t.Errorf("%d lines after SIGTERM, want the two that waited and its own", n)
	}
	log.request(access{ID: "r3"})
	if n := lines(); n != 4 {
		t.Errorf("%d lines, want each at once after SIGTERM", n)
	}
}
