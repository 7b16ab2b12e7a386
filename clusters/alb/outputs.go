package alb

import (
	"fmt"
	"io"
	"strings"
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
}

// open is an elb.Outputs.Log.
func (o outputs) open(loadBalancer string) (elb.Log, error) {
	namespace, ingress, _ := strings.Cut(loadBalancer, "/")
	log, err := accesslog.Open(o.dir, namespace, ingress, o.flush, func(err error) {
		fmt.Fprintf(o.messages, "%s: %v\n", loadBalancer, err)
	})
	if err != nil {
		return nil, err
	}
	return countedLog{log, o.counters.LoadBalancer(loadBalancer)}, nil
}

// metrics is an elb.Outputs.Metrics.
func (o outputs) metrics(loadBalancer string) elb.Metrics {
	return o.counters.LoadBalancer(loadBalancer)
}

// countedLog is a load balancer's log whose lines are counted too.
type countedLog struct {
	*accesslog.Log
	counters *accesslog.LoadBalancerCounters
}

// Add implements accesslog.Sink.
func (l countedLog) Add(line *accesslog.Line) {
	l.Log.Add(line)
	l.counters.Add(line)
}
