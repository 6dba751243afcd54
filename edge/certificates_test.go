package edge

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/edge/listen"
)

func writeCertificate(t *testing.T, base string, names ...string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	for ext, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		must(t, os.WriteFile(base+ext, pem.EncodeToMemory(block), 0o600))
	}
}

// certificatesIn are those in a folder, and one of a.example.
func certificatesIn(t *testing.T, folder string) *listen.Certificates {
	t.Helper()
	writeCertificate(t, filepath.Join(folder, "a"), "a.example")
	certificates, err := listen.LoadCertificates(listen.TLSConfig{Folder: folder})
	must(t, err)
	return certificates
}

// serveTLS serves over TLS as well, and returns where.
func (e *edgeUnderTest) serveTLS(certificates *listen.Certificates) (addr string) {
	e.t.Helper()
	ln := listenHere(e.t)
	go func() { _ = e.ServeTLS(ln, certificates) }()
	return ln.Addr().String()
}

// The certificate follows the name asked for and the files; requests over TLS say so to the origin; old versions of TLS and
// plain HTTP are refused; a PROXY header comes before the handshake.
func TestTLS(t *testing.T) {
	folder := t.TempDir()
	writeCertificate(t, filepath.Join(folder, "b"), "*.b.example")
	certificates := certificatesIn(t, folder)
	o := startRecorder(t, hello)
	e := startEdge(t, o.url(), "limits: {header_timeout: 500ms}")
	proxied := startEdge(t, o.url(), "source: {trust: [127.0.0.1], proxy_protocol: true}")
	addr := map[*edgeUnderTest]string{}
	for _, s := range []*edgeUnderTest{e, proxied} {
		addr[s] = s.serveTLS(certificates)
	}
	shown := func(s *edgeUnderTest, before, name string, most uint16) string {
		nc, err := net.Dial("tcp", addr[s])
		must(t, err)
		defer nc.Close()
		_, _ = io.WriteString(nc, before)
		c := tls.Client(nc, &tls.Config{ServerName: name, InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: most, NextProtos: []string{"http/1.1"}})
		if err := c.Handshake(); err != nil {
			return "refused"
		}
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 200 {
			t.Errorf("%s: %v %v", name, resp, err)
		}
		return c.ConnectionState().PeerCertificates[0].DNSNames[0]
	}
	for name, want := range map[string]string{"a.example": "a.example", "X.B.example": "*.b.example", "b.example": "a.example", "": "a.example"} {
		if got := shown(e, "", name, tls.VersionTLS13); got != want {
			t.Errorf("%q was shown %s, want %s", name, got, want)
		}
	}
	if got := shown(e, "", "a.example", tls.VersionTLS12); got != "a.example" {
		t.Errorf("TLS 1.2: %s", got)
	}
	if got := shown(e, "", "a.example", tls.VersionTLS11); got != "refused" {
		t.Errorf("TLS 1.1: %s", got)
	}
	if got := shown(proxied, proxyV2(t, "192.0.2.5:99"), "a.example", tls.VersionTLS13); got != "a.example" {
		t.Errorf("after a PROXY header: %s", got)
	}
	all := strings.Join(o.requests(), "")
	if strings.Count(all, "X-Forwarded-Proto: https\r\n") != len(o.requests()) || !strings.Contains(all, "X-Forwarded-For: 192.0.2.5\r\n") {
		t.Errorf("the origin got %q", all)
	}

	if changed, err := certificates.Refresh(); changed || err != nil {
		t.Errorf("nothing has changed: %t %v", changed, err)
	}
	writeCertificate(t, filepath.Join(folder, "c"), "b.example")
	if changed, err := certificates.Refresh(); !changed || err != nil {
		t.Errorf("a new one: %t %v", changed, err)
	}
	if got := shown(e, "", "b.example", tls.VersionTLS13); got != "b.example" {
		t.Errorf("b.example was shown %s", got)
	}
	must(t, os.WriteFile(filepath.Join(folder, "c.key"), []byte("half"), 0o600))
	if _, err := certificates.Refresh(); err == nil {
		t.Error("half a key was taken")
	}
	if got := shown(e, "", "b.example", tls.VersionTLS13); got != "b.example" {
		t.Errorf("after a bad file b.example was shown %s", got)
	}
	e.rest()
}

func TestUnixSocket(t *testing.T) {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	must(t, err)
	o := startRecorder(t, hello)
	e := startEdge(t, o.url(), "source: {trust: [127.0.0.1]}")
	go func() { _ = e.Serve(ln) }()
	c, err := net.Dial("unix", ln.Addr().String())
	must(t, err)
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v", err)
	}
	if got := o.requests(); !strings.Contains(got[0], "X-Forwarded-For: 192.0.2.1, 127.0.0.1\r\n") {
		t.Errorf("the origin got %q", got)
	}
}
