package conformance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"time"
)

// ownCertificate is a server's configuration with a certificate that nobody
// signed and that has ended long ago.
func ownCertificate(t *T) *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	t.must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1, 0),
		DNSNames: []string{"shop.example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	t.must(err)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// anyCertificate is a client's configuration that takes every certificate.
func anyCertificate() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the tests' own
}

// pool trusts certificates in PEM.
func pool(t *T, pem []byte) *x509.CertPool {
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(pem) {
		t.Fatalf("no certificate in %q", pem)
	}
	return p
}
