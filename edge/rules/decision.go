package rules

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/counter"
	"sluice/edge/limiter"
	"sluice/edge/limiter/shedding"
	"sluice/edge/message"
	"sluice/edge/plans"
	"sluice/edge/rules/key"
	"sluice/mitigation"
)

// A Decision is a limiter's, with the edge's own of every rule.
type Decision struct {
	limiter.Decision
	// In the order of Results, of which a rule has one for each of its limits that counts the
	// client
	Rules   []*Rule
	asked   []*Rule  // those that look at values of the request, whatever came of it
	request key.View // what rules have looked at
	keys    []keyed
	buf     []byte
	onPlans []onPlan // of Rules, those that know their clients by plans
	// The answer's body, read for rules that it tells what the request costs, unless it is
	// compressed
	readings []reading
	encoded  bool
	// Bytes that regular expressions have to see; more than MaxSearched: they do not
	searched int

	Level shedding.Level // the highest that a rule sets
	Queue time.Duration  // the longest

	Plans *plans.Snapshot // which client is on which plan; nil: none. Set it before AddRules
}

// onPlan is what counts the request under a rule by the client's plan.
type onPlan struct {
	index int // in Decision.Rules
	tally *PlanTally
}

// planTally is what counts the request under the i-th of d.Rules by the client's plan; nil: nothing
// does.
func (d *Decision) planTally(i int) *PlanTally {
	for _, on := range d.onPlans {
		if on.index == i {
			return on.tally
		}
	}
	return nil
}

// keyed is what a key makes of the request.
type keyed struct {
	key    string
	source counter.Source
	client *plans.Client // what plans say of it, once found
	found  bool

	counts bool // a rule counts by it
	named  bool // it is of something that clients choose, and that the request has
	start  key.Start
}

// Keys appends those that rules count the request by, of what it has that clients choose: not the
// address, which counts where that is missing.
func (d *Decision) Keys(to []key.Counted) []key.Counted {
	for i := range d.keys {
		if k := &d.keys[i]; k.counts && k.named {
			to = append(to, key.Counted{By: k.key, Digest: k.source, Start: k.start})
		}
	}
	return to
}

// Against reports whether a rule that counts a source has refused the request, and whether a shadow
// would have.
func (d *Decision) Against(source counter.Source) (refused, spared bool) {
	for i := range d.Results {
		if r := &d.Results[i]; r.Source == source {
			refused = refused || r.Verdict == limiter.Limited || r.Verdict == limiter.Mitigated ||
				r.Verdict == limiter.FailedClosed
			spared = spared || r.Verdict == limiter.Shadowed && !r.Rule.Observer
		}
	}
	return refused, spared && !refused
}

// Reset makes d ready for the next request.
func (d *Decision) Reset() {
	d.Decision.Reset()
	d.request.Reset()
	clear(d.Rules)
	clear(d.asked)
	clear(d.keys)
	clear(d.onPlans)
	d.onPlans = d.onPlans[:0]
	d.Rules, d.asked, d.keys = d.Rules[:0], d.asked[:0], d.keys[:0]
	d.readings = d.readings[:0]
	d.Level, d.Queue, d.searched = 0, 0, 0
}

// MatchBlocked adds the rules about everything, and no others, if one of them blocks the source
// whatever it requests, and reports whether it does. Then the limiter refuses the request by that,
// so its other rules are not searched: that may cost much, and a blocked source could cause it
// again and again. In those other rules the request counts as nothing at all, not even as one that
// they let pass.
//
// If the block is lifted in this very moment, the request is under these rules alone.
func (d *Decision) MatchBlocked(s *Set, l *limiter.Limiter, secret key.Secret, client netip.Addr,
	source counter.Source, covering []counter.Source, now time.Time) bool {
	if len(s.Everything) == len(s.Rules) {
		return false // there are no others
	}
	for _, r := range s.Everything {
		if r.IsSure(secret, source) && r.Blocks(l, client, source, covering, now) {
			d.Rules = append(d.Rules, s.Everything...)
			return true
		}
	}
	return false
}

// Blocks reports whether one of the limits of a rule that counts by source refuses all requests of
// a source now, because of a mitigation.
func (r *Rule) Blocks(l *limiter.Limiter, client netip.Addr, source counter.Source,
	covering []counter.Source, now time.Time) bool {
	_, blocks := r.Blocked(l, client, source, covering, now)
	return blocks
}

// Blocked is Blocks, and also returns the source that the limit counts.
func (r *Rule) Blocked(l *limiter.Limiter, client netip.Addr, source counter.Source,
	covering []counter.Source, now time.Time) (counter.Source, bool) {
	for i := range r.Limits {
		at := &r.Limits[i]
		if s, counts := at.Of(source, client); counts && l.IsBlocked(at.Rule, s, covering, now) {
			return s, true
		}
	}
	return counter.Source{}, false
}

// BlocksPrefix returns until when a rule that counts by source refuses whatever comes from a
// prefix, or the zero Time. It is Blocks for each address in it: a source that is narrower than the
// prefix does not cover the rest. covering are those of the prefix.
func (r *Rule) BlocksPrefix(l *limiter.Limiter, p netip.Prefix, source counter.Source,
	covering []counter.Source, now time.Time) (until time.Time) {
	for i := range r.Limits {
		at := &r.Limits[i]
		s, counts := at.Of(source, p.Addr())
		if all, ok := s.Prefix(); !counts || !ok || all.Bits() > p.Bits() {
			continue
		}
		if end := l.BlockedUntil(at.Rule, s, covering, now); end.After(until) {
			until = end
		}
	}
	return until
}

// Match adds the rules about a request, each once: those that match any reading of its path. For a
// request without a host it is called for each that the origin may assume.
func (d *Decision) Match(s *Set, host, path, target, method []byte, readings message.Interpretation) {
	n := len(d.Rules)
	d.searched += len(message.RawPath(target)) * (1 + readings.Several())
	long := d.searched > MaxSearched
	d.Rules = s.index.Find(d.Rules, host, path, method, long)
	for as := message.Interpretation(1); as <= readings; as++ {
		if readings.Has(as) {
			d.buf, _ = message.Canonicalize(d.buf[:0], message.RawPath(target), as)
			d.Rules = s.index.Find(d.Rules, host, d.buf, method, long)
		}
	}
	if n == 0 && readings == 0 {
		return
	}
	once := d.Rules[:0]
	for _, r := range d.Rules {
		if !slices.Contains(once, r) {
			once = append(once, r)
		}
	}
	clear(d.Rules[len(once):])
	d.Rules = once
}

// AddRules puts d.rules to the limiter: each counts the client's source, or what its key makes of
// the request. Those that its headers, cookies or parameters leave out, and those whose share does
// not include the source, are left out. If an origin could read one of those otherwise than the
// edge, or the path is too long for a rule, it returns the answer to that.
func (d *Decision) AddRules(secret key.Secret, q *message.Request, client netip.Addr,
	source counter.Source) *message.Refusal {
	d.request.Request, d.request.Client = q, client
	about := d.Rules[:0]
	for _, r := range d.Rules {
		var byPlan *PlanTally
		if r.when != nil {
			var hold bool
			var bad *key.Part
			d.asked = append(d.asked, r)
			if hold, d.buf, bad = r.when.Hold(&d.request, client, d.buf); bad != nil && !r.Observer {
				return bad.Refusal()
			}
			if !hold || bad != nil {
				continue
			}
		}
		if r.plans != nil {
			d.asked = append(d.asked, r)
			who, bad := d.account(r.plans, secret, source)
			if bad != nil {
				return bad.Refusal()
			}
			of := r.plans
			var plan string
			if r, plan = of.choose(r, who); r == nil {
				continue
			}
			byPlan = of.tallyOf(plan)
		} else if of := r.knows(); of != nil {
			who, bad := d.account(of, secret, source)
			if bad != nil {
				return bad.Refusal()
			}
			r, _ = of.choose(r, who)
		}
		s := source
		if r.Parts != nil {
			i := slices.IndexFunc(d.keys, func(k keyed) bool { return k.key == r.key })
			if i < 0 {
				i = len(d.keys)
				var bad *key.Part
				if s, d.buf, bad = secret.Digest(r.Parts, &d.request, source,
					d.buf); bad != nil && r.Observer {
					continue
				} else if bad != nil {
					return bad.Refusal()
				}
				k := keyed{key: r.key, source: s}
				k.start, k.named = key.Look(r.Parts, d.buf, r.shows)
				d.keys = append(d.keys, k)
			}
			d.keys[i].counts = d.keys[i].counts || !r.Observer
			s = d.keys[i].source
		}
		if !r.IsAbout(secret, s) {
			continue
		}
		if d.searched > MaxSearched && r.Config.Match.IsSearched() {
			if r.Observer {
				continue
			}
			return message.TooLong
		}
		d.Level, d.Queue = max(d.Level, r.level), max(d.Queue, r.queue)
		if r.Config.Limit == 0 && r.InFlight == nil {
			r.Tally.Verdicts[limiter.Passed].Add(1)
			if byPlan != nil {
				byPlan.Verdicts[limiter.Passed].Add(1)
			}
			continue
		}
		if byPlan != nil {
			d.onPlans = append(d.onPlans, onPlan{len(about), byPlan})
		}
		about = append(about, r)
		n := len(d.Results)
		if r.several {
			d.addLimits(r, s, client, secret)
		} else {
			d.Add(&r.Rule, s)
		}
		if r.Costs {
			for i := range d.Results[n:] {
				price(&d.Results[n+i], &r.Config.Cost, q)
			}
		}
	}
	clear(d.Rules[len(about):])
	d.Rules = about
	return nil
}

// addLimits puts a rule's limits to the limiter.
func (d *Decision) addLimits(r *Rule, source counter.Source, client netip.Addr, secret key.Secret) {
	if r.apart != nil && d.request.Request != nil {
		if value := d.request.Fact(r.apart); value != nil {
			l := &r.Limits[len(r.Limits)-1]
			d.Add(l.Rule, secret.DigestOfFact(r.apart, value))
			d.Results[len(d.Results)-1].Instead = source
			return
		}
	}
	for i := range r.Limits {
		l := &r.Limits[i]
		if s, counts := l.Of(source, client); counts {
			d.Add(l.Rule, s)
		}
	}
}

// CountsApart reports whether a rule counts the request apart, for what it has.
func (d *Decision) CountsApart() bool {
	for i := range d.Results {
		if d.Results[i].Instead.IsValid() {
			return true
		}
	}
	return false
}

// Action is that by which the client of a refused request is answered: that of the rule which is
// reported, if all that refuse the request have it. Limits of what is counted apart refuse, and so
// does what cannot be counted.
func (d *Decision) Action() Action {
	if d.Verdict == limiter.FailedClosed {
		return Refuse
	}
	action := RuleOf(d.Reported).Config.Action
	for i := range d.Results {
		switch r := &d.Results[i]; r.Verdict {
		case limiter.FailedClosed:
			return Refuse
		case limiter.Limited, limiter.Mitigated:
			if l := LimitOf(r); l.apart || l.Parent.Config.Action != action || r.Crowded {
				return Refuse
			}
		}
	}
	return action
}

// Known is what is known of the request. AddRules has said which it is.
func (d *Decision) Known() *key.View { return &d.request }

// Tags appends the headers for the origin of a request that rules tag, each once: that of the first
// rule.
func (d *Decision) Tags(to []message.Field) []message.Field {
	if d.Verdict != limiter.Tagged {
		return to
	}
	for i := range d.Results {
		if d.Results[i].Verdict != limiter.Tagged {
			continue
		}
		if r := RuleOf(&d.Results[i]); !slices.ContainsFunc(to,
			func(f message.Field) bool { return strings.EqualFold(f.Name, r.tag.Name) }) {
			to = append(to, r.tag)
		}
	}
	return to
}

// TextOf is the text for answers about the limit of a result; of one that came with the request it
// is made anew.
func TextOf(result *limiter.RuleResult, client netip.Addr) *Text {
	if result.Counter != nil {
		r := RuleOf(result)
		came := []Limit{{Rule: &limiter.Rule{Rule: mitigation.Rule{Counter: result.Counter}},
			Parent: r, Policy: r.Config.Name}}
		text := newText(&came[0], policy(came, true), true)
		return &text
	}
	if result.Crowded {
		return RuleOf(result).Crowded
	}
	l := LimitOf(result)
	if client.Unmap().Is4() {
		return &l.Texts[0]
	}
	return &l.Texts[1]
}

// EachResult has the rules that the request is under, with what each of their limits says.
func (d *Decision) EachResult(yield func(*Rule, []limiter.RuleResult) bool) {
	next := 0
	for _, r := range d.Rules {
		results := d.resultsOf(r, next)
		if next += len(results); !yield(r, results) {
			return
		}
	}
}

// resultsOf are the results of the rule whose first one is from.
func (d *Decision) resultsOf(r *Rule, from int) []limiter.RuleResult {
	to := from + 1
	for r.several && to < len(d.Results) && RuleOf(&d.Results[to]) == r {
		to++
	}
	return d.Results[from:to]
}

// strictest returns the strictest result of a rule with several limits, whose first is from: the
// refusal with the longest wait; and where those of the next rule are.
func (d *Decision) strictest(r *Rule, from int) (most *limiter.RuleResult, next int) {
	results := d.resultsOf(r, from)
	most = &results[0]
	for i := 1; i < len(results); i++ {
		o := &results[i]
		if refuses, other := o.Verdict != limiter.Passed, most.Verdict != limiter.Passed; refuses &&
			(!other || o.Wait > most.Wait) || o.Skipped && !other {
			most = o
		}
	}
	return most, from + len(results)
}

// Tally counts the request in each rule, once: by its verdict, or, if another refused before this
// one decided, as passed. A rule that fails open, because no node answers, has given no verdict:
// that is no pass.
func (d *Decision) Tally() {
	next := 0
	for i, r := range d.Rules {
		result := &d.Results[next]
		if next++; r.several {
			result, next = d.strictest(r, next-1)
		}
		if result.Skipped {
			r.Tally.failed(r.OnStoreFailure)
			if result.Verdict == limiter.Passed {
				continue
			}
		}
		r.Tally.Verdicts[result.Verdict].Add(1)
		if byPlan := d.planTally(i); byPlan != nil {
			byPlan.Verdicts[result.Verdict].Add(1)
		}
	}
}

// Sample notes how much of each rule's limit the source has used, this request included: of several
// limits, of which most is used.
func (d *Decision) Sample() {
	from := 0
	for i, r := range d.Rules {
		results := d.resultsOf(r, from)
		from += len(results)
		used, asked := 0.0, false
		for i := range results {
			if ask := results[i].Reservation; ask != nil {
				used, asked = max(used, 100*ask.Estimate/float64(ask.Rule.Limit)), true
			}
		}
		if asked {
			r.Tally.Used.Observe(int64(used))
			if byPlan := d.planTally(i); byPlan != nil {
				byPlan.Used.Observe(int64(used))
			}
		}
	}
}

// Opened returns the rule that has let the request pass because no node answers; nil: none has.
func (d *Decision) Opened() *Rule {
	for i := range d.Results {
		if r := &d.Results[i]; r.Skipped && r.Verdict == limiter.Passed {
			return RuleOf(r)
		}
	}
	return nil
}

// AddHeaders adds the names of the headers that the rules about the request have looked at.
func (d *Decision) AddHeaders(names *message.Names) {
	for _, r := range d.asked {
		if r.plans != nil && r.plans.key[0].Kind == key.Header {
			names.Add(r.plans.key[0].Name)
		}
		r.when.AddHeaders(names)
	}
	for _, r := range d.Rules {
		for _, p := range r.Parts {
			if f := p.Fact(); f != nil && f.From != nil {
				p = *f.From
			}
			if p.Kind == key.Header {
				names.Add(p.Name)
			}
		}
	}
}
