package edge

import (
	"time"

	"sluice/edge/tracing"
)

// ownTrace has the origin go on with the edge's trace alone: what the client said of another ends
// here.
func (x *Exchange) ownTrace() {
	for _, name := range [...]string{"traceparent", "tracestate"} {
		x.Head.OnlyFrom(false, []byte(name))
	}
}

// endTrace ends the spans of a request whose answer is over.
func (x *Exchange) endTrace(failed bool) {
	o := tracing.Outcome{Client: x.client, ID: x.requestID(), Secure: x.front.Secure(),
		Status: x.reply.Status, From: x.reply.from.String(), Failed: failed, At: time.Now()}
	o.Rule, o.Verdict = x.decided()
	x.trace.End(o)
	x.trace = nil
}
