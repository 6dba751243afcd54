package mitigation

import (
	"iter"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/counter/exact"
)

// Rule is what is known of a rule wherever its mitigations start: at the limiter, and in the PoP.
type Rule struct {
	Counter *algorithm.Spec // how hits are counted and how many are allowed; required
	// how long a source that went over is mitigated; 0: the rule only throttles, and has no bits
	Timeout time.Duration
	Shadow  bool // it counts and decides, and refuses no request
	// ExtraLimit says that it is another limit of the rule of that Name than its first: operators
	// lift it along with the first, and block under the first alone.
	ExtraLimit bool
	// Of, of a variant of a rule by another limit, is the ID of the rule's own counters: what
	// operators say of a source under that holds here as well. A lift under Name ends mitigations
	// of all variants, and a block is under the rule's own, where decisions look for it. 0: this is
	// none. A variant costs no command, and memory for its name.
	VariantOf uint32
	// Exact is how each of its requests is kept in the tier; nil: they are counted by Counter. An
	// edge without a tier has Counter count them all the same.
	Exact  *exact.Spec
	Repeat Repeat // how long a source is mitigated that goes over again
	Name   string // as operators know it; "": Counter.Name
	// V4 and V6 are the lengths of the prefixes that it counts by, which another PoP's blocks must
	// have; -1: it counts no addresses of that family. 0: any.
	V4, V6 int
}

// Version is what its verdicts are reached under.
func (r *Rule) Version() RuleVersion { return VersionOf(r.Counter.Limit, r.Timeout, r.Repeat) }

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

// Order is what an operator orders for a source under a rule, or for the rule itself, in the form
// that all edges of the PoP share.
type Order struct {
	Rule   string         // as configured, so that it means the same when the rule is edited
	Source counter.Source // of a block or a lift
	Kind   OrderKind
	Start  time.Time
	End    time.Time // of a block, and of a change that ends; a lift has none
	Reason string    // of a block
	Text   string    // of a change: its content
	// Of a block or a lift who ordered it and from where, for other operators. A change holds that
	// itself.
	Who, From string
}

// OrderKind is what an Order does.
type OrderKind uint8

const (
	OrderBlock OrderKind = iota + 1
	OrderLift            // ends the mitigation and forgets the counts
	// of a rule; what it says means nothing to the PoP, but for which of those before it are in
	// force beside it
	OrderChange
)

// Spread is how far orders have come.
type Spread struct {
	Known   int      `json:"known"`   // edges of the PoP, this one included
	Have    int      `json:"have"`    // of them, those where they are in force
	Missing []string `json:"missing"` // the others, by name
	// Of the missing, those that cannot have one of them in force
	Refused []string `json:"refused,omitempty"`
}
