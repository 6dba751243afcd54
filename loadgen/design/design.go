// Package design is how others limit rates, in virtual time: ways of counting a source in one place
// (Algorithm), and ways in which edges count it together (Coordination), each with the sources
// where it is described. All of them decide about the same stream as the limiter that they are
// compared with, and are judged alike.
package design

import (
	"context"
	"fmt"
	"math"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/trace"
)

// Design is a limiter on its way into a comparison: all designs decide about one stream, each of
// its connections on the same edge for every design, and one judge judges them. All lists those
// that others use; a caller adds its own.
type Design struct {
	Name  string
	About string // what it does and where it comes from
	Kind  Kind
	// Uncounted says that it has no estimate of the requests in a window, so that there is no gap
	// to measure and nothing to judge in estimator mode.
	Uncounted bool
	// Running returns which edges run at the time to which the run under way was advanced, as a set
	// of bits; nil: all, always.
	Running func() uint64
	// Later is how long after it is sent a request may be decided about.
	Later time.Duration
	// Start makes the limiter anew, for one run, and a function that returns what that run cost.
	Start func() (judge.Limiter, func() Cost)
}

// Kind says what a design is an answer to.
type Kind string

const (
	// Algorithm is how a source is counted. It is judged where one place decides about everything,
	// at once.
	Algorithm Kind = "algorithm"
	// Coordination is how several edges come to count a source together.
	Coordination Kind = "coordination"
)

// Cost is what a run of a design took.
type Cost struct {
	Commands uint64  // sent to the store that edges share
	Waited   float64 // round trips to it that requests waited for, all together
	// Bytes is the counters of all sources, in the store and on every edge, each at its largest, as
	// tightly as they can be packed: without names of sources, without blocks, and without what a
	// store or a hash table adds to an item.
	Bytes  uint64
	Owners *Owners // where sources have owners
}

// Result is another limiter judged on the same stream.
type Result struct {
	Name  string `json:"name"`
	About string `json:"about,omitempty"`
	Kind  Kind   `json:"kind,omitempty"`
	// It has no estimate, so its gap says nothing
	Uncounted bool          `json:"uncounted,omitempty"`
	Owners    *Owners       `json:"owners,omitempty"` // where sources have owners
	Figures   judge.Figures `json:"figures"`
}

// Run has the design decide about the requests of a trace and judges it.
func (c Design) Run(ctx context.Context, t *trace.Trace, mode judge.Mode, o judge.Options,
	v judge.VirtualOptions) (Result, error) {
	if c.Kind == Algorithm {
		v.Edges, v.Running = 1, nil
	}
	limiter, cost := c.Start()
	if c.Running != nil {
		v.Running = c.Running
	}
	o.Clocks = c.Later
	f, err := judge.Simulate(ctx, t, mode, o, v, limiter)
	if err != nil {
		return Result{}, err
	}
	spent := cost()
	f.SetTierOps(spent.Commands)
	waited := judge.Ratio(spent.Waited, f.Requests)
	f.AddedRoundTrips = &waited
	f.BytesPerSource = judge.Ratio(float64(spent.Bytes), uint64(f.Sources))
	return Result{Name: c.Name, About: c.About, Kind: c.Kind, Uncounted: c.Uncounted,
		Owners: spent.Owners, Figures: f}, nil
}

// Options is what the designs are given.
type Options struct {
	Mode      judge.Mode
	Limit     uint32
	Window    time.Duration
	Timeout   time.Duration // of a block; 0: who is over is throttled
	Start     time.Time     // when the run begins, on the clock by which windows are counted
	Edges     int
	RoundTrip time.Duration // from an edge to the store and back
	// Of the counter that all ways of coordinating share, so that they differ in nothing else; 0:
	// 12
	SubWindows int
	SyncEvery  time.Duration // 0: a second
	// When the design of owners loses one, in a row of its own; 0: it has no such row
	LoseAt time.Duration
	Lease  uint32 // tokens in a reservation; 0: a tenth of the limit, and at least one
}

// rule is the options as the designs need them: nanoseconds, and counts that can be compared with
// estimates.
type rule struct {
	mode            judge.Mode
	limit           float64
	window, timeout int64
	start           int64 // of the run, since 1970
}

func (o *Options) complete() rule {
	if o.SubWindows == 0 {
		o.SubWindows = 12
	}
	if o.SyncEvery == 0 {
		o.SyncEvery = time.Second
	}
	if o.Lease == 0 {
		o.Lease = max(1, o.Limit/10)
	}
	r := rule{mode: o.Mode, limit: float64(o.Limit), window: int64(o.Window),
		timeout: int64(o.Timeout)}
	if !o.Start.IsZero() {
		r.start = o.Start.UnixNano()
	}
	return r
}

// algorithm counts requests of sources in one place. Times are nanoseconds since the run's start,
// and never go back.
type algorithm interface {
	// weigh returns how many requests the source has sent in the last window, this one included and
	// as the algorithm sees it (NaN: it does not see that), and whether that is too many.
	weigh(source int32, at int64) (estimate float64, over bool)
	// count takes in the request that was weighed.
	count(source int32, at int64)
	// bytes is the size of the counters of so many sources: Cost.Bytes.
	bytes(sources int) uint64
}

// decider is where an algorithm decides: an edge by itself, or the store. Who is over is refused,
// which does not count, and blocked for the rule's timeout. In estimator mode everything counts and
// nobody is refused.
type decider struct {
	rule    rule
	counts  algorithm
	blocked judge.PerSource[int64] // until when
	sources int                    // seen
	seen    judge.PerSource[bool]
}

func (p *decider) decide(source int32, at int64) judge.Decision {
	if seen := p.seen.Of(source); !*seen {
		*seen = true
		p.sources++
	}
	until := p.blocked.Of(source)
	if at < *until {
		return mitigated(*until)
	}
	estimate, over := p.counts.weigh(source, at)
	if over && p.rule.mode == judge.Deployed {
		return p.rule.refuse(estimate, at, until)
	}
	p.counts.count(source, at)
	return judge.Decision{Estimate: estimate, Over: over}
}

func (p *decider) bytes() uint64 { return p.counts.bytes(p.sources) }

// refuse is the answer to a request that is over. It starts a block if the rule has a timeout.
func (r *rule) refuse(estimate float64, at int64, blocked *int64) judge.Decision {
	d := judge.Decision{Verdict: judge.Limited, Over: true, Estimate: estimate}
	if r.timeout > 0 {
		*blocked = at + r.timeout
		d.Until = time.Duration(*blocked)
	}
	return d
}

// mitigated is the answer to a request under a block.
func mitigated(until int64) judge.Decision {
	return judge.Decision{Verdict: judge.Mitigated, Estimate: math.NaN(),
		Until: time.Duration(until)}
}

// All is every design of others: first the algorithms, then the ways of coordinating edges, which
// all count with sub-windows of which the oldest is weighed and the sum rounded, as Sluice does.
func All(o Options) []Design {
	r := o.complete()
	return append(algorithms(r, o), coordinations(r, o)...)
}

// algorithms are judged in one place that knows everything at once.
func algorithms(r rule, o Options) []Design {
	one := func(name, about string, uncounted bool, counts func() algorithm) Design {
		return Design{Name: name, About: about, Kind: Algorithm, Uncounted: uncounted,
			Start: func() (judge.Limiter, func() Cost) {
				p := &decider{rule: r, counts: counts()}
				return start(&alone{deciders: []*decider{p}, share: 1})
			}}
	}
	return []Design{
		one("sliding log", "the time of every request is kept for a window: exact", false,
			func() algorithm { return &slidingLog{rule: r} }),
		one("fixed window",
			"one counter, zero again when a window of the clock begins (envoyproxy/ratelimit)",
			false, func() algorithm { return &fixedWindow{rule: r} }),
		one("two counters",
			"of this window and the last one, that weighed by how much of it is still in sight (Cloudflare, 2017)", false,
			func() algorithm { return &subWindows{rule: r, k: 1, weighed: true} }),
		one("60 sub-windows",
			"the sum of sixty, without the one that is only half in sight (Figma, 2017)", false,
			func() algorithm { return &subWindows{rule: r, k: 60} }),
		one(fmt.Sprintf("%d sub-windows, rounded", o.SubWindows),
			"with the one that is half in sight, weighed as in two counters, and the sum rounded",
			false, func() algorithm {
				return &subWindows{rule: r, k: o.SubWindows, weighed: true, rounded: true}
			}),
		one("token bucket",
			"as many tokens as the limit, refilled evenly within a window (Stripe, 2017)", true,
			func() algorithm { return &tokenBucket{rule: r, burst: r.limit} }),
		one("leaky bucket",
			"drains evenly, overflows at a tenth of the limit (Turner, 1986; nginx limit_req)",
			true,
			func() algorithm { return &leakyBucket{rule: r, depth: math.Max(1, r.limit/10)} }),
		one("GCRA",
			"when the next one is due, a window too early at most: a token bucket in one number (ITU-T I.371)", true,
			func() algorithm { return newGCRA(r, r.limit) }),
	}
}
