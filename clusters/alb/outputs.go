package alb

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/elb"
)

// outputs are where the load balancers of a process tell what happens: logs, one
// set for each load balancer, and counters.
type outputs struct {
	dir      string
	flush    time.Duration
	messages io.Writer
	counters *accesslog.Counters

	mu   sync.Mutex
	logs map[string]*accesslog.Log // of the load balancers that there are
}

func newOutputs(o Options) *outputs {
	return &outputs{
		dir: o.LogDir, flush: o.LogFlush, messages: o.Log, counters: accesslog.NewCounters(),
		logs: make(map[string]*accesslog.Log),
	}
}

// open is an elb.Outputs.Log.
func (o *outputs) open(loadBalancer string) (elb.Log, error) {
	namespace, ingress, _ := strings.Cut(loadBalancer, "/")
	log, err := accesslog.Open(o.dir, namespace, ingress, o.flush, func(err error) {
		fmt.Fprintf(o.messages, "%s: %v\n", loadBalancer, err)
	})
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.logs[loadBalancer] = log
	return &countedLog{Log: log, counters: o.counters.LoadBalancer(loadBalancer), gone: func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.logs, loadBalancer)
	}}, nil
}

// metrics is an elb.Outputs.Metrics.
func (o *outputs) metrics(loadBalancer string) elb.Metrics {
	return o.counters.LoadBalancer(loadBalancer)
}

// state is an elb.Outputs.States. A change before a load balancer uses the group
// is not written: there is no log that it belongs to.
func (o *outputs) state(c elb.StateChange) {
	o.mu.Lock()
	log := o.logs[c.LoadBalancer]
	o.mu.Unlock()
	if log == nil {
		return
	}
	line, err := json.Marshal(c)
	if err != nil { // strings, a time and an address always marshal
		fmt.Fprintf(o.messages, "write state of target %s: %v\n", c.Target, err)
		return
	}
	log.Target(line)
}

// countedLog is a load balancer's log whose lines are counted too.
type countedLog struct {
	*accesslog.Log
	counters *accesslog.LoadBalancerCounters
	gone     func()
}

// Add implements accesslog.Sink.
func (l *countedLog) Add(line *accesslog.Line) {
	l.Log.Add(line)
	l.counters.Add(line)
}

// Close implements elb.Log.
func (l *countedLog) Close() error {
	l.gone()
	return l.Log.Close()
}
