// Package top counts the heaviest sources in bounded memory.
package top

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"sluice/counter"
)

const (
	topSets = 128
	topWays = 8 // entries of a set
	// Half is how often counts are halved, so that what is heavy now comes before what was heavy
	// once.
	Half = 10 * time.Minute
)

// A Top counts the heaviest sources in bounded memory (Metwally, Agrawal, El Abbadi: "Efficient
// computation of frequent and top-k elements in data streams", 2005), in small sets, so that a hit
// looks at a few entries and needs neither index nor order. A source that is not among the entries
// of its set replaces the lightest one, and starts with its count: no count is too small, and none
// is too large by more than the entry says. With n hits in a set, every source with more than n/8
// of them is there.
type Top struct {
	seed maphash.Seed
	sets [topSets]topSet
}

type topSet struct {
	mu      sync.Mutex
	entries [topWays]topEntry
	_       [64]byte // sets do not share a cache line
}

type topEntry struct {
	source counter.Source
	count  uint64 // 0: a free entry
	over   uint64
}

// Heavy is a source with many requests, and how many: at least Count - Error, at most Count, of
// late.
type Heavy struct {
	Source string `json:"source"`
	Count  uint64 `json:"count"`
	Error  uint64 `json:"error"`
}

func New() *Top { return &Top{seed: maphash.MakeSeed()} }

func (t *Top) Hit(s counter.Source) { t.Add(s, 1, 0) }

// Add adds what another Top counted of a source: at least count - over, at most count. Of several
// sources the lightest comes first, so that none pushes out a heavier one.
func (t *Top) Add(s counter.Source, count, over uint64) {
	set := &t.sets[maphash.Comparable(t.seed, s)%topSets]
	set.mu.Lock()
	set.add(s, count, over)
	set.mu.Unlock()
}

func (h *topSet) add(s counter.Source, count, over uint64) {
	lightest := &h.entries[0]
	for i := range h.entries {
		e := &h.entries[i]
		if e.source == s {
			e.count += count
			e.over += over
			return
		}
		if e.count < lightest.count {
			lightest = e
		}
	}
	*lightest = topEntry{source: s, count: lightest.count + count, over: lightest.count + over}
}

// Fade halves all counts. That keeps their order.
func (t *Top) Fade() {
	for i := range t.sets {
		h := &t.sets[i]
		h.mu.Lock()
		for j := range h.entries {
			h.entries[j].count /= 2
			h.entries[j].over /= 2
		}
		h.mu.Unlock()
	}
}

// List is some of the heaviest sources, as far as they are to be added to those of other edges.
type List struct {
	Heavy []Heavy `json:"heavy"`
	Rest  uint64  `json:"rest,omitempty"` // a source that is not listed has at most so many
}

// Heaviest returns at most n sources, the heaviest first.
func (t *Top) Heaviest(n int) []Heavy { return t.List(n).Heavy }

// List is Heaviest, with what others may have.
func (t *Top) List(n int) List {
	list, l := []Heavy{}, List{}
	for i := range t.sets {
		h := &t.sets[i]
		h.mu.Lock()
		lightest := h.entries[0].count
		for _, e := range h.entries {
			lightest = min(lightest, e.count)
			if e.count > e.over {
				list = append(list, Heavy{e.source.String(), e.count, e.over})
			} else {
				l.Rest = max(l.Rest, e.count)
			}
		}
		h.mu.Unlock()
		l.Rest = max(l.Rest, lightest) // in a set with a free entry there is no other source
	}
	slices.SortFunc(list, func(a, b Heavy) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Source, b.Source))
	})
	l.Heavy = list[:min(n, len(list))]
	if len(l.Heavy) < len(list) {
		l.Rest = max(l.Rest, list[len(l.Heavy)].Count)
	}
	return l
}
