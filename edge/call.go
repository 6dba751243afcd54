package edge

import (
	"net/http"
	"time"

	"sluice/counter"
	"sluice/edge/limiter"
	"sluice/edge/message"
	"sluice/edge/rules"
)

// A Call is a request as another proxy describes it (rules.Descriptor), and what the rules say of it: an exchange that nobody sees but that
// proxy. All its descriptors are decided about together, as all rules of a request are: if one is over its limit, none counts the request, so
// that a client who is refused by one limit does not use up another. It may be used again after End, by one goroutine at a time.
type Call struct {
	*exchange
	results []int // of the descriptors, in Decision.Results; less than 0: no rule is about it
	asked   []rules.Descriptor
}

// A Standing is how a descriptor stands under its rule.
type Standing struct {
	Refused   bool
	Rule      *rules.Rule   // nil: no rule is about the descriptor
	Limit     uint32        // that of the rule, or of the descriptor itself
	Window    time.Duration // of Limit
	Remaining uint32
	Reset     time.Duration // until a retry is admitted, or the window, after which what remains may be relied on again
}

// callCode is how a call was answered.
type callCode uint8

const (
	callOK callCode = iota
	callOverLimit
	callInvalid
	callCodes
)

func (c callCode) String() string { return [...]string{"ok", "over_limit", "invalid"}[c] }

// NewCall makes a Call.
func (s *Server) NewCall() *Call { return &Call{exchange: newExchange(s)} }

// Invalid counts a call that was no request.
func (s *Server) Invalid() { s.stats.calls[callInvalid].Add(1) }

// Judge decides about the request that a proxy describes, and counts it. It must not keep list; the proxy names the client, whom lists are
// about, under remote_address.
func (c *Call) Judge(domain string, list []rules.Descriptor, now time.Time) {
	s := c.server
	c.snap, c.now = s.snap.Load(), now
	c.asker = asker{covering: c.covering[:0]}
	c.values, c.results, c.asked = c.values[:0], c.results[:0], list
	c.reply = reply{fields: c.reply.fields[:0]}
	for i := range list {
		if c.client = list[i].Address(); c.client.IsValid() {
			c.source = c.snap.sources.Of(c.client)
			c.covering = s.limiter.Bits.Covering(rules.Single(c.client), c.covering)
			break
		}
	}
	switch {
	case c.client.IsValid() && c.denied():
		s.stats.denied.Add(1)
		c.barred = true
		c.say(message.Refuse(http.StatusForbidden, "denied", "Requests from this address are not accepted."))
	case c.client.IsValid() && c.isAllowed():
		c.allowed = true
	default:
		c.decideAbout(domain, list)
	}
	if c.source.IsValid() {
		s.requests.Hit(c.source)
		if c.barred {
			s.refusals.Hit(c.source)
		}
	}
	if c.Refused() {
		s.stats.calls[callOverLimit].Add(1)
	} else {
		s.stats.calls[callOK].Add(1)
	}
}

// decideAbout decides under the rules about descriptors, and makes what the client is told. A client whose address nobody tells is known to
// operators by what the first of these rules counts.
func (c *Call) decideAbout(domain string, list []rules.Descriptor) {
	d := &c.decision
	for i := range list {
		c.results = append(c.results, d.AddDescriptor(c.server.secret, c.snap.rules, c.snap.sources, domain, &list[i]))
	}
	if len(d.Results) == 0 {
		return
	}
	if c.source == (counter.Source{}) {
		c.source = d.Results[0].Source
	}
	d.Covering = c.covering
	c.decide()
	c.note()
	if !d.Refused() {
		c.limitHeaders()
		c.verdictHeader()
		return
	}
	c.limited()
	c.reply.add("Cache-Control", noStore)
}

// Refused reports whether the request is to be refused.
func (c *Call) Refused() bool { return c.barred || c.decision.Refused() }

// Standing is how the i-th descriptor stands. Where another one is over its limit, what would be left counts for this one.
func (c *Call) Standing(i int) Standing {
	if i >= len(c.results) || c.results[i] < 0 {
		return Standing{Refused: c.barred}
	}
	d := &c.decision
	r := &d.Results[c.results[i]]
	rule := d.RuleOf(r)
	st := Standing{Rule: rule, Limit: rule.Counter.Limit, Window: rule.Counter.Window, Reset: rule.Counter.Window}
	if r.Counter != nil {
		st.Limit, st.Window, st.Reset = r.Counter.Limit, r.Counter.Window, r.Counter.Window
	}
	switch {
	case r.Verdict == limiter.Shadowed:
	case r.Verdict != limiter.Passed:
		st.Refused, st.Reset = true, r.Wait
	case r.Ask == nil:
		st.Remaining = st.Limit
		by := rule.Counter
		if r.Counter != nil {
			by = r.Counter
		}
		if v, known := c.server.limiter.Counters.Peek(by, r.Source, c.now); known {
			st.Remaining = v.Remaining
		}
	case d.Refused() && !rule.Refused:
		st.Remaining = min(st.Limit, r.Ask.Remaining+r.Hits)
	default:
		st.Remaining = r.Ask.Remaining
	}
	return st
}

// Fields is what an answer says in its header, and Body what one does that refuses; none of them outlives End.
func (c *Call) Fields() []message.Field { return c.reply.fields }
func (c *Call) Body() (contentType string, body []byte) {
	return c.reply.contentType, c.reply.body
}

// End forgets the request.
func (c *Call) End() {
	c.decision.Reset()
	clear(c.asked)
	c.snap, c.asked, c.reply.body, c.reply.common = nil, nil, nil, nil
}
