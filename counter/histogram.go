package counter

import (
	"sluice/counter/algorithm"
	"sluice/counter/internal/histogram"
)

// Half a kilobyte for each of a million sources would be too much, so there is room for one
// histogram in 64 of a table's counters. A source gets one with its second hit, or with a 64th of
// its limit, if there is room. Once it has used an eighth, a colder source cannot take it away.
const (
	histogramShare = 64 // counters for each histogram
	// A source gets a histogram at this part of its limit, its second hit at the earliest, if there
	// is room then
	histogramFrom  = 64
	histogramNeeds = 8 // from this part of its limit on it takes a colder one's histogram
)

// note adds hits to the bins of a counter that has, or now gets, a histogram, and reports whether
// it has one.
func (s *shard) note(r *algorithm.Spec, st *store, i int, p algorithm.Position, hits uint32,
	estimate float64) bool {
	hist := s.own(st, i).Get()
	if hist == nil {
		needs := estimate*histogramNeeds >= float64(r.Limit)
		from := max(float64(r.Limit)/histogramFrom, 1)
		// A source that does not need one tries once, on passing that point: there are many of
		// those.
		if r.SubWindows > 1 && (needs || estimate > from && estimate-float64(hits) <= from) {
			hist = s.addHistogram(r, st, i, p, needs)
		}
		if hist == nil {
			// Nothing is known of this hit, if the one of which something was has left the window
			first := 0
			if estimate == 1 {
				first = histogram.Bin(p.Gone)
			}
			st.head(i).setFirst(first)
			return false
		}
		if estimate > float64(hits) {
			s.noteFirst(r, st, i, p, hist)
		}
		st.head(i).setFirst(0)
	}
	n := r.Number(p)
	s.histograms.Enter(hist, n)
	hist.Last = n
	s.histograms.Add(hist, n, histogram.Bin(p.Gone), hits)
	return true
}

// noteFirst notes in a new histogram what came before it: a counter's first hit, of which the bin
// is known. Under a larger limit it is more than one, and they are not spread over what of the
// sub-window is still to come.
func (s *shard) noteFirst(r *algorithm.Spec, st *store, i int, p algorithm.Position,
	hist *histogram.Histogram) {
	h, groups := st.record(i)
	if n, ok := r.Single(groups, p); ok && h.first() > 0 {
		s.histograms.Enter(hist, n)
		s.histograms.Add(hist, n, h.first(), 1)
	} else if r.Limit > histogramFrom {
		hist.Close(r.Number(p), histogram.Bin(p.Gone))
	}
}

// own is what the table knows of when a counter's hits came: those that it counted itself, or
// learned of.
func (s *shard) own(st *store, i int) histogram.Own {
	if st.head(i).state&hasHistogram == 0 {
		return histogram.Own{}
	}
	return s.histograms.Own(i, st == &s.wide)
}

// log adds hits to the log of a counter.
func (s *shard) log(r *algorithm.Spec, st *store, i int, p algorithm.Position, hits uint32,
	estimate float64) {
	ring := s.own(st, i).Ring()
	if ring.Histogram == nil {
		hist := s.addHistogram(r, st, i, p, estimate*histogramNeeds >= float64(r.Limit))
		if hist == nil {
			return
		}
		ring = s.histograms.BeginRing(hist, r.LogSize())
	} else if ring.Cap() < r.LogSize() { // the limit was raised
		ring = s.histograms.GrowRing(ring, r.LogSize())
	}
	r.Log(ring, p, hits)
}

// addHistogram gives a counter a histogram if there is room, or if it needs one more than another.
func (s *shard) addHistogram(r *algorithm.Spec, st *store, i int, p algorithm.Position,
	needs bool) *histogram.Histogram {
	k, ok := s.histogramRoom(r, p, needs)
	if !ok {
		return nil
	}
	s.histograms.Link(k, i, st == &s.wide)
	st.head(i).state |= hasHistogram
	return s.histograms.Begin(k, r.ID, r.Number(p))
}

// histogramRoom finds room for a histogram: a free one, or one of which the source has been silent
// for a window. A source that needs one may also take that of a source far from its limit, of which
// a few are tried.
func (s *shard) histogramRoom(r *algorithm.Spec, p algorithm.Position,
	needs bool) (k int, ok bool) {
	tries := 1
	if needs {
		tries = 4
	}
	for range tries {
		k, hist := s.histograms.Next()
		slot, wide := hist.Owner()
		if slot == 0 {
			return k, true
		}
		silent := hist.Rule == r.ID && r.Number(p)-hist.Last > uint32(r.SubWindows)
		if !needs && !silent {
			continue
		}
		st := &s.narrow
		if wide {
			st = &s.wide
		}
		if h := st.head(slot); silent || h.state&active == 0 {
			h.state &^= hasHistogram
			return s.histograms.Unlink(slot, wide), true
		}
	}
	return 0, false
}
