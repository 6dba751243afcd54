package workload

import (
	"math"
	"net/netip"

	"sluice/loadgen/trace"
)

// The workloads by name. Where a rate is not asked for, it follows from the limit, so that a
// workload means the same to every rule.

func (g *generator) steady() {
	const sources = 200
	rate := g.rate(sources * g.modest(0.5, math.Inf(1)))
	for range sources {
		each := g.modest(g.between(0.3, 0.7), 2*rate/sources)
		g.even(g.good(), each, g.rng.Float64()/each, g.seconds())
	}
}

func (g *generator) burst() {
	const good, bad = 200, 20
	g.goodSources(good, g.rate(math.Inf(1)), 0, g.seconds())
	window := g.o.Window.Seconds()
	for range bad {
		s := g.abuser()
		for t := g.rng.Float64() * window; t < g.seconds(); t += window * g.between(1.5, 3) {
			g.volley(s, t, g.between(0.1, 1), int(g.between(1.1, 3)*float64(g.o.Limit))+1)
		}
	}
}

// volley sends n requests within so many seconds.
func (g *generator) volley(source int32, from, within float64, n int) {
	for range n {
		g.send(source, from+g.rng.Float64()*within)
	}
}

func (g *generator) onOff() {
	const sources = 20
	each := g.rate(sources*3*g.limitRate()) / sources
	window := g.o.Window.Seconds()
	for range sources {
		s := g.abuser()
		for t := g.rng.Float64() * window; t < g.seconds(); t += window {
			g.even(s, 2*each, t, t+window/2)
		}
	}
}

func (g *generator) distributed() {
	const sources = 300
	rate := g.rate(sources * 1.5 * g.limitRate())
	for range sources {
		s := g.abuser()
		g.even(s, rate/sources*g.between(0.7, 1.3), g.between(0, g.o.Window.Seconds()/2),
			g.seconds())
	}
}

// flood has 10,000 abusers, or as many as can go over the limit in the first half. What each sends
// is its part of the rate from then on, whether or not it is heard. Fifty good sources are beside
// them.
func (g *generator) flood() {
	const most, good = 10_000, 50
	end, rate, over := g.seconds(), g.rate(8000), float64(g.o.Limit+1)
	g.goodSources(good, min(0.1*rate, good*g.modest(0.5, math.Inf(1))), 0, end)
	sources := max(1, min(most, int(rate*end/2/over)))
	for i := range sources {
		s, begin := g.abuser(), float64(i)*over/rate
		within := min(1, g.o.Window.Seconds()/2)
		g.even(s, over/within, begin, begin+within)
		each := rate / float64(sources)
		g.even(s, each, begin+within+g.rng.Float64()/each, end)
	}
}

// mixed has 300 good sources, whose part of the traffic is at most a third, and abusers of every
// kind.
func (g *generator) mixed() {
	const good = 300
	end := g.seconds()
	rate := g.rate(max(1100, 3*good*g.modest(0.4, math.Inf(1))))
	g.goodSources(good, rate/3, 0, end)

	limit, window := g.limitRate(), g.o.Window.Seconds()

	// What is left for the abusers; each divisor is the share of the time that one of that kind
	// sends.
	rate -= float64(len(g.t.Requests))/end + 5*1.09*limit
	for range 4 { // floods
		g.even(g.abuser(), max(0.4*rate/4/0.875, 2*limit), g.between(0, end/4), end)
	}
	for range 10 { // on and off at the window's period
		s := g.abuser()
		for t := g.rng.Float64() * window; t < end; t += window {
			g.even(s, max(0.2*rate/10/0.5, 2*limit), t, t+window/2)
		}
	}
	for range 50 { // many at once, each not much above the limit
		g.even(g.abuser(), max(0.3*rate/50/0.75, 1.3*limit), g.between(0, end/2), end)
	}
	for range 2 {
		g.speedUp(g.abuser(), 0.1*limit, max(0.1*rate/2/0.5, 4*limit))
	}
	for i := range 5 { // just above
		g.even(g.abuser(), limit*(1.03+0.03*float64(i)), g.rng.Float64(), end)
	}
}

func (g *generator) constant() {
	g.even(g.abuser(), g.rate(60*g.limitRate()), 0, g.seconds())
}

func (g *generator) ramp() {
	g.speedUp(g.abuser(), 0.1*g.limitRate(), g.rate(10*g.limitRate()))
}

// speedUp sends at a rate that rises in a straight line over the whole duration.
func (g *generator) speedUp(source int32, from, to float64) {
	end := g.seconds()
	for t := 0.0; t < end && !g.full; {
		rate := from + (to-from)*t/end
		g.send(source, t+g.rng.Float64()/rate/2)
		t += 1 / rate
	}
}

func (g *generator) edgeBurst() {
	window := g.o.Window.Seconds()
	n := max(1, int(g.o.Limit)-1)
	within := min(0.01*window, 0.5)
	for range 10 {
		s := g.abuser()
		// The pause forgives it, so that every pair of bursts is a new try
		for t := window; t < g.seconds(); t += 3 * window {
			g.volley(s, t-within, within, n)
			g.volley(s, t, within, n)
		}
	}
}

func (g *generator) justAbove() {
	for i := range 15 {
		s := g.abuser()
		g.even(s, g.limitRate()*(1+0.01*float64(i+1)), g.rng.Float64()/g.limitRate(), g.seconds())
	}
}

// parallel is volleys within 0.1 ms: less than any round trip.
func (g *generator) parallel() {
	window := g.o.Window.Seconds()
	n := 2 * int(g.o.Limit) * g.o.Edges
	if g.o.Rate > 0 {
		n = max(1, int(g.o.Rate*window*2/5))
	}
	for range 5 {
		s := g.abuser()
		for t := g.rng.Float64() * window; t < g.seconds(); t += 2 * window {
			g.volley(s, t, 1e-4, n)
		}
	}
}

// streams is how many requests browsers and libraries make at once on a connection of HTTP/2.
const streams = 100

// manyStreams is volleys, each as large as a connection's streams and larger than the limit, so
// that an edge has to judge the whole of it before the first has an answer. Of two that follow each
// other the second is on another connection, and so perhaps at another edge.
func (g *generator) manyStreams() {
	window := g.o.Window.Seconds()
	g.goodSources(50, math.Inf(1), 0, g.seconds())
	n := max(streams, 2*int(g.o.Limit))
	if g.o.Rate > 0 {
		n = max(1, int(g.o.Rate*window*3/20))
	}
	for range 10 {
		s := g.abuser()
		for t := g.rng.Float64() * window; t < g.seconds(); t += 3 * window {
			g.volley(s, t, 1e-4, n)
			g.volley(s, t+window/5, 1e-4, n)
		}
	}
}

// rapidReset is volleys of requests that are taken back, as the floods of 2023 (CVE-2023-44487)
// were. Between them a source sends on, more slowly, so that it meets the limit from both sides.
func (g *generator) rapidReset() {
	window, limit := g.o.Window.Seconds(), g.limitRate()
	g.goodSources(50, math.Inf(1), 0, g.seconds())
	each := g.rate(10*10*limit) / 10
	g.reset = true
	for range 10 {
		s := g.abuser()
		for t := g.rng.Float64() * window; t < g.seconds(); t += 2 * window {
			g.volley(s, t, 0.01, max(1, int(each*window)))
			g.even(s, each/5, t+window/2, min(t+window, g.seconds()))
		}
	}
	g.reset = false
}

func (g *generator) rotate64() {
	s := g.source(trace.Abuser, netip.MustParseAddr("2001:db8:1:1::"))
	g.t.Sources[s].Spread = math.MaxUint32
	g.even(s, g.rate(10*g.limitRate()), 0, g.seconds())
	g.goodSources(50, math.Inf(1), 0, g.seconds())
}

// rotate24 is 256 sources to a limiter that distinguishes IPv4 addresses: each is far below the
// limit while their sum is far above.
func (g *generator) rotate24() {
	var all [256]int32
	for i := range all {
		all[i] = g.source(trace.Abuser, trace.AddrPlus(netip.MustParseAddr("203.0.113.0"),
			uint32(i)))
	}
	rate := g.rate(20 * g.limitRate())
	for i, t := 0, 0.0; t < g.seconds() && !g.full; i, t = i+1, t+1/rate {
		g.send(all[i%len(all)], t)
	}
	g.goodSources(50, math.Inf(1), 0, g.seconds())
}

func (g *generator) below() {
	n := 5000
	each := g.modest(0.8, math.Inf(1))
	if g.o.Rate > 0 {
		n = max(1, int(g.o.Rate/each))
	}
	for range n {
		g.even(g.abuser(), each, g.rng.Float64()/each, g.seconds())
	}
}

// nat has 200 good users, together at 40 % of the limit, and an abuser who starts after a fifth of
// the time, behind one address.
func (g *generator) nat() {
	const users = 200
	s := g.source(trace.Unknown, netip.MustParseAddr("198.18.0.1"))
	g.role = trace.Good
	each := 0.4 * g.limitRate() / users
	for range users {
		for t := g.rng.ExpFloat64() / each; t < g.seconds(); t += g.rng.ExpFloat64() / each {
			g.send(s, t)
		}
	}
	g.role = trace.Abuser
	g.even(s, g.rate(5*g.limitRate()), g.seconds()/5, g.seconds())
	g.role = trace.Unknown
}

// flashCrowd has 100 good sources throughout, and 1,000 more in the middle fifth of the time, who
// all come within seconds. Some of them share an address with nine others, as in an office.
func (g *generator) flashCrowd() {
	end := g.seconds()
	rate := g.rate(math.Inf(1))
	g.goodSources(100, rate/11, 0, end)
	from, until := 0.4*end, 0.6*end
	g.goodSources(800, 8*rate/11, from, until)
	for range 20 {
		s := g.good()
		for range 10 {
			each := g.modest(g.between(0.05, 0.15), rate/1100)
			g.even(s, each, from+g.rng.Float64()*min(2, 1/each), until)
		}
	}
}

// stuffing tries stolen passwords: from each of many addresses some tries, then from the next. A
// try is POST /login, and a good user's login now and then is one as well.
func (g *generator) stuffing() {
	end := g.seconds()
	g.goodSources(200, math.Inf(1), 0, end)
	g.method, g.path = "POST", "/login"
	for range 50 {
		g.send(int32(g.rng.IntN(200)), g.rng.Float64()*end)
	}
	rate := g.rate(20 * g.limitRate())
	perSource := max(3, int(1.5*float64(g.o.Limit)))
	const atOnce = 20
	var now [atOnce]int32
	var left [atOnce]int
	for t := 0.0; t < end && !g.full; t += g.rng.ExpFloat64() / rate {
		i := g.rng.IntN(atOnce)
		if left[i] == 0 {
			now[i], left[i] = g.abuser(), perSource/2+g.rng.IntN(perSource)
		}
		left[i]--
		g.send(now[i], t)
	}
	g.method, g.path = "", ""
}
