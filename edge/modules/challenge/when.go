package challenge

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sluice/edge"
	"sluice/edge/beat"
	"sluice/edge/config"
	"sluice/edge/events"
	"sluice/edge/rules"
	"sluice/mitigation"
)

// A When is when a rule challenges all that come under it, over its limit or not.
type When struct {
	// OriginLatencyP95 is how long one answer in twenty for the rule's hosts may take to begin.
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

// A level is how fast answers begin.
type level uint8

const (
	calm level = iota // or unknown
	near
	slow
)

// step says how fast answers begin at now.
func (t *trigger) step(is level, now time.Time) {
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
	slow, calm := since(&t.slow, is == slow), since(&t.calm, is == calm)
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

// A pace is how fast origins answer requests for a rule's hosts. A request with a body is left out:
// how long that takes is for its client to say, who could have everybody challenged by it.
type pace struct {
	over                 time.Duration
	begun, ended         atomic.Uint64 // attempts at an origin, until an answer begins or none will
	answered, slow, warm atomic.Uint64 // those that were: in all, over the bound, over what is calm
}

// took notes that an attempt has ended after so long. Who leaves early says nothing of an origin.
func (p *pace) took(d time.Duration, answered bool) {
	p.ended.Add(1)
	if !answered && d <= p.over {
		return
	}
	p.answered.Add(1)
	if d > p.over {
		p.slow.Add(1)
	}
	if d > calmOf(p.over) {
		p.warm.Add(1)
	}
}

func calmOf(over time.Duration) time.Duration { return time.Duration(calmShare * float64(over)) }

// An attempt watches one request for the rules with when that are about its host.
type attempt struct {
	of    []*pace
	began time.Time // zero: none is under way
}

var attempts = sync.Pool{New: func() any { return new(attempt) }}

// isAbout reports whether the rule may be about requests for a host.
func (r *rule) isAbout(host []byte) bool {
	for _, h := range r.hosts {
		if string(host) == h {
			return true
		}
	}
	return len(r.hosts) == 0
}

// observe watches a request, where a rule wants to know how fast it is answered.
func (p *points) observe(x *edge.Exchange) edge.Watcher {
	if x.Length != 0 {
		return nil
	}
	var a *attempt
	for _, r := range p.list {
		if r.pace == nil || !r.isAbout(x.Host) {
			continue
		}
		if a == nil {
			a = attempts.Get().(*attempt)
		}
		a.of = append(a.of, r.pace)
	}
	if a == nil {
		return nil
	}
	return a
}

func (a *attempt) Attempt(string) {
	if !a.began.IsZero() {
		return // it connects again
	}
	a.began = time.Now()
	for _, p := range a.of {
		p.begun.Add(1)
	}
}

func (a *attempt) end(answered bool) {
	if a.began.IsZero() {
		return
	}
	took := time.Since(a.began)
	a.began = time.Time{}
	for _, p := range a.of {
		p.took(took, answered)
	}
}

func (a *attempt) Unreachable(error)          { a.end(false) }
func (a *attempt) Failed(error)               { a.end(false) }
func (a *attempt) Answered(int)               { a.end(true) }
func (a *attempt) AppendHead(b []byte) []byte { return b }

func (a *attempt) Ended(*edge.Outcome, bool) {
	a.end(false)
	clear(a.of)
	a.of = a.of[:0]
	attempts.Put(a)
}

// A sample is a pace at a moment.
type sample struct{ begun, ended, answered, slow, warm uint64 }

func (p *pace) sample() sample {
	// The end of an attempt comes after its beginning, so it is read first
	ended := p.ended.Load()
	return sample{p.begun.Load(), ended, p.answered.Load(), p.slow.Load(), p.warm.Load()}
}

// history is a rule's pace, second by second, the oldest first.
type history []sample

// add takes in a second, and says how fast answers were since looked before: slow, if more than one
// in twenty took longer than the bound or has been waited for that long.
func (h *history) add(now sample, over time.Duration) (is level, share float64) {
	waited := int((over + time.Second - 1) / time.Second)
	*h = append(*h, now)
	if most := max(int(looked/time.Second), waited) + 1; len(*h) > most {
		*h = (*h)[1:]
	}
	last := len(*h) - 1
	from := (*h)[max(0, last-int(looked/time.Second))]
	answered, late, warm := now.answered-from.answered, now.slow-from.slow, now.warm-from.warm
	// Of those that had begun so long ago, as many wait at least as have not ended
	if last >= waited {
		waits := (*h)[last-waited].begun
		waits -= min(waits, now.ended)
		answered, late, warm = answered+waits, late+waits, warm+waits
	}
	if answered < fewest {
		return calm, 0
	}
	share = float64(late) / float64(answered)
	switch {
	case late*20 > answered:
		return slow, share
	case warm*20 > answered:
		return near, share
	}
	return calm, share
}

// A watched rule is one with when.
type watched struct {
	trigger
	history
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
		if r := p.rules[name]; r == nil || r.over() != all[name].over {
			delete(all, name) // what is in force ends with its lease
		}
	}
	for _, r := range p.list {
		if r.pace == nil {
			continue
		}
		w := all[r.name]
		if w == nil {
			w = &watched{trigger: trigger{over: r.pace.over}}
			all[r.name] = w
		}
		if live := p.setup.Rules().ByName(r.name); live != nil {
			p.drive(w, live, r.pace.sample(), now)
		}
	}
}

// lease is for how long a rule is in force against everybody unless that is renewed, so that it
// ends if nobody watches any more.
const lease = 30 * time.Second

// drive takes a trigger a second on. What it puts in force is an order that this edge gives to
// itself: of operators' own it leaves what there is.
func (p *points) drive(w *watched, r *rules.Rule, pace sample, now time.Time) {
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
	is, late := w.add(pace, w.over)
	w.step(is, now)
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
		p.happened(r, slog.LevelWarn, fmt.Sprintf("challenges everybody: origin_latency_p95 is over %s, which %.0f %% of answers took",
			rules.Duration(w.over), 100*late), now)
	case was && !w.on:
		p.happened(r, slog.LevelInfo, "challenges those over its limit again, and nobody else: origin_latency_p95 is under "+
			rules.Duration(calmOf(w.over)).String(), now)
	}
}

func (p *points) happened(r *rules.Rule, level slog.Level, text string, now time.Time) {
	p.setup.Events.Add(events.Event{Time: now, Kind: events.Warning, Level: level, Rule: r.Config.Name,
		Text: text})
}
