package edgetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice/edge/listen"
)

// WriteCertificate writes base.crt and base.key, a certificate that vouches for itself.
func WriteCertificate(t *testing.T, base string, names ...string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1),
		Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	Must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	Must(t, err)
	for ext, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der},
		".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		Must(t, os.WriteFile(base+ext, pem.EncodeToMemory(block), 0o600))
	}
}

// CertificatesIn are those in a folder, and one of a.example.
func CertificatesIn(t *testing.T, folder string) *listen.Certificates {
	t.Helper()
	WriteCertificate(t, filepath.Join(folder, "a"), "a.example")
	certificates, err := listen.LoadCertificates(listen.TLSConfig{Folder: folder})
	Must(t, err)
	return certificates
}

// StartTLSOrigin answers over TLS with the certificate base.crt, to clients that show the
// certificate asks.crt if asks is not "".
func StartTLSOrigin(t *testing.T, base, asks string, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(base+".crt", base+".key")
	Must(t, err)
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	if asks != "" {
		text, err := os.ReadFile(asks + ".crt")
		Must(t, err)
		s.TLS.ClientAuth, s.TLS.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		s.TLS.ClientCAs.AppendCertsFromPEM(text)
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// OverHTTP2 is a client that speaks HTTP/2 over TLS, with one connection for all its requests.
func OverHTTP2(t *testing.T) *http.Transport {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DisableCompression: true, Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// Ask2 makes a request, and returns the answer with its body read.
func Ask2(t *testing.T, tr http.RoundTripper, method, url string, body io.Reader,
	change ...func(*http.Request)) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, body)
	Must(t, err)
	for _, f := range change {
		f(r)
	}
	resp, err := tr.RoundTrip(r)
	Must(t, err)
	text, err := io.ReadAll(resp.Body)
	Must(t, err)
	resp.Body.Close()
	return resp, string(text)
}
