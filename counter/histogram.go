package counter

import "math/bits"

// fine is when a source's hits came, in bins of a 32nd of a sub-window. An estimate errs only in the sub-window that the
// window's beginning cuts, where it takes the hits to be spread evenly. Of its own hits a table can know better, at no cost to
// the tier: those it counted after the cut are counted, those before are not, and only what other edges counted is spread, until
// they tell (times.go). With one edge that is nearly an exact log.
//
// A kilobyte for each of a million sources would be too much, so there is room for one in 64 of a table's counters. A source
// gets one with its second hit, or what a 64th of its limit is, if there is room, and keeps it against others once it has used an
// eighth.
type fine struct {
	slot   int32  // the counter's index in its store; 0: nobody's
	next   int32  // of the same chain, and one more than the index in the list; 0: no more
	wide   bool   // which store
	rule   uint32 // its ID
	last   uint32 // sub-window of the newest hit
	asked  uint32 // sub-window in which somebody last asked when hits came
	told   uint16 // a bit for each lane: others have been told of its bins, and theirs may be added
	toldAt uint32 // sub-window in which others were last told
	lanes  [fineLanes]uint32
	bins   [fineLanes]bins
}

type bins [fineBins]uint16

// histograms are those of a shard, found by their counters' indices.
type histograms struct {
	list   []fine
	most   int
	hand   int     // where newFine looks next
	chains []int32 // by the counter's index: one more than the index of the first, or 0
}

func newHistograms(most int) histograms {
	return histograms{most: most, chains: make([]int32, 1<<(bits.Len(uint(most))-1))}
}

// chain is where a chain begins.
func (hs *histograms) chain(i int) *int32 {
	return &hs.chains[uint32(i)*0x9e3779b1>>16&uint32(len(hs.chains)-1)]
}

const (
	fineBins  = 32
	fineLanes = 16 // more than the 13 sub-windows that a window of 12 touches; a power of two
	fineShare = 64 // counters for each fine
	fineFrom  = 64 // a source gets a fine at this part of its limit, its second hit at the earliest, if there is room then
	fineNeeds = 8  // from this part of its limit on it takes the place of a colder one
)

// number is the sub-window of a position, modulo 2^32.
func (r *Rule) number(p position) uint32 { return p.group<<r.shift | uint32(p.lane) }

// own returns the bins of what the table itself counted, and was told of, in the sub-window that a window's beginning cuts, ahead
// sub-windows after p; nil if nothing is known.
func (s *shard) own(r *Rule, i int, p position, ahead int) *bins {
	f := s.fine(s.store(r), i)
	if f == nil {
		return nil
	}
	return f.of(r.number(p) + uint32(ahead-r.SubWindows))
}

// of is the bins of a sub-window, or nil if nothing is known of it.
func (f *fine) of(n uint32) *bins {
	if lane := n % fineLanes; f.lanes[lane] == n {
		return &f.bins[lane]
	}
	return nil
}

// note adds hits to the bins of a counter that has, or now gets, a fine.
func (s *shard) note(r *Rule, st *store, i int, p position, hits uint32, estimate float64) {
	f := s.fine(st, i)
	if f == nil {
		needs := estimate*fineNeeds >= float64(r.Limit)
		from := max(float64(r.Limit)/fineFrom, 1)
		// Who does not need one asks once, on passing that point: there are many of those.
		if !needs && (estimate <= from || estimate-float64(hits) > from) || r.SubWindows == 1 {
			return
		}
		if f = s.addFine(r, st, i, p, needs); f == nil {
			return
		}
	}
	n := r.number(p)
	lane := n % fineLanes
	if f.lanes[lane] != n {
		f.begin(n)
	}
	f.last = n
	b := &f.bins[lane][min(int(p.gone*fineBins), fineBins-1)]
	*b = uint16(min(uint32(*b)+hits, 1<<16-1))
}

// begin gives a sub-window its lane.
func (f *fine) begin(n uint32) {
	lane := n % fineLanes
	f.lanes[lane], f.bins[lane] = n, bins{}
	f.told &^= 1 << lane
}

// fine is that of a counter, or nil.
func (s *shard) fine(st *store, i int) *fine {
	if st.head(i).state&hasFine == 0 {
		return nil
	}
	return &s.histograms.list[*s.linkTo(st, i)-1]
}

// linkTo is where the index of a counter's histogram stands, which has one.
func (s *shard) linkTo(st *store, i int) *int32 {
	at := s.histograms.chain(i)
	for f := &s.histograms.list[*at-1]; int(f.slot) != i || f.wide != (st == &s.wide); f = &s.histograms.list[*at-1] {
		at = &f.next
	}
	return at
}

// link puts a histogram that is nobody's where its counter finds it.
func (s *shard) link(k int32, st *store, i int) {
	f, first := &s.histograms.list[k], s.histograms.chain(i)
	f.slot, f.wide, f.next = int32(i), st == &s.wide, *first
	*first = k + 1
}

// unlink makes a counter's histogram nobody's, and returns which it was.
func (s *shard) unlink(st *store, i int) (k int32) {
	at := s.linkTo(st, i)
	k = *at - 1
	*at, s.histograms.list[k].slot = s.histograms.list[k].next, 0
	return k
}

// addFine gives a counter a fine if there is room, or if it needs one more than another.
func (s *shard) addFine(r *Rule, st *store, i int, p position, needs bool) *fine {
	k, ok := s.newFine(r, p, needs)
	if !ok {
		return nil
	}
	s.link(k, st, i)
	st.head(i).state |= hasFine
	f, now := &s.histograms.list[k], r.number(p)
	f.rule, f.last, f.asked, f.toldAt, f.told = r.ID, now, now-fineLanes, now-fineLanes, 0
	for j := range f.lanes { // no lane is that of a sub-window to come
		f.lanes[j] = now - fineLanes
	}
	f.begin(now)
	return f
}

// newFine finds room for a fine: a free one, or one of which the source has been silent for a window. Who needs it may also take that
// of a source that is far from its limit, and looks at a few.
func (s *shard) newFine(r *Rule, p position, needs bool) (int32, bool) {
	if len(s.histograms.list) < s.histograms.most {
		s.histograms.list = append(s.histograms.list, fine{})
		return int32(len(s.histograms.list) - 1), true
	}
	looks := 1
	if needs {
		looks = 4
	}
	for range min(looks, len(s.histograms.list)) {
		s.histograms.hand = (s.histograms.hand + 1) % len(s.histograms.list)
		f := &s.histograms.list[s.histograms.hand]
		if f.slot == 0 {
			return int32(s.histograms.hand), true
		}
		silent := f.rule == r.ID && r.number(p)-f.last > uint32(r.SubWindows)
		if !needs && !silent {
			continue
		}
		st := &s.narrow
		if f.wide {
			st = &s.wide
		}
		if h := st.head(int(f.slot)); silent || h.state&warm == 0 {
			h.state &^= hasFine
			return s.unlink(st, int(f.slot)), true
		}
	}
	return 0, false
}

// sum adds up the hits of bins from b on. Four at once: it is most of what a refusal costs.
func (o *bins) sum(b int) (n uint64) {
	rest := o[b:]
	for ; len(rest) >= 4; rest = rest[4:] {
		n += uint64(rest[0]) + uint64(rest[1]) + (uint64(rest[2]) + uint64(rest[3]))
	}
	for _, hits := range rest {
		n += uint64(hits)
	}
	return n
}
