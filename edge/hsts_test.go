package edge_test

import (
	"crypto/tls"
	"net/http"
	"path/filepath"
	"testing"

	"sluice/edge/edgetest"
)

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
