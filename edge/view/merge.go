package view

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/rules"
	"sluice/edge/top"
)

// Heavy is a source that asks a lot of the PoP, and of which edges.
type Heavy struct {
	top.Heavy
	Edges map[string]uint64 `json:"edges"` // the count on each edge that lists it, by name
}

// Top returns the n heaviest sources of a list, the heaviest first.
func (p *PoP) Top(by string, n int) []Heavy {
	type sum struct {
		Heavy
		listed uint64 // the rests of the edges that list it
	}
	sums, rest := make(map[string]*sum), uint64(0)
	p.shown(func(part *Part) {
		l := part.Tops[by]
		rest += l.Rest
		for _, h := range l.Heavy {
			s := sums[h.Source]
			if s == nil {
				s = &sum{Heavy: Heavy{Heavy: top.Heavy{Source: h.Source}, Edges: make(map[string]uint64)}}
				sums[h.Source] = s
			}
			s.Count += h.Count
			s.Error += min(h.Error, h.Count)
			s.listed += l.Rest
			s.Edges[part.Name] += h.Count
		}
	})
	list := make([]Heavy, 0, len(sums))
	for _, s := range sums {
		unlisted := rest - min(rest, s.listed)
		s.Count, s.Error = s.Count+unlisted, s.Error+unlisted
		list = append(list, s.Heavy)
	}
	slices.SortFunc(list, func(a, b Heavy) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error), cmp.Compare(a.Source, b.Source))
	})
	return list[:min(n, len(list))]
}

// Block is a mitigation, and what is known of where it is in force. Edges tell each other of blocks, so only differences matter.
type Block struct {
	control.Mitigation
	On    []string `json:"on"`               // edges that list it
	NotOn []string `json:"not_on,omitempty"` // edges that list all of theirs, and not this one
}

// identity is what a mitigation is called on every edge.
type identity struct {
	rule, policy, source string
	mode                 rules.Mode
	limit                uint32
}

func identityOf(m *control.Mitigation) identity {
	return identity{m.Rule, m.Policy, m.Source, m.Mode, m.Limit}
}

// settles is how long a block or a lift may take until every edge has it and has shown that it has. Before, a difference is none.
const settles = 5 * time.Second

// Blocks are those that the asked edge has, of which it shows own, the first n that match, and those that only others list. all is every one
// that the asked edge has.
func (p *PoP) Blocks(own []control.Mitigation, all iter.Seq[control.Mitigation], match func(*control.Mitigation) bool, n int, now time.Time) []Block {
	if len(p.Parts) == 0 {
		return nil
	}
	self := p.Parts[0].Name
	lists := make(map[identity][]string)
	elsewhere := make(map[identity]control.Mitigation)
	var whole []*Part // that list all of theirs
	for _, s := range p.Parts[1:] {
		if s.Part == nil {
			continue
		}
		for _, extract := range []control.Extract{s.Part.Blocked, s.Part.Shadow} {
			for _, m := range extract.List {
				id := identityOf(&m)
				lists[id] = append(lists[id], s.Name)
				if m.End.After(now) && (match == nil || match(&m)) {
					m.Kernel, m.Edges = nil, nil
					elsewhere[id] = m
				}
			}
		}
		if s.Part.Blocked.InForce == len(s.Part.Blocked.List) && s.Part.Shadow.InForce == len(s.Part.Shadow.List) {
			whole = append(whole, s.Part)
		}
	}
	if len(elsewhere) > 0 {
		for m := range all {
			delete(elsewhere, identityOf(&m))
		}
	}
	list := make([]Block, 0, len(own)+len(elsewhere))
	for _, m := range own {
		on := lists[identityOf(&m)]
		b := Block{Mitigation: m, On: append([]string{self}, on...)}
		for _, part := range whole {
			if now.Sub(m.Learned) > settles && !slices.Contains(on, part.Name) {
				b.NotOn = append(b.NotOn, part.Name)
			}
		}
		list = append(list, b)
	}
	for id, m := range elsewhere {
		if now.Sub(m.Start) > settles {
			list = append(list, Block{Mitigation: m, On: lists[id], NotOn: []string{self}})
		}
	}
	slices.SortStableFunc(list, func(a, b Block) int {
		if m, n := a.By == "admin", b.By == "admin"; m != n {
			if m {
				return -1
			}
			return 1
		}
		return cmp.Or(b.Start.Compare(a.Start), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Rule, b.Rule))
	})
	return list[:min(n, len(list))]
}

// Event is one of an edge, or one that several saw.
type Event struct {
	events.Event
	Edges []string `json:"edges"` // that saw it, the first one first
}

// together is how far apart edges see one event.
const together = 5 * time.Second

// Happened are the latest events of all edges after a time, the newest first. What several edges see, as a block or what an operator says, is one event.
func (p *PoP) Happened(after time.Time) []Event {
	type seen struct {
		kind                       events.Kind
		rule, policy, source, told string
	}
	var each []Event
	p.shown(func(part *Part) {
		for _, e := range part.Events {
			if e.Time.After(after) {
				each = append(each, Event{e, []string{part.Name}})
			}
		}
	})
	slices.SortStableFunc(each, func(a, b Event) int { return a.Time.Compare(b.Time) })
	last := make(map[seen]int)
	list := make([]Event, 0, len(each))
	for _, e := range each {
		key := seen{kind: e.Kind, rule: e.Rule, policy: e.Policy, source: e.Source}
		switch e.Kind {
		case events.Block, events.Lift:
		case events.Operator:
			key.told = e.Who + " " + e.New
		default:
			list = append(list, e)
			continue
		}
		if i, there := last[key]; there && e.Time.Sub(list[i].Time) <= together && !slices.Contains(list[i].Edges, e.Edges[0]) {
			had := &list[i]
			if had.Estimate == 0 && e.Estimate > 0 { // it was this edge's verdict
				had.Event, had.Edges = e.Event, append(e.Edges, had.Edges...)
			} else {
				had.Edges = append(had.Edges, e.Edges[0])
			}
			continue
		}
		last[key] = len(list)
		list = append(list, e)
	}
	slices.SortStableFunc(list, func(a, b Event) int { return b.Time.Compare(a.Time) })
	return list
}
