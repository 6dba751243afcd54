package admin

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"sluice/counter"
	"sluice/edge/control"
	"sluice/edge/route"
)

// Who is counted by a key is named in a body and never in a URL, which logs and histories keep. The
// answer has the digest, which may be anywhere.

// digestOf reads a source that is a digest.
func digestOf(text string) (counter.Source, bool) {
	digest, err := counter.ParseSource(text)
	return digest, err == nil && strings.HasPrefix(text, "#")
}

func (a api) lookKey(w http.ResponseWriter, r *http.Request) {
	var k control.Key
	if !route.Read(w, r, &k,
		`{"key":"header:X-Api-Key","value":"..."}, or of a composite key {"parts":[{"key":"...","value":"..."},...]}`) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), tierTime)
	defer cancel()
	l, err := a.Edge.LookKey(ctx, &k)
	route.Answer(w, l, err)
}

func (a api) blockKey(w http.ResponseWriter, r *http.Request) {
	var body struct {
		control.Key
		route.Term
		Rule string `json:"rule"`
	}
	if !route.Read(w, r, &body,
		`{"key":"header:X-Api-Key","value":"...","for":"10m"}, and perhaps a rule and a reason`) {
		return
	}
	if d, ok := body.Length(w); ok {
		m, err := a.Edge.BlockKey(&body.Key, cmp.Or(body.Rule, control.AllRules), d, body.Reason,
			route.Operator(r), time.Now())
		route.Answer(w, m, err)
	}
}

func (a api) blockDigest(w http.ResponseWriter, r *http.Request, digest counter.Source,
	d time.Duration, reason string) {
	ctx, cancel := context.WithTimeout(r.Context(), tierTime)
	defer cancel()
	m, err := a.Edge.BlockDigest(ctx, digest, d, reason, route.Operator(r), time.Now())
	route.Answer(w, m, err)
}

func (a api) liftKey(w http.ResponseWriter, r *http.Request) {
	var body struct {
		control.Key
		Rule string `json:"rule"`
	}
	if !route.Read(w, r, &body, `{"key":"header:X-Api-Key","value":"..."}, and perhaps a rule`) {
		return
	}
	lifted, err := a.Edge.LiftKey(&body.Key, cmp.Or(body.Rule, control.AllRules), route.Operator(r),
		time.Now())
	route.Answer(w, lifted, err)
}
