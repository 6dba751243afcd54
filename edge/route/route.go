// Package route has what routes of the operators' API have in common: what they ask of the edge, how
// they read what an operator wants, and how they answer.
package route

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"sluice/edge/changes"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/plans"
	"sluice/edge/view"
)

// A Route is one that wants the token, as all do whose path begins with /v1/. The document of the
// API (edge/admin/openapi.yaml) has it.
type Route struct {
	Pattern string // as an http.ServeMux has it
	Serve   func(*API, http.ResponseWriter, *http.Request)
}

// API is what routes ask.
type API struct {
	Edge  *control.Admin
	View  View
	Order Order
}

// Order has a change of something of a module's in force here, and sends it to all edges of the
// PoP; nil: nothing can be changed here. do makes the change, with a text for the event, once
// all others that are known here are in force and before any other comes; nil: there is none.
type Order func(do func() (c *changes.Change, text string, err error)) (Ordered, error)

// Ordered is a change that is in force here.
type Ordered struct {
	Version, Maker uint64 // as changes.Change has them
	// Other edges of the PoP do not get it: there is no pop.secret_file
	Alone bool
	// Await waits until it is in force on all edges, or for as long as an operator waits; nil: there
	// is this edge only.
	Await func() *control.Spread
}

// View is the whole PoP, with what its edges say to a question; nil: nobody can be asked.
type View func(ctx context.Context, question string) *view.PoP

// MaxBody bounds what the API reads: many times what a rule may have to travel. What is nested or
// wrong in a thousand places takes long.
const MaxBody = 64 << 10

// Term is for how long an operator says something, and why.
type Term struct {
	For    string `json:"for"`
	Reason string `json:"reason"`
}

// Length is how long that is. If it is wrong, the answer says so.
func (t *Term) Length(w http.ResponseWriter) (d time.Duration, ok bool) {
	d, err := control.ParseDuration(t.For)
	if err != nil {
		Fail(w, http.StatusBadRequest,
			`"for" is not a time with a unit: want one such as 10m or 1d`)
		return 0, false
	}
	if len(t.Reason) > 256 {
		Fail(w, http.StatusBadRequest, `"reason" is too long: want at most 256 bytes`)
		return 0, false
	}
	return d, true
}

// Read reads a body. If it is wrong, the answer says so, and which was wanted, and repeats nothing
// of it.
func Read(w http.ResponseWriter, r *http.Request, into any, want string) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, MaxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		Fail(w, http.StatusBadRequest, "the body is not what it should be: want "+want)
		return false
	}
	return true
}

// ReadTerm reads a body that is a term.
func ReadTerm(w http.ResponseWriter, r *http.Request) (d time.Duration, reason string, ok bool) {
	var body Term
	if !Read(w, r, &body, `{"for":"10m","reason":"..."}`) {
		return 0, "", false
	}
	d, ok = body.Length(w)
	return d, body.Reason, ok
}

// Operator is who an operator says he is (X-Operator), and where he came from.
func Operator(r *http.Request) control.Operator {
	who := r.Header.Get("X-Operator")
	return control.Operator{Who: who[:min(len(who), 64)], From: r.RemoteAddr}
}

// lookTime is how long an operator waits for what other edges show, at most.
const lookTime = 4 * time.Second

// OfPoP reports whether a request is about the whole PoP (?scope=pop). If that is not possible, the
// answer says so.
func (v View) OfPoP(w http.ResponseWriter, r *http.Request) (is, ok bool) {
	switch scope := r.URL.Query().Get("scope"); {
	case scope == "" || scope == "edge":
		return false, true
	case scope != "pop":
		Fail(w, http.StatusBadRequest, "scope is not possible: want edge or pop")
	case v == nil:
		Fail(w, http.StatusNotImplemented, "the other edges cannot be asked here")
	default:
		return true, true
	}
	return false, false
}

// Look is the whole PoP, with what its edges say to a question.
func (v View) Look(r *http.Request, question string) *view.PoP {
	ctx, cancel := context.WithTimeout(r.Context(), lookTime)
	defer cancel()
	return v(ctx, question)
}

// Answer replies what came of what was asked, or why nothing did.
func Answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		Failed(w, err)
		return
	}
	Reply(w, v)
}

// A StatusError is one of a route's own, with the status of the answer that says it.
type StatusError struct {
	Status int
	Text   string
}

func (e *StatusError) Error() string { return e.Text }

// Failed says why nothing did.
func Failed(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	var own *StatusError
	switch {
	case errors.As(err, &own):
		status = own.Status
	case errors.Is(err, config.ErrNoRule), errors.Is(err, control.ErrNoKey),
		errors.Is(err, control.ErrNotSeen):
		status = http.StatusNotFound
	case errors.Is(err, control.ErrFull), errors.Is(err, control.ErrLong),
		errors.Is(err, control.ErrOff), errors.Is(err, changes.ErrDrops), errors.Is(err,
			changes.ErrMoved), errors.Is(err, control.ErrNoPlans), errors.Is(err,
			control.ErrLimits):
		status = http.StatusConflict
	case errors.Is(err, changes.ErrMatch):
		status = http.StatusPreconditionFailed
	case errors.Is(err, changes.ErrAway), errors.Is(err, plans.ErrAway),
		errors.Is(err, plans.ErrSilent):
		status = http.StatusServiceUnavailable
	}
	Fail(w, status, err.Error())
}

// Begin says of what kind an answer is.
func Begin(w http.ResponseWriter, kind string) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
}

// Reply answers with a value as JSON.
func Reply(w http.ResponseWriter, v any) {
	Begin(w, "application/json")
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // the operator is gone: nobody to tell
}

// Fail answers with an error.
func Fail(w http.ResponseWriter, status int, message string) {
	Begin(w, "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": message}})
}
