package accesslog

import (
	"errors"
	"path/filepath"
	"sync"
	"time"
)

// The files of one Ingress are <dir>/<namespace>/<ingress> and one of these.
const (
	sideSuffix     = ".jsonl"          // one Line as JSON per request
	entrySuffix    = ".log"            // the same requests as an ALB writes them
	targetsSuffix  = ".targets.jsonl"  // changes of targets' states
	settingsSuffix = ".settings.jsonl" // settings that have come into force
)

// Log is what is written of one load balancer.
type Log struct {
	elb               string
	side, entries     *file // requests
	targets, settings *file

	mu   sync.RWMutex
	arns map[string]string // by the group's name
}

// Open opens the four logs of an Ingress and appends to what is there. Lines
// about requests are written at most every flush. failed is told of the first
// line of each log that is lost; no request waits for that.
func Open(dir, namespace, ingress string, flush time.Duration, failed func(error)) (*Log, error) {
	g := &Log{elb: loadBalancerID(namespace, ingress), arns: map[string]string{"": ""}}
	for _, f := range []struct {
		to     **file
		suffix string
		flush  time.Duration
	}{{&g.side, sideSuffix, flush}, {&g.entries, entrySuffix, flush}, {&g.targets, targetsSuffix, 0}, {&g.settings, settingsSuffix, 0}} {
		opened, err := openFile(filepath.Join(dir, namespace, ingress+f.suffix), f.flush, failed)
		if err != nil {
			return nil, errors.Join(err, g.Close())
		}
		*f.to = opened
	}
	return g, nil
}

// buffers are where lines are formatted before any lock is taken.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 2<<10); return &b }}

// Add writes one request to the side log and the access log.
func (g *Log) Add(l *Line) {
	b := buffers.Get().(*[]byte)
	*b = l.appendJSON((*b)[:0])
	g.side.add(*b)
	*b = l.appendEntry((*b)[:0], g.elb, g.arn(l.Group))
	g.entries.add(*b)
	buffers.Put(b)
}

// arn remembers the ARNs: a load balancer has a few groups, and every line
// needs one.
func (g *Log) arn(group string) string {
	g.mu.RLock()
	arn, ok := g.arns[group]
	g.mu.RUnlock()
	if !ok {
		arn = groupARN(group)
		g.mu.Lock()
		g.arns[group] = arn
		g.mu.Unlock()
	}
	return arn
}

// Target writes one change of a target's state, without delay: changes are
// rare, and who waits for a target reads them there. line is JSON without a
// newline.
func (g *Log) Target(line []byte) { g.targets.addLine(line) }

// Settings writes settings that have come into force, as Target does.
func (g *Log) Settings(line []byte) { g.settings.addLine(line) }

// Close writes what is left. Lines added later are dropped.
func (g *Log) Close() error {
	var errs []error
	for _, f := range []*file{g.side, g.entries, g.targets, g.settings} {
		if f != nil {
			errs = append(errs, f.close())
		}
	}
	return errors.Join(errs...)
}

// Sinks gives each line to all of them.
type Sinks []Sink

// Add implements Sink.
func (s Sinks) Add(l *Line) {
	for _, sink := range s {
		sink.Add(l)
	}
}
