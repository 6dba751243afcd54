package edge

import (
	"net/http"
	"net/netip"
	"slices"
	"time"

	"sluice/counter"
	"sluice/edge/address"
	"sluice/edge/control"
	"sluice/edge/limiter"
	"sluice/edge/message"
	"sluice/edge/proxy"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
	"sluice/edge/seen"
	"sluice/mitigation"
)

// admit takes a request up to its verdict. It reports whether the request goes on to the origin;
// else the answer is made.
func (x *Exchange) admit() bool { return (x.met || x.meet()) && x.decide() }

// meet finds out the source and the target of a request, and which rules apply. It reports whether
// there is something to decide; else the answer is made.
func (x *Exchange) meet() bool {
	x.met = true
	x.identify()
	if len(x.snap.watches) > 0 {
		x.watch()
	}
	if x.snap.sources.Distrust(&x.Head, x.trusted) {
		x.server.unbelieved.Hit(x.peer)
	}
	for _, name := range x.snap.tags {
		x.Head.OnlyFrom(false, name)
	}
	x.checks = x.snap.check.Is(x.Path, x.Target)
	if x.checks && (x.Tunnel || x.trusted && x.readCheck(x.snap.check) != nil) {
		x.respond(message.Refuse(http.StatusBadRequest, "bad_check",
			"The request to be judged is malformed, or given in two ways."))
		return false
	}
	switch {
	case !x.checks && x.answeredAt(x.snap.proofs):
		return false
	case x.isDenied():
		x.server.heaviest.refusals.Hit(x.source)
		x.server.stats.denied.Add(1)
		x.barred = true
		x.respond(refusedByList)
		return false
	case x.answeredAt(x.snap.gates):
		return false
	case !x.allowed:
		x.match()
	}
	return true
}

// stalls reports whether the verdict may have to wait. A request of a source that is blocked
// whatever it requests needs no such wait.
func (x *Exchange) stalls() bool {
	return slices.ContainsFunc(x.decision.Rules, (*rules.Rule).Stalls) && !x.isBlocked()
}

// decide has the rules decide, where the client is under any. It reports whether the request goes
// on to the origin; else the answer is made.
func (x *Exchange) decide() bool {
	if !x.allowed {
		switch no := x.judge(); {
		case no != nil:
			x.decision.Reset()
			if !x.charged() {
				x.respond(no)
			}
			return false
		case x.decision.Refused():
			if until := x.decision.Reported.Until; !until.IsZero() && x.action() == nil {
				x.front.Block(until, x.trusted)
			}
			x.refuse()
			x.reply.At = x.now
			if len(x.snap.sheds) > 0 && !x.decision.Reported.Until.IsZero() && !x.trusted &&
				slices.Contains(x.snap.sheds, rules.RuleOf(x.decision.Reported)) {
				x.front.Close()
			}
			return false
		}
	}
	x.front.Block(time.Time{}, x.trusted)
	if x.decision.Delay > 0 && !x.waitTurn() {
		x.count(true) // any answer would be lost
		x.respond(clientGone)
		x.front.Drop()
		return false
	}
	if x.checks {
		x.grant()
		return false
	}
	if limit := x.server.bounds.limits.BodyBytes; limit > 0 && x.Length > int64(limit) {
		x.respond(proxy.TooLarge)
		return false
	}
	return true
}

var refusedByList = message.Refuse(http.StatusForbidden, "denied",
	"Requests from this address are not accepted.")

// identify finds out which source sends the request, and counts it. If a PROXY header names no
// client it is the peer, and nothing else is believed.
func (x *Exchange) identify() {
	if x.client = counter.Plain(x.peer); x.named {
		x.client, x.chain, x.trusted = x.snap.sources.Identify(x.peer, &x.Head, x.chain)
	}
	x.source = x.snap.sources.Of(x.client)
	x.covering = x.server.limiter.Blocks.WiderPrefixes(address.Single(x.client), x.covering[:0])
	x.server.heaviest.requests.Hit(x.source)
}

// isDenied reports whether the client is always refused, and finds out whether it is never limited.
func (x *Exchange) isDenied() (denied bool) {
	denied, x.allowed = address.Listed(x.listed(x.snap.deny, mitigation.Denied),
		x.listed(x.snap.allow, mitigation.Allowed))
	return denied
}

func (x *Exchange) listed(fixed *address.Group, what uint32) int {
	return control.Longest(address.Single(x.client), fixed, what, x.server.limiter.Blocks, x.covering,
		x.now)
}

// malformed answers what is refused for its form, and ends the connection: what comes next may not
// be what we take it for. Host and path of it are not known, but its source is, and is charged with
// it. A source that is refused gets that answer, and nothing more is read from it.
//
// What a trusted proxy sends counts for the client that it names, and for no client if the lines
// that name it cannot be read.
func (x *Exchange) malformed(r *message.Refusal) {
	if x.Size > 0 || !address.IsIn(x.snap.sources.Trust, x.peer) {
		x.identify()
		if !x.isDenied() && !x.allowed && x.charged() {
			x.front.Drop()
			return
		}
	}
	x.turnAway(r)
}

// charged counts a request that is refused for its form in every rule about all requests that
// counts by source, so that a client that sends nothing else is limited as well. It reports whether
// one of them refuses it; that is its answer then.
func (x *Exchange) charged() bool {
	x.decision.Rules = append(x.decision.Rules, x.snap.rules.Everything...)
	if x.judge(); !x.decision.Refused() {
		return false
	}
	x.refuse()
	return true
}

// refuse answers a request that rules refused, and ends its connection if the rule is configured
// so.
func (x *Exchange) refuse() {
	if rules.RuleOf(x.decision.Reported).Config.Action == rules.Close && !x.trusted {
		x.front.Close()
	}
	x.limited()
}

// turnAway answers with a refusal that ends the connection.
func (x *Exchange) turnAway(r *message.Refusal) {
	x.front.Last()
	x.respond(r)
}

// match finds the rules that the request falls under; for a source that is blocked whatever it
// requests, only those that block it.
func (x *Exchange) match() {
	d := &x.decision
	if d.MatchBlocked(x.snap.rules, &x.server.limiter, x.server.secret, x.client, x.source,
		x.covering, x.now) {
		return
	}
	if x.spared != "" {
		defer x.spareRules()
	}
	d.Match(x.snap.rules, x.Host, x.Path, x.Target, x.Method, x.Readings)
	if len(x.Host) == 0 {
		if g := x.snap.origins.Of(nil); g != nil {
			// The origin will see its own name, so rules about that apply
			for _, o := range g.Servers {
				d.Match(x.snap.rules, o.Canonical, x.Path, x.Target, x.Method, x.Readings)
			}
		}
	}
}

// spareRules leaves out the rules that do not name the method that they are to spare, unless the
// source is blocked under them.
func (x *Exchange) spareRules() {
	d := &x.decision
	d.Rules = slices.DeleteFunc(d.Rules, func(r *rules.Rule) bool {
		return !slices.Contains(r.Config.Match.Methods, x.spared) && !x.isBlockedBy(r)
	})
}

// judge decides under them. If it is unclear which source one of them counts, or whether it is
// about the request, it returns the answer to that.
func (x *Exchange) judge() *message.Refusal {
	d := &x.decision
	if len(d.Rules) == 0 {
		return nil
	}
	d.Plans, d.Known().At = x.snap.plans, x.now
	// The slow ones count who is blocked for its source then, if the block is lifted in this very
	// moment
	d.Known().Spared = slices.ContainsFunc(d.Rules, (*rules.Rule).IsSlow) && x.isBlocked()
	if no := d.AddRules(x.server.secret, x.Request, x.client, x.source); no != nil {
		return no
	}
	d.WiderPrefixes = x.covering
	if len(x.snap.actions) > 0 && !d.CountsApart() {
		d.Everybody = append(x.covering, rules.Everybody)
		x.covering = d.Everybody[:len(x.covering)] // with the room
	}
	x.measured()
	x.note()
	return nil
}

// note counts the decision, and records its events.
func (x *Exchange) note() {
	d := &x.decision
	d.Tally()
	x.told = x.told[:0]
	for _, decided := range x.snap.decided {
		x.told = decided(d, x.now, x.told)
	}
	x.blocks()
	switch {
	case d.Refused():
		x.server.heaviest.refusals.Hit(x.source)
	case d.Verdict == limiter.Shadowed:
		x.server.heaviest.notEnforced.Hit(x.source)
	}
	x.noteKeys()
	x.noteLimits()
}

// near is the share of its limit from which on a source is at it: who keeps to a limit does not go
// over it.
const near = 0.95

// noteLimits remembers at which limits the request's sources are.
func (x *Exchange) noteLimits() {
	d, to := &x.decision, x.server.heaviest.atLimit
	for i := range d.Results {
		r := &d.Results[i]
		ask := r.Reservation
		switch {
		case ask != nil && (ask.Over || ask.Estimate >= near*float64(ask.Rule.Limit)), r.Crowded:
			to.Meet(r.Rule.Counter.ID, r.Source, r.CountedBy().Window, x.now)
		case ask == nil && !r.Until.IsZero():
			to.Stay(r.Rule.Counter.ID, r.Source, x.now)
		}
	}
}

// noteKeys remembers the keys that rules have counted the request by.
func (x *Exchange) noteKeys() {
	d, to := &x.decision, x.server.heaviest.keys
	x.keys = d.Keys(x.keys[:0])
	for i := range x.keys {
		k := &x.keys[i]
		to.Request(k, x.source, x.now)
		switch refused, notEnforced := d.Against(k.Digest); {
		case refused:
			to.Hit(seen.Refused, k)
		case notEnforced:
			to.Hit(seen.NotEnforced, k)
		}
	}
}

// keyOf is the key that a source is of, or, where that is an address, the first that the request
// was counted by; nil: none.
func (x *Exchange) keyOf(source counter.Source) *key.Counted {
	x.keys = x.decision.Keys(x.keys[:0])
	for i := range x.keys {
		if x.keys[i].Digest == source {
			return &x.keys[i]
		}
	}
	if _, address := source.Prefix(); address && len(x.keys) > 0 {
		return &x.keys[0]
	}
	return nil
}

// isBlocked reports whether one of the rules blocks the source, whatever it requests.
func (x *Exchange) isBlocked() bool {
	return slices.ContainsFunc(x.decision.Rules, x.isBlockedBy)
}

func (x *Exchange) isBlockedBy(r *rules.Rule) bool {
	return r.IsSure(x.server.secret, x.source) && r.Blocks(&x.server.limiter, x.client,
		x.source, x.covering, x.now)
}

// measured has the limiter decide, and measures a sample of that.
func (x *Exchange) measured() {
	d := &x.decision
	if x.now.Nanosecond()>>4%sampling != 0 || x.snap.waits {
		x.server.limiter.Decide(&d.Decision, x.now)
		return
	}
	start := time.Now()
	x.server.limiter.Decide(&d.Decision, x.now)
	x.server.stats.deciding.Observe(time.Since(start).Seconds())
	d.Sample()
}

// wait returns when all channels are closed, at most after the budget of a wait for the tier.
func (s *Server) wait(replies []<-chan struct{}) {
	timer := time.NewTimer(s.bounds.wait)
	defer timer.Stop()
	for _, h := range replies {
		select {
		case <-h:
		case <-timer.C:
			return
		}
	}
}

// shed reports whether a new connection is to be closed unanswered, because every request on it
// would be refused: it returns the source that is blocked, or none. That is known (with shed:
// connection or kernel) of a peer that is no trusted proxy, while it is mitigated under a rule
// about all requests that counts by source. It costs a source that goes on knocking the least
// possible, and its client an answer that says why.
func (s *Server) shed(peer netip.Addr) (blocked counter.Source) {
	snap := s.snap.Load()
	if peer = counter.Plain(peer); len(snap.sheds) == 0 || address.IsIn(snap.sources.Trust, peer) ||
		snap.allow.Has(peer) {
		return blocked
	}
	source, covering, now := snap.sources.Of(peer), s.limiter.Blocks.WiderPrefixes(address.Single(peer),
		nil), time.Now()
	if s.limiter.Blocks.Ordered(mitigation.Allowed, covering, now) {
		return blocked
	}
	for _, r := range snap.sheds {
		if blocked, is := r.Blocked(&s.limiter, peer, source, covering, now); is {
			s.listening.open.Stats.Shed.Add(1)
			return blocked
		}
	}
	return blocked
}
