package counter

import "math/bits"

// A histogram is when a source's hits came, in bins of a 32nd of a sub-window. An estimate errs only in the sub-window that the
// window's beginning cuts, where it takes the hits to be spread evenly. Of its own hits a table can know better, at no cost to
// the tier: those it counted after the cut are counted, those before are not, and only what other edges counted is spread, until
// they tell (times.go). With one edge that is nearly an exact log.
//
// A kilobyte for each of a million sources would be too much, so there is room for one in 64 of a table's counters. A source
// gets one with its second hit, or what a 64th of its limit is, if there is room, and keeps it against others once it has used an
// eighth.
type histogram struct {
	slot       int32                       // the counter's index in its store; 0: nobody's
	next       int32                       // of the same chain, and one more than the index in the list; 0: no more
	wide       bool                        // which store
	rule       uint32                      // its ID
	last       uint32                      // sub-window of the newest hit
	asked      uint32                      // sub-window in which somebody last asked when hits came
	exported   uint16                      // a bit for each lane: others have been told of its bins, and theirs may be added
	exportedAt uint32                      // sub-window in which others were last told
	subWindows [histogramSubWindows]uint32 // the number of each lane's
	bins       [histogramSubWindows]bins
}

type bins [histogramBins]uint16

// histograms are those of a shard, found by their counters' indices.
type histograms struct {
	list   []histogram
	most   int
	hand   int     // where histogramRoom tries next
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
	histogramBins       = 32
	histogramSubWindows = 16 // more than the 13 sub-windows that a window of 12 touches; a power of two
	histogramShare      = 64 // counters for each histogram
	histogramFrom       = 64 // a source gets a histogram at this part of its limit, its second hit at the earliest, if there is room then
	histogramNeeds      = 8  // from this part of its limit on it takes the place of a colder one
)

// number is the sub-window of a position, modulo 2^32.
func (r *Rule) number(p position) uint32 { return p.group<<r.shift | uint32(p.lane) }

// own returns the bins of what the table itself counted, and was told of, in the sub-window that a window's beginning cuts, ahead
// sub-windows after p; nil if nothing is known.
func (s *shard) own(r *Rule, i int, p position, ahead int) *bins {
	hist := s.histogram(s.store(r), i)
	if hist == nil {
		return nil
	}
	return hist.of(r.number(p) + uint32(ahead-r.SubWindows))
}

// of is the bins of a sub-window, or nil if nothing is known of it.
func (hist *histogram) of(n uint32) *bins {
	if lane := n % histogramSubWindows; hist.subWindows[lane] == n {
		return &hist.bins[lane]
	}
	return nil
}

// note adds hits to the bins of a counter that has, or now gets, a histogram.
func (s *shard) note(r *Rule, st *store, i int, p position, hits uint32, estimate float64) {
	hist := s.histogram(st, i)
	if hist == nil {
		needs := estimate*histogramNeeds >= float64(r.Limit)
		from := max(float64(r.Limit)/histogramFrom, 1)
		// Who does not need one asks once, on passing that point: there are many of those.
		if !needs && (estimate <= from || estimate-float64(hits) > from) || r.SubWindows == 1 {
			return
		}
		if hist = s.addHistogram(r, st, i, p, needs); hist == nil {
			return
		}
	}
	n := r.number(p)
	lane := n % histogramSubWindows
	if hist.subWindows[lane] != n {
		hist.begin(n)
	}
	hist.last = n
	b := &hist.bins[lane][min(int(p.gone*histogramBins), histogramBins-1)]
	*b = uint16(min(uint32(*b)+hits, 1<<16-1))
}

// begin gives a sub-window its lane.
func (hist *histogram) begin(n uint32) {
	lane := n % histogramSubWindows
	hist.subWindows[lane], hist.bins[lane] = n, bins{}
	hist.exported &^= 1 << lane
}

// histogram is that of a counter, or nil.
func (s *shard) histogram(st *store, i int) *histogram {
	if st.head(i).state&hasHistogram == 0 {
		return nil
	}
	return &s.histograms.list[*s.linkTo(st, i)-1]
}

// linkTo is where the index of a counter's histogram stands, which has one.
func (s *shard) linkTo(st *store, i int) *int32 {
	at := s.histograms.chain(i)
	for hist := &s.histograms.list[*at-1]; int(hist.slot) != i || hist.wide != (st == &s.wide); hist = &s.histograms.list[*at-1] {
		at = &hist.next
	}
	return at
}

// link puts a histogram that is nobody's where its counter finds it.
func (s *shard) link(k int32, st *store, i int) {
	hist, first := &s.histograms.list[k], s.histograms.chain(i)
	hist.slot, hist.wide, hist.next = int32(i), st == &s.wide, *first
	*first = k + 1
}

// unlink makes a counter's histogram nobody's, and returns which it was.
func (s *shard) unlink(st *store, i int) (k int32) {
	at := s.linkTo(st, i)
	k = *at - 1
	*at, s.histograms.list[k].slot = s.histograms.list[k].next, 0
	return k
}

// addHistogram gives a counter a histogram if there is room, or if it needs one more than another.
func (s *shard) addHistogram(r *Rule, st *store, i int, p position, needs bool) *histogram {
	k, ok := s.histogramRoom(r, p, needs)
	if !ok {
		return nil
	}
	s.link(k, st, i)
	st.head(i).state |= hasHistogram
	hist, now := &s.histograms.list[k], r.number(p)
	hist.rule, hist.last, hist.asked, hist.exportedAt, hist.exported = r.ID, now, now-histogramSubWindows, now-histogramSubWindows, 0
	for j := range hist.subWindows { // no lane is that of a sub-window to come
		hist.subWindows[j] = now - histogramSubWindows
	}
	hist.begin(now)
	return hist
}

// histogramRoom finds room for a histogram: a free one, or one of which the source has been silent for a window. Who needs it may also take that
// of a source that is far from its limit, and tries at a few.
func (s *shard) histogramRoom(r *Rule, p position, needs bool) (int32, bool) {
	if len(s.histograms.list) < s.histograms.most {
		s.histograms.list = append(s.histograms.list, histogram{})
		return int32(len(s.histograms.list) - 1), true
	}
	tries := 1
	if needs {
		tries = 4
	}
	for range min(tries, len(s.histograms.list)) {
		s.histograms.hand = (s.histograms.hand + 1) % len(s.histograms.list)
		hist := &s.histograms.list[s.histograms.hand]
		if hist.slot == 0 {
			return int32(s.histograms.hand), true
		}
		silent := hist.rule == r.ID && r.number(p)-hist.last > uint32(r.SubWindows)
		if !needs && !silent {
			continue
		}
		st := &s.narrow
		if hist.wide {
			st = &s.wide
		}
		if h := st.head(int(hist.slot)); silent || h.state&warm == 0 {
			h.state &^= hasHistogram
			return s.unlink(st, int(hist.slot)), true
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
