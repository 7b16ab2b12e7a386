package accesslog

import (
	"net/http"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Counters count under the names of the CloudWatch metrics (AWS user guide for
// Application Load Balancers, CloudWatch metrics), with CloudWatch's dimensions
// as labels. They only grow, where CloudWatch gives sums of a period.
type Counters struct {
	registry *prometheus.Registry

	requests, newConnections, rejected *prometheus.CounterVec
	active                             *prometheus.GaugeVec
	elb                                map[string]*prometheus.CounterVec // by suffix: 4XX, 5XX, 502 ...
	target                             map[string]*prometheus.CounterVec // by class
	connectionErrors, failOpen         *prometheus.CounterVec
	responseTime                       *prometheus.HistogramVec
	healthy, unhealthy                 *prometheus.GaugeVec
}

const (
	labelLoadBalancer = "LoadBalancer"
	labelTargetGroup  = "TargetGroup"
)

// NewCounters makes them, all at 0.
func NewCounters() *Counters {
	c := &Counters{registry: prometheus.NewRegistry(), elb: make(map[string]*prometheus.CounterVec), target: make(map[string]*prometheus.CounterVec)}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		c.registry.MustRegister(v)
		return v
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		c.registry.MustRegister(v)
		return v
	}
	c.requests = counter("RequestCount", "Requests for which a target was chosen.", labelLoadBalancer)
	c.newConnections = counter("NewConnectionCount", "Connections made by clients.", labelLoadBalancer)
	c.rejected = counter("RejectedConnectionCount", "Connections that could not be accepted.", labelLoadBalancer)
	c.active = gauge("ActiveConnectionCount", "Open connections of clients.", labelLoadBalancer)
	for _, suffix := range []string{"3XX", "4XX", "5XX", "500", "502", "503", "504"} {
		c.elb[suffix] = counter("HTTPCode_ELB_"+suffix+"_Count", "Answers that the load balancer itself gave.", labelLoadBalancer)
	}
	for _, class := range []string{"2XX", "3XX", "4XX", "5XX"} {
		c.target[class] = counter("HTTPCode_Target_"+class+"_Count", "Answers of targets.", labelLoadBalancer, labelTargetGroup)
	}
	c.connectionErrors = counter("TargetConnectionErrorCount", "Connections to targets that could not be made.", labelLoadBalancer, labelTargetGroup)
	c.failOpen = counter("UnhealthyRoutingRequestCount", "Requests routed by fail-open.", labelLoadBalancer, labelTargetGroup)
	c.responseTime = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "TargetResponseTime", Help: "Seconds from the request's departure to the head of the answer.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
	}, []string{labelLoadBalancer, labelTargetGroup})
	c.registry.MustRegister(c.responseTime)
	c.healthy = gauge("HealthyHostCount", "Targets that are healthy.", labelLoadBalancer, labelTargetGroup)
	c.unhealthy = gauge("UnHealthyHostCount", "Targets that are unhealthy.", labelLoadBalancer, labelTargetGroup)
	return c
}

// Handler serves all of them in the format of Prometheus.
func (c *Counters) Handler() http.Handler {
	return promhttp.HandlerFor(c.registry, promhttp.HandlerOpts{})
}

// Hosts sets the number of targets of a group that are healthy and unhealthy.
func (c *Counters) Hosts(loadBalancer, group string, healthy, unhealthy int) {
	c.healthy.WithLabelValues(loadBalancer, group).Set(float64(healthy))
	c.unhealthy.WithLabelValues(loadBalancer, group).Set(float64(unhealthy))
}

// GroupGone forgets the gauges of a group.
func (c *Counters) GroupGone(loadBalancer, group string) {
	c.healthy.DeleteLabelValues(loadBalancer, group)
	c.unhealthy.DeleteLabelValues(loadBalancer, group)
}

// LoadBalancer are the counters of one load balancer, which cost little per
// request. It is a Sink.
func (c *Counters) LoadBalancer(name string) *LoadBalancerCounters {
	b := &LoadBalancerCounters{
		all: c, name: name,
		requests: c.requests.WithLabelValues(name), opened: c.newConnections.WithLabelValues(name),
		refused: c.rejected.WithLabelValues(name), active: c.active.WithLabelValues(name),
		elb: make(map[string]prometheus.Counter),
	}
	for suffix, v := range c.elb {
		b.elb[suffix] = v.WithLabelValues(name)
	}
	return b
}

// LoadBalancerCounters count for one load balancer.
type LoadBalancerCounters struct {
	all                       *Counters
	name                      string
	requests, opened, refused prometheus.Counter
	active                    prometheus.Gauge
	elb                       map[string]prometheus.Counter
	groups                    sync.Map // name -> *groupCounters
}

type groupCounters struct {
	target                     map[string]prometheus.Counter
	connectionErrors, failOpen prometheus.Counter
	responseTime               prometheus.Observer
}

// ConnectionOpened counts a client's connection.
func (b *LoadBalancerCounters) ConnectionOpened() {
	b.opened.Inc()
	b.active.Inc()
}

// ConnectionClosed counts the end of one.
func (b *LoadBalancerCounters) ConnectionClosed() { b.active.Dec() }

// ConnectionRejected counts one that could not be accepted.
func (b *LoadBalancerCounters) ConnectionRejected() { b.refused.Inc() }

// Add implements Sink.
func (b *LoadBalancerCounters) Add(l *Line) {
	if l.TargetStatus == 0 {
		b.own(l.Status)
	}
	if l.Target == "" {
		return
	}
	b.requests.Inc()
	g := b.group(l.Group)
	if counter := g.target[statusClass(l.TargetStatus)]; counter != nil {
		counter.Inc()
	}
	if l.Phase == PhaseConnect && l.Error != ErrorClientClosed && l.Error != ErrorStopped {
		g.connectionErrors.Inc()
	}
	if l.TargetState == "unhealthy" {
		g.failOpen.Inc()
	}
	if l.Micros.FirstByte >= 0 {
		g.responseTime.Observe(float64(l.Micros.FirstByte-l.Micros.Sent) / 1e6)
	}
}

// own counts an answer of the load balancer's own. The counts of a class include
// those of its codes, and 460 is not among the client errors (the user guide's
// description of HTTPCode_ELB_4XX_Count).
func (b *LoadBalancerCounters) own(status int) {
	if status == 460 {
		return
	}
	for _, suffix := range []string{statusClass(status), strconv.Itoa(status)} {
		if counter := b.elb[suffix]; counter != nil {
			counter.Inc()
		}
	}
}

func (b *LoadBalancerCounters) group(name string) *groupCounters {
	if g, ok := b.groups.Load(name); ok {
		return g.(*groupCounters)
	}
	g := &groupCounters{
		target:           make(map[string]prometheus.Counter),
		connectionErrors: b.all.connectionErrors.WithLabelValues(b.name, name),
		failOpen:         b.all.failOpen.WithLabelValues(b.name, name),
		responseTime:     b.all.responseTime.WithLabelValues(b.name, name),
	}
	for class, v := range b.all.target {
		g.target[class] = v.WithLabelValues(b.name, name)
	}
	actual, _ := b.groups.LoadOrStore(name, g)
	return actual.(*groupCounters)
}
