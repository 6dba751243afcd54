package judge

import "math"

// Truth says what is exact: how many requests a source has against it, which is held against
// Options.Limit. The zero Truth is the exact log that this package's comment describes. It is the
// plainest form of each, and shares no code with what is judged.
type Truth struct {
	// Fixed counts windows of the clock, one after the other. Start is when the run began, in ns
	// since 1970.
	Fixed bool
	Start int64
	// Interval, if not 0, is that of a bucket, in ns: it fills by one with each request and drains
	// by one in that time. What is in it, rounded up, is what a source has against it. (ITU-T
	// I.371, the continuous-state leaky bucket.)
	Interval float64
	// Queue is how many of Options.Limit wait in front of a bucket for their turn: a request waits
	// until all but those that may come at once have drained. 0: none does.
	Queue uint32
}

// IsLog reports whether it is the exact log.
func (t *Truth) IsLog() bool { return !t.Fixed && t.Interval == 0 }

// bucketSlack is how much of a request the arithmetic of a bucket may be off.
const bucketSlack = 1e-6

// An Account is what a source has against it. The zero Account is nothing.
type Account struct {
	log   Log
	level float64 // of a bucket
	at    int64   // when it was that
	index int64   // of the fixed window in which n requests are
	n     uint32
}

// Drop brings an account to the present, and returns how much there is. Both are ns since the run
// began.
func (a *Account) Drop(t *Truth, now, window int64) uint32 {
	switch {
	case t.Interval > 0:
		a.level, a.at = math.Max(0, a.level-float64(now-a.at)/t.Interval), now
		return uint32(math.Ceil(a.level - bucketSlack))
	case t.Fixed:
		if index := (t.Start + now) / window; index != a.index {
			a.index, a.n = index, 0
		}
		return a.n
	}
	a.log.Drop(now, window)
	return a.log.n
}

// Push adds a request to an account that is at the present.
func (a *Account) Push(t *Truth, now int64) {
	switch {
	case t.Interval > 0:
		a.level++
	case t.Fixed:
		a.n++
	default:
		a.log.Push(now)
	}
}

// turn is how long the request that was pushed last waits for its turn before a bucket of that
// size, a part of which is its queue.
func (a *Account) turn(t *Truth, size uint32) int64 {
	return int64(math.Max(0, a.level-float64(size-t.Queue)) * t.Interval)
}

// below is when there will be less than n if nothing else comes: the present if there is already.
func (a *Account) below(t *Truth, n uint32, now, window int64) int64 {
	switch {
	case t.Interval > 0:
		return now + int64(math.Max(0, a.level-float64(n)+1)*t.Interval)
	case !t.Fixed:
		return a.log.below(n, now, window)
	case a.n < n:
		return now
	}
	return (a.index+1)*window - t.Start
}
