package accesslog

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Counters are the metrics of all load balancers under their CloudWatch names
// and dimensions (AWS user guide for Application Load Balancers, CloudWatch
// metrics, grade D), in Prometheus's form. CloudWatch shows sums over a period;
// these are totals since the start. HELP tells where a meaning differs.
type Counters struct {
	registry *prometheus.Registry

	// Of a load balancer.
	active    *prometheus.GaugeVec
	opened    *prometheus.CounterVec
	rejected  *prometheus.CounterVec
	processed *prometheus.CounterVec
	fixed     *prometheus.CounterVec
	redirects *prometheus.CounterVec
	elbClass  [6]*prometheus.CounterVec // 3, 4, 5: HTTPCode_ELB_nXX_Count
	elbCode   [4]*prometheus.CounterVec // HTTPCode_ELB_nnn_Count, as elbCodes

	// Of a target group of a load balancer.
	requests   *prometheus.CounterVec
	targetCode [6]*prometheus.CounterVec // 2..5: HTTPCode_Target_nXX_Count
	connectErr *prometheus.CounterVec
	tlsErr     *prometheus.CounterVec
	unhealthy  *prometheus.CounterVec
	response   *prometheus.HistogramVec

	// Of a target group.
	healthyN   *prometheus.GaugeVec
	unhealthyN *prometheus.GaugeVec
}

// The dimensions.
const (
	dimLoadBalancer = "LoadBalancer"
	dimTargetGroup  = "TargetGroup"
)

// elbCodes have a counter of their own.
var elbCodes = [4]string{"500", "502", "503", "504"}

// responseBuckets are TargetResponseTime's, in seconds: up to the default idle
// timeout, at which an ALB gives up.
var responseBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

// NewCounters returns counters without any load balancer.
func NewCounters() *Counters {
	c := &Counters{registry: prometheus.NewRegistry()}
	lb := func(name, help string) *prometheus.CounterVec { return c.counter(name, help, dimLoadBalancer) }
	group := func(name, help string) *prometheus.CounterVec {
		return c.counter(name, help, dimLoadBalancer, dimTargetGroup)
	}
	c.active = c.gauge("ActiveConnectionCount", "Connections from clients that are open (CloudWatch: those to targets too).", dimLoadBalancer)
	c.opened = lb("NewConnectionCount", "Connections established from clients and to targets.")
	c.rejected = lb("RejectedConnectionCount", "Connections from clients that were rejected.")
	c.processed = lb("ProcessedBytes", "Bytes from and to clients.")
	c.fixed = lb("HTTP_Fixed_Response_Count", "Fixed-response actions.")
	c.redirects = lb("HTTP_Redirect_Count", "Redirect actions.")
	for class := 3; class <= 5; class++ {
		digit := string(rune('0' + class))
		c.elbClass[class] = lb("HTTPCode_ELB_"+digit+"XX_Count", "Answers "+digit+"xx of the load balancer itself.")
	}
	for i, code := range elbCodes {
		c.elbCode[i] = lb("HTTPCode_ELB_"+code+"_Count", "Answers "+code+" of the load balancer itself.")
	}
	c.requests = group("RequestCount", "Requests for which a target was chosen.")
	for class := 2; class <= 5; class++ {
		digit := string(rune('0' + class))
		c.targetCode[class] = group("HTTPCode_Target_"+digit+"XX_Count", "Answers "+digit+"xx of targets.")
	}
	c.connectErr = group("TargetConnectionErrorCount", "Connections to targets that were not established.")
	c.tlsErr = group("TargetTLSNegotiationErrorCount", "TLS sessions with targets that were not established.")
	c.unhealthy = group("UnhealthyRoutingRequestCount", "Requests routed by fail-open.")
	c.response = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "TargetResponseTime", Help: "Seconds from the request's way to the target until its answer's head.", Buckets: responseBuckets,
	}, []string{dimLoadBalancer, dimTargetGroup})
	c.registry.MustRegister(c.response)
	c.healthyN = c.gauge("HealthyHostCount", "Healthy targets.", dimLoadBalancer, dimTargetGroup)
	c.unhealthyN = c.gauge("UnHealthyHostCount", "Unhealthy targets.", dimLoadBalancer, dimTargetGroup)
	return c
}

func (c *Counters) counter(name, help string, labels ...string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	c.registry.MustRegister(vec)
	return vec
}

func (c *Counters) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	c.registry.MustRegister(vec)
	return vec
}

// Handler serves /metrics.
func (c *Counters) Handler() http.Handler {
	return promhttp.HandlerFor(c.registry, promhttp.HandlerOpts{})
}

// LoadBalancer returns the counters of one load balancer: namespace/ingress.
// Asked for again, they go on where they were.
func (c *Counters) LoadBalancer(name string) *LoadBalancerCounters {
	b := &LoadBalancerCounters{
		counters: c, name: name, groups: map[string]*groupCounters{},
		active: c.active.WithLabelValues(name), opened: c.opened.WithLabelValues(name), rejected: c.rejected.WithLabelValues(name),
		processed: c.processed.WithLabelValues(name), fixed: c.fixed.WithLabelValues(name), redirects: c.redirects.WithLabelValues(name),
	}
	for class, vec := range c.elbClass {
		if vec != nil {
			b.elbClass[class] = vec.WithLabelValues(name)
		}
	}
	for i, vec := range c.elbCode {
		b.elbCode[i] = vec.WithLabelValues(name)
	}
	return b
}

// LoadBalancerCounters are those of one load balancer. They are a Sink, and take
// what a listener tells of its connections.
type LoadBalancerCounters struct {
	counters                                      *Counters
	name                                          string
	active                                        prometheus.Gauge
	opened, rejected, processed, fixed, redirects prometheus.Counter
	elbClass                                      [6]prometheus.Counter
	elbCode                                       [4]prometheus.Counter

	mu     sync.RWMutex
	groups map[string]*groupCounters
}

// groupCounters are those of one of its target groups.
type groupCounters struct {
	requests, connectErr, tlsErr, unhealthy prometheus.Counter
	targetCode                              [6]prometheus.Counter
	response                                prometheus.Observer
}

func (b *LoadBalancerCounters) group(name string) *groupCounters {
	b.mu.RLock()
	g := b.groups[name]
	b.mu.RUnlock()
	if g != nil {
		return g
	}
	c := b.counters
	g = &groupCounters{
		requests: c.requests.WithLabelValues(b.name, name), connectErr: c.connectErr.WithLabelValues(b.name, name),
		tlsErr: c.tlsErr.WithLabelValues(b.name, name), unhealthy: c.unhealthy.WithLabelValues(b.name, name),
		response: c.response.WithLabelValues(b.name, name),
	}
	for class, vec := range c.targetCode {
		if vec != nil {
			g.targetCode[class] = vec.WithLabelValues(b.name, name)
		}
	}
	b.mu.Lock()
	b.groups[name] = g
	b.mu.Unlock()
	return g
}

// Hosts says how many targets of a group are healthy and unhealthy.
func (b *LoadBalancerCounters) Hosts(group string, healthy, unhealthy int) {
	b.counters.healthyN.WithLabelValues(b.name, group).Set(float64(healthy))
	b.counters.unhealthyN.WithLabelValues(b.name, group).Set(float64(unhealthy))
}

// GroupGone takes the gauges of a group away that is no longer used.
func (b *LoadBalancerCounters) GroupGone(group string) {
	b.counters.healthyN.DeleteLabelValues(b.name, group)
	b.counters.unhealthyN.DeleteLabelValues(b.name, group)
}

// ConnectionOpened counts a connection from a client.
func (b *LoadBalancerCounters) ConnectionOpened() { b.opened.Inc(); b.active.Inc() }

// ConnectionClosed is the end of one that was counted by ConnectionOpened.
func (b *LoadBalancerCounters) ConnectionClosed() { b.active.Dec() }

// ConnectionRejected counts a connection that was not taken.
func (b *LoadBalancerCounters) ConnectionRejected() { b.rejected.Inc() }

// Add counts one request.
func (b *LoadBalancerCounters) Add(l *Line) {
	b.processed.Add(float64(l.ReceivedTotal + l.SentTotal))
	switch {
	case l.Target != "":
		b.group(l.Group).add(l)
	case l.Action == "fixed-response":
		b.fixed.Inc()
	case l.Action == "redirect":
		b.redirects.Inc()
	}
	if l.Local != "" && !l.Reused {
		b.opened.Inc()
	}
	if l.Status == l.TargetStatus {
		return // the target's own
	}
	if class := l.Status / 100; class >= 3 && class <= 5 {
		b.elbClass[class].Inc()
	}
	switch l.Status {
	case http.StatusInternalServerError:
		b.elbCode[0].Inc()
	case http.StatusBadGateway:
		b.elbCode[1].Inc()
	case http.StatusServiceUnavailable:
		b.elbCode[2].Inc()
	case http.StatusGatewayTimeout:
		b.elbCode[3].Inc()
	}
}

func (g *groupCounters) add(l *Line) {
	g.requests.Inc()
	if l.TargetState == "unhealthy" {
		g.unhealthy.Inc()
	}
	switch {
	case l.Error == ErrorTLS:
		g.tlsErr.Inc()
	case l.Phase == PhaseConnect && l.Error != ErrorClientClosed:
		g.connectErr.Inc()
	}
	if class := l.TargetStatus / 100; class >= 2 && class <= 5 {
		g.targetCode[class].Inc()
	}
	// The same as the access log's target_processing_time.
	if _, target, _ := l.ProcessingTimes(); target >= 0 && l.TargetStatus != 0 {
		g.response.Observe(float64(target) / 1e6)
	}
}
