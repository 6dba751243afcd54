package edge

import "sluice/edge/message"

// page replaces the body of an answer of the edge's own by the page that the client would rather
// have. A rule's own body is not replaced, and a call of gRPC has none. retry is what Retry-After
// says.
func (x *Exchange) page(retry []byte) {
	r := &x.reply
	if x.front == nil || !x.checks && x.IsGRPC() || !x.snap.pages.Has(r.Status) {
		return
	}
	r.add("Vary", accept)
	if p := x.snap.pages.Choose(r.Status, &x.Head); p != nil {
		if r.Body, r.Shared = p.Fixed(), true; r.Body == nil {
			x.buf = p.Append(x.buf[:0], r.Status, x.requestID(), retry)
			r.Body, r.Shared = x.buf, false
		}
		r.ContentType, r.length = p.ContentType, int64(len(r.Body))
	}
}

// retryAfter is what a refusal's Retry-After says; nothing if it has none.
func retryAfter(r *message.Refusal) []byte {
	if r.Header.Name != "Retry-After" {
		return nil
	}
	return r.Header.Value
}
