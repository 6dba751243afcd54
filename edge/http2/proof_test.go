package http2_test

import (
	"testing"

	"sluice/edge"
	"sluice/edge/edgetest"
)

// A question for a proof, which may wait for the storage, holds up no other request of a trusted proxy's connection.
func TestHTTP2AsksForProof(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	c := edgetest.Parse(t, "http2: {cleartext: true}\nsource: {trust: [127.0.0.1]}\ndeny: [192.0.2.7]\n")
	c.Origins = edgetest.WithoutRules(t, o.URL()).Origins
	answer := make(chan []byte)
	e := edgetest.Serve(t, edgetest.NewServer(t, c, func(o *edge.Options) {
		o.Proof = func(host, path string) []byte {
			if host != "a.example" || path != "/.well-known/acme-challenge/t" {
				t.Errorf("asked for %s of %s", path, host)
			}
			return <-answer
		}
	}))
	f := speakFrames(t, e.Dial())
	const path, host = "/.well-known/acme-challenge/t", "a.example"
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
