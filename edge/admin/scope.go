package admin

import (
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"sluice/edge/control"
	"sluice/edge/route"
	"sluice/edge/view"
)

// A list of the PoP, and which edges it is of.
type listOfPoP[T any] struct {
	Edges []view.Edge `json:"edges"` // the one that was asked first
	List  []T         `json:"list"`
}

// mitigationsOfPoP shows those that this edge has, and in what others differ.
func (a api) mitigationsOfPoP(w http.ResponseWriter, r *http.Request, f control.Filter, n int) {
	p, now := a.View.Look(r, ""), time.Now()
	o := a.Edge.Overview(n, f.Matches, now)
	own := append(o.Blocked.List, o.Shadow.List...)
	list := p.Blocks(own[:min(n, len(own))], a.Edge.EachMitigation(now), f.Matches, n, now)
	route.Reply(w, listOfPoP[view.Block]{p.Edges(), list})
}

// eventsOfPoP shows what has happened after a time, at any edge.
func (a api) eventsOfPoP(w http.ResponseWriter, r *http.Request, since string) {
	var after time.Time
	var err error
	if since != "0" {
		after, err = time.Parse(time.RFC3339, since)
	}
	if err != nil {
		route.Fail(w, http.StatusBadRequest,
			"since is not possible: of the whole PoP want a time such as 2026-05-04T14:05:00Z, because each edge numbers its own events")
		return
	}
	p := a.View.Look(r, "")
	route.Reply(w, listOfPoP[view.Event]{p.Edges(), p.Happened(after)})
}

// edgeState is what an edge does, as far as it is shown of each.
type edgeState struct {
	view.Edge
	Unready string     `json:"unready,omitempty"`
	Blocked int        `json:"blocked"` // mitigations in force that refuse
	Load    *view.Load `json:"load,omitempty"`
}

// statesOfPoP answers GET /v1/status?scope=pop.
func (a api) statesOfPoP(w http.ResponseWriter, r *http.Request) {
	p := a.View.Look(r, "")
	all := struct {
		Edges []edgeState `json:"edges"`
		Load  view.Load   `json:"load"` // of all that are shown
	}{[]edgeState{}, p.Load().Short()}
	for _, s := range p.Parts {
		e := edgeState{Edge: s.Edge}
		if s.Part != nil {
			short := s.Part.Load.Short()
			e.Unready, e.Blocked, e.Load = s.Part.Unready, s.Part.Blocked.InForce, &short
		}
		all.Edges = append(all.Edges, e)
	}
	route.Reply(w, all)
}

// sourceOfPoP shows how a source stands by the tier, and what each edge knows of it by itself.
func (a api) sourceOfPoP(w http.ResponseWriter, r *http.Request, source string,
	looked control.Looked) {
	question := view.AskSource(source)
	p := a.View.Look(r, question)
	route.Reply(w, struct {
		Edges  []view.Edge                     `json:"edges"`
		Source control.Looked                  `json:"source"`
		Each   []view.Answered[control.Looked] `json:"each"` // edge by edge, without the tier
		Events []view.Event                    `json:"events"`
	}{p.EdgesTo(question), looked, view.Answers[control.Looked](p,
		question), slices.DeleteFunc(p.Happened(time.Time{}),
		func(e view.Event) bool { return !about(e.Source, source) })})
}

// popSummary is what the dashboard shows of the whole PoP in place of this edge.
type popSummary struct {
	Edges       []view.Edge     `json:"edges"`
	Blocked     []view.Block    `json:"blocked"` // and in shadow
	Requests    []view.Heavy    `json:"requests"`
	Refused     []view.Heavy    `json:"refused"`
	Keys        []view.HeavyKey `json:"keys"` // by requests
	RefusedKeys []view.HeavyKey `json:"refused_keys"`
	Events      []view.Event    `json:"events"`
	// Since stands for the processes that the counts are of: when it is another, rates begin anew.
	Since string `json:"since"`
}

// overPoP has a summary show the whole PoP.
func (a api) overPoP(r *http.Request, s *summary, match func(*control.Mitigation) bool,
	now time.Time) view.Load {
	p := a.View.Look(r, "")
	own := append(s.Blocked.List, s.Shadow.List...)
	over := &popSummary{Edges: p.Edges(), Requests: p.Top("requests", topShown),
		Refused: p.Top("refused", topShown), Events: p.Happened(time.Time{})}
	over.Blocked = p.Blocks(own, a.Edge.EachMitigation(now), match, 2*blockedShown, now)
	over.Keys, over.RefusedKeys = p.TopKeys("requests", topShown, ""), p.TopKeys("refused",
		topShown, "")
	over.Events = over.Events[:min(len(over.Events), eventsShown)]
	for _, e := range p.Parts {
		if e.Part != nil {
			over.Since += e.ID + "/" + strconv.FormatFloat(e.Part.Load.Started, 'f', 0, 64) + " "
		}
	}
	s.Whole = over
	return p.Load()
}

// about reports whether an event's source is the one that is named, or a prefix that it is in.
func about(source, named string) bool {
	addr, err := netip.ParseAddr(named)
	p, wide := netip.ParsePrefix(source)
	return source == named || err == nil && wide == nil && p.Contains(addr)
}
