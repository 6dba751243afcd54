package acme_test

import (
	"testing"

	"sluice/edge/edgetest"
	"sluice/edge/modules/acme"
)

// A server of ACME gets what it looks for, whoever is denied. What it does not look for goes on.
func TestProof(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	proof := func(host, path string) []byte {
		if host != "" && path == "/.well-known/acme-challenge/t" {
			return []byte("proof")
		}
		return nil
	}
	e := edgetest.StartUsing(t, o.URL(), "deny: [127.0.0.1]\nlisten_tls: ':0'\nstate_dir: unused\n"+
		"acme: {hosts: [a.example], agree: true}\n", acme.Module(proof))
	for path, want := range map[string]int{"/.well-known/acme-challenge/t": 200,
		"/.well-known/acme-challenge/u": 403, "/t": 403} {
		resp, body := e.Get(path)
		if resp.StatusCode != want || want == 200 && (body != "proof" ||
			resp.Header.Get("Cache-Control") != "no-store") {
			t.Errorf("%s: %d %q, want %d", path, resp.StatusCode, body, want)
		}
	}
}
