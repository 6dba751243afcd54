package counter

import "time"

// recency is the unit of head.heard. 14 bits of it are 17 minutes; a counter unheard of for a multiple of that may pass for
// known, and be a first sight one hit later than it should.
const (
	recency   = 64 * time.Millisecond
	instants  = 1<<14 - 1
	heardLast = 1 << 14 // in head.heard: heardNow of the group before the newest
	follows   = 1 << 15 // in head.heard: another edge was the first to report to a group, when this one last was told
)

func instant(now int64) uint16 { return max(uint16(now/int64(recency))&instants, 1) }

// turn notes that n groups have begun.
func (h *head) turn(n int) {
	h.heard &^= heardLast
	if n == 1 && h.state&heardNow != 0 {
		h.heard |= heardLast
	}
	h.state &^= heardNow | readPast
}

// answered reports whether the tier has answered about the newest group or the one before, while it was the newest.
func (h *head) answered(g int) bool {
	return g == 0 && h.state&heardNow != 0 || g == 1 && h.heard&heardLast != 0
}

// burst is within how long after an answer of the tier further hits are taken for those of a burst.
const burst = 6 * recency

// refresh is how often a busy counter of long groups is read: 1,024 units of recency.
const refresh = recency << refreshBits

const refreshBits = 10

// refreshes reports whether the tier last answered before this refresh began: answers of a busy source come all the time.
func (h *head) refreshes(now int64) bool {
	return h.met() && (instant(now)^h.heard)&instants>>refreshBits != 0
}

// met reports whether the tier has ever answered about a counter.
func (h *head) met() bool { return h.heard&instants != 0 }

// silence is how long ago the tier last answered about a counter that it has met.
func (h *head) silence(now int64) time.Duration {
	return time.Duration((instant(now)-h.heard)&instants) * recency
}

// known reports whether the tier has answered about a counter in the last second, or sub-window if that is shorter.
func (t *Table) known(h *head, r *Rule, now int64) bool {
	if !t.options.Tier {
		return true
	}
	return h.met() && h.silence(now) <= time.Duration(min(r.sub, int64(time.Second)))
}
