package acme_test

import (
	"context"
	"path/filepath"
	"testing"

	"sluice/edge"
	"sluice/edge/edgetest"
	"sluice/edge/events"
	"sluice/edge/modules/acme"
)

// A server of ACME gets what it looks for, whoever is denied. What it does not look for goes on. A
// proxy that asks for a verdict gets no proof: it would take that for one.
func TestProof(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	folder, module := t.TempDir(), acme.Module()
	e := edgetest.StartUsing(t, o.URL(), "deny: [127.0.0.1]\nsource: {trust: [127.0.0.1]}\ncheck_path: /check/*\nlisten_tls: ':0'\nstate_dir: '"+folder+
		"'\nacme: {hosts: [example.com], directory: 'https://cexample.com/dir', agree: true}\n", module)
	ask := func(path string) (status int, body, caching string) {
		resp, body := e.Get(path)
		return resp.StatusCode, body, resp.Header.Get("Cache-Control")
	}
	const asked = "/.well-known/acme-challenge/t"
	if status, _, _ := ask(asked); status != 403 {
		t.Errorf("before the edge gets certificates: %d", status)
	}
	_, err := module.Certify(e.Config(), edge.Ports{HTTP: 80}, events.New(1, nil))
	edgetest.Must(t, err)
	// As another edge has begun it, which this one shares its folder with
	edgetest.Must(t, acme.Folder(filepath.Join(folder, "acme")).Store(context.Background(),
		"acme/cexample.com-dir/challenge_tokens/example.com.json",
		[]byte(`{"type": "http-01", "token": "t", "keyAuthorization": "t.proof", "identifier": {"type": "dns", "value": "example.com"}}`)))
	for path, want := range map[string]int{asked: 200, "/.well-known/acme-challenge/u": 403,
		"/t": 403, "/check" + asked: 403} {
		status, body, caching := ask(path)
		if status != want || want == 200 && (body != "t.proof" || caching != "no-store") {
			t.Errorf("%s: %d %q %q, want %d", path, status, body, caching, want)
		}
	}
}
