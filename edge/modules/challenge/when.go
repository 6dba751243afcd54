package challenge

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"sluice/edge"
	"sluice/edge/beat"
	"sluice/edge/config"
	"sluice/edge/events"
	"sluice/edge/rules"
	"sluice/edge/upstream"
	"sluice/mitigation"
)

// A When is when a rule challenges all that come under it, over its limit or not.
type When struct {
	// OriginLatencyP95 is how long one answer in twenty of the rule's origins may take to begin.
	OriginLatencyP95 rules.Duration `json:"origin_latency_p95" want:"0, or 10ms to 30s"`
}

const whenName = "when"

// WhenModule adds the field when to rules. Module does what it says.
func WhenModule() edge.Module {
	return edge.Module{Name: whenName, Config: config.Module{Rule: func() any { return new(When) }}}
}

// whenOf is what a rule says; 0: nothing.
func whenOf(c *rules.Config) time.Duration {
	if own, is := c.Own[whenName].(*When); is {
		return time.Duration(own.OriginLatencyP95)
	}
	return 0
}

// While latency is over its bound for slowFor, the rule challenges everybody. It stops once latency
// has been under calmShare of the bound for calmFor, and after a hold, because a challenge that
// relieves an origin would else end at once, and begin again. The hold doubles each time that it
// does so within comesBack.
const (
	looked    = 10 * time.Second // answers of so long
	fewest    = 20               // of fewer nothing is said
	slowFor   = 3 * time.Second
	calmShare = 0.7
	calmFor   = time.Minute
	leastHold = 2 * time.Minute
	mostHold  = 32 * time.Minute
	comesBack = 10 * time.Minute
)

// A trigger decides when a rule challenges everybody.
type trigger struct {
	over       time.Duration // the bound
	on         bool
	off        bool          // by hand: it stays so until the origin is calm
	slow, calm time.Time     // since when; zero: it is not
	began      time.Time     // to challenge everybody
	ended      time.Time     // the last time; zero: it never did
	hold       time.Duration // at least
}

// step says what latency is at now; less than 0: unknown, which is taken for calm.
func (t *trigger) step(latency time.Duration, now time.Time) {
	since := func(at *time.Time, is bool) time.Duration {
		if !is {
			*at = time.Time{}
		} else if at.IsZero() {
			*at = now
		}
		if at.IsZero() {
			return -1
		}
		return now.Sub(*at)
	}
	slow := since(&t.slow, latency > t.over)
	calm := since(&t.calm, latency < time.Duration(calmShare*float64(t.over)))
	switch {
	case t.on && calm >= calmFor && now.Sub(t.began) >= t.hold:
		t.on, t.ended = false, now
	case t.on:
	case t.off:
		t.off = calm < calmFor
	case slow >= slowFor:
		if t.ended.IsZero() || now.Sub(t.ended) > comesBack {
			t.hold = leastHold / 2
		}
		t.on, t.began, t.hold = true, now, min(2*t.hold, mostHold)
	}
}

// byHand is that an operator has ended it.
func (t *trigger) byHand(now time.Time) { t.on, t.off, t.ended = false, true, now }

// latencies are how fast a rule's origins have answered, second by second.
type latencies struct {
	counts []map[float64]uint64 // cumulative, by upper bound in seconds, the oldest first
	totals []uint64
}

// add takes in what the histograms of origins say, and returns the 95th percentile of the answers
// since looked before; less than 0: there were too few.
func (l *latencies) add(origins []*upstream.Origin) time.Duration {
	sum, total := make(map[float64]uint64), uint64(0)
	for _, o := range origins {
		counts, n, _ := o.Seconds.Snapshot()
		for bound, c := range counts {
			sum[bound] += c
		}
		total += n
	}
	l.counts, l.totals = append(l.counts, sum), append(l.totals, total)
	if most := int(looked/time.Second) + 1; len(l.totals) > most {
		l.counts, l.totals = l.counts[1:], l.totals[1:]
	}
	if total < l.totals[0] { // there are other origins now
		*l = latencies{counts: l.counts[len(l.counts)-1:], totals: l.totals[len(l.totals)-1:]}
	}
	n := total - l.totals[0]
	if n < fewest {
		return -1
	}
	bounds := make([]float64, 0, len(sum))
	for bound := range sum {
		bounds = append(bounds, bound)
	}
	slices.Sort(bounds)
	want, below, under := 0.95*float64(n), 0.0, uint64(0)
	for _, bound := range bounds {
		upTo := sum[bound] - min(sum[bound], l.counts[0][bound])
		if float64(upTo) >= want {
			seconds := below + (bound-below)*(want-float64(under))/float64(upTo-under)
			return time.Duration(seconds * float64(time.Second))
		}
		below, under = bound, upTo
	}
	return math.MaxInt64 // longer than the last bound
}

// A watched rule is one with when.
type watched struct {
	trigger
	latencies
	end time.Time // of what was in force against everybody a second ago; zero: nothing was
}

// run looks at origins once a second, from the first configuration on under which a rule wants it.
func (m *module) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-m.watches:
	}
	all := make(map[string]*watched)
	beat.Every(ctx, time.Second, func(now time.Time) { m.inForce.Load().watch(all, now) })
}

// watch puts rules in force against everybody, and out again.
func (p *points) watch(all map[string]*watched, now time.Time) {
	for name := range all {
		if r := p.rules[name]; r == nil || r.over != all[name].over {
			delete(all, name) // what is in force ends with its lease
		}
	}
	for _, r := range p.list {
		if r.over == 0 {
			continue
		}
		w := all[r.name]
		if w == nil {
			w = &watched{trigger: trigger{over: r.over}}
			all[r.name] = w
		}
		if live := p.setup.Rules().ByName(r.name); live != nil {
			p.drive(w, live, now)
		}
	}
}

// lease is for how long a rule is in force against everybody unless that is renewed, so that it
// ends if nobody watches any more.
const lease = 30 * time.Second

// drive takes a trigger a second on. What it puts in force is an order that this edge gives to
// itself: of operators' own it leaves what there is.
func (p *points) drive(w *watched, r *rules.Rule, now time.Time) {
	blocks := p.setup.Limiter.Blocks
	k := mitigation.Key{Rule: r.Counter.ID, Source: rules.Everybody}
	bit, in := blocks.Get(k, now)
	mine := in && bit.Who == whenName
	was := w.on
	if was && !in && now.Before(w.end) {
		w.byHand(now)
		p.happened(r, slog.LevelInfo, "an operator has ended the challenge of everybody, which comes back once the origin was calm", now)
		was = false
	}
	latency := w.add(originsOf(p.setup.Origins(), r.Config.Match.Hosts))
	w.step(latency, now)
	reason := fmt.Sprintf("origin_latency_p95 over %s", rules.Duration(w.over))
	switch {
	case w.on && (!in || mine && bit.End.Sub(now) < lease/2):
		blocks.Start(k, mitigation.Bit{Start: now, End: now.Add(lease), By: mitigation.ByAdmin,
			Who: whenName, Reason: reason}, now)
	case was && !w.on && mine:
		blocks.Lift(k, now)
	}
	w.end = blocks.Until(k, now)
	switch {
	case w.on && !was:
		p.happened(r, slog.LevelWarn, fmt.Sprintf("challenges everybody: origin_latency_p95 is %v, over %s",
			latency.Round(time.Millisecond), rules.Duration(w.over)), now)
	case was && !w.on:
		p.happened(r, slog.LevelInfo, "challenges those over its limit again, and nobody else: origin_latency_p95 is under "+
			rules.Duration(calmShare*float64(w.over)).String(), now)
	}
}

func (p *points) happened(r *rules.Rule, level slog.Level, text string, now time.Time) {
	p.setup.Events.Add(events.Event{Time: now, Kind: events.Warning, Level: level, Rule: r.Config.Name,
		Text: text})
}

// originsOf are the origins of hosts; all, where a pattern may be about any.
func originsOf(of *upstream.Origins, hosts []string) (list []*upstream.Origin) {
	if len(hosts) == 0 || slices.ContainsFunc(hosts,
		func(host string) bool { return strings.Contains(host, "*") }) {
		return of.All
	}
	for _, host := range hosts {
		if g := of.Of([]byte(host)); g != nil {
			list = append(list, g.Servers...)
		}
	}
	slices.SortFunc(list, func(a, b *upstream.Origin) int { return strings.Compare(a.Name, b.Name) })
	return slices.Compact(list)
}
