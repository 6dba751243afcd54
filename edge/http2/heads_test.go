package http2_test

import (
	"crypto/tls"
	"strings"
	"testing"

	frames "golang.org/x/net/http2"

	"sluice/edge/edgetest"
)

// A change of the table's size after a field ends the connection, even if the table is empty.
func TestLateSizeChange(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	addr := edgetest.Start(t, o.URL(), "").OverTLS(edgetest.CertificatesIn(t, t.TempDir()))
	const get, change = "\x82\x87\x84\x01\x01a", "\x3f\xe1\x1f" // nothing of it goes into the table; 4096
	for block, sound := range map[string]bool{get: true, change + get: true, change + change + get: true, get + change: false, "\x82" + change + get[1:]: false, get + "\x20": false} {
		f := dialFrames(t, addr)
		edgetest.Must(t, f.WriteHeaders(frames.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true, BlockFragment: []byte(block)}))
		a := f.Answer(1)
		if failed := f.goAway != nil && *f.goAway == frames.ErrCodeCompression; failed == sound || sound != (a.status == "200") {
			t.Errorf("%x: %v, GOAWAY %v", block, a, f.goAway)
		}
	}
}

// A path that is not ASCII reaches the origin percent-encoded: to rules it is the path so written.
func TestPathsBeyondASCII(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "limits: {header_bytes: 2048}\nrules: [{name: r, match: {path: /café}, limit: 1, window: 1h}]")
	f := dialFrames(t, e.OverTLS(edgetest.CertificatesIn(t, t.TempDir())))
	ask := func(id uint32, path, want string) {
		t.Helper()
		f.Ask(id, true, ":method", "GET", ":scheme", "https", ":authority", "a", ":path", path)
		if a := f.Answer(id); a.status != want {
			t.Errorf("%q: %v, want %s", path, a, want)
		}
	}
	ask(1, "/caf\xc3\xa9?\xff", "200")
	ask(3, "/caf%c3%a9", "429")
	ask(5, "/\xff"+strings.Repeat("\x80", 700), "431") // with three bytes for each
	if got := strings.Join(o.Requests(), ""); !strings.HasPrefix(got, "GET /caf%C3%A9?%FF HTTP/1.1\r\n") || len(o.Requests()) != 1 {
		t.Errorf("the origin got %q", got)
	}
}

// HTTP/2 is not agreed on with clients that have none but the ciphers that it must not be spoken over (RFC 9113,
// appendix A). They get HTTP/1.1, also where they resume a session.
func TestWeakCiphers(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	addr := edgetest.Start(t, o.URL(), "").OverTLS(edgetest.CertificatesIn(t, t.TempDir()))
	const weak = tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA // the certificate's key is of ECDSA
	cache := tls.NewLRUClientSessionCache(1)
	for _, c := range []struct {
		ciphers []uint16
		want    string
	}{
		{[]uint16{weak}, "http/1.1"},
		{[]uint16{weak, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}, "http/1.1"},
		{[]uint16{weak, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}, "h2"},
		{[]uint16{tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256}, "h2"},
	} {
		nc, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, ServerName: "a.example", MaxVersion: tls.VersionTLS12, CipherSuites: c.ciphers, NextProtos: []string{"h2", "http/1.1"}, ClientSessionCache: cache})
		edgetest.Must(t, err)
		if got := nc.ConnectionState(); got.NegotiatedProtocol != c.want || got.DidResume {
			t.Errorf("%x: %s over %s, want %s", c.ciphers, got.NegotiatedProtocol, tls.CipherSuiteName(got.CipherSuite), c.want)
		}
		nc.Close()
	}
}
