package rules

import (
	"net/netip"
	"slices"

	"sluice/counter"
	"sluice/edge/limiter"
	"sluice/edge/message"
)

// A Decision is a limiter's, with the edge's own of every rule.
type Decision struct {
	limiter.Decision
	Rules []*Rule // in the order of Results
	asked []*Rule // those that look at values of the request, whatever came of it
	keys  []keyed
	buf   []byte
}

// keyed is what a key makes of the request.
type keyed struct {
	key    string
	source counter.Source
}

// Reset makes d ready for the next request.
func (d *Decision) Reset() {
	d.Decision.Reset()
	clear(d.Rules)
	clear(d.asked)
	clear(d.keys)
	d.Rules, d.asked, d.keys = d.Rules[:0], d.asked[:0], d.keys[:0]
}

// Match adds the rules about a request, each once: those that match any reading of its path.
func (d *Decision) Match(s *Set, host, path, target, method []byte, readings message.Reading) {
	n := len(d.Rules)
	d.Rules = s.match(d.Rules, host, path, method)
	for as := message.Reading(1); as <= readings; as++ {
		if as&^readings == 0 {
			d.buf, _ = message.Canonicalize(d.buf[:0], message.RawPath(target), as)
			d.Rules = s.match(d.Rules, host, d.buf, method)
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

// AddRules puts d.rules to the limiter: each counts the client's source, or what its key makes of the request. Those that its headers,
// cookies or parameters leave out, and those that are not about whom they would count (share), are left out. It reports false if an
// origin could read one of those otherwise than the edge.
func (d *Decision) AddRules(key Secret, q *message.Request, client netip.Addr, source counter.Source) bool {
	about := d.Rules[:0]
	for _, r := range d.Rules {
		if r.when != nil {
			var hold, ok bool
			d.asked = append(d.asked, r)
			if hold, d.buf, ok = r.when.hold(q, client, d.buf); !ok {
				return false
			}
			if !hold {
				continue
			}
		}
		s := source
		if r.Parts != nil {
			i := slices.IndexFunc(d.keys, func(k keyed) bool { return k.key == r.key })
			if i < 0 {
				i = len(d.keys)
				var ok bool
				if s, d.buf, ok = key.digest(r.Parts, q, source, d.buf); !ok {
					return false
				}
				d.keys = append(d.keys, keyed{r.key, s})
			}
			s = d.keys[i].source
		}
		if !r.IsAbout(key, s) {
			continue
		}
		about = append(about, r)
		d.Add(&r.Rule, s)
	}
	clear(d.Rules[len(about):])
	d.Rules = about
	return true
}

// RuleOf is the rule of a result.
func (d *Decision) RuleOf(r *limiter.RuleResult) *Rule { return d.Rules[r.Index] }

// Tally counts the request in each rule: what the rule said of it, or, where another refused it before this one was asked, that
// this one had nothing against it. A rule that fails open, because nobody in the tier answers, has said nothing: that is no pass.
func (d *Decision) Tally() {
	for i, r := range d.Rules {
		result := &d.Results[i]
		if result.Skipped {
			r.Tally.failed(r.OnStoreFailure)
			if result.Verdict == limiter.Passed {
				continue
			}
		}
		r.Tally.Verdicts[result.Verdict].Add(1)
	}
	for i := range d.Candidates {
		c := &d.Candidates[i]
		t := d.Rules[c.Index].Tally
		t.Candidate[c.Verdict].Add(1)
		if c.Verdict != limiter.Passed && !d.Refused() {
			t.CandidateAlone.Add(1)
		}
	}
}

// Sample notes how much of each rule's limit the source has used, this request included.
func (d *Decision) Sample() {
	for i, r := range d.Rules {
		if ask := d.Results[i].Ask; ask != nil {
			r.Tally.Used.Observe(int64(100 * ask.Estimate / float64(ask.Rule.Limit)))
		}
	}
}

// Opened returns the rule that has let the request pass because nobody in the tier answers; nil: none has.
func (d *Decision) Opened() *Rule {
	for i := range d.Results {
		if r := &d.Results[i]; r.Skipped && r.Verdict == limiter.Passed {
			return d.Rules[i]
		}
	}
	return nil
}

// AddHeaders adds the names of the headers that the rules about the request have looked at.
func (d *Decision) AddHeaders(names *message.Names) {
	for _, r := range d.asked {
		for i := range r.when.values {
			if v := &r.when.values[i]; v.Kind == keyHeader {
				names.Add(v.Name)
			}
		}
	}
	for _, r := range d.Rules {
		for _, p := range r.Parts {
			if p.Kind == keyHeader {
				names.Add(p.Name)
			}
		}
	}
}
