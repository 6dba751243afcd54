package edge

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/counter"
	"sluice/edge/config"
	"sluice/edge/rules"
	"sluice/mitigation"
)

// What operators may speak of in place of a rule. Over the PoP and to the next process it goes under a name like a rule's, which no rule
// can have.
const (
	AllRules = "*"      // of blocks: every rule that a request falls under
	Allow    = "+allow" // the list of those who are never limited
	Deny     = "+deny"  // the list of those who are always refused
)

// scopes are these as rules that count nothing, with the IDs of their bits.
var scopes = [...]TierRule{scope(AllRules, mitigation.AllRules), scope(Allow, mitigation.Allowed), scope(Deny, mitigation.Denied)}

func scope(name string, id uint32) TierRule {
	r, err := counter.NewRule(name, 1, counter.MinWindow, 1, counter.Nearest)
	if err != nil {
		panic(err)
	}
	r.ID = id
	return TierRule{Counter: r, Name: name}
}

// scopeID is the ID of the bits of a scope.
func scopeID(name string) (id uint32, ok bool) {
	for _, s := range scopes {
		if s.Name == name {
			return s.Counter.ID, true
		}
	}
	return 0, false
}

// The widest prefixes of which operators may say something: more of the internet at once is a slip.
const (
	widestV4 = 8
	widestV6 = 16
)

func checkWidth(p netip.Prefix) error {
	if least := map[bool]int{true: widestV4, false: widestV6}[p.Addr().Is4()]; p.Bits() < least {
		return fmt.Errorf("edge: %s is too wide: want /%d or longer", p, least)
	}
	return nil
}

// A Listed is a prefix that operators allow or deny for a while.
type Listed struct {
	Prefix  string    `json:"prefix"` // an address, where it is one
	Start   time.Time `json:"start"`
	End     time.Time `json:"end"`
	Reason  string    `json:"reason,omitempty"`
	Warning string    `json:"warning,omitempty"` // why it can have no effect
	Edges   *Spread   `json:"edges,omitempty"`   // of what was just said: where it is in force
}

// Listed returns what operators Allow or Deny at now, in no order.
func (s *Server) Listed(list string, now time.Time) []Listed {
	id, _ := scopeID(list)
	all := []Listed{}
	for key, bit := range s.limiter.Bits.All(now) {
		if key.Rule == id {
			all = append(all, Listed{Prefix: key.Source.String(), Start: bit.Start, End: bit.End, Reason: bit.Reason})
		}
	}
	return all
}

// List puts a prefix on the list Allow or Deny for a while, on every edge of the PoP. What the configuration denies stays denied, and
// who is on both lists is denied.
func (s *Server) List(list, prefix string, d time.Duration, reason string, by Operator, now time.Time) (Listed, error) {
	key, err := scopeKey(list, prefix)
	if err != nil {
		return Listed{}, err
	}
	m, err := s.put(list, key, d, reason, by, now)
	l := Listed{Prefix: m.Source, Start: m.Start, End: m.End, Reason: reason, Edges: m.Edges}
	if p, _ := key.Source.Prefix(); list == Allow && s.holds(mitigation.Denied, p, now) {
		l.Warning = "this prefix is denied, which goes before: allowing it has no effect"
	}
	return l, err
}

// Unlist takes a prefix off the list.
func (s *Server) Unlist(list, prefix string, by Operator, now time.Time) (Lifted, error) {
	key, err := scopeKey(list, prefix)
	if err != nil {
		return Lifted{}, err
	}
	return s.lift(list, key, nil, by, now)
}

// holds reports whether all of a prefix is allowed or denied, by the configuration or by operators.
func (s *Server) holds(what uint32, p netip.Prefix, now time.Time) bool {
	snap := s.snap.Load()
	fixed := snap.deny
	if what == mitigation.Allowed {
		fixed = snap.allow
	}
	return fixed != nil && fixed.LookupPrefix(p) || s.limiter.Bits.Says(what, s.limiter.Bits.Covering(p, nil), now)
}

// scopeKey is the key of a prefix under a scope. It is as wide as it is written: scopes do not count.
func scopeKey(scope, prefix string) (mitigation.Key, error) {
	id, ok := scopeID(scope)
	if !ok {
		return mitigation.Key{}, fmt.Errorf("%w: %s", config.ErrNoRule, scope)
	}
	src, err := counter.ParseSource(prefix)
	p, is := src.Prefix()
	if err != nil || !is {
		return mitigation.Key{}, fmt.Errorf("edge: %q is no prefix: want an address, or CIDR such as 192.0.2.0/24", prefix)
	}
	return mitigation.Key{Rule: id, Source: src}, checkWidth(p)
}

// liftAll is Lift under AllRules.
func (s *Server) liftAll(source string, by Operator, now time.Time) (all Lifted, err error) {
	src, err := counter.ParseSource(source)
	if err != nil {
		return all, fmt.Errorf("edge: source %q: want an address, a prefix, or # and 32 hexadecimal digits", source)
	}
	var names []string
	var enforced []*rules.Rule
	for _, r := range s.snap.Load().rules.Rules {
		if _, key, err := s.keyOf(r.Config.Name, source); err == nil && !s.limiter.Bits.Until(key, now).IsZero() {
			names = append(names, r.Config.Name)
		}
		if !r.Shadow {
			enforced = append(enforced, r)
		}
	}
	prefix, is := src.Prefix()
	if is {
		names = append(names, AllRules)
	}
	lifts, errs := make([]Lifted, len(names)), make([]error, len(names))
	var said sync.WaitGroup // at once: each waits for all edges
	for i, name := range names {
		said.Go(func() { lifts[i], errs[i] = s.liftUnder(name, source, by, now) })
	}
	said.Wait()
	for _, l := range lifts {
		all.Lifted = all.Lifted || l.Lifted
		if all.Edges == nil || l.Edges != nil && l.Edges.Have < all.Edges.Have {
			all.Edges = l.Edges
		}
	}
	if now = time.Now(); is && s.holds(mitigation.Denied, prefix, now) {
		all.Warning = "this source is denied, which goes before: it is refused all the same"
	} else if m := s.over(src, s.limiter.Bits.Covering(prefix, nil), now, enforced...); m != nil {
		all.Warning = "a block of " + m.Source + " under " + m.Rule + " still refuses it"
	}
	return all, errors.Join(errs...)
}

// over is what is in force at now over a source under some rules or under AllRules, said of it or of a prefix that covers it: what ends
// last; nil if nothing is.
func (s *Server) over(source counter.Source, covering []counter.Source, now time.Time, under ...*rules.Rule) (last *Mitigation) {
	look := func(rule string, id uint32, mode rules.Mode, source counter.Source) {
		if bit, in := s.limiter.Bits.Get(mitigation.Key{Rule: id, Source: source}, now); in && (last == nil || bit.End.After(last.End)) {
			m := shown(rule, source, bit)
			m.Mode, last = mode, &m
		}
	}
	for _, r := range under {
		look(r.Config.Name, r.Counter.ID, r.Config.Mode, source)
	}
	for _, wider := range covering {
		look(AllRules, mitigation.AllRules, rules.Enforce, wider)
		for _, r := range under {
			look(r.Config.Name, r.Counter.ID, r.Config.Mode, wider)
		}
	}
	return last
}

// effect says why a block can have none; "": it has.
func (s *Server) effect(r *rules.Rule, source counter.Source, now time.Time) string {
	p, ok := source.Prefix()
	exact := !ok || s.snap.Load().sources.Of(p.Addr()) == source // and no wider prefix
	switch {
	case ok && s.holds(mitigation.Allowed, p, now):
		return "this source is allowed, which goes before: the block refuses nobody"
	case r != nil && exact && !r.IsAbout(s.secret, source):
		return fmt.Sprintf("rule %s is about %d %% of sources, and not about this one: the block refuses nobody", r.Config.Name, r.Config.Share)
	case r != nil && r.Shadow:
		return "rule " + r.Config.Name + " is a shadow: the block refuses nobody"
	}
	return ""
}

// A Filter says which mitigations are asked for. Empty fields ask for all.
type Filter struct {
	Rule   string         // AllRules: those under every rule
	Source counter.Source // it, and prefixes that hold it or lie in it
	Mode   rules.Mode
	By     string
	Text   string // part of a source, a rule or a reason; or an address, which those hold that it belongs to
}

// Matches reports whether a mitigation is asked for.
func (f *Filter) Matches(m *Mitigation) bool {
	if f.Rule != "" && m.Rule != f.Rule || f.Mode != "" && m.Mode != f.Mode || f.By != "" && m.By != f.By {
		return false
	}
	if f.Source != (counter.Source{}) {
		src, _ := counter.ParseSource(m.Source)
		p, is := src.Prefix()
		if wanted, prefix := f.Source.Prefix(); src != f.Source && !(is && prefix && p.Overlaps(wanted)) {
			return false
		}
	}
	if f.Text == "" {
		return true
	}
	if addr, err := netip.ParseAddr(f.Text); err == nil {
		if src, err := counter.ParseSource(m.Source); err == nil {
			if p, ok := src.Prefix(); ok && p.Contains(addr.Unmap()) {
				return true
			}
		}
	}
	return slices.ContainsFunc([]string{m.Source, m.Rule, m.Reason}, func(text string) bool {
		return strings.Contains(strings.ToLower(text), strings.ToLower(f.Text))
	})
}
