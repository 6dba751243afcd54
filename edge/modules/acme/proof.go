package acme

import (
	"bytes"
	"net/http"

	"sluice/edge"
	"sluice/edge/message"
)

// proofFolder is under which a server of ACME looks for a proof (RFC 8555, 8.3).
var proofFolder = []byte("/.well-known/acme-challenge/")

var noStore = []byte("no-store")

// Module answers servers of ACME. proof is what one wants to see of a host at a path; nil: nothing.
// It is asked about no other requests. To find out takes a while where another edge has begun it.
func Module(proof func(host, path string) []byte) edge.Module {
	gate := edge.Gate{Phase: edge.Proof, Waits: asksProof, Answer: func(x *edge.Exchange) bool {
		return asksProof(x) && proves(x, proof)
	}}
	return edge.Module{Name: name, Config: section(),
		Prepare: func(s *edge.Setup) (edge.Points, error) {
			if len(Of(s.Config).Hosts) == 0 {
				return edge.Points{}, nil
			}
			return edge.Points{Gates: []edge.Gate{gate}}, nil
		}}
}

// asksProof reports whether a request may be such a question.
func asksProof(x *edge.Exchange) bool {
	return !x.Front().Secure() && len(x.Host) > 0 &&
		bytes.HasPrefix(message.RawPath(x.Target), proofFolder)
}

// proves answers a server of ACME that asks over plain HTTP whether a host is ours. No list and no
// rule is in its way: a certificate would not come. What is no such question goes on as any
// request.
func proves(x *edge.Exchange, proof func(host, path string) []byte) bool {
	text := proof(string(x.Host), string(message.RawPath(x.Target)))
	if text == nil {
		return false
	}
	room := x.Room()
	*room = append(*room, text...)
	x.Begin(http.StatusOK, "text/plain", *room)
	x.Add("Cache-Control", noStore)
	return true
}
