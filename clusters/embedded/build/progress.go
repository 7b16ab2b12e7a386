package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	redrawEvery = 250 * time.Millisecond // on a terminal
	printEvery  = 10 * time.Second       // elsewhere, where each line stays
	tailLines   = 20
)

// A progress shows how far the go command is, from what it prints.
type progress struct {
	out     io.Writer
	inPlace bool
	name    string
	started time.Time
	quit    chan struct{}
	stopped chan struct{}

	mu         sync.Mutex
	downloaded int
	compiled   int
	total      int // 0 while unknown
	building   bool
	said       []string // the last lines that are not progress
}

// startProgress shows progress until stop is called.
func startProgress(out io.Writer, inPlace bool, name string) *progress {
	p := &progress{
		out:     out,
		inPlace: inPlace,
		name:    name,
		started: time.Now(),
		quit:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	go p.show()
	return p
}

func (p *progress) show() {
	defer close(p.stopped)
	every := printEvery
	if p.inPlace {
		every = redrawEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-p.quit:
			if p.inPlace {
				fmt.Fprint(p.out, "\r\x1b[K")
			}
			return
		case <-ticker.C:
			if p.inPlace {
				fmt.Fprint(p.out, "\r\x1b[K"+p.String())
			} else {
				fmt.Fprintln(p.out, p.String())
			}
		}
	}
}

// stop ends the display and waits for it, so that the next line printed is not mixed with it.
func (p *progress) stop() {
	close(p.quit)
	<-p.stopped
}

func (p *progress) elapsed() time.Duration { return time.Since(p.started) }

// expect says how many packages will be compiled.
func (p *progress) expect(total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = total
	p.building = true
}

// line takes a line of the go command's standard error. With -v it prints the path of each package as it starts to
// compile it, and nothing for a package that its cache has.
func (p *progress) line(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case strings.HasPrefix(text, "go: downloading "):
		p.downloaded++
	case text != "" && !strings.ContainsAny(text, " \t:"):
		p.compiled++
	default:
		p.said = append(p.said, text)
		if len(p.said) > tailLines {
			p.said = p.said[1:]
		}
	}
}

// tail returns the last lines that the command said besides progress.
func (p *progress) tail() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.said...)
}

// String fits in 80 columns: a longer line would wrap and could not be redrawn.
func (p *progress) String() string {
	elapsed := p.elapsed().Round(time.Second)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.building && p.downloaded == 0:
		return fmt.Sprintf("%s: looking at what to compile, %s", p.name, elapsed)
	case !p.building:
		return fmt.Sprintf("%s: %d modules downloaded, %s", p.name, p.downloaded, elapsed)
	case p.compiled >= p.total:
		return fmt.Sprintf("%s: %d packages compiled, linking, %s", p.name, p.compiled, elapsed)
	}
	return fmt.Sprintf("%s: %d of %d packages compiled, %s", p.name, p.compiled, p.total, elapsed)
}
