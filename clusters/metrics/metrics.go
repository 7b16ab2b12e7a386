package metrics

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Options of the server. All are needed.
type Options struct {
	Kubeconfig string // to read ConfigMaps with
	Address    string // ip:port to listen on
	// Cert and Key are files: the server's, for the name
	// <service>.<namespace>.svc by which the API server knows it.
	Cert, Key string
	// ClientCA is a file: the CA of the API server's front proxy, which is the only
	// client. It must not sign for anybody else.
	ClientCA string
}

// shutdownLimit bounds the requests that are in flight when ctx ends.
const shutdownLimit = time.Second

// Run serves until ctx ends.
func Run(ctx context.Context, o Options) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	cfg.QPS = -1 // each HPA asks once per sync period
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make Kubernetes client: %w", err)
	}
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return err
	}
	return serve(ctx, listener, o, Handler(client))
}

func serve(ctx context.Context, listener net.Listener, o Options, handler http.Handler) error {
	defer listener.Close()
	frontProxy, err := onlyFrom(o.ClientCA)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, TLSConfig: frontProxy, ReadHeaderTimeout: 10 * time.Second}
	ended := context.AfterFunc(ctx, func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
		defer cancel()
		server.Shutdown(stop)
	})
	defer ended()
	if err := server.ServeTLS(listener, o.Cert, o.Key); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	}
	return nil
}

// onlyFrom asks for a client certificate of the CA in a file.
func onlyFrom(file string) (*tls.Config, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read CA of clients: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read CA of clients: no certificate in %s", file)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}, nil
}
