package listen_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/edge/edgetest"
	"sluice/edge/http1"
)

// The certificate follows the name asked for and the files; requests over TLS say so to the origin; old versions of TLS and
// plain HTTP are refused; a PROXY header comes before the handshake.
func TestTLS(t *testing.T) {
	folder := t.TempDir()
	edgetest.WriteCertificate(t, filepath.Join(folder, "b"), "*.b.example")
	certificates := edgetest.CertificatesIn(t, folder)
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "limits: {header_timeout: 500ms}")
	proxied := edgetest.Start(t, o.URL(), "source: {trust: [127.0.0.1], proxy_protocol: true}")
	addr := map[*edgetest.Edge]string{}
	for _, s := range []*edgetest.Edge{e, proxied} {
		addr[s] = s.OverTLS(certificates)
	}
	shown := func(s *edgetest.Edge, before, name string, most uint16) string {
		nc, err := net.Dial("tcp", addr[s])
		edgetest.Must(t, err)
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
	all := strings.Join(o.Requests(), "")
	if strings.Count(all, "X-Forwarded-Proto: https\r\n") != len(o.Requests()) || !strings.Contains(all, "X-Forwarded-For: 192.0.2.5\r\n") {
		t.Errorf("the origin got %q", all)
	}

	if changed, err := certificates.Refresh(); changed || err != nil {
		t.Errorf("nothing has changed: %t %v", changed, err)
	}
	edgetest.WriteCertificate(t, filepath.Join(folder, "c"), "b.example")
	if changed, err := certificates.Refresh(); !changed || err != nil {
		t.Errorf("a new one: %t %v", changed, err)
	}
	if got := shown(e, "", "b.example", tls.VersionTLS13); got != "b.example" {
		t.Errorf("b.example was shown %s", got)
	}
	edgetest.Must(t, os.WriteFile(filepath.Join(folder, "c.key"), []byte("half"), 0o600))
	if _, err := certificates.Refresh(); err == nil {
		t.Error("half a key was taken")
	}
	if got := shown(e, "", "b.example", tls.VersionTLS13); got != "b.example" {
		t.Errorf("after a bad file b.example was shown %s", got)
	}
	e.Rest()
}

// A client that speaks plain HTTP where TLS is spoken gets at once an answer in clear text that says so.
func TestPlainHTTPOnATLSPort(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "limits: {header_timeout: 30s}\nsource: {trust: [127.0.0.1]}")
	addr := e.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))
	says := func(text string) string {
		nc, err := net.Dial("tcp", addr)
		edgetest.Must(t, err)
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(nc, text)
		got, _ := io.ReadAll(nc)
		return string(got)
	}
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "PROPFIND", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("x", 9000), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
		if got := says(text); !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, `"code":"plain_http"`) {
			t.Errorf("%.20q: %q", text, got)
		}
	}
	if got := says("\x00\x01\x02\x03\x04\x05"); strings.HasPrefix(got, "HTTP") {
		t.Errorf("neither TLS nor HTTP: %q", got)
	}
	if m := e.Rest(); m["sluice_answers_total{code=400,from=edge}"] != 4 {
		t.Errorf("metrics: %v", m)
	}
}

// Whoever asks for a proof of ACME gets a handshake and nothing else, whether there is a proof or not.
func TestNothingIsServedAfterAProof(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	certificates := edgetest.CertificatesIn(t, t.TempDir())
	certificates.Issued = func(*tls.ClientHelloInfo) *tls.Certificate { return nil } // there is none
	addr := edgetest.Start(t, o.URL(), "").OverTLS(certificates)
	nc, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, ServerName: "a.example", NextProtos: []string{"acme-tls/1"}})
	edgetest.Must(t, err)
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(nc, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if got, err := io.ReadAll(nc); len(got) > 0 || http1.TimedOut(err) {
		t.Errorf("it got %q, %v", got, err)
	}
}

func TestUnixSocket(t *testing.T) {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	edgetest.Must(t, err)
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "source: {trust: [127.0.0.1]}")
	go func() { _ = e.Serve(ln) }()
	c, err := net.Dial("unix", ln.Addr().String())
	edgetest.Must(t, err)
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v", err)
	}
	if got := o.Requests(); !strings.Contains(got[0], "X-Forwarded-For: 192.0.2.1, 127.0.0.1\r\n") {
		t.Errorf("the origin got %q", got)
	}
}
