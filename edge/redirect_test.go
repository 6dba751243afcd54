package edge_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"sluice/edge/edgetest"
	"sluice/edge/listen"
)

// redirecting has an edge listen at a place that redirects to https, and returns where.
func redirecting(t *testing.T, e *edgetest.Edge, port uint16) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	edgetest.Must(t, err)
	go e.ServeEntry(ln, &listen.Entry{Field: "listen", Address: "there", Redirect: port}, nil)
	return ln.Addr().String()
}

// send sends a request as it is written, and returns the answer.
func send(t *testing.T, to, request string) *http.Response {
	t.Helper()
	nc, err := net.Dial("tcp", to)
	edgetest.Must(t, err)
	defer nc.Close()
	_, err = io.WriteString(nc, request)
	edgetest.Must(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	edgetest.Must(t, err)
	return resp
}

// Every request there is sent to the same host and target over https, with the port, and without the one that it came to.
func TestRedirectToHTTPS(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "rules: [{name: r, limit: 1, window: 1m}]")
	usual, other := redirecting(t, e, 443), redirecting(t, e, 8443)
	for _, test := range []struct{ to, request, want string }{
		{usual, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "https://a.example/"},
		{usual, "GET /x%20y?q=/&p HTTP/1.1\r\nHost: a.example:8080\r\n\r\n", "https://a.example/x%20y?q=/&p"},
		{usual, "POST /x HTTP/1.1\r\nHost: A.example.\r\nContent-Length: 2\r\n\r\nok", "https://a.example/x"},
		{other, "GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n", "https://a.example:8443/x"},
		{other, "GET /x HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n", "https://[2001:db8::1]:8443/x"},
		{usual, "GET http://a.example?q HTTP/1.1\r\nHost: a.example\r\n\r\n", "https://a.example/?q"},
		{usual, "GET http://a.example/p?q HTTP/1.1\r\nHost: a.example\r\n\r\n", "https://a.example/p?q"},
		{usual, "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", "https://a.example/"},
		{usual, "GET //evil.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "https://a.example//evil.example/"},
	} {
		resp := send(t, test.to, test.request)
		if resp.StatusCode != 308 || resp.Header.Get("Location") != test.want || resp.ContentLength != 0 {
			t.Errorf("%q: %d %q (%d bytes), want 308 %q", test.request, resp.StatusCode, resp.Header.Get("Location"), resp.ContentLength, test.want)
		}
	}
	if resp := send(t, usual, "GET / HTTP/1.0\r\n\r\n"); resp.StatusCode != 400 || resp.Header.Get("Location") != "" {
		t.Errorf("without a host: %d %q, want 400", resp.StatusCode, resp.Header.Get("Location"))
	}
	if n := len(o.Requests()); n != 0 {
		t.Errorf("%d requests got to the origin", n)
	}
	if resp, _ := e.Get("/"); resp.StatusCode != 200 {
		t.Errorf("the first request at the other listener: %d: redirects have counted", resp.StatusCode)
	}
}

// A client that is denied is not sent on.
func TestRedirectAfterDeny(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "deny: [127.0.0.1]")
	if resp := send(t, redirecting(t, e, 443), "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); resp.StatusCode != 403 {
		t.Errorf("%d, want 403", resp.StatusCode)
	}
}

// Answers over TLS have the edge's Strict-Transport-Security, once, whoever answers; those without TLS have none, and an origin's
// header stays where the edge says nothing.
func TestHSTS(t *testing.T) {
	folder := t.TempDir()
	edgetest.WriteCertificate(t, filepath.Join(folder, "a"), "a.example")
	certificates := edgetest.CertificatesIn(t, folder)
	o := edgetest.StartRecorder(t, func(int, string) string {
		return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nStrict-Transport-Security: max-age=1\r\n\r\nok"
	})
	const rules = "listen_tls: ':0'\ntls: {folder: /c}\nrules: [{name: r, limit: 1, window: 1m}]\n"
	e := edgetest.Start(t, o.URL(), rules+"hsts: {max_age: 1h, include_subdomains: true}")
	over := e.OverTLS(certificates)
	said := func(scheme, at string, protocol bool) []string {
		t.Helper()
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: protocol}}
		defer client.CloseIdleConnections()
		resp, err := client.Get(scheme + "://" + at + "/")
		edgetest.Must(t, err)
		resp.Body.Close()
		return resp.Header.Values("Strict-Transport-Security")
	}
	const want = "max-age=3600; includeSubDomains"
	for _, name := range []string{"an origin's answer", "a refusal", "by HTTP/2"} {
		if got := said("https", over, name == "by HTTP/2"); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	e2 := edgetest.Start(t, o.URL(), rules+"hsts: {max_age: 1h}")
	if got := said("http", e2.Addr, false); len(got) != 1 || got[0] != "max-age=1" {
		t.Errorf("without TLS: %q, want the origin's alone", got)
	}
	edgetest.Must(t, e2.Reload(rules))
	if got := said("https", edgetest.Start(t, o.URL(), rules).OverTLS(certificates), false); len(got) != 1 || got[0] != "max-age=1" {
		t.Errorf("not configured: %q, want the origin's", got)
	}
}
