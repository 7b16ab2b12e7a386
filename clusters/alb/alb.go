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
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
)

// Options of the load balancer.
type Options struct {
	// Kubeconfig is the path of the cluster's kubeconfig.
	Kubeconfig string
	// Address is where the listeners of all Ingresses listen, and what their
	// status shows: an IP address of this machine or network namespace.
	Address string
	// LogDir gets <namespace>/<ingress>.jsonl, a LogLine per request.
	LogDir string
	// Log gets messages for people, a line each. nil: none.
	Log io.Writer
	// HealthzAddr (host:port) serves /healthz: 200 when the API server is
	// being watched, 503 before. "": not served.
	HealthzAddr string
	Settings    Settings
}

// Run serves the Ingresses of class alb until ctx ends. Then it stops
// accepting, lets requests in flight end for Settings.DrainTimeout, and cuts
// the rest. The end of ctx is not an error.
func Run(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	// One worker writes, so this only bounds bursts, as when the nodes of many
	// Ingresses change at once.
	config.QPS, config.Burst = 50, 100
	config.UserAgent = "lameduck-alb"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	return run(ctx, client, o)
}

// check finds what would otherwise show only when the first Ingress comes.
func (o Options) check() error {
	var errs []error
	if _, err := netip.ParseAddr(o.Address); err != nil {
		errs = append(errs, fmt.Errorf("address is %q: want an IP address of this machine or network namespace", o.Address))
	}
	if o.LogDir == "" {
		errs = append(errs, errors.New("log directory is empty: name one"))
	} else if err := os.MkdirAll(o.LogDir, 0o755); err != nil {
		errs = append(errs, fmt.Errorf("make log directory: %w", err))
	}
	if p := o.Settings.PoolOrder; p != "" && p != PoolLIFO && p != PoolFIFO {
		errs = append(errs, fmt.Errorf("pool order is %q: want %s or %s", p, PoolLIFO, PoolFIFO))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(o.Address, "0"))
	if err != nil {
		return fmt.Errorf("listen on %s: %w", o.Address, err)
	}
	return l.Close()
}

// run is Run with a client, which tests fake.
func run(ctx context.Context, client kubernetes.Interface, o Options) (err error) {
	h, err := newHangups()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	messages := io.Writer(io.Discard)
	if o.Log != nil {
		messages = &lockedWriter{w: o.Log}
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	events := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "ingress"})

	c, err := newController(client, events, &environment{
		address:  o.Address,
		logDir:   o.LogDir,
		settings: o.Settings.withDefaults(),
		hangups:  h,
		messages: messages,
	})
	if err != nil {
		return err
	}
	if o.HealthzAddr != "" {
		stop, err := serveHealthz(o.HealthzAddr, c)
		if err != nil {
			return err
		}
		defer stop()
	}
	fmt.Fprintf(messages, "load balancer on %s\n", o.Address)
	return c.run(ctx)
}

func serveHealthz(addr string, c *controller) (stop func(), err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for healthz: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !c.synced.Load() {
			http.Error(w, "not watching the API server yet", http.StatusServiceUnavailable)
		}
	})
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
