package edge

import (
	"errors"
	"time"

	"sluice/counter"
	"sluice/edge/address"
	"sluice/edge/limiter"
	"sluice/edge/message"
	"sluice/edge/rules"
	"sluice/edge/rules/descriptors"
)

// A Call is a request as another proxy describes it (descriptors.Descriptor), and the decision
// about it: an exchange with that proxy alone. All its descriptors are decided about together, as
// all rules of a request are: if one is over its limit, none counts the request, so that a client
// that is refused by one limit does not use up another. It may be used again after End, by one
// goroutine at a time.
type Call struct {
	x       *Exchange
	results []int // of the descriptors, in Decision.Results; less than 0: no rule is about it
}

// A DescriptorState is how a descriptor stands under its rule.
type DescriptorState struct {
	Refused   bool
	Rule      *rules.Rule   // nil: no rule is about the descriptor
	Limit     uint32        // that of the rule, or of the descriptor itself
	Window    time.Duration // of Limit
	Remaining uint32
	// Until a retry is admitted, or what remains may be relied on again: a window, or what is left
	// of a fixed one
	Reset time.Duration
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

// ErrFault says that deciding met a fault in the edge, which is in its log.
var ErrFault = errors.New("edge: judge: a fault in the edge")

// NewCall makes a Call.
func (s *Server) NewCall() *Call {
	x := newExchange(s)
	x.Request = new(message.Request)
	return &Call{x: x}
}

// Invalid counts a call that was no request.
func (s *Server) Invalid() { s.stats.calls[callInvalid].Add(1) }

// Judge decides about the request that a proxy describes, and counts it. It does not keep list. The
// proxy names the client, which lists are about, under remote_address. After an error, which is a
// fault in the edge, the call must not be used again.
func (c *Call) Judge(domain string, list []descriptors.Descriptor, now time.Time) (err error) {
	x, s := c.x, c.x.server
	defer func() {
		if p := recover(); p != nil {
			s.fault(p)
			err = ErrFault
		}
	}()
	x.snap, x.now = s.snap.Load(), now
	x.sender = sender{covering: x.covering[:0]}
	x.values, c.results = x.values[:0], c.results[:0]
	for i := range list {
		if x.client = list[i].Address(); x.client.IsValid() {
			x.source = x.snap.sources.Of(x.client)
			x.covering = s.limiter.Blocks.WiderPrefixes(address.Single(x.client), x.covering)
			break
		}
	}
	if !c.listed() {
		c.decideAbout(domain, list)
	}
	c.charge()
	if c.Refused() {
		s.stats.calls[callOverLimit].Add(1)
	} else {
		s.stats.calls[callOK].Add(1)
	}
	return nil
}

// listed decides about a client whose address is on a list. It reports false for all others.
func (c *Call) listed() bool {
	x := c.x
	if x.client.IsValid() && x.isDenied() {
		x.server.stats.denied.Add(1)
		x.barred = true
		x.respond(refusedByList)
	}
	return x.barred || x.allowed
}

// charge counts the call for who is busiest, and refused most.
func (c *Call) charge() {
	x := c.x
	if !x.source.IsValid() {
		return
	}
	x.server.heaviest.requests.Hit(x.source)
	if x.barred {
		x.server.heaviest.refusals.Hit(x.source)
	}
}

// decideAbout decides under the rules about descriptors, and makes the answer for the client. A
// client without an address is named in events by what the first of these rules counts.
func (c *Call) decideAbout(domain string, list []descriptors.Descriptor) {
	x, d := c.x, &c.x.decision
	for i := range list {
		c.results = append(c.results, d.AddDescriptor(x.server.secret, x.snap.rules, x.snap.sources,
			domain, &list[i]))
	}
	if len(d.Results) == 0 {
		return
	}
	if x.source == (counter.Source{}) {
		x.source = d.Results[0].Source
	}
	d.WiderPrefixes = x.covering
	x.measured()
	x.note()
	if !d.Refused() {
		x.limitHeaders()
		x.verdictHeader()
		return
	}
	x.limited()
}

// Refused reports whether the request is to be refused.
func (c *Call) Refused() bool { return c.x.barred || c.x.decision.Refused() }

// State is how the i-th descriptor stands. Where another one is over its limit, what would be left
// counts for this one.
func (c *Call) State(i int) DescriptorState {
	if i >= len(c.results) || c.results[i] < 0 {
		return DescriptorState{Refused: c.x.barred}
	}
	d := &c.x.decision
	r := &d.Results[c.results[i]]
	rule := rules.RuleOf(r)
	by := r.CountedBy()
	st := DescriptorState{Rule: rule, Limit: by.Limit, Window: by.Window, Reset: by.Reset(c.x.now)}
	switch {
	case r.Verdict == limiter.Shadowed:
	case r.Verdict != limiter.Passed:
		st.Refused, st.Reset = true, r.Wait
	case r.Reservation == nil:
		st.Remaining = st.Limit
		if v, known := c.x.server.limiter.Counters.Peek(by, r.Source, c.x.now); known {
			st.Remaining = v.Remaining
		}
	case d.Refused() && !rule.Refused:
		st.Remaining = min(st.Limit, r.Reservation.Remaining+r.Reservation.Hits)
	default:
		st.Remaining = r.Reservation.Remaining
	}
	return st
}

// Fields is the answer's header lines, and Body the body of a refusal; neither outlives End.
func (c *Call) Fields() []message.Field { return c.x.reply.Fields }
func (c *Call) Body() (contentType string, body []byte) {
	return c.x.reply.ContentType, c.x.reply.Body
}

// End forgets the request.
func (c *Call) End() {
	c.x.decision.Reset()
	c.x.snap, c.x.reply = nil, reply{Reply: message.Reply{Fields: c.x.reply.Fields[:0]}}
}
