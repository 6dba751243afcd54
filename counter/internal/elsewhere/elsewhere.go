// Package elsewhere keeps what other PoPs have counted of sources near their limit. It is added to
// what is counted here when a counter is read, and never mixed with it: so it goes to no third PoP,
// does not come back to the one that counted it, and no hit counts twice. What a PoP says takes the
// place of what it said before.
package elsewhere

import (
	"maps"
	"slices"

	"sluice/counter/internal/lanes"
)

// Hits are what one PoP has counted of a source under a rule, in the sub-windows of the counter
// here.
type Hits struct {
	PoP    uint64 // stands for its name
	Newest uint32 // the number of Groups[0], modulo 2^32
	Groups [lanes.MaxGroups]uint64
	At     int64 // when, ns: the latest counts
	Until  int64 // ns; no window sees any of it then
}

// Set has the hits of some counters, each under a key. The zero value is empty. Its methods need a
// lock.
type Set[K comparable] struct{ hits map[K][]Hits }

// Any reports whether there are any.
func (s *Set[K]) Any() bool { return len(s.hits) > 0 }

// Put notes what a PoP has counted of the counter k, and reports whether there was room: for so
// many counters. What is over at now makes room.
func (s *Set[K]) Put(k K, h Hits, room int, now int64) bool {
	list, known := s.hits[k]
	if !known && len(s.hits) >= room {
		maps.DeleteFunc(s.hits, func(_ K, list []Hits) bool { return over(list, now) })
		if len(s.hits) >= room {
			return false
		}
	}
	if s.hits == nil {
		s.hits = make(map[K][]Hits)
	}
	i := slices.IndexFunc(list, func(old Hits) bool { return old.PoP == h.PoP })
	switch {
	case i < 0:
		s.hits[k] = append(list, h)
	case list[i].At <= h.At:
		list[i] = h
	}
	return true
}

func over(list []Hits, now int64) bool {
	return !slices.ContainsFunc(list, func(h Hits) bool { return now < h.Until })
}

// Add adds the hits of the counter k to its groups, the first of which is newest, and reports
// whether there are any.
func (s *Set[K]) Add(k K, p lanes.Packing, newest uint32, groups []uint64) (any bool) {
	for _, h := range s.hits[k] {
		for i, hits := range h.Groups {
			if g := int(int32(newest - h.Newest + uint32(i))); hits != 0 && g >= 0 &&
				g < len(groups) {
				groups[g] = p.Plus(groups[g], hits)
				any = true
			}
		}
	}
	return any
}

// Forget drops the hits of one counter.
func (s *Set[K]) Forget(k K) { delete(s.hits, k) }

// Clear drops all.
func (s *Set[K]) Clear() { s.hits = nil }

// Len is of how many counters there are hits.
func (s *Set[K]) Len() int { return len(s.hits) }
