package mitigation

import (
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gaissmai/bart"

	"sluice/counter"
)

// What an order may name instead of a rule: IDs for Key.Rule that no rule has (algorithm.Reserved).
const (
	AllRules uint32 = math.MaxUint32 - iota // mitigated under every rule
	Allowed                                 // never limited: the bit stands for a permission
	Denied                                  // refused whatever the rules say
	// of all sources: nobody is served (Table.Maintained)
	Maintenance
)

// MaxBlock is the longest that operators may say something for: memcached keeps their list no
// longer.
const MaxBlock = 30 * 24 * time.Hour

// prefixes are those of which operators have said something: sources that may be wider, or
// narrower, than those that rules count. Nearly always there are none, and then looking for them
// costs one load. They say where to look for bits and nothing more: one that stays after its bit
// was lifted does no harm, and goes when that would have ended.
type prefixes struct {
	tree atomic.Pointer[bart.Lite] // immutable; nil: there are none
	mu   sync.Mutex
	ends map[netip.Prefix]time.Time
}

// note remembers the prefix of a source, if it has one.
func (p *prefixes) note(s counter.Source, end time.Time) {
	prefix, ok := s.Prefix()
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ends == nil {
		p.ends = make(map[netip.Prefix]time.Time)
	}
	before, there := p.ends[prefix]
	if there && !end.After(before) {
		return
	}
	if p.ends[prefix] = end; !there {
		tree := p.tree.Load()
		if tree == nil {
			tree = new(bart.Lite)
		}
		p.tree.Store(tree.InsertPersist(prefix))
	}
}

// sweep forgets what has ended.
func (p *prefixes) sweep(now time.Time) {
	if p.tree.Load() == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	tree := p.tree.Load()
	for prefix, end := range p.ends {
		if !now.Before(end) {
			delete(p.ends, prefix)
			tree = tree.DeletePersist(prefix)
		}
	}
	if len(p.ends) == 0 {
		tree = nil
	}
	p.tree.Store(tree)
}

// Covering appends to buf the sources that hold all of a prefix and of which operators have said
// something, the narrowest first, and returns it. Until reports whether their orders are still in
// force.
func (t *Table) Covering(p netip.Prefix, buf []counter.Source) []counter.Source {
	tree := t.prefixes.tree.Load()
	if tree == nil || !p.IsValid() || !tree.LookupPrefix(p) {
		return buf
	}
	for wider := range tree.Supernets(p) {
		buf = append(buf, counter.SourceOf(wider.Addr(), min(wider.Bits(), 32), wider.Bits()))
	}
	return buf
}

// OrderedWithin is Ordered for the sources that lie in a prefix, the narrower ones and the prefix
// itself.
func (t *Table) OrderedWithin(what uint32, p netip.Prefix, now time.Time) bool {
	tree := t.prefixes.tree.Load()
	if tree == nil || !p.IsValid() {
		return false
	}
	for narrower := range tree.Subnets(p) {
		s := counter.SourceOf(narrower.Addr(), min(narrower.Bits(), 32), narrower.Bits())
		if !t.Until(Key{Rule: what, Source: s}, now).IsZero() {
			return true
		}
	}
	return false
}

// UntilOf is Until for the latest end of what is in force under a rule of the source of k, or by
// operators under the rule or under all of one that covers it. A verdict, or a block of another
// PoP, is about a source that the rule counts, and not about all that are in it.
func (t *Table) UntilOf(k Key, covering []counter.Source, now time.Time) time.Time {
	until := t.Until(k, now)
	for _, s := range covering {
		for _, rule := range [...]uint32{k.Rule, AllRules} {
			if end := t.UntilOrdered(Key{Rule: rule, Source: s}, now); end.After(until) {
				until = end
			}
		}
	}
	return until
}

// OrderOf is the operators' bit by which UntilOf is what it is: that of k, of a wider source, or of
// another rule whose variant k is of (0: none). It is for requests that are refused.
func (t *Table) OrderOf(
	k Key,
	of uint32,
	covering []counter.Source,
	until, now time.Time,
) (Bit, bool) {
	for _, rule := range [...]uint32{k.Rule, of} {
		if bit, in := t.Get(
			Key{Rule: rule, Source: k.Source},
			now,
		); rule != 0 && in && bit.By == ByAdmin &&
			bit.End.Equal(until) {
			return bit, true
		}
	}
	for _, s := range covering {
		for _, rule := range [...]uint32{k.Rule, of, AllRules} {
			if bit, in := t.Get(
				Key{Rule: rule, Source: s},
				now,
			); rule != 0 && in && bit.By == ByAdmin &&
				bit.End.Equal(until) {
				return bit, true
			}
		}
	}
	return Bit{}, false
}

// UntilOrdered is Until for what operators say alone.
func (t *Table) UntilOrdered(k Key, now time.Time) time.Time {
	if bit, in := t.Get(k, now); in && bit.By == ByAdmin {
		return bit.End
	}
	return time.Time{}
}

// Ordered reports whether operators allow or deny one of the sources.
func (t *Table) Ordered(what uint32, covering []counter.Source, now time.Time) bool {
	for _, s := range covering {
		if !t.Until(Key{Rule: what, Source: s}, now).IsZero() {
			return true
		}
	}
	return false
}
