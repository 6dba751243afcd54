package bench

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

const tlsName = "edge.example"

// certificate makes what every edge shows: an ECDSA certificate on P-256 of its own signing, and
// its key in the same file.
func (b *bed) certificate() (file string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", fmt.Errorf("loadgen: certificate: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{tlsName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 0, 7)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return "", fmt.Errorf("loadgen: certificate: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", fmt.Errorf("loadgen: certificate: %w", err)
	}
	var text bytes.Buffer
	for _, block := range []*pem.Block{{Type: "CERTIFICATE", Bytes: cert},
		{Type: "PRIVATE KEY", Bytes: secret}} {
		if err := pem.Encode(&text, block); err != nil {
			return "", fmt.Errorf("loadgen: certificate: %w", err)
		}
	}
	return b.file("edge.pem", text.String())
}

// clientTLS is what the load speaks, so that all edges do the same work: TLS 1.3, AES-128-GCM,
// X25519. Whose certificate it is does not matter here, so that the load has less to do.
func clientTLS(c PeerCase) *tls.Config {
	config := &tls.Config{
		ServerName: tlsName, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"},
		MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.X25519},
		VerifyConnection: func(s tls.ConnectionState) error {
			if s.CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
				return fmt.Errorf("the edge chose %s, and others AES-128-GCM",
					tls.CipherSuiteName(s.CipherSuite))
			}
			return nil
		},
	}
	if c.has("resumed") {
		config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	}
	return config
}
