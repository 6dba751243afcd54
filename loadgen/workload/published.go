package workload

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"time"

	"sluice/loadgen/trace"
)

// Published is traffic of the size of which Cloudflare published figures in 2017: 400 million
// requests of 270,000 sources. It is calibrated so that two counters get about the published
// figures, and therefore no independent reproduction of them. Sources are independent of each
// other, so it may be made, counted and judged source by source, in the memory of one; InOrder has
// all of them in the order of time.
//
// Two models of when a source's requests arrive:
//
//   - Bursty: visits with long pauses between them; in a visit, bursts with short pauses; in a
//     burst, requests within fractions of a second. Fitted to three public access logs (2017 to
//     2021, 20,000 sources, without the one that sends 40 % of all), of which these are the
//     figures, each as its range over the logs. Bursts (gaps up to 3 s): 64 to 83 % are of a single
//     request, 90 % of at most 2 to 3, 99 % of at most 11 to 32, mean 1.5 to 3.3, so about a Pareto
//     distribution of exponent 1.1. Gaps in a burst: about log-normal, median 0.08 to 0.8 s, sigma
//     of the logarithm 1.7 to 1.9. Pauses up to half an hour: about log-normal, median 13 to 170 s,
//     sigma 1.7 to 1.9. Bursts in a visit: mean 2.2 to 3.6, median 1. Requests of a source: about
//     log-normal, sigma 0.9 to 1.3.
//   - Poisson: visits in which requests arrive independently of each other, at a rate that is the
//     visit's own.
//
// Such traffic alone would hardly ever come near a limit, and the logs have too many sources that
// do. So a small share of visits is hot: a program that asks, for some windows, at a rate from half
// the limit to twice the limit (in the logs, of such runs half last a minute or less, 90 % two
// minutes; counts of 5 s have a variance of 0.15 to 2.7 times their mean, the median over runs,
// where Poisson arrivals have 1). That share and the scale of the rest are calibrated: with a limit
// of 100 in a minute, all 400 million requests and seed 1, two plain counters decide 0.0032 % of
// requests wrongly and have a mean gap of 5.9 % on the bursty stream, 0.0028 % and 6.1 % on the
// Poisson one; published are 0.003 % and 6 %. A hundredth of it has few hot visits, so its
// wrong_ratio varies with the seed. At other limits and windows rates scale with them.
type Published struct {
	Poisson  bool
	Requests int64         // of all sources; 0: 400 million
	Sources  int           // 0: 270,000
	Limit    uint32        // of the rule it plays against; 0: 100
	Window   time.Duration // 0: a minute
	Seed     uint64
}

// PublishedNames are the names by which commands know the two models.
const (
	PublishedBursty  = "published-bursty"
	PublishedPoisson = "published-poisson"
)

// Calibrated is what must be said wherever figures on these streams are.
const Calibrated = "calibrated: two counters give about the published figures on this stream, so it is no independent reproduction of them"

// NewPublished is the model of that name, one scale-th of the published size. The other fields are
// the caller's to set.
func NewPublished(name string, scale int) (Published, error) {
	p := Published{Requests: 400_000_000 / int64(max(1, scale)),
		Sources: max(1, 270_000/max(1, scale))}
	switch name {
	case PublishedBursty:
	case PublishedPoisson:
		p.Poisson = true
	default:
		return p, fmt.Errorf("workload %q: want %s or %s", name, PublishedBursty, PublishedPoisson)
	}
	return p, nil
}

func (p *Published) defaults() {
	if p.Requests == 0 {
		p.Requests = 400_000_000
	}
	if p.Sources == 0 {
		p.Sources = 270_000
	}
	if p.Limit == 0 {
		p.Limit = 100
	}
	if p.Window == 0 {
		p.Window = time.Minute
	}
}

// Counts is how many requests each source has; they sum up to Requests.
func (p Published) Counts() []int64 {
	p.defaults()
	counts := make([]int64, p.Sources)
	weights, sum := make([]float64, p.Sources), 0.0
	for i := range weights {
		weights[i] = math.Exp(1.2 * p.rng(i, 1).NormFloat64())
		sum += weights[i]
	}
	given, due := int64(0), 0.0
	for i, w := range weights { // what rounding leaves over goes to the next one
		due += w / sum * float64(p.Requests)
		counts[i] = max(0, int64(math.Round(due))-given)
		given += counts[i]
	}
	return counts
}

func (p *Published) rng(source int, purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(trace.Mix(p.Seed)+purpose, uint64(source)))
}

// Arrivals is when n requests of a source arrive, in order, since the run's start. The same source
// has the same requests whenever and wherever it is asked for.
func (p Published) Arrivals(source int, n int64) iter.Seq[time.Duration] {
	p.defaults()
	return func(yield func(time.Duration) bool) {
		a := arrivals{
			rng: p.rng(source, 2), left: n, yield: yield,
			limit: float64(p.Limit), window: p.Window.Seconds(), scale: p.Window.Seconds() / 60,
		}
		a.now = a.rng.Float64() * 86400
		for a.left > 0 {
			if p.Poisson {
				a.poissonVisit()
			} else {
				a.burstyVisit()
			}
		}
	}
}

// InOrder is the requests of all sources in the order of time: the index of the source, and when
// since the run's start. It holds a few kilobytes for each source.
func (p Published) InOrder() iter.Seq2[int, time.Duration] {
	p.defaults()
	type pending struct {
		at     time.Duration
		source int
		next   func() (time.Duration, bool)
	}
	return func(yield func(int, time.Duration) bool) {
		// A heap, the earliest first; of one instant, the source with the smaller number
		var all []pending
		for source, n := range p.Counts() {
			next, stop := iter.Pull(p.Arrivals(source, n))
			defer stop()
			if at, ok := next(); ok {
				all = append(all, pending{at, source, next})
			}
		}
		before := func(i, j int) bool {
			a, b := &all[i], &all[j]
			return a.at < b.at || a.at == b.at && a.source < b.source
		}
		down := func(i int) {
			for {
				least := i
				for _, child := range [2]int{2*i + 1, 2*i + 2} {
					if child < len(all) && before(child, least) {
						least = child
					}
				}
				if least == i {
					return
				}
				all[i], all[least] = all[least], all[i]
				i = least
			}
		}
		for i := len(all)/2 - 1; i >= 0; i-- {
			down(i)
		}
		for len(all) > 0 {
			first := &all[0]
			if !yield(first.source, first.at) {
				return
			}
			at, more := first.next()
			if more {
				first.at = at
			} else {
				all[0] = all[len(all)-1]
				all = all[:len(all)-1]
			}
			down(0)
		}
	}
}

// arrivals makes one source's requests. Times are seconds.
type arrivals struct {
	rng                  *rand.Rand
	yield                func(time.Duration) bool
	left                 int64
	now                  float64
	limit, window, scale float64 // scale: windows are so many minutes
}

// send yields a request at the present and reports whether there are more to come.
func (a *arrivals) send() bool {
	if !a.yield(time.Duration(a.now * 1e9)) {
		a.left = 0
		return false
	}
	a.left--
	return a.left > 0
}

func (a *arrivals) logNormal(median, sigma float64) float64 {
	return median * math.Exp(sigma*a.rng.NormFloat64())
}

// The calibrated numbers; see Published.
const (
	burstyHot    = 0.0001 // share of visits that are hot
	burstyPause  = 150.0  // s, median between bursts
	burstyMost   = 0.25   // no burst is larger than this share of the limit
	poissonHot   = 0.0013
	poissonUsual = 0.26 // of the limit, in a window, median
)

// burstyVisit is bursts with pauses between them, and the long pause after them.
func (a *arrivals) burstyVisit() {
	if a.rng.Float64() < burstyHot {
		a.hotVisit(1.5, min(a.logNormal(0.4, 0.6), 1))
	} else {
		gap := a.logNormal(0.2, 0.8) * a.scale // of this visit's bursts
		for bursts := 1 + int(a.rng.ExpFloat64()*a.logNormal(4, 1)); bursts > 0 &&
			a.left > 0; bursts-- {
			size := min(math.Pow(1-a.rng.Float64(), -1/1.1), max(1, burstyMost*a.limit))
			for size := int(size); size > 0; size-- {
				if !a.send() {
					return
				}
				a.now += min(a.logNormal(gap, 1.5), 3*a.scale)
			}
			a.now += min(max(a.logNormal(burstyPause, 1.8), 3), 1800) * a.scale
		}
	}
	a.now += max(a.logNormal(4*3600, 1.5), 1800) * a.scale
}

// poissonVisit is requests that arrive independently of each other for about an hour.
func (a *arrivals) poissonVisit() {
	if a.rng.Float64() < poissonHot {
		a.hotVisit(6, 1)
	} else {
		a.steady(min(a.logNormal(poissonUsual, 0.25), 0.5)*a.limit/a.window,
			a.rng.ExpFloat64()*60*a.window, 1)
	}
	a.now += max(a.logNormal(4*3600, 1.5), 1800) * a.scale
}

// hotVisit goes on for some windows, at half the limit to twice the limit.
func (a *arrivals) hotVisit(windows, spread float64) {
	a.steady((0.5+1.5*a.rng.Float64())*a.limit/a.window, (0.5+windows*a.rng.ExpFloat64())*a.window,
		spread)
}

// steady sends at a rate for so long. Gaps are exponentially distributed where spread is 1, and the
// less so the smaller it is.
func (a *arrivals) steady(rate, long, spread float64) {
	for until := a.now + long; a.now < until; a.now += (1 - spread +
		spread*a.rng.ExpFloat64()) / rate {
		if !a.send() {
			return
		}
	}
}
