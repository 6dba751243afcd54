package counter

import (
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/internal/histogram"
)

// An edge knows when its own hits came to a 32nd of a sub-window (histogram.go), and of others'
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
		if ago := int(int32(at.Group - began.Group)); ago >= 0 && ago < c.Rule.Groups() {
			st.head(i).setOver(max(c.Rule.Groups()-ago, st.head(i).over()))
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
