package workload

import (
	"math"
	"net/netip"

	"sluice/loadgen/trace"
)

// The workloads by name. Where a rate is not asked for, it follows from the limit, so that a workload means the same to every rule.

func (w *generator) steady() {
	const sources = 200
	rate := w.rate(sources * w.modest(0.5, math.Inf(1)))
	for range sources {
		each := w.modest(w.between(0.3, 0.7), 2*rate/sources)
		w.even(w.good(), each, w.rng.Float64()/each, w.seconds())
	}
}

func (w *generator) burst() {
	const good, bad = 200, 20
	w.goodSources(good, w.rate(math.Inf(1)), 0, w.seconds())
	window := w.o.Window.Seconds()
	for range bad {
		s := w.abuser()
		for t := w.rng.Float64() * window; t < w.seconds(); t += window * w.between(1.5, 3) {
			w.volley(s, t, w.between(0.1, 1), int(w.between(1.1, 3)*float64(w.o.Limit))+1)
		}
	}
}

// volley sends n requests within so many seconds.
func (w *generator) volley(source int32, from, within float64, n int) {
	for range n {
		w.send(source, from+w.rng.Float64()*within)
	}
}

func (w *generator) onOff() {
	const sources = 20
	each := w.rate(sources*3*w.limitRate()) / sources
	window := w.o.Window.Seconds()
	for range sources {
		s := w.abuser()
		for t := w.rng.Float64() * window; t < w.seconds(); t += window {
			w.even(s, 2*each, t, t+window/2)
		}
	}
}

func (w *generator) distributed() {
	const sources = 300
	rate := w.rate(sources * 1.5 * w.limitRate())
	for range sources {
		s := w.abuser()
		w.even(s, rate/sources*w.between(0.7, 1.3), w.between(0, w.o.Window.Seconds()/2), w.seconds())
	}
}

// mixed has 300 good sources, whose part of the traffic is at most a third, and abusers of every kind.
func (w *generator) mixed() {
	const good = 300
	end := w.seconds()
	rate := w.rate(max(1100, 3*good*w.modest(0.4, math.Inf(1))))
	w.goodSources(good, rate/3, 0, end)

	limit, window := w.limitRate(), w.o.Window.Seconds()

	// What is left for the abusers; each divisor is the share of the time that one of that kind sends.
	rate -= float64(len(w.t.Requests))/end + 5*1.09*limit
	for range 4 { // floods
		w.even(w.abuser(), max(0.4*rate/4/0.875, 2*limit), w.between(0, end/4), end)
	}
	for range 10 { // on and off at the window's period
		s := w.abuser()
		for t := w.rng.Float64() * window; t < end; t += window {
			w.even(s, max(0.2*rate/10/0.5, 2*limit), t, t+window/2)
		}
	}
	for range 50 { // many at once, each not much above the limit
		w.even(w.abuser(), max(0.3*rate/50/0.75, 1.3*limit), w.between(0, end/2), end)
	}
	for range 2 {
		w.speedUp(w.abuser(), 0.1*limit, max(0.1*rate/2/0.5, 4*limit))
	}
	for i := range 5 { // just above
		w.even(w.abuser(), limit*(1.03+0.03*float64(i)), w.rng.Float64(), end)
	}
}

func (w *generator) constant() {
	w.even(w.abuser(), w.rate(60*w.limitRate()), 0, w.seconds())
}

func (w *generator) ramp() {
	w.speedUp(w.abuser(), 0.1*w.limitRate(), w.rate(10*w.limitRate()))
}

// speedUp sends at a rate that rises in a straight line over the whole duration.
func (w *generator) speedUp(source int32, from, to float64) {
	end := w.seconds()
	for t := 0.0; t < end && !w.full; {
		rate := from + (to-from)*t/end
		w.send(source, t+w.rng.Float64()/rate/2)
		t += 1 / rate
	}
}

func (w *generator) edgeBurst() {
	window := w.o.Window.Seconds()
	n := max(1, int(w.o.Limit)-1)
	within := min(0.01*window, 0.5)
	for range 10 {
		s := w.abuser()
		for t := window; t < w.seconds(); t += 3 * window { // the pause forgives it, so that every pair of bursts is a new try
			w.volley(s, t-within, within, n)
			w.volley(s, t, within, n)
		}
	}
}

func (w *generator) justAbove() {
	for i := range 15 {
		s := w.abuser()
		w.even(s, w.limitRate()*(1+0.01*float64(i+1)), w.rng.Float64()/w.limitRate(), w.seconds())
	}
}

// parallel is volleys within 0.1 ms: less than any round trip.
func (w *generator) parallel() {
	window := w.o.Window.Seconds()
	n := 2 * int(w.o.Limit) * w.o.Edges
	if w.o.Rate > 0 {
		n = max(1, int(w.o.Rate*window*2/5))
	}
	for range 5 {
		s := w.abuser()
		for t := w.rng.Float64() * window; t < w.seconds(); t += 2 * window {
			w.volley(s, t, 1e-4, n)
		}
	}
}

func (w *generator) rotate64() {
	s := w.source(trace.Abuser, netip.MustParseAddr("2001:db8:1:1::"))
	w.t.Sources[s].Spread = math.MaxUint32
	w.even(s, w.rate(10*w.limitRate()), 0, w.seconds())
	w.goodSources(50, math.Inf(1), 0, w.seconds())
}

// rotate24 is 256 sources to a limiter that tells IPv4 addresses apart: each is far below the limit while their sum is far
// above.
func (w *generator) rotate24() {
	var all [256]int32
	for i := range all {
		all[i] = w.source(trace.Abuser, trace.AddrPlus(netip.MustParseAddr("203.0.113.0"), uint32(i)))
	}
	rate := w.rate(20 * w.limitRate())
	for i, t := 0, 0.0; t < w.seconds() && !w.full; i, t = i+1, t+1/rate {
		w.send(all[i%len(all)], t)
	}
	w.goodSources(50, math.Inf(1), 0, w.seconds())
}

func (w *generator) below() {
	n := 5000
	each := w.modest(0.8, math.Inf(1))
	if w.o.Rate > 0 {
		n = max(1, int(w.o.Rate/each))
	}
	for range n {
		w.even(w.abuser(), each, w.rng.Float64()/each, w.seconds())
	}
}

// nat has 200 good users, together at 40 % of the limit, and an abuser who starts after a fifth of the time, behind one
// address.
func (w *generator) nat() {
	const users = 200
	s := w.source(trace.Unknown, netip.MustParseAddr("198.18.0.1"))
	w.role = trace.Good
	each := 0.4 * w.limitRate() / users
	for range users {
		for t := w.rng.ExpFloat64() / each; t < w.seconds(); t += w.rng.ExpFloat64() / each {
			w.send(s, t)
		}
	}
	w.role = trace.Abuser
	w.even(s, w.rate(5*w.limitRate()), w.seconds()/5, w.seconds())
	w.role = trace.Unknown
}

// flashCrowd has 100 good sources throughout, and 1,000 more in the middle fifth of the time, who all come within seconds. Some
// of them share an address with nine others, as in an office.
func (w *generator) flashCrowd() {
	end := w.seconds()
	rate := w.rate(math.Inf(1))
	w.goodSources(100, rate/11, 0, end)
	from, until := 0.4*end, 0.6*end
	w.goodSources(800, 8*rate/11, from, until)
	for range 20 {
		s := w.good()
		for range 10 {
			each := w.modest(w.between(0.05, 0.15), rate/1100)
			w.even(s, each, from+w.rng.Float64()*min(2, 1/each), until)
		}
	}
}

// stuffing tries stolen passwords: from each of many addresses some tries, then from the next. A try is POST /login, and a good
// user's login now and then is one as well.
func (w *generator) stuffing() {
	end := w.seconds()
	w.goodSources(200, math.Inf(1), 0, end)
	w.method, w.path = "POST", "/login"
	for range 50 {
		w.send(int32(w.rng.IntN(200)), w.rng.Float64()*end)
	}
	rate := w.rate(20 * w.limitRate())
	perSource := max(3, int(1.5*float64(w.o.Limit)))
	const atOnce = 20
	var now [atOnce]int32
	var left [atOnce]int
	for t := 0.0; t < end && !w.full; t += w.rng.ExpFloat64() / rate {
		i := w.rng.IntN(atOnce)
		if left[i] == 0 {
			now[i], left[i] = w.abuser(), perSource/2+w.rng.IntN(perSource)
		}
		left[i]--
		w.send(now[i], t)
	}
	w.method, w.path = "", ""
}
