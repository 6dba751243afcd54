package rules

import (
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/edge/message"
)

// price says what the request costs under a limit of a rule. A body of unknown length, and a cost in
// the origin's answer, are held as 1, or as estimated, until Settle.
func price(r *limiter.RuleResult, c *Cost, q *message.Request) {
	switch {
	case c.Header != "":
		r.Due = true
	case c.JSON != nil:
		r.Due, r.Hits = true, c.Estimate
	case c.Bytes > 0:
		r.Due = q.Length == message.LengthChunked
		r.Hits = units(q.Length, c.Bytes)
	default:
		r.Hits = c.Units
	}
}

// units is what so many bytes cost, at so many for one.
func units(length int64, bytes int) uint32 {
	return uint32(min(max(1, (length+int64(bytes)-1)/int64(bytes)), algorithm.MaxCost))
}

// AwaitsBody reports whether a rule needs to know how long the request's body was.
func (d *Decision) AwaitsBody() bool {
	for i := range d.Results {
		if r := &d.Results[i]; r.Due && RuleOf(r).Config.Cost.Bytes > 0 {
			return true
		}
	}
	return false
}

// PriceBody passes the length of a body that was unknown, and PriceAnswer the cost in the origin's
// answer, to rules that count by them. They are settled by it then.
func (d *Decision) PriceBody(length int64) {
	for i := range d.Results {
		r := &d.Results[i]
		if !r.Due {
			continue
		}
		if c := &RuleOf(r).Config.Cost; c.Bytes > 0 {
			r.Hits = units(length, c.Bytes)
		}
	}
}

func (d *Decision) PriceAnswer(answer *message.Head) {
	for i := range d.Results {
		r := &d.Results[i]
		if !r.Due {
			continue
		}
		if c := &RuleOf(r).Config.Cost; c.Header != "" {
			r.Hits = priced(answer, c.Header)
		}
	}
}

// priced is the number in an answer's header; 1 if there is none, several, or an impossible one.
func priced(answer *message.Head, name string) uint32 {
	value, ok := answer.Only([]byte(name))
	if !ok || len(value) == 0 || len(value) > 7 {
		return 1
	}
	n := uint32(0)
	for _, c := range value {
		if c < '0' || c > '9' {
			return 1
		}
		n = 10*n + uint32(c-'0')
	}
	if n < 1 || n > algorithm.MaxCost {
		return 1
	}
	return n
}
