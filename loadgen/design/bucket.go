package design

import (
	"math"

	"sluice/loadgen/judge"
)

// Buckets know how much a source may send now, not how much it sent in the last window. A bucket as
// deep as the limit lets up to twice the limit through in a window, a full bucket and what flows in
// meanwhile; one that is less deep refuses bursts that the limit allows. All of them forgive
// rounding of this many requests.
const bucketSlack = 1e-9

// tokenBucket has tokens flow in evenly, as many in a window as the limit, up to burst. A request
// takes one. (Tarjan, "Scaling your API with rate limiters", Stripe, 2017.)
type tokenBucket struct {
	rule    rule
	burst   float64
	buckets judge.PerSource[bucket]
}

type bucket struct {
	tokens float64
	at     int64 // when it had them
	known  bool  // a source that is not has a full one
}

func (b *tokenBucket) of(source int32, at int64) *bucket {
	s := b.buckets.Of(source)
	if !s.known {
		*s = bucket{tokens: b.burst, at: at, known: true}
	}
	s.tokens = math.Min(b.burst, s.tokens+float64(at-s.at)*b.rule.limit/float64(b.rule.window))
	s.at = at
	return s
}

func (b *tokenBucket) weigh(source int32, at int64) (float64, bool) {
	return math.NaN(), b.of(source, at).tokens < 1-bucketSlack
}

func (b *tokenBucket) count(source int32, at int64) { b.of(source, at).tokens-- }

// bytes: tokens and time.
func (b *tokenBucket) bytes(sources int) uint64 { return 16 * uint64(sources) }

// leakyBucket fills by one with each request and drains evenly, as much in a window as the limit.
// What would make it overflow is refused. (Turner, "New directions in communications", 1986, as a
// meter; nginx limit_req with burst and nodelay.)
type leakyBucket struct {
	rule    rule
	depth   float64
	buckets judge.PerSource[leak]
}

type leak struct {
	level float64
	at    int64
}

func (b *leakyBucket) of(source int32, at int64) *leak {
	s := b.buckets.Of(source)
	s.level = math.Max(0, s.level-float64(at-s.at)*b.rule.limit/float64(b.rule.window))
	s.at = at
	return s
}

func (b *leakyBucket) weigh(source int32, at int64) (float64, bool) {
	return math.NaN(), b.of(source, at).level+1 > b.depth+bucketSlack
}

func (b *leakyBucket) count(source int32, at int64) { b.of(source, at).level++ }

// bytes: level and time.
func (b *leakyBucket) bytes(sources int) uint64 { return 16 * uint64(sources) }

// gcra is the generic cell rate algorithm, in the form of virtual scheduling: requests are due one
// interval after each other, and one may come early by the tolerance. (ITU-T I.371, annex A; "Rate
// limiting, cells, and GCRA", Leach, 2015.) With a tolerance of burst-1 intervals it decides as a
// token bucket of that burst does, from one number.
type gcra struct {
	interval, tolerance int64
	due                 judge.PerSource[int64] // theoretical arrival time
}

func newGCRA(r rule, burst float64) *gcra {
	interval := float64(r.window) / r.limit
	return &gcra{interval: int64(interval), tolerance: int64((burst - 1) * interval)}
}

func (g *gcra) weigh(source int32, at int64) (float64, bool) {
	return math.NaN(), at < *g.due.Of(source)-g.tolerance
}

func (g *gcra) count(source int32, at int64) {
	due := g.due.Of(source)
	*due = max(*due, at) + g.interval
}

func (g *gcra) bytes(sources int) uint64 { return 8 * uint64(sources) }
