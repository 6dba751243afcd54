package edge

import (
	"time"

	"sluice/counter"
	"sluice/mitigation"
)

// closedRetry is what a client is told to wait that a rule refused because its node is down: a node that has come back is
// used again within two seconds.
const closedRetry = 2 * time.Second

// Verdict is what became of a request under a rule, or under all of them.
type Verdict uint8

const (
	Passed    Verdict = iota
	Limited           // this request would have been over the limit
	Mitigated         // a mitigation is in force; no counter was asked
	Shadowed          // a shadow rule would have refused it
	Shut              // the rule's node is down and the rule fails closed
	verdicts
)

func (v Verdict) String() string {
	return [...]string{"pass", "limited", "mitigated", "shadow", "closed"}[v]
}

// A limiter decides. It knows nothing of HTTP: rules that match come in, a verdict comes out.
type limiter struct {
	table  *counter.Table
	bits   *mitigation.Table
	tier   Tier
	budget time.Duration // of a wait at first sight
}

// A decision is the life of one decision. It is used again for the next, so that deciding allocates nothing; nothing of it
// may be kept.
type decision struct {
	Verdict Verdict // of all rules together
	Rule    *matter // what the client is told: the longest wait, or the least left; nil: nothing
	Named   *matter // what the verdict comes from, for the verdict header; a shadow's perhaps

	cases []matter
	asks  []counter.Ask
	found []*rule
	buf   []byte
	held  bool
}

// A matter is one rule that a request falls under, and what it says.
type matter struct {
	rule    *rule
	source  counter.Source
	verdict Verdict
	wait    time.Duration // until a retry is admitted, if refused
	until   time.Time     // end of the mitigation; zero: there is none
	ask     *counter.Ask  // nil: its counter was not asked
	skip    bool          // the node is down and the rule does without it
}

func (d *decision) reset() {
	clear(d.cases[:cap(d.cases)]) // rules of an old snapshot should not live on in here
	*d = decision{cases: d.cases[:0], asks: d.asks[:0], found: d.found[:0], buf: d.buf}
}

func (d *decision) add(r *rule, s counter.Source) {
	d.cases = append(d.cases, matter{rule: r, source: s})
}

// refused reports whether the client is to be refused.
func (d *decision) refused() bool {
	return d.Verdict == Limited || d.Verdict == Mitigated || d.Verdict == Shut
}

// decide judges a request under the rules added to d. The order is: mitigations first, because they cost nothing; then
// rules that fail closed; then all counters at once.
func (l *limiter) decide(d *decision, now time.Time) {
	if len(d.cases) == 0 {
		return
	}
	if !l.mitigated(d, now) && !l.shut(d) {
		l.question(d)
		l.await(d, now)
		l.count(d, now)
	}
	d.conclude()
}

// mitigated looks for bits, and reports whether one of an enforcing rule is in force: then no counter is asked.
func (l *limiter) mitigated(d *decision, now time.Time) (refused bool) {
	for i := range d.cases {
		c := &d.cases[i]
		until := l.bits.Until(mitigation.Key{Rule: c.rule.counter.ID, Source: c.source}, now)
		if until.IsZero() {
			continue
		}
		c.verdict, c.until, c.wait = Mitigated, until, until.Sub(now)
		if c.rule.shadow {
			c.verdict = Shadowed
		} else {
			refused = true
		}
	}
	return refused
}

// shut finds rules that fail closed while the source's node is down, and reports whether one refuses.
func (l *limiter) shut(d *decision) (refused bool) {
	if l.tier.Up == nil {
		return false
	}
	for i := range d.cases {
		c := &d.cases[i]
		p := c.rule.config.OnStoreFailure
		if p == Local || c.verdict == Shadowed || l.tier.Up(c.source) {
			continue
		}
		c.rule.tally.failed(p)
		c.skip = true
		switch {
		case p == Open:
		case c.rule.shadow:
			c.verdict = Shadowed
		default:
			c.verdict, c.wait, refused = Shut, closedRetry, true
		}
	}
	return refused
}

// question puts the counters to be asked together. The slice has its full length before anything points into it.
func (l *limiter) question(d *decision) {
	for i := range d.cases {
		c := &d.cases[i]
		if c.skip || c.verdict != Passed {
			continue
		}
		d.held = d.held || c.rule.hold
		d.asks = append(d.asks, counter.Ask{
			Rule: c.rule.counter, Source: c.source, Hits: 1,
			Hold: c.rule.hold, Shadow: c.rule.shadow, Always: c.rule.config.Count.Refused,
		})
	}
	next := 0
	for i := range d.cases {
		if c := &d.cases[i]; !c.skip && c.verdict == Passed {
			c.ask = &d.asks[next]
			next++
		}
	}
}

// await gives the tier time to say what it knows of a source that this edge does not know, where a rule asks for that.
func (l *limiter) await(d *decision, now time.Time) {
	var timer *time.Timer
	for i := range d.cases {
		c := &d.cases[i]
		if c.ask == nil || c.rule.config.FirstSight != Wait || l.budget <= 0 || l.tier.Ask == nil {
			continue
		}
		if v, there := l.table.Peek(c.rule.counter, c.source, now); there && v.Known || l.tier.Up != nil && !l.tier.Up(c.source) {
			continue
		}
		heard, first := l.table.Await(c.rule.counter, c.source) // before asking, or the answer could come unheard
		if first {
			l.tier.Ask(c.rule.counter, c.source)
		}
		if timer == nil {
			timer = time.NewTimer(l.budget) // one budget for all rules
			defer timer.Stop()
		}
		select {
		case <-heard:
		case <-timer.C:
			return
		}
	}
}

// count asks all counters together, and starts mitigations where the answer is no.
func (l *limiter) count(d *decision, now time.Time) {
	if len(d.asks) == 0 || l.table.Reserve(d.asks, now) && !d.shadows() {
		return
	}
	for i := range d.cases {
		c := &d.cases[i]
		if c.ask == nil || !c.ask.Over {
			continue
		}
		c.verdict, c.wait = Limited, c.ask.RetryAfter
		if c.rule.shadow {
			c.verdict = Shadowed
		}
		if end := mitigation.End(c.ask.Verdict, c.rule.timeout, now); !end.IsZero() {
			key := mitigation.Key{Rule: c.rule.counter.ID, Source: c.source}
			l.bits.Start(key, mitigation.Bit{Start: now, End: end, By: mitigation.ByEdge}, now)
			c.until, c.wait = end, end.Sub(now)
		}
	}
}

func (d *decision) shadows() bool {
	for i := range d.asks {
		if d.asks[i].Shadow {
			return true
		}
	}
	return false
}

// conclude makes one verdict of all: the strictest refusal, which is the longest wait; else the rule with the least left.
// It counts the request in each rule: what the rule said of it, or, where another refused it before this one was asked,
// that this one had nothing against it.
func (d *decision) conclude() {
	var refusal, least, shadow, other *matter
	for i := range d.cases {
		c := &d.cases[i]
		c.rule.tally.verdicts[c.verdict].Add(1)
		switch {
		case c.verdict == Shadowed:
			if shadow == nil || c.wait > shadow.wait {
				shadow = c
			}
		case c.verdict != Passed:
			if refusal == nil || c.wait > refusal.wait {
				refusal = c
			}
		case c.ask == nil:
		case c.rule.shadow:
			other = c
		case least == nil || c.ask.Remaining < least.ask.Remaining:
			least = c
		}
	}
	switch {
	case refusal != nil:
		d.Verdict, d.Rule, d.Named, d.held = refusal.verdict, refusal, refusal, false
	case shadow != nil:
		d.Verdict, d.Rule, d.Named = Shadowed, least, shadow
	case least != nil:
		d.Rule, d.Named = least, least
	default:
		d.Named = other
	}
}

// settle counts what had to wait for the origin's answer: status is its status, or 0 if there was none.
func (l *limiter) settle(d *decision, status int, now time.Time) {
	if !d.held {
		return
	}
	d.held = false
	for i := range d.cases {
		c := &d.cases[i]
		switch {
		case c.ask == nil || !c.rule.hold || c.ask.Over:
		case status != 0 && c.rule.counts(status):
			l.table.Commit(c.ask, now)
		default:
			l.table.Cancel(c.ask)
		}
	}
}
