// Package workload makes traces that have a name: good sources and abusers of every kind, by a seed
// and the limit that they play against, so that a workload means the same to every rule (Generate);
// and, too large to be held in memory, the stream of the size that Cloudflare published in 2017,
// source by source (Published).
package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"sluice/loadgen/trace"
)

// Workload is traffic that has a name.
type Workload struct {
	Name     string
	About    string
	generate func(*generator)
}

// List lists them, plain ones first, then the adversaries.
func List() []Workload {
	return []Workload{
		{"steady", "good sources, each at an even rate below the limit", (*generator).steady},
		{"burst",
			"good sources that load pages: bursts below the limit; and some that burst above it",
			(*generator).burst},
		{"innocents",
			"programs that keep a pace of 97 % to 99.2 % of the limit, or vary theirs by a fifth and are never over it", (*generator).innocents},
		{"onoff", "abusers on and off at the window's period", (*generator).onOff},
		{"distributed", "a few hundred abusers, each somewhat above the limit, at once",
			(*generator).distributed},
		{"mixed", "good sources, and every kind of abuser among them; at least 1,000 requests/s",
			(*generator).mixed},
		{"constant", "one abuser at an even rate far above the limit", (*generator).constant},
		{"ramp", "an abuser that starts slowly and speeds up until far above the limit",
			(*generator).ramp},
		{"edge-burst", "bursts just under the limit right before and right after each full window",
			(*generator).edgeBurst},
		{"just-above", "fifteen abusers, at 1 % to 15 % above the limit", (*generator).justAbove},
		{"parallel", "volleys of requests at one instant, enough to fill the limit on every edge",
			(*generator).parallel},
		{"rotate-64", "an abuser that changes its address within one IPv6 /64 at every request",
			(*generator).rotate64},
		{"rotate-24", "an abuser that changes its address within one IPv4 /24 at every request",
			(*generator).rotate24},
		{"below", "thousands of abusers, each below the limit", (*generator).below},
		{"nat", "200 good users and one abuser behind one address", (*generator).nat},
		{"flash-crowd", "ten times as many good sources within seconds", (*generator).flashCrowd},
		{"flood",
			"10,000 abusers that go over the limit one after the other, and go on while they are blocked; 8,000 requests/s", (*generator).flood},
		{"many-streams",
			"a page's worth of requests and more at one instant, on one connection where HTTP/2 lets it", (*generator).manyStreams},
		{"rapid-reset",
			"requests taken back as soon as they are made, far above the limit (HTTP/2)",
			(*generator).rapidReset},
		{"stuffing", "credential stuffing: POST /login from rotating addresses, few tries each",
			(*generator).stuffing},
		{"residential",
			"visitors, and a scraper from addresses of homes, each used once or twice",
			(*generator).residential},
	}
}

// Options shapes a workload. Zero fields take the values said.
type Options struct {
	Seed     uint64
	Limit    uint32        // of the rule that the workload plays against; 100
	Window   time.Duration // of that rule; a minute
	Duration time.Duration // five windows, or a minute if that is longer
	Rate     float64       // requests per second in all; what suits the workload
	Edges    int           // how many edges it may meet; 8
	Apart    time.Duration // by how much the clocks of those differ, of innocents
}

// requestsMax is how many requests a workload may have: a trace is held in memory.
const requestsMax = 50_000_000

// Generate makes the workload of that name. The same name and options give the same trace. An
// unknown name or an impossible option is an error.
func Generate(name string, o Options) (*trace.Trace, error) {
	var chosen *Workload
	var names []string
	for _, w := range List() {
		names = append(names, w.Name)
		if w.Name == name {
			chosen = &w
		}
	}
	if chosen == nil {
		return nil, fmt.Errorf("workload %q: there is none of that name; want one of %s", name,
			strings.Join(names, ", "))
	}
	if o.Limit == 0 {
		o.Limit = 100
	}
	if o.Window == 0 {
		o.Window = time.Minute
	}
	if o.Duration == 0 {
		o.Duration = max(5*o.Window, time.Minute)
	}
	if o.Edges == 0 {
		o.Edges = 8
	}
	if o.Window < 0 || o.Duration < 0 || o.Rate < 0 || math.IsNaN(o.Rate) || math.IsInf(o.Rate, 0) {
		return nil, fmt.Errorf("workload %s: window %v, duration %v, rate %v: must be positive",
			name, o.Window, o.Duration, o.Rate)
	}
	if o.Rate*o.Duration.Seconds() > requestsMax {
		return nil, tooMany(name)
	}
	g := &generator{o: o, t: &trace.Trace{Name: name, Seed: o.Seed},
		rng: rand.New(rand.NewPCG(o.Seed, trace.Hash(name)))}
	chosen.generate(g)
	if g.full {
		return nil, tooMany(name)
	}
	if len(g.t.Requests) == 0 {
		return nil, fmt.Errorf("workload %s: no request within %v; raise --rate or --duration",
			name, o.Duration)
	}
	trace.Sort(g.t)
	return g.t, nil
}

func tooMany(name string) error {
	return fmt.Errorf("workload %s: more than %d requests; lower --rate or --duration", name,
		requestsMax)
}

// generator puts a workload together, source by source.
type generator struct {
	o              Options
	t              *trace.Trace
	rng            *rand.Rand
	full           bool // more requests than there may be
	goods, abusers uint32

	// Of the requests that are sent from here on.
	method, path string // empty: GET, and one of some pages
	role         trace.Role
	reset        bool
}

// limitRate is the even rate, per second, that just meets the limit.
func (g *generator) limitRate() float64 { return float64(g.o.Limit) / g.o.Window.Seconds() }

// rate is what the options ask for, or else what is given.
func (g *generator) rate(otherwise float64) float64 {
	if g.o.Rate > 0 {
		return g.o.Rate
	}
	return otherwise
}

// good is a new source that means well; abuser one that does not. Their addresses are out of the
// range for benchmarks (198.18.0.0/15) as long as it lasts, then out of the one that carriers share
// (100.64.0.0/10).
func (g *generator) good() int32 {
	g.goods++
	return g.source(trace.Good, address(g.goods, "198.18.0.0", "100.64.0.0"))
}

func (g *generator) abuser() int32 {
	g.abusers++
	return g.source(trace.Abuser, address(g.abusers, "198.19.0.0", "100.96.0.0"))
}

func address(n uint32, first, then string) netip.Addr {
	if n < 1<<16 {
		return trace.AddrPlus(netip.MustParseAddr(first), n)
	}
	return trace.AddrPlus(netip.MustParseAddr(then), n)
}

func (g *generator) source(role trace.Role, addr netip.Addr) int32 {
	g.t.Sources = append(g.t.Sources, trace.Source{Name: addr.String(), Addr: addr, Role: role})
	return int32(len(g.t.Sources) - 1)
}

// send adds a request, unless it lies outside the workload's duration.
func (g *generator) send(source int32, at float64) {
	t := time.Duration(at * float64(time.Second))
	if t < 0 || t >= g.o.Duration || g.full {
		return
	}
	if len(g.t.Requests) == requestsMax {
		g.full = true
		return
	}
	r := trace.Request{At: t, Source: source, Role: g.role, Reset: g.reset, Method: "GET",
		Host: "demo.test", Path: g.path}
	if g.method != "" {
		r.Method = g.method
	}
	if r.Path == "" {
		r.Path = [...]string{"/", "/news", "/about", "/search?q=weir", "/products/1", "/products/2",
			"/style.css", "/app.js"}[g.rng.IntN(8)]
	}
	g.t.Requests = append(g.t.Requests, r)
}

// even sends at an even rate from one time until another, every request anywhere in the first half
// of its turn. So no window holds more than rate*window + 1.5 requests.
func (g *generator) even(source int32, rate, from, until float64) {
	step := 1 / rate
	for i := 0; ; i++ {
		turn := from + float64(i)*step
		if turn >= until || g.full {
			return
		}
		g.send(source, turn+g.rng.Float64()*step/2)
	}
}

// modest is an even rate that is the given share of the limit's, lowered so far that no window ever
// holds more than the limit, and no more than most.
func (g *generator) modest(share, most float64) float64 {
	limit := float64(g.o.Limit)
	per := min(share*limit, limit-1.5)
	if limit <= 2 {
		per = 0.4
	}
	return min(per/g.o.Window.Seconds(), most)
}

func (g *generator) seconds() float64 { return g.o.Duration.Seconds() }

// between is evenly distributed.
func (g *generator) between(low, high float64) float64 { return low + g.rng.Float64()*(high-low) }

// innocents are programs that keep just below the limit: three of four with an even pace, at 97 %,
// 98.5 % and 99.2 % of it, and one that varies each gap by a fifth, at 95 %, or at 80 % of a limit
// up to 10. That one waits where another request would be over the limit, or might be by the clocks
// of the edges.
func (g *generator) innocents() {
	limit, window := int(g.o.Limit), g.o.Window.Seconds()
	sources := max(24, 240/limit)
	for i := range sources {
		s, share, varied := g.good(), [...]float64{0.97, 0.985, 0.992, 0.95}[i%4], i%4 == 3
		if varied && limit <= 10 {
			share = 0.8
		}
		var sent []float64
		for t := g.rng.Float64() * window; t < g.seconds(); {
			g.send(s, t)
			gap := 1 / (share * g.limitRate())
			if varied {
				gap *= g.between(0.8, 1.2)
			}
			sent = append(sent, t)
			if t += gap; len(sent) >= limit {
				t = max(t, sent[len(sent)-limit]+window+g.o.Apart.Seconds()+1e-6)
			}
		}
	}
}

// goodSources is so many good sources that send at most so many requests per second together, from
// a time until another: half of them evenly, half in pages: a burst below the limit, then at least
// a window's pause.
func (g *generator) goodSources(n int, rate, from, until float64) {
	window := g.o.Window.Seconds()
	for i := range n {
		s := g.good()
		each := g.modest(g.between(0.2, 0.6), rate/float64(n))
		if i%2 == 0 {
			g.even(s, each, from+g.rng.Float64()/each, until)
			continue
		}
		page := max(1, min(0.6*float64(g.o.Limit), 12))
		for t := from + g.rng.Float64()*window; t < until; {
			n := 1 + g.rng.IntN(int(page))
			for range n {
				g.send(s, t+g.rng.Float64())
			}
			t += window + 1 + g.rng.ExpFloat64()*max(float64(n)/each-window, 0.1)
		}
	}
}
