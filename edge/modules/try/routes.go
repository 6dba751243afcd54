package try

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"sluice/edge/changes"
	"sluice/edge/control"
	"sluice/edge/route"
	"sluice/edge/view"
)

// begun is what became of a try that an operator begins.
type begun struct {
	Name     string          `json:"name"`
	Edges    *control.Spread `json:"edges,omitempty"` // nil: there is this edge only
	Warnings []string        `json:"warnings,omitempty"`
}

// shown is a try as operators see it.
type shown struct {
	Name   string          `json:"name"`
	About  string          `json:"about"`
	Rule   json.RawMessage `json:"rule"`
	Began  time.Time       `json:"began"`
	Until  time.Time       `json:"until"`
	Ended  bool            `json:"ended"`
	Who    string          `json:"who,omitempty"`
	Edge   string          `json:"edge"` // where it was begun
	Result Result          `json:"result"`
	// Of which the result is, with those that are missing
	Edges []view.Edge `json:"edges,omitempty"`
	Late  []lateEdge  `json:"late,omitempty"`
}

// lateEdge is an edge that has not observed a try from its beginning, because it started later:
// what it saw before, if it ran, is in no result.
type lateEdge struct {
	Edge  string    `json:"edge"`
	Since time.Time `json:"since"`
}

// late is after how long: a try travels, and clocks differ.
const late = 5 * time.Second

// take takes in since when an edge has observed it.
func (t *shown) take(edge string, p *Part) {
	if p.Since.Sub(t.Began) > late {
		t.Late = append(t.Late, lateEdge{edge, p.Since})
	}
}

func (m *module) shown(r *Run, now time.Time) shown {
	return shown{Name: r.Name, About: r.Rule.About(), Rule: ruleOf(&r.Order),
		Began: r.Began, Until: r.End(), Ended: !now.Before(r.End()), Who: r.Who, Edge: r.Edge}
}

// topShown is how many of the heaviest sources of a try are shown.
const topShown = 10

func (m *module) routes() []route.Route {
	return []route.Route{{Pattern: "POST /v1/tries", Serve: m.begin},
		{Pattern: "GET /v1/tries", Serve: m.list}, {Pattern: "GET /v1/tries/{name}", Serve: m.show},
		{Pattern: "DELETE /v1/tries/{name}", Serve: m.stop}}
}

func (m *module) begin(a *route.API, w http.ResponseWriter, r *http.Request) {
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
	if err := checkTime(d); err != nil {
		route.Failed(w, err)
		return
	}
	if a.Order == nil {
		route.Fail(w, http.StatusNotImplemented, "rules cannot be tried here")
		return
	}
	done, err := m.beginTry(a.Order, wanted{body.Name, body.Rule, d, route.Operator(r)})
	route.Answer(w, done, err)
}

// wanted is what an operator wants tried.
type wanted struct {
	name   string // "": any
	rule   json.RawMessage
	length time.Duration
	by     control.Operator
}

// mostNames is how many free names are taken for a try without one, while other edges take the same
// in the same instant.
const mostNames = 5

// beginTry begins a try here and on all edges.
func (m *module) beginTry(order route.Order, t wanted) (done begun, err error) {
	rule, err := Parse(m.inForce.Load().Config, cmp.Or(t.name, name), t.rule)
	if err != nil {
		return done, err
	}
	for names := 1; ; names++ {
		o, err := order(func() (_ *changes.Change, _ string, err error) {
			running, ended := m.registry.All()
			done.Name, err = newName(t.name, running, ended)
			return begin(done.Name, rule, time.Now().Add(t.length), t.by),
				"tries a rule for " + t.length.String() + ": " + rule.About(), err
		})
		if err != nil {
			return begun{}, err
		}
		if o.Await != nil {
			done.Edges = o.Await()
		}
		if o.Alone {
			done.Warnings = []string{"this edge only: without pop.secret_file what is tried does not travel to the other edges of the PoP"}
		}
		if err = m.beaten(order, done.Name, o, t.by); err == nil {
			return done, nil
		}
		if t.name != "" || !errors.Is(err, errName) || names == mostNames {
			return begun{}, err
		}
	}
}

// beaten returns why a try that was begun here does not run: at another edge one was begun in the
// same instant, of the same name, or the last that there is room for, or this edge cannot try any.
func (m *module) beaten(order route.Order, try string, o route.Ordered,
	by control.Operator) (wrong error) {
	_, err := order(func() (*changes.Change, string, error) {
		running := m.registry.running()
		i := slices.IndexFunc(running, func(r *Run) bool { return r.Name == try })
		switch {
		case i >= 0 && running[i].Version == o.Version && running[i].Maker == o.Maker:
			return nil, "", nil
		case i >= 0:
			return nil, "", fmt.Errorf("%w (it was begun at %s in the same instant)", errName,
				running[i].Edge)
		}
		if wrong = m.said.Load().why(&o); wrong == nil {
			return nil, "", nil // it is over, or was stopped
		}
		// And it does not begin when another ends, or once it can
		return stop(try, time.Now().Add(MaxTime), by), stopped, nil
	})
	return errors.Join(wrong, err)
}

// stopped is what an event says of who stops a try.
const stopped = "stopped a try"

// stopTry ends one before its time, here and on all edges.
func (m *module) stopTry(order route.Order, try string, by control.Operator) error {
	o, err := order(func() (*changes.Change, string, error) {
		running := m.registry.running()
		i := slices.IndexFunc(running, func(r *Run) bool { return r.Name == try })
		if i < 0 {
			return nil, "", fmt.Errorf("%w runs: %s", errNone, try)
		}
		return stop(try, running[i].Until, by), stopped, nil
	})
	if err == nil && o.Await != nil {
		o.Await()
	}
	return err
}

// list shows those that run, and those that have ended and are remembered, as this edge alone sees
// them.
func (m *module) list(_ *route.API, w http.ResponseWriter, _ *http.Request) {
	now, list := time.Now(), []shown{}
	for _, run := range slices.Concat(m.registry.All()) {
		list = append(list, m.here(run, now))
	}
	route.Reply(w, list)
}

// here is a try as this edge alone sees it.
func (m *module) here(r *Run, now time.Time) shown {
	t := m.shown(r, now)
	t.Result = *Sum([]*Part{m.part(r, now)}, topShown)
	return t
}

func (m *module) show(a *route.API, w http.ResponseWriter, r *http.Request) {
	if all, ok := a.View.OfPoP(w, r); ok {
		m.reply(a, w, r, all)
	}
}

func (m *module) stop(a *route.API, w http.ResponseWriter, r *http.Request) {
	all, ok := a.View.OfPoP(w, r)
	if !ok {
		return
	}
	if a.Order == nil {
		route.Fail(w, http.StatusNotImplemented, "rules cannot be tried here")
		return
	}
	if err := m.stopTry(a.Order, r.PathValue("name"), route.Operator(r)); err != nil {
		route.Failed(w, err)
		return
	}
	m.reply(a, w, r, all)
}

// reply answers with what a try would have done: on this edge, or on all.
func (m *module) reply(a *route.API, w http.ResponseWriter, r *http.Request, all bool) {
	name := r.PathValue("name")
	run := m.registry.Run(name)
	if run == nil {
		route.Failed(w, fmt.Errorf("%w: %s", errNone, name))
		return
	}
	now := time.Now()
	if !all {
		route.Reply(w, m.here(run, now))
		return
	}
	t, question := m.shown(run, now), about+name
	p := a.View.Look(r, question)
	var parts []*Part
	t.Edges = p.EdgesTo(question)
	for _, said := range view.Answers[Part](p, question) {
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
	t.Result = *Sum(parts, topShown)
	route.Reply(w, t)
}
