package http2_test

import (
	"net/http"
	"testing"

	"sluice/edge"
	"sluice/edge/edgetest"
)

// A request whose gate may wait holds up no other of its connection.
func TestHTTP2GateWaits(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	c := edgetest.Parse(t, "http2: {cleartext: true}\nsource: {trust: [127.0.0.1]}\ndeny: [192.0.2.7]\n")
	c.Origins = edgetest.WithoutRules(t, o.URL()).Origins
	answer := make(chan []byte)
	const path, host = "/slow", "a.example"
	gate := edge.Gate{Phase: edge.Proof,
		Waits: func(x *edge.Exchange) bool { return string(x.Path) == path },
		Answer: func(x *edge.Exchange) bool {
			if string(x.Path) != path {
				return false
			}
			said := <-answer
			if said != nil {
				x.Begin(http.StatusOK, "text/plain", said)
			}
			return said != nil
		}}
	slow := edge.Module{Name: "slow", Prepare: func(*edge.Setup) (edge.Points, error) {
		return edge.Points{Gates: []edge.Gate{gate}}, nil
	}}
	e := edgetest.Serve(t, edgetest.NewServer(t, c, edgetest.Using(slow)))
	f := speakFrames(t, e.Dial())
	f.Ask(1, true, ":method", "GET", ":scheme", "http", ":authority", host, ":path", path, "x-forwarded-for", "192.0.2.7")
	f.Get(3)
	if a := f.Answer(3); a.status != "200" {
		t.Errorf("the other request: %v", a)
	}
	answer <- []byte("proof")
	if a := f.Answer(1); a.status != "200" || string(a.body) != "proof" {
		t.Errorf("the proof: %v %q", a, a.body)
	}
	f.Ask(5, true, ":method", "GET", ":scheme", "http", ":authority", host, ":path", path, "x-forwarded-for", "192.0.2.7")
	answer <- nil
	if a := f.Answer(5); a.status != "403" {
		t.Errorf("no proof, from a client that is denied: %v", a)
	}
}
