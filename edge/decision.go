package edge

import (
	"slices"

	"sluice/counter"
	"sluice/edge/limiter"
	"sluice/edge/message"
)

// A decision is a limiter's, with the edge's own of every rule.
type decision struct {
	limiter.Decision
	rules []*rule // in the order of Results
	keys  []keyed
	buf   []byte
}

// keyed is what a key makes of the request.
type keyed struct {
	key    string
	source counter.Source
}

// Reset makes d ready for the next request.
func (d *decision) Reset() {
	d.Decision.Reset()
	clear(d.rules)
	clear(d.keys)
	d.rules, d.keys = d.rules[:0], d.keys[:0]
}

// match adds the rules about a request, each once: those that match any reading of its path.
func (d *decision) match(s *ruleset, host, path, target, method []byte, readings message.Reading) {
	n := len(d.rules)
	d.rules = s.match(d.rules, host, path, method)
	for as := message.Reading(1); as <= readings; as++ {
		if as&^readings == 0 {
			d.buf, _ = message.Canonicalize(d.buf[:0], message.RawPath(target), as)
			d.rules = s.match(d.rules, host, d.buf, method)
		}
	}
	if n == 0 && readings == 0 {
		return
	}
	once := d.rules[:0]
	for _, r := range d.rules {
		if !slices.Contains(once, r) {
			once = append(once, r)
		}
	}
	clear(d.rules[len(once):])
	d.rules = once
}

// add puts d.rules to the limiter: each counts the source, or what its key makes of the request. It reports false if an origin could
// read one of those keys otherwise than the edge.
func (d *decision) add(key secret, h *message.Head, source counter.Source) bool {
	for _, r := range d.rules {
		s, ok := source, true
		if r.parts != nil {
			i := slices.IndexFunc(d.keys, func(k keyed) bool { return k.key == r.key })
			if i < 0 {
				i = len(d.keys)
				if s, d.buf, ok = key.digest(r.parts, h, source, d.buf); !ok {
					return false
				}
				d.keys = append(d.keys, keyed{r.key, s})
			}
			s = d.keys[i].source
		}
		d.Add(&r.Rule, s)
	}
	return true
}

// rule is the rule of a result.
func (d *decision) rule(r *limiter.RuleResult) *rule { return d.rules[r.Index] }

// tally counts the request in each rule: what the rule said of it, or, where another refused it before this one was asked, that
// this one had nothing against it.
func (d *decision) tally() {
	for i, r := range d.rules {
		result := &d.Results[i]
		r.tally.verdicts[result.Verdict].Add(1)
		if result.Skipped {
			r.tally.failed(r.OnStoreFailure)
		}
	}
}
