package rules

import (
	"fmt"
	"time"

	"sluice/counter/algorithm"
	"sluice/counter/exact"
	"sluice/edge/limiter"
)

// Algorithm is how a rule's limit is counted.
type Algorithm string

const (
	Sliding     Algorithm = "sliding"      // so many in any window, by an estimate
	Fixed       Algorithm = "fixed"        // so many in each window of the clock
	TokenBucket Algorithm = "token_bucket" // so many in a window on average, and Burst at once
	// One after the other, evenly; Burst may wait for their turn
	LeakyBucket Algorithm = "leaky_bucket"
	Exact       Algorithm = "exact" // so many in any window, by the times of requests
)

// Algorithms is all of them.
var Algorithms = []Algorithm{Sliding, Fixed, TokenBucket, LeakyBucket, Exact}

// NewCounter makes the counter of a rule that CheckAlgorithm has nothing against: one line for each
// algorithm.
func (c *Config) NewCounter(name string, estimate algorithm.Estimate) (*algorithm.Spec, error) {
	return c.newCounter(name, c.Limit, estimate)
}

// newCounter is NewCounter by another limit: that of a plan, or a client's own.
func (c *Config) newCounter(name string, limit uint32,
	estimate algorithm.Estimate) (*algorithm.Spec, error) {
	window := time.Duration(c.Window)
	switch c.Algorithm {
	case Fixed:
		return algorithm.NewFixed(name, limit, window)
	case TokenBucket, LeakyBucket:
		burst, queue := c.bucketAt(limit)
		return algorithm.NewBucket(name, limit, window, c.SubWindows, burst, queue)
	case Exact:
		return algorithm.NewExact(name, limit, window, c.SubWindows)
	}
	return algorithm.NewCostly(name, limit, window, c.SubWindows, estimate, c.most())
}

// keeps reports whether the tier keeps the instant of each request under the rule.
func (c *Config) keeps() bool {
	return c.Check == limiter.Sync && (c.Algorithm == Exact || c.Algorithm == TokenBucket)
}

// most is how many hits are counted at once. A call about a descriptor says how many hits it is,
// and more than the limit are refused.
func (c *Config) most() uint32 {
	if c.Match.Descriptors != nil {
		return min(c.Limit, algorithm.MaxCost)
	}
	return c.Cost.most()
}

// bucket is how many requests may come at once, and how many more may wait. A leaky bucket is a
// token bucket of one before which there is a queue; a token bucket that delays has a queue as long
// as its burst.
func (c *Config) bucket() (burst, queue uint32) {
	if c.Algorithm == LeakyBucket {
		return 1, c.Burst
	}
	if burst = c.Burst; burst == 0 {
		burst = c.Limit
	}
	if c.Action == Delay {
		queue = burst
	}
	return burst, queue
}

// bucketAt is bucket by another limit, with which it grows and shrinks: it is full after as long as
// before, and the last in the queue waits as long. Rounded down, but one request may always come.
func (c *Config) bucketAt(limit uint32) (burst, queue uint32) {
	at := func(n uint32) uint32 {
		// Both together are at most MaxLimit
		return uint32(min(uint64(n)*uint64(limit)/uint64(c.Limit), algorithm.MaxLimit/2))
	}
	if burst, queue = c.bucket(); limit == c.Limit {
		return burst, queue
	}
	if c.Algorithm == TokenBucket {
		burst = max(at(burst), 1)
	}
	return burst, at(queue)
}

// CheckAlgorithm returns which field does not go with the rule's algorithm, and why.
func (c *Config) CheckAlgorithm() (field string, err error) {
	is := c.Algorithm == TokenBucket || c.Algorithm == LeakyBucket
	no := func(f, format string, args ...any) { field, err = f, fmt.Errorf(format, args...) }
	switch {
	case c.Burst > 0 && !is:
		no("burst",
			"only algorithm: token_bucket and leaky_bucket have one: remove it, or choose one of these")
	case c.Action == Delay && c.Algorithm == LeakyBucket:
		no("action",
			"leaky_bucket delays anyway, and the action is for requests that find its queue full: want refuse, close or redirect")
	case c.Action == Delay && c.Algorithm != TokenBucket:
		no("action",
			"only a bucket has a queue with turns: delay needs algorithm: token_bucket, or take leaky_bucket")
	case c.Check == limiter.Sync && c.Cost.Is():
		no("check",
			"sync has the tier keep one request, not its cost: remove cost, or take check: async")
	case c.Check == limiter.Sync && c.Action == Tag:
		no("check",
			"sync makes each request wait for the tier, and action: tag refuses no request: take check: async")
	case c.Check == limiter.Sync && c.OnStoreFailure == limiter.Share:
		no("on_store_failure",
			"share admits by this edge's own count, and check: sync promises more than that: want closed, local or open")
	case c.OnStoreFailure == limiter.Share && is:
		no("on_store_failure",
			"share divides a limit in a window, and a bucket would drain on every edge as fast as before: want local, open or closed")
	case c.Check == limiter.Sync && !c.keeps() && c.Match.Descriptors == nil:
		no("check",
			"sync needs algorithm: exact or token_bucket, of which the tier keeps each request, and this is %s: take one of them, or check: async", c.Algorithm)
	case c.keeps() && c.Count.Refused:
		no("count",
			"check: sync with algorithm: %s keeps what is admitted, and a request that is refused is none: remove refused, or take algorithm: sliding", c.Algorithm)
	case c.keeps() && c.Action == Delay:
		no("action",
			"check: sync admits a request or refuses it, and none waits for a turn: want refuse, close or redirect, or check: async")
	case c.keeps() && c.Algorithm == Exact && time.Duration(c.Window) < exact.MinWindow:
		no("window",
			"check: sync with algorithm: exact needs clocks of edges that differ by at most a twentieth of the window, and a twentieth of %v is too little: "+
				"want %v or more, or algorithm: sliding or token_bucket, or check: async", c.Window,
			Duration(exact.MinWindow))
	case c.keeps() && c.Algorithm == TokenBucket &&
		time.Duration(c.Window) < time.Duration(c.Limit)*time.Millisecond:
		no("limit",
			"check: sync goes by milliseconds, and a request would drain in less than one: want at most %d in %v, or check: async", time.Duration(c.Window)/time.Millisecond, c.Window)
	case c.Algorithm == Sliding:
	case c.Cost.Is():
		no("cost", "only algorithm: sliding counts what requests cost: remove it, or the algorithm")
	case len(c.Windows) > 0 && c.Algorithm != Fixed:
		no("windows", "algorithm: %s has one limit: remove them, or take sliding or fixed",
			c.Algorithm)
	case len(c.Prefixes) > 0 && c.Algorithm != Fixed:
		no("prefixes", "algorithm: %s has one limit: remove them, or take sliding or fixed",
			c.Algorithm)
	case c.Estimate != nil && *c.Estimate != algorithm.Nearest:
		no("estimate", "only algorithm: sliding has one: remove it")
	case c.Algorithm == Fixed && c.SubWindows != Default("", 0).SubWindows:
		no("sub_windows", "algorithm: fixed has none: remove it")
	case c.Algorithm == Exact && c.Limit > algorithm.MaxExact:
		no("limit",
			"algorithm: exact keeps the time of each request, of at most %d: want 1 to that, or sliding, which decides nearly as well", algorithm.MaxExact)
	case is && c.Count.Refused:
		no("count",
			"a bucket into which refused requests go stays full for as long as they come: remove refused, or take algorithm: sliding")
	case is:
		burst, queue := c.bucket()
		perHit := float64(c.Window) / float64(max(c.Limit, 1))
		if full := perHit * (float64(burst) + float64(queue)); full > float64(algorithm.MaxWindow) {
			no("burst", "%d requests are those of %v at this rate: want at most those of %v",
				burst+queue, Duration(full).rounded(), Duration(algorithm.MaxWindow))
		} else if last := time.Duration(perHit * float64(queue)); last > limiter.MaxDelay {
			no("burst", "the last of %d that wait would wait %v: want at most %v, so at most %d",
				queue, Duration(last).rounded(), limiter.MaxDelay,
				int(float64(limiter.MaxDelay)/perHit))
		}
	}
	return field, err
}

// CheckOwn returns why a plan or a client cannot have an individual limit under the rule, by its
// algorithm.
func (c *Config) CheckOwn(limit uint32) error {
	switch {
	case c.Algorithm == Exact && limit > algorithm.MaxExact:
		return fmt.Errorf("algorithm: exact keeps the time of each request, of at most %d: want 1 to that", algorithm.MaxExact)
	case c.keeps() && c.Algorithm == TokenBucket &&
		time.Duration(c.Window) < time.Duration(limit)*time.Millisecond:
		return fmt.Errorf("check: sync goes by milliseconds, and a request would drain in less than one: want at most %d in %v", time.Duration(c.Window)/time.Millisecond, c.Window)
	}
	return nil
}

// rounded is d without digits that no reader needs.
func (d Duration) rounded() Duration { return Duration(time.Duration(d).Round(time.Second)) }
