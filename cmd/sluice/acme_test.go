//go:build system

package main

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"sluice/edge/modules/acme/pebbletest"
)

// acmeLines are the lines of an edge's configuration that name a server, after it is started.
func acmeLines(t *testing.T, front, secure string) (server *pebbletest.Server, lines string) {
	t.Helper()
	server = pebbletest.Start(t, pebbletest.Config{HTTPPort: portOf(t, front), TLSPort: portOf(t, secure)})
	return server, fmt.Sprintf("directory: %s, ca_file: %s, agree: true", server.Directory, server.CAFile)
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	at, err := netip.ParseAddrPort(address)
	must(t, err)
	return int(at.Port())
}

// issued is the serial number of a host's certificate at an edge; "": it has none from Pebble.
func issued(address, host string) string {
	c, err := tls.Dial("tcp", address, &tls.Config{ServerName: host, InsecureSkipVerify: true})
	if err != nil {
		return ""
	}
	defer c.Close()
	leaf := c.ConnectionState().PeerCertificates[0]
	if leaf.VerifyHostname(host) != nil || !strings.Contains(leaf.Issuer.CommonName, "Pebble") {
		return ""
	}
	return leaf.SerialNumber.String()
}

// An edge gets certificates from a real server of ACME, by either proof, and keeps them over a restart, for which it asks for none.
func TestACME(t *testing.T) {
	t.Parallel()
	for _, challenge := range []string{"http-01", "tls-alpn-01"} {
		t.Run(challenge, func(t *testing.T) {
			t.Parallel()
			front, secure := freePort(t), freePort(t)
			_, server := acmeLines(t, front, secure)
			state := t.TempDir()
			file := write(t, fmt.Sprintf("listen: {address: %q, redirect: true}\nlisten_tls: %q\nstate_dir: %s\ndeny: [127.0.0.9]\nacme: {hosts: [a.example, b.example], %s, challenges: [%s]}\norigins: [{servers: [%q]}]\n",
				front, secure, state, server, challenge, origin(t)))
			l := startLineageOf(t, nil, "--config", file)
			serial := func(host string) string { return issued(secure, host) }
			var serials [2]string
			l.until("certificates", func() bool {
				serials = [2]string{serial("a.example"), serial("b.example")}
				return serials[0] != "" && serials[1] != ""
			})
			l.until("ready", func() bool { _, text := l.admin("GET", "/readyz"); return text == "ready\n" })
			if _, text := l.admin("GET", "/metrics"); !strings.Contains(text, `sluice_certificate_expiry_timestamp_seconds{listener="listen_tls",name="a.example"}`) {
				t.Error("metrics do not tell when the certificate expires")
			}
			if _, text := l.admin("GET", "/v1/events"); !strings.Contains(text, "a certificate for a.example was issued") {
				t.Errorf("events do not tell of the certificate:\n%s", text)
			}
			l.replace()
			l.until("the older process has left", func() bool { return strings.Contains(l.text(), "msg=stopped") })
			if now := [2]string{serial("a.example"), serial("b.example")}; now != serials {
				t.Errorf("certificates %v after a restart, had %v", now, serials)
			}
			resp, err := http.DefaultTransport.RoundTrip(must2(http.NewRequest("GET", "http://"+front+"/.well-known/acme-challenge/x", nil)))
			must(t, err)
			resp.Body.Close()
			if resp.StatusCode != 308 {
				t.Errorf("a proof that nobody wants: %d, want 308 as for any request", resp.StatusCode)
			}
		})
	}
}

func must2(r *http.Request, _ error) *http.Request { return r }
