package edge

import (
	"net/netip"
	"time"

	"sluice/edge/limiter"
	"sluice/edge/message"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
)

// An Outcome is what became of a request. Nothing that it points to outlives the call that it is
// given to.
type Outcome struct {
	Client  netip.Addr
	At      time.Time // when it came
	Head    *message.Request
	Version []byte // of the protocol
	Secure  bool   // it came over TLS
	Status  int
	Length  int64  // of the answer's body, bytes; less than 0: it is not announced
	From    string // which side answered
	Limited bool   // rules refused the request
	Rule    string // the one that decided; "": none
	Verdict string // "": nothing was decided
	Action  string // what that rule has done in place of refusing; "": nothing

	ID    []byte // the request's name
	Limit uint32 // the rule's; 0: there is no estimate
	// What the source had in that limit's window, this request included where it was counted
	Estimate float64
	Window   time.Duration // of that limit
	Until    time.Time     // when the block that is in force ends; zero: there is none
	Policy   string        // which of the rule's limits, where it has several; "": the first

	// Of an operator's block that refused the request: admin, his name, and why; "": none did
	By, Who, Reason string

	// The digest of the key that the request was counted by, by that rule or, if it counts by
	// address, by another; nil: by none
	Key      []byte
	KeyOf    string // what the key is of
	KeyStart []byte // its first characters, where a rule shows them

	Facts *key.View // those that rules have asked for (View.Found)
}

// tell tells observers what became of the request, whose answer is made.
func (x *Exchange) tell() {
	o := x.became()
	for _, told := range x.snap.answered {
		told(x, o)
	}
}

// watch begins to tell those of the request's attempts who want to know.
func (x *Exchange) watch() {
	for _, watch := range x.snap.watches {
		if w := watch(x); w != nil {
			x.watchers, x.attempts = append(x.watchers, w), append(x.attempts, w)
		}
	}
}

// endWatch tells them that the request is over.
func (x *Exchange) endWatch(failed bool) {
	o := x.became()
	for i, w := range x.watchers {
		x.watchers[i], x.attempts[i] = nil, nil
		w.Ended(o, failed)
	}
	x.watchers, x.attempts = x.watchers[:0], x.attempts[:0]
}

// became is what became of the request.
func (x *Exchange) became() *Outcome {
	if x.outcome == nil {
		x.outcome = new(Outcome)
	}
	o := x.outcome
	*o = Outcome{Client: x.client, At: x.now, Head: x.Request, Version: x.Version,
		Secure: x.front.Secure(), Status: x.reply.Status, Length: x.reply.length, From: x.reply.from.String(),
		Limited: x.reply.from == fromLimit, ID: x.requestID()}
	if !o.Client.IsValid() {
		o.Client = x.peer // it was refused before its client was known
	}
	if message.Bodyless(x.IsHead, x.reply.Status) {
		o.Length = 0
	}
	o.Rule, o.Verdict = x.decided()
	if o.Limited {
		o.Action = x.acted()
	}
	if cause := x.decision.Cause; cause != nil {
		if !x.barred && x.verdict == "" {
			x.explain(o, cause)
		}
		if k := x.keyOf(cause.Source); k != nil {
			x.keyText = k.Digest.AppendText(x.keyText[:0])
			o.Key, o.KeyOf, o.KeyStart = x.keyText, x.snap.rules.Spelled(k.By),
				k.Start.AppendText(x.keyStart[:0])
		}
	}
	o.Facts = x.decision.Known()
	return o
}

// explain adds what the limit that decided knows of its source.
func (x *Exchange) explain(o *Outcome, cause *limiter.RuleResult) {
	l := rules.LimitOf(cause)
	r := l.Parent
	o.Limit, o.Window, o.Until = cause.Rule.Counter.Limit, cause.Rule.Counter.Window, cause.Until
	o.Policy = l.OwnPolicy()
	if cause.Crowded {
		o.Limit, o.Window, o.Estimate = uint32(r.Config.Concurrency), 0, float64(r.Config.Concurrency)
		o.Policy = r.ConcurrencyPolicy()
	} else if cause.Reservation != nil {
		o.Estimate = cause.Reservation.Estimate
		// A blocked source's counter is not read
	} else if v, known := x.server.limiter.Peek(cause.Rule, cause.Source, x.now); known {
		o.Estimate = v.Estimate
	}
	if bit, ordered := x.server.limiter.Ordered(cause, x.covering, x.now); ordered {
		o.By, o.Who, o.Reason = bit.By.String(), bit.Who, bit.Reason
	}
}

// acted is what a rule has done with a request in place of refusing it; "": it has refused it.
func (x *Exchange) acted() string {
	action := rules.RuleOf(x.decision.Reported).Config.Action
	if x.reply.acted || action == rules.Redirect && x.decision.Verdict != limiter.FailedClosed {
		return string(action)
	}
	return ""
}

// decided is the rule that decided, and its verdict; "": none did.
func (x *Exchange) decided() (rule, verdict string) {
	switch d := &x.decision; {
	case x.barred:
		return "", "denied"
	case x.verdict != "":
		return "", x.verdict
	case d.Cause != nil:
		return rules.LimitOf(d.Cause).Parent.Config.Name, d.Verdict.String()
	default:
		if r := d.Opened(); r != nil {
			return r.Config.Name, "open"
		}
		return "", ""
	}
}
