package metrics

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"
)

// certificate is one that signs itself, for 127.0.0.1, and its files.
func certificate(t *testing.T, name string) (cert tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(t.TempDir(), "crt"), filepath.Join(t.TempDir(), "key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if cert, err = tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		t.Fatal(err)
	}
	return cert, certFile, keyFile
}

func TestOnlyTheFrontProxyGetsThrough(t *testing.T) {
	_, cert, key := certificate(t, "server")
	proxy, ca, _ := certificate(t, "front-proxy-client")
	stranger, _, _ := certificate(t, "front-proxy-client")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- serve(ctx, listener, Options{Cert: cert, Key: key, ClientCA: ca}, Handler(fake.NewClientset()))
	}()

	pool := x509.NewCertPool()
	text, err := os.ReadFile(cert)
	if err != nil || !pool.AppendCertsFromPEM(text) {
		t.Fatalf("read %s: %v", cert, err)
	}
	for name, c := range map[string]struct {
		certs []tls.Certificate
		ok    bool
	}{
		"front proxy":         {[]tls.Certificate{proxy}, true},
		"same name, other CA": {[]tls.Certificate{stranger}, false},
		"no certificate":      {nil, false},
	} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: c.certs}}
		resp, err := (&http.Client{Transport: transport}).Get("https://" + listener.Addr().String() + "/apis/external.metrics.k8s.io/v1beta1")
		if err == nil {
			resp.Body.Close()
		}
		if ok := err == nil && resp.StatusCode == http.StatusOK; ok != c.ok {
			t.Errorf("%s: answered %t (error %v), want %t", name, ok, err, c.ok)
		}
		transport.CloseIdleConnections()
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("after the end of its context: %v", err)
	}
}
