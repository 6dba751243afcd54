package mitigation

import (
	"iter"
	"time"
)

// MaxMemory is the longest that a bit is remembered after its end.
const MaxMemory = 24 * time.Hour

// Repeat is how long a source is mitigated that goes over its limit again: the n-th time in a row
// for the n-th of Timeouts, and no longer than the last. In a row is what begins less than Within
// after the end of the one before.
//
// Nothing is counted for that. How long the last bit was says which timeout is next: the first that
// is longer. A bit carries its start and its end wherever it goes, so edges that know of it agree,
// and one that has ended takes the room of one bit until Within is over. A full table drops such
// bits first; then a source is mitigated as for the first time.
//
// The zero Repeat knows no difference.
type Repeat struct {
	Timeouts []time.Duration // ascending, each longer than the rule's own
	Within   time.Duration   // at most MaxMemory
}

// Memory is how long bits of the rule are remembered.
func (r Repeat) Memory() time.Duration {
	if len(r.Timeouts) == 0 {
		return 0
	}
	return r.Within
}

// Longest is the longest timeout of a rule whose own is timeout.
func (r Repeat) Longest(timeout time.Duration) time.Duration {
	if n := len(r.Timeouts); n > 0 && timeout > 0 {
		return max(timeout, r.Timeouts[n-1])
	}
	return timeout
}

// After is for how long a source is mitigated at now, given when its last mitigation began and
// ended and the rule's own timeout.
func (r Repeat) After(began, ended time.Time, timeout time.Duration, now time.Time) time.Duration {
	if timeout <= 0 || now.Before(ended) || !now.Before(ended.Add(r.Memory())) {
		return timeout
	}
	for _, t := range r.Timeouts {
		if t > ended.Sub(began) {
			return max(t, timeout)
		}
	}
	return r.Longest(timeout)
}

// Timeout is for how long k is to be mitigated that goes over a limit at now. What an operator said
// does not make it longer.
func (t *Table) Timeout(k Key, timeout time.Duration, r Repeat, now time.Time) time.Duration {
	if len(r.Timeouts) == 0 {
		return timeout
	}
	last, ok := t.Last(k, now)
	if !ok || last.By == ByAdmin {
		return timeout
	}
	return r.After(last.Start, last.End, timeout, now)
}

// Last returns the bit of k if it is in force at now, or remembered.
func (t *Table) Last(k Key, now time.Time) (Bit, bool) {
	s, h := t.shardOf(k)
	if e := s.find(h, k); e != nil && t.clock(now) < e.forgotten() {
		return t.bit(e), true
	}
	return Bit{}, false
}

// forgotten is when nothing is left of a bit.
func (b *Bit) forgotten() time.Time { return b.End.Add(b.Memory) }

// remember takes in a bit that has ended, unless a later one of its key is known, or it is to be
// forgotten by now.
func (t *Table) remember(k Key, b Bit, now time.Time) {
	if !now.Before(b.forgotten()) {
		return
	}
	s, h := t.shardOf(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.invalid(k, b.By, b.Version) {
		return
	}
	b.Learned = now
	e := t.entry(k, &b, now)
	if old := s.find(h, k); old == nil && s.n < s.max || old != nil && old.end < e.end {
		t.put(s, h, e, now)
	}
}

// Remembered is All, with the bits that have ended and are remembered.
func (t *Table) Remembered(now time.Time) iter.Seq2[Key, Bit] {
	return func(yield func(Key, Bit) bool) {
		for i := range t.shards {
			for e := range t.shards[i].all() {
				if t.clock(now) < e.forgotten() && !yield(e.key, t.bit(e)) {
					return
				}
			}
		}
	}
}
