package alb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/controller"
	"lameduck/clusters/alb/elb"
)

// Options of the load balancer.
type Options struct {
	// Kubeconfig is the path of the cluster's kubeconfig; "": that of the pod in
	// which this runs.
	Kubeconfig string
	// Addresses are those of the load balancer nodes: IP addresses of this machine
	// or network namespace, on which the listeners of all Ingresses listen, and
	// which their status shows. An ALB has at least two nodes.
	Addresses []string
	// LogDir gets the logs (see accesslog.Log).
	LogDir string
	// LogFlush is the longest time a line about a request waits in memory. Default
	// 100 ms.
	LogFlush time.Duration
	// Log gets messages for people, a line each. nil: none.
	Log io.Writer
	// HealthzAddr (host:port) serves /healthz (200 when the API server is being
	// watched, 503 before) and /metrics (see accesslog.Counters). "": not served.
	HealthzAddr string
	// WebhookAddr (IP address:port) is where the API server reaches the webhook
	// that adds readiness gates to pods. "": there is none.
	WebhookAddr string
	// DrainTimeout bounds how long Run waits for requests in flight after its
	// context has ended. Default 5 s.
	DrainTimeout time.Duration
	// Controller and Settings are what is not published; the fields that are above
	// are set from these.
	Controller controller.Options
	Settings   elb.Settings
}

// Check finds all that is wrong with the options, before anything is served. It
// makes the log directory.
func (o Options) Check() error {
	_, err := o.resolve()
	return err
}

// Run serves the Ingresses of class alb until ctx ends. Then it stops
// accepting, lets requests in flight end for Options.DrainTimeout, and cuts
// the rest. The end of ctx is not an error.
func Run(ctx context.Context, o Options) error {
	o, err := o.resolve()
	if err != nil {
		return err
	}
	config, err := restConfig(o.Kubeconfig)
	if err != nil {
		return err
	}
	// Two workers write, so this only bounds bursts, as when the nodes of many
	// Ingresses change at once.
	config.QPS, config.Burst = 50, 100
	config.UserAgent = "lameduck-alb"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	return run(ctx, client, o)
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no kubeconfig is given, and this is not a pod: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return config, nil
}

// resolve parses the addresses and finds what would otherwise show only when the
// first Ingress comes.
func (o Options) resolve() (Options, error) {
	var errs []error
	o.Settings.Nodes = nil
	for _, text := range o.Addresses {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("address is %q: want an IP address of this machine or network namespace", text))
			continue
		}
		o.Settings.Nodes = append(o.Settings.Nodes, addr)
	}
	if len(o.Addresses) == 0 {
		errs = append(errs, errors.New("no address: want at least one, for each load balancer node"))
	}
	if len(errs) == 0 {
		errs = append(errs, o.Settings.Check())
	}
	o.Controller.Addresses = o.Settings.Nodes
	if o.WebhookAddr != "" {
		at, err := netip.ParseAddrPort(o.WebhookAddr)
		if err != nil {
			errs = append(errs, fmt.Errorf("webhook address is %q: want an IP address and a port", o.WebhookAddr))
		}
		o.Controller.Webhook = &controller.WebhookOptions{Listen: at}
	}
	if o.LogDir == "" {
		errs = append(errs, errors.New("log directory is empty: name one (--log-dir)"))
	} else if err := os.MkdirAll(o.LogDir, 0o755); err != nil {
		errs = append(errs, fmt.Errorf("make log directory: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return o, err
	}
	for _, addr := range o.Settings.Nodes {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
		if err != nil {
			return o, fmt.Errorf("listen on %s: %w", addr, err)
		}
		if err := l.Close(); err != nil {
			return o, err
		}
	}
	messages := io.Writer(io.Discard)
	if o.Log != nil {
		messages = &lockedWriter{w: o.Log}
	}
	o.Log, o.Controller.Messages = messages, messages
	if o.LogFlush == 0 {
		o.LogFlush = 100 * time.Millisecond
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = 5 * time.Second
	}
	return o, nil
}

// run is Run with resolved options and a client, which tests fake.
func run(ctx context.Context, client kubernetes.Interface, o Options) (err error) {
	out := outputs{dir: o.LogDir, flush: o.LogFlush, messages: o.Log, counters: accesslog.NewCounters()}
	service, err := elb.New(o.Settings, elb.Outputs{Log: out.open, Metrics: out.metrics, Messages: o.Log})
	if err != nil {
		return err
	}
	defer func() {
		draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.DrainTimeout)
		defer cancel()
		err = errors.Join(err, service.Close(draining))
	}()

	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	events := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "ingress"})
	c, err := controller.New(client, events, service, o.Controller)
	if err != nil {
		return err
	}
	if o.HealthzAddr != "" {
		stop, err := serveHealthz(o.HealthzAddr, c.Synced, out.counters)
		if err != nil {
			return err
		}
		defer stop()
	}
	fmt.Fprintf(o.Log, "load balancer on %v\n", o.Settings.Nodes)
	return c.Run(ctx)
}

func serveHealthz(addr string, synced func() bool, counters *accesslog.Counters) (stop func(), err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for healthz: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !synced() {
			http.Error(w, "not watching the API server yet", http.StatusServiceUnavailable)
		}
	})
	mux.Handle("GET /metrics", counters.Handler())
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) }) // ends with stop
	return func() {
		_ = s.Close()
		serving.Wait()
	}, nil
}

// lockedWriter makes a writer safe for concurrent use.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
