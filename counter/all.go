package counter

import (
	"iter"
	"slices"
	"time"

	"sluice/counter/algorithm"
)

// All ranges over the counters of rules in which something is counted at now, for another table's
// Apply: their groups are those of Snapshot, the newest first. What is reserved is not among them.
// Nothing is locked while a counter is looked at; hits that come meanwhile may be in it or not.
func (t *core) All(rules []*algorithm.Spec, now time.Time) iter.Seq[Copy] {
	byID := make(map[uint32]*algorithm.Spec, len(rules))
	for _, r := range rules {
		byID[r.ID] = r
	}
	return func(yield func(Copy) bool) {
		var copies []Copy
		for i := range t.shards {
			copies = t.shards[i].copies(byID, t.ns(now), copies[:0])
			for _, c := range copies {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// Copy is what a table has counted of a source under a rule.
type Copy struct {
	Counter
	Newest uint32 // the number of the first group
	Groups []uint64
}

func (s *shard) copies(rules map[uint32]*algorithm.Spec, now int64, out []Copy) []Copy {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range []*store{&s.narrow, &s.wide} {
		for i := range st.All() {
			h := st.head(i)
			r := rules[h.rule]
			if r == nil || s.store(r) != st {
				continue
			}
			s.advance(st, i, r, now)
			groups := st.groups(i)[:r.Groups()]
			if slices.Max(groups) > 0 {
				out = append(out, Copy{Counter{Rule: r, Source: h.source()}, h.base,
					slices.Clone(groups)})
			}
		}
	}
	return out
}
