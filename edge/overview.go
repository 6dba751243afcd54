package edge

import (
	"cmp"
	"slices"
	"time"

	"sluice/counter"
	"sluice/edge/rules"
	"sluice/mitigation"
)

// Blocked is an extract of the mitigations in force.
type Blocked struct {
	InForce  int           `json:"in_force"`
	Matching int           `json:"matching"` // of them, those that were looked for
	List     []BlockedShow `json:"list"`     // of these: those of operators first, then the newest
}

// BlockedShow is a mitigation in a list.
type BlockedShow struct {
	Mitigation
	Mode rules.Mode `json:"mode"` // of its rule: a shadow rule's refuses nobody
}

// Blocked returns at most n of the mitigations that match, those of rules in force and those of shadow rules apart. A nil match is
// all, and is cheaper: what is not shown is not spelled out.
func (s *Server) Blocked(n int, match func(Mitigation) bool, now time.Time) (enforced, shadow Blocked) {
	type entry struct {
		key mitigation.Key
		bit mitigation.Bit
	}
	order := func(a, b entry) int {
		if m, n := a.bit.By == mitigation.ByAdmin, b.bit.By == mitigation.ByAdmin; m != n {
			if m {
				return -1
			}
			return 1
		}
		return cmp.Or(b.bit.Start.Compare(a.bit.Start), cmp.Compare(a.key.Rule, b.key.Rule))
	}
	byID := make(map[uint32]*rules.Rule)
	for _, r := range s.snap.Load().rules.Rules {
		byID[r.Counter.ID] = r
	}
	kept := make(map[*Blocked][]entry, 2)
	first := func(to *Blocked) {
		slices.SortStableFunc(kept[to], order)
		kept[to] = kept[to][:min(n, len(kept[to]))]
	}
	for key, bit := range s.limiter.Bits.All(now) {
		r := byID[key.Rule]
		if r == nil {
			continue
		}
		to := &enforced
		if r.Config.Mode == rules.Shadow {
			to = &shadow
		}
		to.InForce++
		if match != nil && !match(shownBit(r, key.Source, bit)) {
			continue
		}
		to.Matching++
		if kept[to] = append(kept[to], entry{key, bit}); len(kept[to]) >= 2*n+64 {
			first(to)
		}
	}
	for _, to := range []*Blocked{&enforced, &shadow} {
		first(to)
		to.List = []BlockedShow{}
		for _, e := range kept[to] {
			r := byID[e.key.Rule]
			to.List = append(to.List, BlockedShow{shownBit(r, e.key.Source, e.bit), r.Config.Mode})
		}
	}
	return enforced, shadow
}

func shownBit(r *rules.Rule, source counter.Source, bit mitigation.Bit) Mitigation {
	return Mitigation{Rule: r.Config.Name, Source: source.String(), Start: bit.Start, End: bit.End, Learned: bit.Learned, By: bit.By.String(), Reason: bit.Reason}
}

// Nearest returns, for every rule that counts by address, the source that has used most of its limit and is not mitigated, of the n
// with the most requests of late: how much room a rule leaves to whom it does not refuse.
func (s *Server) Nearest(n int, now time.Time) map[string]Standing {
	var heavy []counter.Source
	for _, h := range s.requests.Heaviest(n) {
		if src, err := counter.ParseSource(h.Source); err == nil {
			heavy = append(heavy, src)
		}
	}
	nearest := make(map[string]Standing)
	for _, r := range s.snap.Load().rules.Rules {
		if r.Parts != nil {
			continue // counted by something that an address does not tell
		}
		for _, src := range heavy {
			v, known := s.limiter.Counters.Peek(r.Counter, src, now)
			if !known || v.Estimate <= nearest[r.Config.Name].Estimate ||
				!s.limiter.Bits.Until(mitigation.Key{Rule: r.Counter.ID, Source: src}, now).IsZero() {
				continue
			}
			nearest[r.Config.Name] = Standing{Rule: r.Config.Name, Source: src.String(), Mode: r.Config.Mode,
				Estimate: v.Estimate, Limit: r.Config.Limit, Remaining: v.Remaining}
		}
	}
	return nearest
}
