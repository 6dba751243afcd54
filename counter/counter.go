// Package counter counts hits of sources in sliding windows and says whether one more would be too
// many.
//
// A window of length W is cut into k sub-windows of length s = W/k, numbered from the Unix epoch
// plus an offset that belongs to the source. In sub-window i, a share e of it gone, the estimate of
// the hits in the last W is
//
//	estimate = c[i] + c[i-1] + … + c[i-k+1] + c[i-k] * (1 - e)
//
// the sliding window counter of Cloudflare ("How we built rate limiting capable of scaling to
// millions of domains", 2017) with k sub-windows instead of one. Of its own hits in c[i-k] a table
// knows when they came and need not weigh them, and near the limit it requests other
// tables' times. Of hits of which no time is known a decision counts only those that are
// surely within the window, unless the source was over its limit lately (firm): so a source that
// keeps to its limit is not refused by a guess. A Table holds the counters of many sources under
// many rules. Reserve asks several rules at once whether n more hits stay within their limits;
// admitted hits count, refused ones leave no trace.
//
// Several edges count one source together through a tier of memcached nodes. A Table knows, for
// each sub-window, the largest number it has cause to believe: its own hits, and the tier's total
// plus what has not been reported. It hands out its unreported hits (Dirty, Take) and takes in the
// tier's answers (Counted, Read), and leaves carrying them to the caller. Nothing here does I/O,
// starts a goroutine or reads a clock.
package counter

import (
	"time"

	"sluice/counter/internal/lanes"
)

// Answer is the tier's answer to a request that waits for it: in flight (counter/inflight), or
// where the tier keeps each request (counter/exact).
type Answer uint8

const (
	NoAnswer Answer = iota // it has not answered
	Admit                  // the request is within the limit, and counts
	Reject                 // it is not, and does not count
	Unknown                // it is unknown whether it is; only counter/exact returns this
)

// MaxEdges is the largest number of edges that may share counters.
const MaxEdges = lanes.MaxEdges

// Options configures a Table.
type Options struct {
	// Counters is how many counters the table holds, fixed at the start; 0 means 1,000,000. A
	// counter takes 72 bytes, slack included; one in 64 may have half a kilobyte more, or, under
	// algorithm: exact, four bytes for each of a limit above 104; and one in six 50 bytes while
	// hits wait for the tier, or twice that while it is down. Memory is touched only as the table
	// fills. Rules of more than 16,000 hits have wider counters of their own, a sixteenth as many.
	// A full table evicts the counters that matter least.
	Counters int
	// Tier says that hits are to be reported and totals learned. Without it a table counts alone.
	Tier bool
	// Began is a reading of the clock from which all further ones are measured, so that a step of
	// the wall clock moves nothing but what Adjust receives. The zero Time takes readings as they
	// are.
	Began time.Time
	// Phase spreads the window boundaries of sources: a source's windows begin Phase(source)/65536
	// of a group of sub-windows late. All edges that share counters must agree on it. nil means no
	// offset.
	Phase func(Source) uint16
	// Seed, if not 0, makes one run like another: which sources have histograms, and which are
	// evicted, depends on their hashes. It is for simulations; see NewHasher.
	Seed uint64
	// Wake, if not nil, is called when hits are waiting to be reported and none were before. It
	// must not block or call back.
	Wake func()
}
