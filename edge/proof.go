package edge

import (
	"bytes"
	"net/http"

	"sluice/edge/message"
)

// proofs are under which a server of ACME looks for a proof (RFC 8555, 8.3).
var proofs = []byte("/.well-known/acme-challenge/")

// asksProof reports whether a request may be such a question. To find out takes a while where
// another edge has begun it.
func (x *exchange) asksProof() bool {
	return x.server.proof != nil && !x.front.Secure() && len(x.Host) > 0 &&
		bytes.HasPrefix(message.RawPath(x.Target), proofs)
}

// proves answers a server of ACME that asks over plain HTTP whether a host is ours. No list and no
// rule is in its way: a certificate would not come. What is no such question goes on as any
// request.
func (x *exchange) proves() bool {
	text := x.server.proof(string(x.Host), string(message.RawPath(x.Target)))
	if text == nil {
		return false
	}
	x.buf = append(x.buf[:0], text...)
	x.begins(http.StatusOK, "text/plain", x.buf)
	x.reply.add("Cache-Control", noStore)
	return true
}
