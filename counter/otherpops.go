package counter

import (
	"maps"
	"slices"
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/internal/histogram"
	"sluice/counter/internal/lanes"
)

// What other PoPs have counted of a source near its limit is in the shard of its counter, and every
// reading of the counter takes it into account (estimateOf). Snapshot, reports and All leave it
// out: they are about what was counted here.
//
// It refuses no source that is within its limit over all PoPs. Of what others have counted, and of
// what is counted here beside it, only those hits are added up that certainly lie in the window,
// whatever the rule's estimate is. Where that is less than what the rule's estimate says of the
// hits here alone, this one counts.

// MaxOtherPoPs is of how many counters a table keeps what other PoPs have counted, about 200 bytes
// each; what comes beyond that is not kept, and counts nothing.
const MaxOtherPoPs = 16_384

// Slice is what another PoP has counted in some sub-windows in a row.
type Slice struct {
	Began time.Time     // when the newest began, on the clock here
	Sub   time.Duration // how long each is
	Hits  []uint32      // the newest first
}

// Carries reports whether what other PoPs have counted can be added to counters of a rule: its
// window slides, no request waits for its rank, and there is something to add, which is always less
// than the limit.
func Carries(r *algorithm.Spec) bool { return r.Sliding() && r.Limit > 1 }

// told reports whether other PoPs are told of a source with an estimate, since so many hits, just
// confirmed, have brought a group to a total: if it has used two thirds of its limit, with the
// first hits of a group, and at each quarter of the limit within one. The tier counts one hit after
// the other, so exactly one report sees each of these. A source that goes to and fro between more
// and less than two thirds causes no more of them.
//
// Quarters are counted so that two thirds are one. Those that come with a third of the limit in
// each group, as of a source that is refused now and then, come in the middle of it.
func told(r *algorithm.Spec, estimate float64, hits, total uint64) bool {
	limit, after := uint64(r.Limit), r.Packing().Sum(total)
	before := after - min(r.Packing().Sum(hits), after)
	quarter := func(n uint64) uint64 { return (12*n + limit) / (3 * limit) }
	return 3*estimate >= 2*float64(limit) && (before == 0 || quarter(before) != quarter(after))
}

// CountedHere is what is counted of a source in the sub-windows that a window touches, by this PoP:
// what has been reported, and nothing of what other PoPs have said.
func (t Reports) CountedHere(c Counter, now time.Time) (slice Slice) {
	newest, groups := t.Snapshot(c, now)
	at := c.Rule.Position(t.ns(now)+t.offset.Load(), t.phase(c.Source))
	slice.Sub = c.Rule.SubWindow()
	slice.Began = t.Wall(now).Add(-time.Duration(at.Gone * float64(slice.Sub)))
	for j := range c.Rule.SubWindows + 1 {
		lane := at.Lane - j
		g := int(int32(newest-at.Group)) - lane>>c.Rule.Packing()
		n := uint64(0)
		if g >= 0 && g < len(groups) {
			n = c.Rule.Packing().Lane(groups[g], lane&(c.Rule.Packing().Count()-1))
		}
		slice.Hits = append(slice.Hits, uint32(n))
	}
	for len(slice.Hits) > 0 && slice.Hits[len(slice.Hits)-1] == 0 {
		slice.Hits = slice.Hits[:len(slice.Hits)-1]
	}
	return slice
}

// Fit gives what another PoP has counted in groups of the counter here, the newest first. The
// sub-windows of two PoPs begin at different times; hits go into the one here in which theirs
// began, so they leave the window early, and never late. In all they are less than the limit: more
// would be of no use (others).
func (t Reports) Fit(c Counter, slice Slice, now time.Time) (newest uint32, groups []uint64) {
	wall, phase, packing := t.Wall(now), t.phase(c.Source), c.Rule.Packing()
	newest = c.Rule.Position(wall.UnixNano(), phase).Group
	groups = make([]uint64, c.Rule.Groups())
	left := c.Rule.Limit - 1
	for i, hits := range slice.Hits {
		began := slice.Began.Add(-time.Duration(i) * slice.Sub)
		if began.After(wall) {
			began = wall
		}
		p := c.Rule.Position(began.UnixNano(), phase)
		if g := int(int32(newest - p.Group)); g >= 0 && g < len(groups) {
			hits = min(hits, left)
			left -= hits
			groups[g] = packing.Add(groups[g], p.Lane, uint64(hits))
		}
	}
	return newest, groups
}

// CountedByOtherPoP takes in what the PoP from had counted of a counter when it said so: groups as
// Fit makes them. It reports whether there was room.
func (t Reports) CountedByOtherPoP(c Counter, from uint64, newest uint32, groups []uint64, said,
	now time.Time) bool {
	h := otherHits{pop: from, newest: newest, at: said.UnixNano(),
		until: t.ns(now.Add(c.Rule.Lifetime()))}
	for i, hits := range groups[:min(len(groups), c.Rule.Groups())] {
		h.groups[i] = c.Rule.Packing().Clamp(hits)
	}
	s := t.shard(t.hash(&c.Source))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.otherPoPs.put(Key{c.Source, c.Rule.ID}, h, max(MaxOtherPoPs/len(t.shards), 1),
		t.ns(now))
}

// ForgetOtherPoPs drops all that other PoPs have said.
func (t Reports) ForgetOtherPoPs() {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.otherPoPs = nil
		s.mu.Unlock()
	}
}

// OtherPoPs is of how many counters other PoPs have said what they counted.
func (t *core) OtherPoPs() (n int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		n += len(s.otherPoPs)
		s.mu.Unlock()
	}
	return n
}

func (t *core) phase(s Source) uint16 {
	if t.options.Phase == nil {
		return 0
	}
	return t.options.Phase(s)
}

// others are what other PoPs have counted of the counter at i, in groups of which the first is
// newest. ok reports whether there is anything of that.
func (s *shard) others(r *algorithm.Spec, st *store, i int,
	newest uint32) (groups [lanes.MaxGroups]uint64, ok bool) {
	if len(s.otherPoPs) == 0 {
		return groups, false
	}
	return groups, s.otherPoPs.add(Key{st.head(i).source(), r.ID}, r.Packing(), newest,
		groups[:r.Groups()])
}

// estimateOf is the estimate of the counter at i with so many hits in its groups. What others have
// counted is less than the limit in all: so no PoP's word, and no two of them, refuse a source that
// has done nothing here.
func (s *shard) estimateOf(r *algorithm.Spec, st *store, i int, groups []uint64,
	at algorithm.Position) float64 {
	return s.withOthers(r, st, i, groups, at, r.Read(groups, s.own(st, i), at))
}

// withOthers is an estimate, or what is certain here and what others have counted together, if that
// is more.
func (s *shard) withOthers(r *algorithm.Spec, st *store, i int, groups []uint64,
	at algorithm.Position, estimate float64) float64 {
	if others, ok := s.others(r, st, i, at.Group); ok {
		there := min(r.Certain(others[:], histogram.Own{}, at), float64(r.Limit-1))
		estimate = max(estimate, r.Certain(groups, s.own(st, i), at)+there)
	}
	return estimate
}

// firm is the estimate of such a counter that decisions go by: of a source that was over its limit
// lately the estimate itself, of every other what is sure of it. So a source that keeps to its
// limit is not refused because nobody knows when some of its hits came, and one that does not gains
// nothing by that.
func (s *shard) firm(r *algorithm.Spec, st *store, i int, groups []uint64, at algorithm.Position,
	estimate float64) float64 {
	if !r.Doubts() || st.head(i).over() > 0 {
		return estimate
	}
	return s.sureOf(r, st, i, groups, at)
}

// sureOf is what is sure of the estimate of such a counter.
func (s *shard) sureOf(r *algorithm.Spec, st *store, i int, groups []uint64,
	at algorithm.Position) float64 {
	return s.withOthers(r, st, i, groups, at, r.Sure(groups, s.own(st, i), at))
}

// noteOver notes that a counter is over its limit with so many hits more, if that is sure: a
// refusal that follows from the estimate alone does not lead to others.
func (s *shard) noteOver(r *algorithm.Spec, st *store, i int, at algorithm.Position, more float64) {
	h := st.head(i)
	if r.Doubts() && h.over() < r.Groups() && r.Over(s.sureOf(r, st, i, st.groups(i), at)+more) {
		h.setOver(r.Groups())
	}
}

// retryAfterOf is how long it takes until n more hits of such a counter are within the limit.
func (s *shard) retryAfterOf(r *algorithm.Spec, st *store, i int, groups []uint64,
	at algorithm.Position, n float64) time.Duration {
	wait := r.RetryAfter(groups, s.own(st, i), at, n)
	if others, ok := s.others(r, st, i, at.Group); ok {
		for g := range others[:r.Groups()] {
			others[g] = r.Packing().Plus(others[g], groups[g])
		}
		wait = max(wait, r.With(r.Limit, algorithm.Lower).RetryAfter(others[:], s.own(st, i), at,
			n))
	}
	return wait
}

// otherHits are what one PoP has counted of a source under a rule, in the sub-windows of the
// counter here.
type otherHits struct {
	pop    uint64 // stands for its name
	newest uint32 // the number of groups[0], modulo 2^32
	groups [lanes.MaxGroups]uint64
	at     int64 // when, ns: the latest counts
	until  int64 // ns; no window sees any of it then
}

// otherPoPs has the hits of some counters. It is added to what is counted here when a counter is
// read, and never mixed with it: so it goes to no third PoP, does not come back to the one that
// counted it, and no hit counts twice. What a PoP says takes the place of what it said before.
type otherPoPs map[Key][]otherHits

// put notes what a PoP has counted of the counter k, and reports whether there was room: for so
// many counters. What is over at now makes room.
func (s *otherPoPs) put(k Key, h otherHits, room int, now int64) bool {
	list, known := (*s)[k]
	if !known && len(*s) >= room {
		maps.DeleteFunc(*s, func(_ Key, list []otherHits) bool { return gone(list, now) })
		if len(*s) >= room {
			return false
		}
	}
	if *s == nil {
		*s = make(otherPoPs)
	}
	i := slices.IndexFunc(list, func(old otherHits) bool { return old.pop == h.pop })
	switch {
	case i < 0:
		(*s)[k] = append(list, h)
	case list[i].at <= h.at:
		list[i] = h
	}
	return true
}

func gone(list []otherHits, now int64) bool {
	return !slices.ContainsFunc(list, func(h otherHits) bool { return now < h.until })
}

// add adds the hits of the counter k to its groups, the first of which is newest, and reports
// whether there are any.
func (s otherPoPs) add(k Key, p lanes.Packing, newest uint32, groups []uint64) (any bool) {
	for _, h := range s[k] {
		for i, hits := range h.groups {
			if g := int(int32(newest - h.newest + uint32(i))); hits != 0 && g >= 0 &&
				g < len(groups) {
				groups[g] = p.Plus(groups[g], hits)
				any = true
			}
		}
	}
	return any
}
