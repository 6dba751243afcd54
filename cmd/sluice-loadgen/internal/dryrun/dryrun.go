// Package dryrun judges requests that are over as an edge would have: the sources, lists, rules and
// the limiter of one, without HTTP.
package dryrun

import (
	"net/netip"
	"slices"
	"time"

	"sluice/counter"
	"sluice/edge"
	"sluice/edge/address"
	"sluice/edge/config"
	"sluice/edge/limiter"
	"sluice/edge/message"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
	"sluice/mitigation"
)

// A Run judges requests that are over, those of an access log, as an edge with this configuration
// would have: with the same sources, lists, rules and limiter, at the times that its caller gives.
// It counts alone. It is for one goroutine.
//
// A log has no headers but User-Agent. So a rule that distinguishes clients by another one or a
// cookie counts each source as one that sent none, and one about requests with such is about none
// of a log. Nobody is on a plan but the default one: no store is read. Of nobody is known how long
// the body of a request was, or what the origin's answer said: where that is the cost, it is 1. Of what modules find out there is
// nothing: no log has TLS or passes.
type Run struct {
	sources     *address.Sources
	deny, allow *address.Group
	rules       *rules.Set
	positions   map[*limiter.Rule]position
	limiter     limiter.Limiter
	decision    rules.Decision
	request     message.Request // with one header at most
	host        []byte
	target      []byte
	outcome     Outcome
}

var userAgent = []byte("User-Agent")

// position is where a limit is: as an index of Config.Rules, and of Limits.
type position struct{ rule, limit int }

// Request is a request as a log has it.
type Request struct {
	Addr                 netip.Addr // of the client
	Method, Host, Target string     // an empty or impossible Host is no host
	Status               int        // of the origin's answer; 0: not known
	Agent                string     // User-Agent; "": there was none, or it is not known
}

// Outcome is what would have become of a request.
type Outcome struct {
	Denied, Allowed bool // by the lists; then no rule was asked
	Refused         bool // by a rule
	Challenged      bool // in place of that: an edge asks for a pass, and lets in who shows one
	// An edge answers 400 or 414, because origins may read it in several ways, or it is too long
	// for a rule; then no rule was asked
	Malformed bool
	Rule      int // the one in the client's headers, as an index of Config.Rules; -1: none
	Cases     []RuleOutcome
}

// RuleOutcome is one limit of a rule that a request falls under.
type RuleOutcome struct {
	Rule    int            // index of Config.Rules
	Limit   int            // index of Limits
	Source  counter.Source // whom it counts
	Refuses bool           // it refuses, or would if it were not a shadow
	Over    bool           // because of this request, and not of a mitigation in force
	Counts  bool           // an answer with this status is one that the rule counts
	// It goes on, and waits so long for its turn; a shadow's would be so long
	Delay time.Duration
}

// New makes a Run that counts in table and blocks in bits. Of c it takes source, lists, deny, allow
// and rules.
func New(c *config.Config, table *counter.Table, bits *mitigation.Table) (*Run, error) {
	defaults := c.RuleDefaults()
	found, err := facts(c)
	if err != nil {
		return nil, err
	}
	defaults.Facts = found
	for i := range defaults.Actions {
		defaults.Actions[i].Apart = "" // nothing by which requests are counted apart is known
	}
	set, err := rules.New(c.Rules, defaults, func(string) *rules.Tally { return new(rules.Tally) })
	if err != nil {
		return nil, err
	}
	r := &Run{
		sources: address.NewSources(c.Source),
		deny:    address.NewGroup(c.Deny, key.Marked(found, c.DenyMarked)...),
		allow:   address.NewGroup(c.Allow, key.Marked(found, c.AllowMarked)...),
		rules:   set, positions: make(map[*limiter.Rule]position),
		limiter: limiter.Limiter{Counters: table, Blocks: bits},
	}
	if _, err := set.Vary(nil); err != nil {
		return nil, err
	}
	at := 0
	for i, rule := range set.All {
		for _, l := range rule.Limits {
			r.positions[l.Rule] = position{i, at}
			at++
		}
		for _, v := range rule.Variants() { // in the place of their rule
			r.positions[&v.Rule] = r.positions[&rule.Rule]
		}
	}
	return r, nil
}

// facts are those that rules may ask for. A log has what follows from an address; others are not
// known of any request.
func facts(c *config.Config) (list []*key.Fact, err error) {
	here := *c
	here.StateDir = "" // an edge's
	for _, m := range Modules() {
		found := m.Config.Facts
		if slices.ContainsFunc(found, func(f *key.Fact) bool { return f.Mark != "" }) {
			points, err := m.Prepare(&edge.Setup{Config: &here})
			if err != nil {
				return nil, err
			}
			found = points.Facts
		}
		for _, f := range found {
			if f.Find == nil && f.In == nil {
				unknown := *f
				unknown.Find = func(buf []byte, _ *key.View) []byte { return buf }
				f = &unknown
			}
			list = append(list, f)
		}
	}
	return list, nil
}

// Limits are those of all rules, in the order of Config.Rules: of most rules one.
func (r *Run) Limits() (list []rules.Limit) {
	for _, rule := range r.rules.All {
		list = append(list, rule.Limits...)
	}
	return list
}

// Judge judges a request that came at now, which is not before the one judged last. The answer is
// valid until the next call.
func (r *Run) Judge(q Request, now time.Time) *Outcome {
	outcome := &r.outcome
	*outcome = Outcome{Rule: -1, Cases: outcome.Cases[:0]}
	addr := counter.Plain(q.Addr)
	outcome.Denied, outcome.Allowed = address.Listed(r.deny.Bits(address.Single(addr)),
		r.allow.Bits(address.Single(addr)))
	if outcome.Denied || outcome.Allowed {
		return outcome
	}
	var ok bool
	r.target = append(r.target[:0], q.Target...)
	path, readings := message.AppendPath(nil, r.target)
	if r.host, ok = message.AppendHost(r.host[:0], []byte(q.Host)); !ok {
		r.host = r.host[:0]
	}
	d := &r.decision
	d.Reset()
	source := r.sources.Of(addr)
	if !d.MatchBlocked(r.rules, &r.limiter, key.Secret{}, addr, source, nil, now) {
		d.Match(r.rules, r.host, path, r.target, []byte(q.Method), readings&^message.TooMany)
	}
	r.request.Target, r.request.Host, r.request.Path, r.request.Readings = r.target, r.host, path,
		readings&^message.TooMany
	r.request.Head.Reset()
	if q.Agent != "" {
		if err := r.request.Head.Add(userAgent, []byte(q.Agent), 1); err != nil {
			panic(err) // there is room for one
		}
	}
	if d.AddRules(key.Secret{}, &r.request, addr, source) != nil {
		d.Reset()
		outcome.Malformed = true
		return outcome
	}
	r.limiter.Decide(&d.Decision, now)
	outcome.Refused = d.Refused()
	for i := range d.Results {
		c := &d.Results[i]
		at := r.positions[c.Rule]
		delay := time.Duration(0)
		if c.Reservation != nil && c.Verdict == limiter.Passed && !outcome.Refused {
			delay = min(c.Reservation.Delay, limiter.MaxDelay)
		}
		outcome.Cases = append(outcome.Cases, RuleOutcome{
			Rule: at.rule, Limit: at.limit, Source: c.Source, Refuses: c.Verdict != limiter.Passed,
			Over:   c.Reservation != nil && c.Reservation.Over,
			Counts: c.Rule.Counts(q.Status), Delay: delay,
		})
	}
	if outcome.Refused {
		outcome.Challenged = d.Action() == Challenge
		outcome.Refused = !outcome.Challenged
		outcome.Rule = r.positions[d.Reported.Rule].rule
	}
	r.limiter.Settle(&d.Decision, q.Status, now)
	return outcome
}
