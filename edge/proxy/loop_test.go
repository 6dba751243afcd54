package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"sluice/edge"
	"sluice/edge/edgetest"
)

// A request that comes back to a PoP that has passed it on is refused there, over either protocol, whoever brings it; that
// of another PoP in front is none, and neither is one whose Via only looks like ours.
func TestLoop(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	start := func(origin, via string) *edgetest.Edge {
		t.Helper()
		c := edgetest.Parse(t, "origins: [{servers: ['"+origin+"']}]\nrules: [{name: r, limit: 1000}]\nsource: {trust: [127.0.0.0/8]}")
		return edgetest.Serve(t, edgetest.NewServer(t, c, func(o *edge.Options) { o.Via = via }))
	}
	const ours, theirs = "sluice-0123456789abcdef", "sluice-fedcba9876543210"
	inner := start(o.URL(), ours)
	outer, again := start("http://"+inner.Addr, theirs), start("http://"+inner.Addr, ours)
	f := func(e *edgetest.Edge, via string, want int) {
		t.Helper()
		resp, text := e.Get("/", "Via: "+via)
		if resp.StatusCode != want || want == 508 && !strings.Contains(text, `"code":"loop"`) {
			t.Errorf("Via %q: %d %s, want %d", via, resp.StatusCode, text, want)
		}
	}
	f(outer, "1.1 lb", 200) // a chain of two PoPs
	if got := o.LastRequest(); !strings.Contains(got, "\r\nVia: 1.1 lb, 1.1 "+theirs+", 1.1 "+ours+"\r\n") {
		t.Errorf("%q", got)
	}
	f(again, "1.1 lb", 508) // two edges of one
	f(inner, "1.1 sluice", 200)
	f(inner, "1.1 sluice-0123456789abcde0", 200)
	f(inner, "1.1 lb, 2.0 "+ours+" (a comment), 1.1 lb", 508)
	f(outer, "1.1 "+ours, 508) // relayed
	f(inner, "1.1 lb", 200)    // it was the other request's alone
	if n := inner.Rest()[`sluice_answers_total{code=508,from=edge}`]; n != 3 {
		t.Errorf("%v answers are counted as 508, want 3", n)
	}
	if n := outer.Rest()[`sluice_answers_total{code=508,from=origin}`]; n != 1 {
		t.Errorf("%v of the origin's", n)
	}

	// A peer that is not trusted has its Via dropped, and looked at all the same.
	addr := start(o.URL(), ours).OverTLS(edgetest.CertificatesIn(t, t.TempDir()))
	tr := edgetest.OverHTTP2(t)
	for via, want := range map[string]int{"1.1 lb": 200, "1.1 lb, 2.0 " + ours: 508} {
		resp, text := edgetest.Ask2(t, tr, "GET", "https://"+addr+"/", nil, func(r *http.Request) { r.Header.Set("Via", via) })
		if resp.StatusCode != want {
			t.Errorf("HTTP/2, Via %q: %d %s", via, resp.StatusCode, text)
		}
	}
	c := edgetest.Parse(t, "origins: [{servers: ['"+o.URL()+"']}]\nrules: [{name: r, limit: 1000}]")
	alone := edgetest.Serve(t, edgetest.NewServer(t, c, func(o *edge.Options) { o.Via = ours }))
	f(alone, "1.1 lb", 200)
	f(alone, "1.1 "+ours, 508)
}
