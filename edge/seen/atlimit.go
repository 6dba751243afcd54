package seen

import (
	"iter"
	"sync"
	"time"

	"sluice/counter"
)

// Long is for how long a source has been at its limit before it is one that sits there.
const Long = 5 * time.Minute

// AtLimit remembers which sources have been at their limit, under which rule, and since when: 1,024
// of both, in sets. Where there is no room, one that has left its limit makes some, or else the one
// that came there last, so those that sit there longest stay. That is 80 kB.
//
// A source leaves its limit once it has not met it for the rule's window, of which ten seconds are
// the least and Long is the most. So one that is refused, waits as it was told, and is refused
// again, has not left.
//
// It is safe for concurrent use, and allocates nothing for a request.
type AtLimit struct {
	hasher counter.Hasher
	sets   [topSets]limitSet
}

type limitSet struct {
	mu      sync.Mutex
	entries [ways]atLimit
}

type atLimit struct {
	rule        uint32 // the ID of the limit's counter
	source      counter.Source
	since, last int64 // Unix nanoseconds; 0: a free entry
	stay        int64 // how long after last the source has left, in nanoseconds
}

func (e *atLimit) left(now int64) bool { return now-e.last > e.stay }

// NewAtLimit makes one that remembers nothing yet.
func NewAtLimit() *AtLimit { return &AtLimit{hasher: counter.NewHasher(0)} }

// Meet notes that a source is at the limit of a counter, in a window.
func (a *AtLimit) Meet(rule uint32, source counter.Source, window time.Duration, now time.Time) {
	a.meet(rule, source, now, &atLimit{rule, source, now.UnixNano(), now.UnixNano(),
		int64(min(max(window, 10*time.Second), Long))})
}

// Stay notes that a source which has met a limit is refused there by a block. Of one that has not,
// as those that operators block, a block says nothing.
func (a *AtLimit) Stay(rule uint32, source counter.Source, now time.Time) {
	a.meet(rule, source, now, nil)
}

func (a *AtLimit) meet(rule uint32, source counter.Source, now time.Time, begins *atLimit) {
	set, at := &a.sets[a.hasher.Of(&source)%topSets], now.UnixNano()
	set.mu.Lock()
	defer set.mu.Unlock()
	room := &set.entries[0]
	for i := range set.entries {
		e := &set.entries[i]
		if e.rule == rule && e.source == source && e.last != 0 {
			switch {
			case !e.left(at):
				e.last = max(e.last, at)
			case begins != nil:
				*e = *begins
			}
			return
		}
		if left := e.left(at); left && !room.left(at) || left == room.left(at) &&
			e.since > room.since {
			room = e
		}
	}
	if begins != nil {
		*room = *begins
	}
}

// Each ranges over the sources that have been at a limit for Long, and these limits.
func (a *AtLimit) Each(now time.Time) iter.Seq2[uint32, counter.Source] {
	return func(yield func(uint32, counter.Source) bool) {
		at := now.UnixNano()
		for i := range a.sets {
			set := &a.sets[i]
			set.mu.Lock()
			entries := set.entries
			set.mu.Unlock()
			for j := range entries {
				if e := &entries[j]; e.last != 0 && !e.left(at) && e.last-e.since >= int64(Long) &&
					!yield(e.rule, e.source) {
					return
				}
			}
		}
	}
}
