package machine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// A probe is repeated often, because every wait is on the way to a running
// cluster, and given up when something is clearly wrong.
const (
	probeInterval = 20 * time.Millisecond
	probeLimit    = 2 * time.Minute
)

// probes waits for conditions, once for each that several components share.
type probes struct {
	ctx context.Context
	mu  sync.Mutex
	all map[Probe]func() error
}

func newProbes(ctx context.Context) *probes {
	return &probes{ctx: ctx, all: make(map[Probe]func() error)}
}

func (ps *probes) wait(p Probe) error {
	ps.mu.Lock()
	once := ps.all[p]
	if once == nil {
		once = sync.OnceValue(func() error { return p.wait(ps.ctx) })
		ps.all[p] = once
	}
	ps.mu.Unlock()
	return once()
}

// wait returns when the condition holds, or ctx ends, or it takes too long.
func (p Probe) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	check, err := p.check()
	if err != nil {
		return err
	}
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		last := check(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s%s: %w", p.Unix, p.URL, last)
		case <-tick.C:
		}
	}
}

func (p Probe) check() (func(context.Context) error, error) {
	if p.Unix != "" {
		return func(ctx context.Context) error {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", p.Unix)
			if err != nil {
				return err
			}
			return conn.Close()
		}, nil
	}
	client, err := p.client()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		// Only a connection whose answer was read is used again, and a TLS
		// handshake each time would slow down what is being waited for.
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %s", resp.Status)
		}
		return nil
	}, nil
}

func (p Probe) client() (*http.Client, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.CA != "" {
		pem, err := os.ReadFile(p.CA)
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = x509.NewCertPool()
		cfg.RootCAs.AppendCertsFromPEM(pem)
	}
	if p.Cert != "" {
		cert, err := tls.LoadX509KeyPair(p.Cert, p.Key)
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{TLSClientConfig: cfg}}, nil
}

func notifyChild() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGCHLD)
	return c
}
