package edge

import (
	"time"

	"sluice/edge/address"
	"sluice/edge/limiter"
	"sluice/edge/rules"
)

// An Answer is what became of an ask.
type Answer struct {
	Allowed bool
	Rule    string
	Policy  string // which of the rule's limits; "": it has one
	// As in metrics, or "denied" or "allowed" by a list, or "none": the rule is not about the
	// source
	Verdict    string
	Limit      uint32
	Window     time.Duration
	Remaining  uint32
	Reset      time.Duration // until a retry is admitted, or what remains may be relied on again
	RetryAfter time.Duration // 0: it is allowed, or no wait helps
	Delay      time.Duration // until it is the turn of what was allowed
}

// InvalidAsk counts what was no ask.
func (s *Server) InvalidAsk() { s.stats.asks[callInvalid].Add(1) }

// ErrNoRule says that an ask names a rule that there is not.
var ErrNoRule = rules.ErrNoRule

// Ask decides about asks, one after the other as if each had come alone, and appends an answer to
// each. If one of them makes no sense, none is decided about: the error says which is the first,
// and why. It counts for whom the program asks about. After ErrFault the call must not be used
// again.
func (c *Call) Ask(asks []rules.Ask, to []Answer, now time.Time) (_ []Answer, bad int, err error) {
	x, s := c.x, c.x.server
	defer func() {
		if p := recover(); p != nil {
			s.fault(p)
			err = ErrFault
		}
	}()
	snap := s.snap.Load()
	x.now, x.decision.Plans = now, snap.plans
	list := make([]rules.Asked, len(asks))
	for i := range asks {
		if list[i], err = x.decision.AskedOf(&asks[i], snap.rules, s.secret,
			snap.sources); err != nil {
			s.stats.asks[callInvalid].Add(1)
			c.End()
			return to, i, err
		}
	}
	for i := range list {
		x.snap = snap
		to = append(to, c.ask(&list[i]))
		c.End()
	}
	return to, 0, nil
}

func (c *Call) ask(q *rules.Asked) (a Answer) {
	x, s, d := c.x, c.x.server, &c.x.decision
	x.sender = sender{covering: x.covering[:0]}
	x.values = x.values[:0]
	x.client, x.source = q.Client, q.Source
	if x.client.IsValid() {
		x.source = x.snap.sources.Of(x.client)
		x.covering = s.limiter.Blocks.WiderPrefixes(address.Single(x.client), x.covering)
	}
	a = Answer{Rule: q.Rule.Config.Name, Limit: q.Rule.Config.Limit,
		Window: time.Duration(q.Rule.Config.Window), Allowed: true}
	switch {
	case c.listed():
		a.Verdict, a.Allowed = "allowed", x.allowed
		if !x.allowed {
			a.Verdict = "denied"
		}
	case !q.About:
		a.Verdict = "none"
	default:
		never := d.AddAsked(q)
		d.WiderPrefixes = x.covering
		x.measured()
		if q.Hits > 0 && !never {
			x.note()
		}
		c.stateOfAsk(&a, q)
		if never {
			if a.RetryAfter = 0; a.Allowed {
				a.Allowed, a.Verdict = false, limiter.Limited.String()
			}
		}
	}
	if a.Allowed && a.Remaining == 0 && (a.Verdict == "allowed" || a.Verdict == "none") {
		a.Remaining = a.Limit
	}
	if q.Hits > 0 {
		c.charge()
	}
	code := callOK
	if !a.Allowed {
		code = callOverLimit
	}
	s.stats.asks[code].Add(1)
	return a
}

// stateOfAsk is what the limit that is told says. Of who only asks it says whether one more would
// be admitted.
func (c *Call) stateOfAsk(a *Answer, q *rules.Asked) {
	x, d := c.x, &c.x.decision
	told := d.StrictestAsked()
	c.results = append(c.results[:0], told.Index)
	st := c.State(0)
	l := rules.LimitOf(told)
	a.Policy, a.Verdict, a.Allowed = l.OwnPolicy(), d.Verdict.String(), !d.Refused()
	a.Limit, a.Window, a.Remaining, a.Reset, a.Delay = st.Limit, st.Window, st.Remaining, st.Reset,
		d.Delay
	if !a.Allowed {
		a.RetryAfter = told.Wait
		return
	}
	if q.Hits > 0 {
		return
	}
	for i := range d.Results {
		r := &d.Results[i]
		if r.Verdict != limiter.Passed || r.Rule.Shadow || r.Rule.Tag {
			continue
		}
		if v, _ := x.server.limiter.Counters.PeekFor(r.CountedBy(), r.Source, 1, x.now); v.Over {
			a.Allowed, a.Verdict, a.Remaining = false, limiter.Limited.String(), 0
			a.RetryAfter = max(a.RetryAfter, v.RetryAfter)
			a.Reset = a.RetryAfter
		}
	}
}
