package view

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
	"sluice/edge/top"
)

// Heavy is a source that asks a lot of the PoP, and of which edges.
type Heavy struct {
	top.Heavy
	Edges map[string]uint64 `json:"edges"` // the count on each edge that lists it, by name
}

// HeavyKey is a key that comes often to the PoP, and to which edges.
type HeavyKey struct {
	control.HeavyKey
	Edges map[string]uint64 `json:"edges"` // the count on each edge that lists it, by name
}

// Top returns the n heaviest sources of a list, the heaviest first.
func (p *PoP) Top(by string, n int) []Heavy {
	list := []Heavy{}
	for _, s := range merge(p, func(part *Part) ([]top.Heavy, uint64) {
		return part.Tops[by].Heavy, part.Tops[by].Rest
	},
		func(h *top.Heavy) (string, *top.Heavy) { return h.Source, h }, n) {
		list = append(list, Heavy{s.of, s.edges})
	}
	return list
}

// TopKeys returns the n heaviest keys of a list, the heaviest first; rule is the one whose keys are
// wanted; "": of all.
func (p *PoP) TopKeys(by string, n int, rule string) []HeavyKey {
	list := []HeavyKey{}
	for _, s := range merge(p, func(part *Part) (keys []control.HeavyKey, rest uint64) {
		for _, h := range part.Keys[by].Heavy {
			if rule == "" || slices.Contains(h.Rules, rule) {
				keys = append(keys, h)
			}
		}
		return keys, part.Keys[by].Rest
	}, func(h *control.HeavyKey) (string, *top.Heavy) {
		return canonical(h.Key) + " " + h.Source, &h.Heavy
	}, n) {
		if s.of.Rules == nil {
			s.of.Rules = []string{}
		}
		list = append(list, HeavyKey{s.of, s.edges})
	}
	return list
}

// canonical is what a key is of, in one spelling: edges whose rules spell it otherwise mean the
// same.
func canonical(text string) string {
	parts := strings.Split(text, " and ")
	for i, p := range parts {
		if part, err := key.Parse(p); err == nil {
			parts[i] = part.String()
		}
	}
	return strings.Join(parts, " and ")
}

// A merged is one of a list, with the counts of all edges.
type merged[T any] struct {
	of     T // as the first edge that lists it says, but for its counts
	edges  map[string]uint64
	listed uint64 // the rests of the edges that list it
}

// merge adds the lists of all edges, and returns the n heaviest. counts are what one is called, and
// where its counts are.
func merge[T any](p *PoP,
	list func(*Part) (of []T, rest uint64), counts func(*T) (string,
		*top.Heavy), n int) []*merged[T] {
	sums, all, rest := make(map[string]*merged[T]), []*merged[T]{}, uint64(0)
	p.shown(func(part *Part) {
		here, others := list(part)
		rest += others
		for _, one := range here {
			name, more := counts(&one)
			s := sums[name]
			if s == nil {
				s = &merged[T]{of: one, edges: make(map[string]uint64)}
				_, sum := counts(&s.of)
				sum.Count, sum.Error = 0, 0
				sums[name] = s
				all = append(all, s)
			}
			_, sum := counts(&s.of)
			sum.Count += more.Count
			sum.Error += min(more.Error, more.Count)
			s.listed += others
			s.edges[part.Name] += more.Count
		}
	})
	for _, s := range all {
		unlisted := rest - min(rest, s.listed)
		_, sum := counts(&s.of)
		sum.Count, sum.Error = sum.Count+unlisted, sum.Error+unlisted
	}
	slices.SortFunc(all, func(a, b *merged[T]) int {
		_, x := counts(&a.of)
		_, y := counts(&b.of)
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Error, y.Error),
			cmp.Compare(x.Source, y.Source))
	})
	return all[:min(n, len(all))]
}

// Block is a mitigation, and what is known of where it is in force. Edges tell each other of
// blocks, so only differences matter.
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

// settles is how long a block or a lift may take until every edge has it and has shown that it has.
// Before, a difference is none.
const settles = 5 * time.Second

// Blocks are those that the asked edge has, of which it shows own, the first n that match, and
// those that only others list. all is every one that the asked edge has.
func (p *PoP) Blocks(own []control.Mitigation, all iter.Seq[control.Mitigation],
	match func(*control.Mitigation) bool, n int, now time.Time) []Block {
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
		if s.Part.Blocked.InForce == len(s.Part.Blocked.List) &&
			s.Part.Shadow.InForce == len(s.Part.Shadow.List) {
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
		return cmp.Or(b.Start.Compare(a.Start), cmp.Compare(a.Source, b.Source),
			cmp.Compare(a.Rule, b.Rule))
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

// Happened are the latest events of all edges after a time, the newest first. What several edges
// see, as a block or what an operator says, is one event.
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
		if i, there := last[key]; there && e.Time.Sub(list[i].Time) <= together &&
			!slices.Contains(list[i].Edges, e.Edges[0]) {
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
