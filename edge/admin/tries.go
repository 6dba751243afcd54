package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"sluice/edge/control"
	"sluice/edge/route"
	"sluice/edge/tryout"
	"sluice/edge/view"
)

// Try is what an operator wants tried.
type Try struct {
	Name string // "": any
	Rule json.RawMessage
	For  time.Duration
	By   control.Operator
}

// Begun is what became of that.
type Begun struct {
	Name     string          `json:"name"`
	Edges    *control.Spread `json:"edges,omitempty"` // nil: there is this edge only
	Warnings []string        `json:"warnings,omitempty"`
}

// tryJSON is a try as operators see it.
type tryJSON struct {
	Name   string          `json:"name"`
	About  string          `json:"about"`
	Rule   json.RawMessage `json:"rule"`
	Began  time.Time       `json:"began"`
	Until  time.Time       `json:"until"`
	Ended  bool            `json:"ended"`
	Who    string          `json:"who,omitempty"`
	Edge   string          `json:"edge"` // where it was begun
	Result *tryout.Result  `json:"result"`
	// Of which the result is, with those that are missing
	Edges []view.Edge `json:"edges,omitempty"`
	Late  []lateJSON  `json:"late,omitempty"`
}

// lateJSON is an edge that has not observed a try from its beginning, because it started later:
// what it saw before, if it ran, is in no result.
type lateJSON struct {
	Edge  string    `json:"edge"`
	Since time.Time `json:"since"`
}

// late is after how long: a try travels, and clocks differ.
const late = 5 * time.Second

// take takes in since when an edge has observed it.
func (t *tryJSON) take(edge string, p *tryout.Part) {
	if p.Since.Sub(t.Began) > late {
		t.Late = append(t.Late, lateJSON{edge, p.Since})
	}
}

func tryShown(r *tryout.Run, now time.Time) tryJSON {
	return tryJSON{Name: r.Name, About: tryout.About(&r.Rule), Rule: tryout.RuleOf(&r.Order),
		Began: r.Began, Until: r.End(), Ended: !now.Before(r.End()), Who: r.Who, Edge: r.Edge}
}

func (a api) beginTry(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Name string          `json:"name"`
		For  string          `json:"for"`
		Rule json.RawMessage `json:"rule"`
	}
	if !route.Read(w, r, &body, `{"for":"10m","rule":{"limit":50,"window":"1m"}}`) {
		return
	}
	length := route.Term{For: body.For}
	d, ok := length.Length(w)
	if !ok {
		return
	}
	if err := tryout.CheckTime(d); err != nil {
		route.Failed(w, err)
		return
	}
	if a.Try == nil {
		route.Fail(w, http.StatusNotImplemented, "rules cannot be tried here")
		return
	}
	done, err := a.Try(Try{Name: body.Name, Rule: body.Rule, For: d, By: route.Operator(r)})
	route.Answer(w, done, err)
}

// tries lists those that run, and those that have ended and are remembered, as this edge alone sees
// them.
func (a api) tries(w http.ResponseWriter, _ *http.Request) {
	now, list := time.Now(), []tryJSON{}
	running, ended := a.Edge.Tries().All()
	for _, run := range slices.Concat(running, ended) {
		t := tryShown(run, now)
		t.Result = tryout.Sum([]*tryout.Part{a.Edge.TryPart(run, now)}, topShown)
		list = append(list, t)
	}
	route.Reply(w, list)
}

func (a api) try(w http.ResponseWriter, r *http.Request) {
	if all, ok := a.View.OfPoP(w, r); ok {
		a.showTry(w, r, all)
	}
}

func (a api) stopTry(w http.ResponseWriter, r *http.Request) {
	all, ok := a.View.OfPoP(w, r)
	if !ok {
		return
	}
	if a.StopTry == nil {
		route.Fail(w, http.StatusNotImplemented, "rules cannot be tried here")
		return
	}
	if _, err := a.StopTry(r.PathValue("name"), route.Operator(r)); err != nil {
		route.Failed(w, err)
		return
	}
	a.showTry(w, r, all)
}

// showTry answers with what a try would have done: on this edge, or on all.
func (a api) showTry(w http.ResponseWriter, r *http.Request, all bool) {
	name := r.PathValue("name")
	run, _ := a.Edge.Tries().Run(name)
	if run == nil {
		route.Failed(w, fmt.Errorf("%w: %s", tryout.ErrNone, name))
		return
	}
	now := time.Now()
	t := tryShown(run, now)
	if !all {
		t.Result = tryout.Sum([]*tryout.Part{a.Edge.TryPart(run, now)}, topShown)
		route.Reply(w, t)
		return
	}
	question := view.AskTry(name)
	p := a.View.Look(r, question)
	var parts []*tryout.Part
	t.Edges = p.EdgesTo(question)
	for _, said := range view.Answers[tryout.Part](p, question) {
		if said.Answer.Version == run.Version {
			parts = append(parts, &said.Answer)
			t.take(said.Edge, &said.Answer)
			continue
		}
		if i := slices.IndexFunc(t.Edges,
			func(e view.Edge) bool { return e.Name == said.Edge }); i >= 0 {
			t.Edges[i].Missing = "it does not try this rule: it has just started, is of an older version, or cannot"
		}
	}
	t.Result = tryout.Sum(parts, topShown)
	route.Reply(w, t)
}
