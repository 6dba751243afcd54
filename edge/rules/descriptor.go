package rules

import (
	"fmt"
	"net/netip"
	"slices"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/address"
	"sluice/edge/rules/descriptors"
	"sluice/edge/rules/key"
)

// described completes a rule about descriptors: where the one value that it leaves open is an
// address, that is the source, for lists and operators as for HTTP; else a digest of all values is.
// Limits that proxies send have counters apart, one for each unit: they are wide, and the tier
// starts no block under them, because only the call has the limit.
func (r *Rule) described() error {
	d := r.Config.Match.Descriptors
	if err := d.Check(); err != nil {
		return err
	}
	if r.address = d.AddressAt(); r.address < 0 {
		r.Parts = []key.Part{{Kind: key.Descriptor}}
	}
	for _, unit := range descriptors.Units {
		own := r.Config
		own.Limit, own.Window = algorithm.MaxLimit, Duration(unit)
		c, err := own.NewCounter(fmt.Sprint(r.Counter.Name, " asked ", unit), r.Counter.Estimate)
		if err != nil {
			return err
		}
		r.Asked = append(r.Asked, c)
	}
	return nil
}

// sourceOf is the source that a rule counts for a descriptor, which it is about.
func (r *Rule) sourceOf(secret key.Secret, s *address.Sources, d *descriptors.Descriptor,
	buf []byte) (counter.Source, []byte) {
	if r.address >= 0 && d.Limit == 0 {
		text := d.Entries[r.address].Value
		if addr, err := netip.ParseAddr(text); err == nil {
			return s.Of(addr), buf
		}
		if p, err := netip.ParsePrefix(text); err == nil && !p.Addr().Is4In6() {
			return counter.SourceOf(p.Addr(), min(p.Bits(), 32), p.Bits()), buf
		}
	}
	buf = d.Append(append(buf[:0], byte(key.Descriptor)))
	return secret.Sum(buf), buf
}

// AddDescriptor puts the rule about a descriptor to the limiter, and returns the index of its
// result; less than 0: there is no such rule. Descriptors that count the same source under the same
// rule share a result.
func (d *Decision) AddDescriptor(secret key.Secret, set *Set, s *address.Sources, domain string,
	q *descriptors.Descriptor) int {
	r := set.descriptors.Find(domain, q.Entries)
	if r == nil {
		return -1
	}
	var source counter.Source
	source, d.buf = r.sourceOf(secret, s, q, d.buf)
	limit := min(q.Limit, algorithm.MaxLimit)
	if limit == 0 {
		limit = r.Config.Limit
	}
	most := limit + 1 // more hits are no more over it
	hits := min(q.Hits, most)
	for i := range d.Results {
		if RuleOf(&d.Results[i]) == r && d.Results[i].Source == source {
			result := &d.Results[i]
			result.Hits = min(result.Hits+hits, most)
			result.Probe = result.Hits == 0
			return i
		}
	}
	if !r.IsAbout(secret, source) {
		return -1
	}
	d.Rules = append(d.Rules, r)
	d.Add(&r.Rule, source)
	result := &d.Results[len(d.Results)-1]
	result.Hits, result.Probe = hits, hits == 0
	if q.Limit != 0 {
		result.Counter = r.Asked[slices.Index(descriptors.Units[:], q.Window)].With(limit,
			r.Counter.Estimate)
	}
	return len(d.Results) - 1
}
