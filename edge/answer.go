package edge

import (
	"net/netip"
	"time"

	"sluice/edge/message"
	"sluice/edge/rules/key"
)

// This is what modules see of a request and say to it, beside the request as it came.

// Now is the instant at which the request is judged, and Client the address that it comes from, as
// far as proxies are believed.
func (x *Exchange) Now() time.Time     { return x.now }
func (x *Exchange) Client() netip.Addr { return x.client }

// Trusted reports whether the peer is a proxy that is believed.
func (x *Exchange) Trusted() bool { return x.trusted }

// Known is what is known of the request: its facts are found there, each once.
func (x *Exchange) Known() *key.View {
	v := x.decision.Known()
	v.Request, v.Client, v.At = x.Request, x.client, x.now
	return v
}

// Front is the client's end.
func (x *Exchange) Front() Front { return x.front }

// Respond answers with a refusal, in JSON, or what a module has in place of that.
func (x *Exchange) Respond(r *message.Refusal) { x.respond(r) }

// Begin begins an answer: its status, and what its body is; Add adds a line to its head. What they
// point to must stay until the answer is sent, as what is in Room does.
func (x *Exchange) Begin(status int, contentType string, body []byte) {
	x.begins(status, contentType, body)
}
func (x *Exchange) Add(name string, value []byte) { x.reply.add(name, value) }

// RetryAfter is what the answer to a request that a rule refuses says, in seconds.
func (x *Exchange) RetryAfter() int64 { return x.retry }

// Room is empty room for what an answer points to. Who appends to it puts the result back.
func (x *Exchange) Room() *[]byte {
	x.buf = x.buf[:0]
	return &x.buf
}

// Replace replaces the body of the answer. Shared is one that stays as it is for good.
func (x *Exchange) Replace(contentType string, body []byte, shared bool) {
	r := &x.reply
	r.ContentType, r.Body, r.Shared, r.length = contentType, body, shared, int64(len(body))
}

// ID names the request.
func (x *Exchange) ID() []byte { return x.requestID() }

// Checks reports whether a proxy asks for the verdict alone (check_path): after a success it sends
// the request on, so nothing but rules may make one.
func (x *Exchange) Checks() bool { return x.checks }

// Status is that of the answer so far.
func (x *Exchange) Status() int { return x.reply.Status }

// Spare has rules not count the request, but for those that name its method. It is for gates.
func (x *Exchange) Spare(method string) { x.spared = method }

// Verdict says how the request was decided, in the log and in traces, where no rule has.
func (x *Exchange) Verdict(name string) { x.verdict = name }
