package control

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/address"
	"sluice/edge/config"
	"sluice/edge/rules"
	"sluice/mitigation"
)

// What operators may speak of in place of a rule. Over the PoP and to the next process it goes
// under a name like a rule's, which no rule can have.
const (
	AllRules = "*"      // of blocks: every rule that a request falls under
	Allow    = "+allow" // the list of those who are never limited
	Deny     = "+deny"  // the list of those who are always refused
	// The whole site. It is an order like a block, about one source that is nobody's, so of two that
	// are given at once the same one stands everywhere, and an edge that was away takes it with the
	// others.
	Site = "+maintenance"
)

// Scopes are these as rules that count nothing, with the IDs of their bits.
var Scopes = [...]Scope{scope(AllRules, mitigation.AllRules), scope(Allow, mitigation.Allowed),
	scope(Deny, mitigation.Denied), scope(Site, mitigation.Site)}

// A Scope is what operators may speak of in place of a rule.
type Scope struct {
	Name    string
	Counter *algorithm.Spec
}

func scope(name string, id uint32) Scope {
	r, err := algorithm.NewSliding(name, 1, algorithm.MinWindow, 1, algorithm.Nearest)
	if err != nil {
		panic(err)
	}
	r.ID = id
	return Scope{name, r}
}

// scopeID is the ID of the bits of a scope.
func scopeID(name string) (id uint32, ok bool) {
	for _, s := range Scopes {
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

// CheckWidth refuses a prefix that is too wide.
func CheckWidth(p netip.Prefix) error {
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
func (c *Admin) Listed(list string, now time.Time) []Listed {
	id, _ := scopeID(list)
	all := []Listed{}
	for key, bit := range c.with.Limiter.Blocks.All(now) {
		if key.Rule == id {
			all = append(all, Listed{Prefix: key.Source.String(), Start: bit.Start, End: bit.End,
				Reason: bit.Reason})
		}
	}
	return all
}

// List puts a prefix on the list Allow or Deny for a while, on every edge of the PoP. Of a prefix on
// both the longer is right, and at a tie it is denied.
func (c *Admin) List(list, prefix string, d time.Duration, reason string, by Operator,
	now time.Time) (Listed, error) {
	key, err := scopeKey(list, prefix)
	if err != nil {
		return Listed{}, err
	}
	m, err := c.put(list, key, d, reason, by, now)
	l := Listed{Prefix: m.Source, Start: m.Start, End: m.End, Reason: reason, Edges: m.Edges}
	p, _ := key.Source.Prefix()
	if denied, _, _ := c.listed(p, now); list == Allow && denied {
		l.Warning = "this prefix is denied, which goes before: allowing it has no effect"
	}
	return l, err
}

// Unlist takes a prefix off the list. It may be allowed or denied all the same, by the
// configuration or as part of a wider prefix.
func (c *Admin) Unlist(list, prefix string, by Operator, now time.Time) (Lifted, error) {
	key, err := scopeKey(list, prefix)
	if err != nil {
		return Lifted{}, err
	}
	l, err := c.lift(list, key, nil, by, now, false)
	p, _ := key.Source.Prefix()
	denied, allowed, _ := c.listed(p, time.Now())
	const byOthers = " all the same: by the configuration, or as part of a wider prefix on this list"
	switch {
	case err != nil:
	case list == Deny && denied:
		l.Warning = "it is denied" + byOthers
	case list == Allow && allowed:
		l.Warning = "it is allowed" + byOthers
	}
	return l, err
}

// scopeKey is the key of a prefix under a scope. It is as wide as it is written: scopes do not
// count.
func scopeKey(scope, prefix string) (mitigation.Key, error) {
	id, ok := scopeID(scope)
	if !ok {
		return mitigation.Key{}, fmt.Errorf("%w: %s", config.ErrNoRule, scope)
	}
	src, err := counter.ParseSource(prefix)
	p, is := src.Prefix()
	if err != nil || !is {
		return mitigation.Key{},
			fmt.Errorf("edge: %q is no prefix: want an address, or CIDR such as 192.0.2.0/24",
				prefix)
	}
	return mitigation.Key{Rule: id, Source: src}, CheckWidth(p)
}

// effect says why a block can have none; "": it has.
func (c *Admin) effect(r *rules.Rule, source counter.Source, now time.Time) string {
	p, ok := source.Prefix()
	exact := !ok || c.with.View().Sources.Of(p.Addr()) == source // and no wider prefix
	_, allowed, _ := c.listed(p, now)
	switch {
	case ok && allowed:
		return "this source is allowed, which goes before: the block refuses nobody"
	case ok && p.IsSingleIP() && address.IsIn(c.with.View().Sources.Trust, p.Addr()):
		return "this is a trusted proxy (source.trust): what it passes on counts for the clients that it names, and only its own requests are refused"
	case r != nil && exact && !r.IsAbout(c.with.Secret, source):
		return fmt.Sprintf("rule %s is about %d %% of sources, and not about this one: the block refuses nobody", r.Config.Name, r.Config.Share)
	case r != nil && r.Config.Limit == 0 && r.InFlight == nil:
		return "rule " + r.Config.Name + " has no limit: the block refuses nobody"
	case r != nil && r.Shadow:
		return "rule " + r.Config.Name + " is a shadow: the block refuses nobody"
	case r != nil && r.Tag:
		return "rule " + r.Config.Name + " only tags requests: the block refuses nobody"
	}
	return ""
}

// A Filter says which mitigations are asked for. Empty fields ask for all.
type Filter struct {
	Rule   string         // AllRules: those under every rule
	Source counter.Source // it, and prefixes that hold it or lie in it
	Mode   rules.Mode
	By     string
	// Part of a source, a rule or a reason; or an address, which those hold that it belongs to
	Text string
}

// Matches reports whether a mitigation is asked for.
func (f *Filter) Matches(m *Mitigation) bool {
	if f.Rule != "" && m.Rule != f.Rule || f.Mode != "" && m.Mode != f.Mode || f.By != "" &&
		m.By != f.By {
		return false
	}
	if f.Source != (counter.Source{}) {
		src, _ := counter.ParseSource(m.Source)
		p, is := src.Prefix()
		if wanted, prefix := f.Source.Prefix(); src != f.Source &&
			!(is && prefix && p.Overlaps(wanted)) {
			return false
		}
	}
	if f.Text == "" {
		return true
	}
	if addr, err := netip.ParseAddr(f.Text); err == nil {
		if src, err := counter.ParseSource(m.Source); err == nil {
			if p, ok := src.Prefix(); ok && p.Contains(counter.Plain(addr)) {
				return true
			}
		}
	}
	return slices.ContainsFunc([]string{m.Source, m.Rule, m.Reason}, func(text string) bool {
		return strings.Contains(strings.ToLower(text), strings.ToLower(f.Text))
	})
}
