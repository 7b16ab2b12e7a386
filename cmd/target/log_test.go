package main

import (
	"bufio"
	"io"
	"os"
	"sync"
	"testing"
	"time"
)

// BenchmarkLog is what one line of the log costs the whole machine, with a
// reader as a container runtime has one: unbuffered as logger does it, and for
// comparison with a buffer that is flushed every 50 lines (50 ms at 1000 lines
// per second).
func BenchmarkLog(b *testing.B) {
	for _, buffered := range []bool{false, true} {
		name := "unbuffered"
		if buffered {
			name = "buffered"
		}
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
			out := bufio.NewWriter(w)
			log := logger{out: w}
			if buffered {
				log.out = out
			}
			line := access{Time: time.Now(), ID: "r12345", Path: "/", Status: 200, Micros: 20123, Conn: "127.0.0.1:40000"}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				log.line(line)
				if buffered && i%50 == 0 {
					out.Flush()
				}
			}
			out.Flush()
			w.Close()
			reader.Wait()
			io.Copy(io.Discard, r)
			r.Close()
		})
	}
}
