package counter

// fine is what this table itself counted of one source, in bins of a 32nd of a sub-window. An estimate errs only in the
// sub-window that the window's beginning cuts, where it takes the hits to be spread evenly. Of its own hits a table can
// know better, at no cost to the tier: those it counted after the cut are counted, those before are not, and only what
// other edges counted is spread. With one edge that is nearly an exact log.
//
// A kilobyte for each of a million sources would be too much, so only sources that have used a part of their limit have one,
// and there is room for one in 64 of a table's counters.
type fine struct {
	place place
	last  uint32 // sub-window of the newest hit
	lanes [fineLanes]uint32
	bins  [fineLanes]bins
}

type bins [fineBins]uint16

const (
	fineBins  = 32
	fineLanes = 16 // more than the 13 sub-windows that a window of 12 touches; a power of two
	fineShare = 64 // counters for each fine
	fineFrom  = 8  // a source has a fine from this part of its limit on
)

// place is where a counter stands in its shard: the store and the index in it.
type place struct {
	wide bool
	i    int32
}

// number is the sub-window of a position, modulo 2^32.
func (r *Rule) number(p position) uint32 { return p.group<<r.shift | uint32(p.lane) }

// own returns the bins of what the table itself counted in the sub-window that a window's beginning cuts, ahead sub-windows
// after p, or nil if that is not known.
func (s *shard) own(r *Rule, i int, p position, ahead int) *bins {
	if s.store(r).head(i).state&hasFine == 0 {
		return nil
	}
	k, ok := s.fineAt(place{r.Wide(), int32(i)})
	if !ok {
		return nil
	}
	f, n := &s.fines[k], r.number(p)+uint32(ahead-r.SubWindows)
	if at := n % fineLanes; f.lanes[at] == n {
		return &f.bins[at]
	}
	return nil
}

// note adds hits to the bins of a counter that has, or now gets, a fine.
func (s *shard) note(r *Rule, st *store, i int, p position, hits uint32, estimate float64) {
	at := place{r.Wide(), int32(i)}
	var k int32
	ok := false
	if st.head(i).state&hasFine != 0 {
		k, ok = s.fineAt(at)
	}
	if !ok {
		if r.SubWindows == 1 || estimate*fineFrom < float64(r.Limit) {
			return
		}
		if k, ok = s.newFine(r, p); !ok {
			return
		}
		st.head(i).state |= hasFine
		s.fineOf[at] = k
		s.fines[k] = fine{place: at}
		for j := range s.fines[k].lanes { // no lane is that of a sub-window to come
			s.fines[k].lanes[j] = r.number(p) - fineLanes
		}
	}
	f, n := &s.fines[k], r.number(p)
	lane := n % fineLanes
	if f.lanes[lane] != n {
		f.lanes[lane], f.bins[lane] = n, bins{}
	}
	f.last = n
	b := &f.bins[lane][min(int(p.gone*fineBins), fineBins-1)]
	*b = uint16(min(uint32(*b)+hits, 1<<16-1))
}

// fineAt finds the fine of a counter. The last one found is remembered: hits of a busy source come in a row, and each asks
// twice.
func (s *shard) fineAt(at place) (int32, bool) {
	if s.lately.place == at && s.lately.found {
		return s.lately.k, true
	}
	k, ok := s.fineOf[at]
	if ok {
		s.lately = foundFine{place: at, k: k, found: true}
	}
	return k, ok
}

type foundFine struct {
	place place
	k     int32
	found bool
}

// newFine finds room for a fine: a free one, or one of a few of which the source has been silent for a window.
func (s *shard) newFine(r *Rule, p position) (int32, bool) {
	if len(s.fines) < s.maxFines {
		s.fines = append(s.fines, fine{})
		return int32(len(s.fines) - 1), true
	}
	for range min(4, len(s.fines)) {
		s.hand = (s.hand + 1) % len(s.fines)
		f := &s.fines[s.hand]
		st := &s.narrow
		if f.place.wide {
			st = &s.wide
		}
		k, ok := s.fineOf[f.place]
		if !ok || k != int32(s.hand) {
			return int32(s.hand), true
		}
		h := st.head(int(f.place.i))
		if h.state&heatMask == 0 || h.rule == r.ID && r.number(p)-f.last > uint32(r.SubWindows) {
			s.dropFine(f.place)
			h.state &^= hasFine
			return k, true
		}
	}
	return 0, false
}

// dropFine forgets the fine of a counter that goes away.
func (s *shard) dropFine(at place) {
	delete(s.fineOf, at)
	s.lately = foundFine{}
}

// sum adds up the hits of bins from b on.
func (o *bins) sum(b int) (n uint64) {
	for _, hits := range o[b:] {
		n += uint64(hits)
	}
	return n
}
