package lab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	"sluice/loadgen/replay"
)

// The files of a site's certificate and of its key.
const certificateFile, keyFile = "edges.crt", "edges.key"

// certify makes a certificate for the site's edges, which vouches for itself.
func (s *Site) certify() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("loadgen: lab: make a key: %w", err)
	}
	now := time.Now()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: replay.DefaultHost},
		DNSNames:  []string{replay.DefaultHost},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(365 * 24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		return fmt.Errorf("loadgen: lab: make a certificate: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("loadgen: lab: write a key: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	s.roots = x509.NewCertPool()
	s.roots.AppendCertsFromPEM(text)
	if _, err := s.file(certificateFile, string(text)); err != nil {
		return err
	}
	_, err = s.file(keyFile,
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	return err
}

// client is how a client knows the site's edges. Sessions are resumed, as by browsers.
func (s *Site) client() *tls.Config {
	return &tls.Config{RootCAs: s.roots, ServerName: replay.DefaultHost,
		ClientSessionCache: tls.NewLRUClientSessionCache(1 << 12)}
}
