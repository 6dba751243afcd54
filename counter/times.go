package counter

import (
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/internal/histogram"
)

// An edge knows when its own hits came to a 32nd of a sub-window, and of others'
// only in which sub-window. That matters to a source near its limit, in the one sub-window that the
// window's beginning cuts. So an edge that finds a counter there, and does not know when all of
// those hits came, requests the others' times. Each edge sends the times of its own hits in the
// sub-windows that have ended, and adds those that it receives: that suffices until the window's
// beginning has come to the last of them. So it happens at most once in a window but one
// sub-window, and a source may stay near its limit for as long as it likes.
//
// The newest sub-window is left out, because an edge sends one once, and what it counts in it
// afterwards nobody would ever learn; but not of a counter of which nothing is left.

// Times is when one table's hits of one sub-window came, by its 32nds.
type Times struct {
	SubWindow uint32 // its number, modulo 2^32
	Hits      [histogram.Size]uint16
}

// nearly is the part of its limit that a counter has left when others' times begin to matter. That
// is little, because the answers cost the tier a line for each edge, and so much that they are
// there before a slow source has used it up.
const nearly = 16

// lacks reports whether others counted hits in the sub-window that the window's beginning cuts, or
// in the next, whose times this table neither knows nor has requested in this window. Then it
// requests them now. left is what the counter has left, most how much that may be. Under a limit of
// a few hits answers would cost more than hits do.
func (s *shard) lacks(r *algorithm.Spec, st *store, i int, at algorithm.Position,
	left uint32) (most uint32, lacks bool) {
	if !r.Sliding() { // nothing would be made of the answers
		return 0, false
	}
	groups := st.groups(i)
	most = max(r.Limit/nearly, 1)
	// Which leave out hits of the cut sub-window that may be within the window
	if r.Estimate == algorithm.Lower || r.Doubts() {
		most += uint32(r.Oldest(groups, at.Lane))
	}
	if left > most || !r.HoldsBack() {
		return most, false
	}
	hist := s.own(st, i).Get()
	if hist == nil || r.Number(at)-hist.LastRead < again(r, 1) {
		return most, false
	}
	cut := r.Cut(at)
	for ahead := range 2 {
		known := uint64(0)
		if b := s.histograms.Bins(hist, cut+uint32(ahead)); b.Known() {
			known = b.Sum(0)
		}
		if known < r.Oldest(groups, at.Lane+ahead) {
			hist.LastRead = r.Number(at)
			return most, true
		}
	}
	return most, false
}

// again is after how many sub-windows times are exchanged again: so many before the window's
// beginning has passed all that were.
func again(r *algorithm.Spec, before int) uint32 { return uint32(max(r.SubWindows-before, 1)) }

// full reports whether nothing is left to a counter, as decisions go.
func (s *shard) full(r *algorithm.Spec, st *store, i int, at algorithm.Position) bool {
	estimate := s.estimate(r, st, i, at)
	return r.Remaining(estimate) == 0 &&
		r.Remaining(s.firm(r, st, i, st.groups(i), at, estimate)) == 0
}

// ExportTimes appends to buf the times of the hits that this table counted in the window, because
// another table has requested them or this one is about to. It does so once in a window, or nearly;
// after that it only lets the others' be added to its own.
func (t Reports) ExportTimes(c Counter, now time.Time, buf []Times) []Times {
	t.at(c, func(s *shard, st *store, i int) {
		at, hist := s.advance(st, i, c.Rule, t.ns(now)), s.own(st, i).Get()
		if hist == nil || !c.Rule.Sliding() {
			return
		}
		newest := c.Rule.Number(at)
		hist.LastRead = newest
		quiet := newest-hist.ExportedAt < again(c.Rule, 2)
		end := newest // in which there may be more hits
		if s.full(c.Rule, st, i, at) {
			end++
		}
		for n := c.Rule.Cut(at); n != end; n++ {
			if b := s.histograms.Bins(hist, n); b.Known() &&
				hist.Exported>>(n%histogram.SubWindows)&1 == 0 {
				hist.Exported |= 1 << (n % histogram.SubWindows)
				if !quiet && b.Sum(0) > 0 {
					times := Times{SubWindow: n}
					for bin := range times.Hits {
						times.Hits[bin] = b.At(bin)
					}
					buf = append(buf, times)
				}
			}
		}
		if len(buf) > 0 {
			hist.ExportedAt = newest
		}
	})
	return buf
}

// MergeTimes takes in what another table exported. Nothing may be taken in twice.
func (t Reports) MergeTimes(c Counter, received Times, now time.Time) {
	t.at(c, func(s *shard, st *store, i int) {
		at, n := s.advance(st, i, c.Rule, t.ns(now)), received.SubWindow
		if n-c.Rule.Cut(at) > uint32(c.Rule.SubWindows) || !c.Rule.Sliding() {
			return // not within the window, or of no use
		}
		hist := s.enter(c.Rule, st, i, at, n)
		if hist == nil {
			return
		}
		lane := uint16(1) << (n % histogram.SubWindows)
		if hist.Exported&lane == 0 {
			return // own hits that are still to be sent must not be mixed with others'
		}
		for bin, hits := range received.Hits {
			s.histograms.Add(hist, n, bin, uint32(hits))
		}
	})
}

// Blocked notes that the source of a counter is blocked from start to end. If the block outlasts
// the sub-window in which it began, that sub-window's hits came before it: so when the block ends,
// no table spreads them over the whole sub-window.
func (t *core) Blocked(c Counter, start, end, now time.Time) {
	t.at(c, func(s *shard, st *store, i int) {
		if !c.Rule.Sliding() {
			return
		}
		at := s.advance(st, i, c.Rule, t.ns(now))
		began := s.position(c.Rule, t.ns(start), st.head(i).phase)
		n := c.Rule.Number(began)
		// Until a window after its end
		over := min(c.Rule.Groups()+int(end.Sub(start)/c.Rule.Group()), mostOver)
		if ago := int(int32(at.Group - began.Group)); ago >= 0 && ago < over {
			st.head(i).setOver(max(over-ago, st.head(i).over()))
		}
		if n-c.Rule.Cut(at) > uint32(c.Rule.SubWindows) || end.Sub(start) < c.Rule.SubWindow() {
			return
		}
		if hist := s.enter(c.Rule, st, i, at, n); hist != nil {
			hist.Close(n, histogram.Bin(began.Gone))
		}
	})
}

// enter opens a sub-window in a counter's histogram, which the counter gets if there is room; nil:
// there is none.
func (s *shard) enter(r *algorithm.Spec, st *store, i int, at algorithm.Position,
	n uint32) *histogram.Histogram {
	hist := s.own(st, i).Get()
	if hist == nil {
		if hist = s.addHistogram(r, st, i, at, true); hist == nil {
			return nil
		}
	}
	if s.histograms.Enter(hist, n) {
		hist.Exported |= 1 << (n % histogram.SubWindows) // nothing of its own to send
	}
	return hist
}

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
