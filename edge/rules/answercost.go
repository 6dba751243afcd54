package rules

import (
	"bytes"
	"math"
	"net/http"
	"sync/atomic"

	"sluice/counter/algorithm"
	"sluice/edge/answercost"
	"sluice/edge/message"
	"sluice/edge/metric"
)

// A reading is an answer's body as it passes, read for one path of a rule.
type reading struct {
	answercost.Reader
	result int // which of the decision's it is for
}

// AnswerCosts counts what became of costs in the bodies of answers.
type AnswerCosts struct{ read, missing, malformed, encoded, other atomic.Uint64 }

func (c *AnswerCosts) Collect(to metric.Sink) {
	for _, one := range []struct {
		result string
		count  *atomic.Uint64
	}{{"read", &c.read}, {"missing", &c.missing}, {"malformed", &c.malformed},
		{"encoded", &c.encoded}, {"other", &c.other}} {
		to.Count(one.count.Load(), "sluice_answer_costs_total",
			"Answers under rules with cost.json: read, or why their cost is unknown. missing: they do not say; encoded: they are compressed; other: they are not JSON.",
			"result", one.result)
	}
}

// ReadsAnswer reports whether a rule needs the body of the origin's answer.
func (d *Decision) ReadsAnswer() bool {
	for i := range d.Results {
		if r := &d.Results[i]; r.Due && RuleOf(r).Config.Cost.JSON != nil {
			return true
		}
	}
	return false
}

// OpenAnswer is called with the answer's head before ReadAnswer.
func (d *Decision) OpenAnswer(head *message.Head) {
	form, known := formOf(head.First("content-type"))
	d.encoded = isEncoded(head)
	for i := range d.Results {
		r := &d.Results[i]
		if !r.Due || d.encoded || !known {
			continue
		}
		rule := RuleOf(r)
		if form == answercost.Events && !rule.Config.Cost.SSE {
			continue
		}
		for _, path := range rule.reads {
			d.readings = append(d.readings, reading{result: i})
			d.readings[len(d.readings)-1].Reset(path, form)
		}
	}
}

// ReadAnswer reads what passes of the answer's body.
func (d *Decision) ReadAnswer(part []byte) {
	for i := range d.readings {
		d.readings[i].Read(part)
	}
}

// PriceRead passes what the body of an answer said to the rules that asked for it, and counts how
// that went. An answer that is an error, or none (0), costs 1 if it does not say.
func (d *Decision) PriceRead(status int, to *AnswerCosts) {
	for i := range d.Results {
		r := &d.Results[i]
		if !r.Due || RuleOf(r).Config.Cost.JSON == nil {
			continue
		}
		sum, read, found, malformed := 0.0, false, false, false
		for j := range d.readings {
			if d.readings[j].result != i {
				continue
			}
			value, ok, bad := d.readings[j].Value()
			read, malformed = true, malformed || bad
			if ok && value > 0 {
				sum += value
			}
			found = found || ok
		}
		switch {
		case found:
			to.read.Add(1)
			r.Hits = uint32(min(max(1, math.Ceil(sum)), algorithm.MaxCost))
			continue
		case status == 0:
		case malformed:
			to.malformed.Add(1)
		case read:
			to.missing.Add(1)
		case d.encoded:
			to.encoded.Add(1)
		default:
			to.other.Add(1)
		}
		if status == 0 || status >= http.StatusBadRequest {
			r.Hits = 1
		}
	}
}

// formOf is what a body of a type consists of.
func formOf(contentType []byte) (form answercost.Form, known bool) {
	kind, _, _ := bytes.Cut(contentType, []byte(";"))
	kind = bytes.TrimSpace(kind)
	is := func(name string) bool { return bytes.EqualFold(kind, []byte(name)) }
	const suffix = "+json"
	switch {
	case is("application/json"), len(kind) > len(suffix) &&
		bytes.EqualFold(kind[len(kind)-len(suffix):], []byte(suffix)):
		return answercost.Document, true
	case is("text/event-stream"):
		return answercost.Events, true
	case is("application/x-ndjson"), is("application/ndjson"), is("application/jsonl"):
		return answercost.Lines, true
	}
	return 0, false
}

// isEncoded reports whether an answer is compressed.
func isEncoded(head *message.Head) bool {
	encoding := bytes.TrimSpace(head.First("content-encoding"))
	return len(encoding) > 0 && !bytes.EqualFold(encoding, []byte("identity"))
}
