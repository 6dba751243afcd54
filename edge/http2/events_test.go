package http2_test

import (
	"testing"

	"sluice/edge/edgetest"
)

// An event says what brought a block on, if that came by HTTP/2.
func TestBlocksByHTTP2AreEvents(t *testing.T) {
	e := edgetest.StartWithEvents(t, "rules: [{name: r, limit: 1, window: 1h}]")
	f := dialFrames(t, e.OverTLS(edgetest.CertificatesIn(t, t.TempDir())))
	for id := uint32(1); id < 5; id += 2 {
		f.Get(id)
		f.Answer(id)
	}
	if list := e.Events().Since(0); len(list) != 1 || list[0].Protocol != "HTTP/2.0" || list[0].Text != "blocked by this edge: 2 requests in 1h, the last by HTTP/2, 1 are allowed" {
		t.Errorf("%+v", list)
	}
}
