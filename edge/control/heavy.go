package control

import (
	"cmp"
	"math"
	"slices"

	"sluice/counter"
	"sluice/edge/rules/key"
	"sluice/edge/seen"
	"sluice/edge/top"
)

// HeavyHanded is one of the heaviest, a source or a key, as one process hands it to another.
type HeavyHanded struct {
	In     seen.Kind `json:"in"`           // what it is heavy in
	Source string    `json:"source"`       // as counter.Source writes it
	By     string    `json:"by,omitempty"` // of a key: what it is of
	// Of a key: its first characters, where a rule shows them
	Start string `json:"key,omitempty"`
	Count uint64 `json:"count"`
	Error uint64 `json:"error,omitempty"`
}

// HeavySent is each of the heaviest as it was when they were handed over, by of whom it counts and
// in what.
type HeavySent map[HeavyHanded]HeavyHanded

func (h HeavyHanded) name() HeavyHanded { return HeavyHanded{In: h.In, Source: h.Source, By: h.By} }

// tops are the lists of sources, by what they are heavy in.
func (c *Admin) tops() [3]*top.Top {
	return [...]*top.Top{seen.Requests: c.with.Requests, seen.Refused: c.with.Refusals,
		seen.NotEnforced: c.with.NotEnforced}
}

// HandHeavy returns the heaviest for a process that takes over, the lightest first, and what has
// been handed over with them: before, which is nil at the first time, is left out.
func (c *Admin) HandHeavy(before HeavySent) (list []HeavyHanded, sent HeavySent) {
	sent = make(HeavySent)
	add := func(h HeavyHanded) {
		had := before[h.name()]
		sent[h.name()] = h
		if h.Count > had.Count { // else nothing has come, or its counts have been halved
			h.Count, h.Error = h.Count-had.Count, h.Error-min(h.Error, had.Error)
			list = append(list, h)
		}
	}
	for kind, t := range c.tops() {
		for _, h := range t.Heaviest(math.MaxInt) {
			add(HeavyHanded{In: seen.Kind(kind), Source: h.Source, Count: h.Count, Error: h.Error})
		}
		if c.with.Keys == nil {
			continue
		}
		keys, _ := c.with.Keys.List(seen.Kind(kind), math.MaxInt, nil)
		for _, k := range keys {
			add(HeavyHanded{In: seen.Kind(kind), Source: k.Digest.String(), By: k.By,
				Start: k.Start.String(), Count: k.Count, Error: k.Error})
		}
	}
	slices.SortFunc(list, func(a, b HeavyHanded) int { return cmp.Compare(a.Count, b.Count) })
	return list, sent
}

// AdoptHeavy adds one of the heaviest of another process on this edge's place. A list that this
// version does not have is left out.
func (c *Admin) AdoptHeavy(h *HeavyHanded) {
	tops := c.tops()
	source, err := counter.ParseSource(h.Source)
	switch {
	case err != nil || int(h.In) >= len(tops) || h.Count == 0:
	case h.By == "":
		tops[h.In].Add(source, h.Count, h.Error)
	case c.with.Keys != nil:
		c.with.Keys.Add(h.In, &key.Counted{By: h.By, Digest: source, Start: key.ReadStart(h.Start)},
			h.Count, h.Error)
	}
}
