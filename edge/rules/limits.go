package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/counter/exact"
	"sluice/edge/limiter"
	"sluice/edge/rules/key"
	"sluice/edge/rules/match"
)

// A rule may have several limits: other windows beside its own, and wider prefixes beside the
// source. Each has its own counter, a request must be within all of them, and one that any of them
// refuses is counted under none. At worst a request costs the tier three commands for each, and the
// table one counter for each that is new: maxLimits bounds both.
//
// A prefix that is over its limit is blocked like any source, under its own limit: every request
// reads the bits of all prefixes that it belongs to. So a client that takes a new address for each
// request is blocked by the width that it does not leave, on every edge, and makes no counters
// while it is. When that block is over, only what is still over a limit is blocked again.
const (
	maxWindows = 4 // beside the rule's own
	maxWidths  = 4 // of a family
	maxLimits  = 8 // that one request can be under
)

// Window is a limit in a window beside the rule's own.
type Window struct {
	Limit  uint32   `json:"limit" want:"1 to 1000000000"`
	Window Duration `json:"window" want:"1s to 24h"`
}

// Prefix is a width in which addresses are counted together: of IPv4 to 32, of IPv6 above. The
// narrowest of a family has the rule's limit; a wider one has Limit, or, if that is 0, the rule's
// for every two bits doubled: as many times as the square root of the sources in it.
type Prefix struct {
	Prefix int    `json:"prefix" want:"8 to 128"`
	Limit  uint32 `json:"limit" want:"1 to 1000000000"`
}

// MarshalJSON shows a prefix as files have it.
func (p Prefix) MarshalJSON() ([]byte, error) {
	if p.Limit == 0 {
		return json.Marshal(p.Prefix)
	}
	type fields Prefix
	return json.Marshal(fields(p))
}

func (p Prefix) v4() bool { return p.Prefix <= 32 }

// CheckWindows returns what makes no sense in a rule's windows.
func (c *Config) CheckWindows() error {
	if len(c.Windows) > maxWindows {
		return fmt.Errorf("windows: more than %d: leave out some", maxWindows)
	}
	for _, w := range c.Windows { // wider prefixes have larger limits
		if least := c.Cost.Least(); least > w.Limit {
			return fmt.Errorf("windows: each request costs %d, more than the limit of %d in %v: none would ever pass", least, w.Limit, w.Window)
		}
	}
	all := append([]Window{{c.Limit, c.Window}}, c.Windows...)
	slices.SortStableFunc(all,
		func(a, b Window) int { return int(min(1, max(-1, a.Window-b.Window))) })
	for i := 1; i < len(all); i++ {
		short, long := all[i-1], all[i]
		switch {
		case short.Window == long.Window:
			return fmt.Errorf("windows: there are two limits in %v (the rule's own window is %v): keep one", long.Window, c.Window)
		case short.Limit >= long.Limit:
			return fmt.Errorf("windows: %d in %v can never be reached beside %d in %v: a longer window needs the larger limit", short.Limit, short.Window, long.Limit, long.Window)
		case float64(short.Limit)*float64(long.Window) <= float64(long.Limit)*float64(short.Window):
			return fmt.Errorf("windows: %d in %v can never be reached beside %d in %v: a longer window needs the lower rate", long.Limit, long.Window, short.Limit, short.Window)
		}
	}
	return nil
}

// CheckPrefixes returns what makes no sense in a rule's prefixes.
func (c *Config) CheckPrefixes() error {
	if len(c.Prefixes) == 0 {
		return nil
	}
	if !slices.Equal(c.Key, []string{"source"}) {
		return fmt.Errorf("prefixes: only addresses have wider ones, and this rule counts by %s: want key: source", strings.Join(c.Key, ", "))
	}
	for _, v4 := range []bool{true, false} {
		widths := c.widths(v4)
		if len(widths) > maxWidths {
			return fmt.Errorf("prefixes: more than %d of a family: leave out some", maxWidths)
		}
		if n := len(widths) * (1 + len(c.Windows)); n > maxLimits {
			return fmt.Errorf("prefixes: with %d windows a request would be under %d limits: want at most %d; leave out some windows or prefixes", 1+len(c.Windows), n, maxLimits)
		}
		below := c.Limit
		for i, p := range widths {
			limit := c.widened(widths, i)
			switch {
			case i == 0 && p.Limit != 0:
				return fmt.Errorf("prefixes: %d is the narrowest of its family and has the rule's limit: write %d alone", p.Prefix, p.Prefix)
			case i > 0 && widths[i-1].Prefix == p.Prefix:
				return fmt.Errorf("prefixes: %d is there twice: remove one", p.Prefix)
			case i > 0 && limit <= below && limit < algorithm.MaxLimit:
				return fmt.Errorf("prefixes: %d has a limit of %d, and a prefix within it %d, which could never be reached: a wider prefix needs the larger limit", p.Prefix, limit, below)
			}
			below = limit
		}
	}
	return nil
}

// widths are the prefixes of a family, the narrowest first.
func (c *Config) widths(v4 bool) (list []Prefix) {
	for _, p := range c.Prefixes {
		if p.v4() == v4 {
			list = append(list, p)
		}
	}
	slices.SortStableFunc(list, func(a, b Prefix) int { return b.Prefix - a.Prefix })
	return list
}

// Families returns which prefixes of the rule belong to which family: "IPv4 /32 /24 and IPv6 /64";
// "" if it has none.
func (c *Config) Families() string {
	var families []string
	for _, v4 := range []bool{true, false} {
		text := "IPv6"
		if v4 {
			text = "IPv4"
		}
		widths := c.widths(v4)
		for _, p := range widths {
			text += fmt.Sprintf(" /%d", p.Prefix)
		}
		if len(widths) > 0 {
			families = append(families, text)
		}
	}
	return strings.Join(families, " and ")
}

// site is the longest prefix that one client of IPv6 is usually given.
const site = 48

// ManyAsOne is a prefix of IPv6 in which the rule counts very many clients by the limit of one; 0:
// it has none.
func (c *Config) ManyAsOne() int {
	if widths := c.widths(false); len(widths) > 0 && widths[0].Prefix < site {
		return widths[0].Prefix
	}
	return 0
}

// widened is the limit of one of these in the rule's own window.
func (c *Config) widened(widths []Prefix, i int) uint32 {
	if l := widths[i].Limit; l != 0 {
		return l
	}
	doubled := (widths[0].Prefix - widths[i].Prefix) / 2
	if bits.Len32(c.Limit)+doubled > 32 {
		return algorithm.MaxLimit
	}
	return min(algorithm.MaxLimit, c.Limit<<doubled)
}

// Limits is how many the rule has, those of both families.
func (c *Config) Limits() int {
	return (1 + len(c.Windows)) * (1 + max(0, len(c.widths(true))-1) +
		max(0, len(c.widths(false))-1))
}

// OwnLimit is the rule without the others: no windows, and no prefixes but the narrowest.
func (c Config) OwnLimit() Config {
	c.Windows = nil
	var narrowest []Prefix
	for _, v4 := range []bool{true, false} {
		narrowest = append(narrowest, c.widths(v4)[:min(1, len(c.widths(v4)))]...)
	}
	c.Prefixes = narrowest
	return c
}

// own is the width by which sources are distinguished everywhere (source.ipv4_prefix and
// source.ipv6_prefix), none that of no source at all.
const (
	own  = 0
	none = -1
)

// A Limit is one of a rule's limits: a window, and the width in which addresses are counted
// together.
type Limit struct {
	*limiter.Rule
	Parent *Rule // the rule that has it
	// What clients and operators know it by: "login", "login/1s", "login/24", "login/24/1s"
	Policy string
	Texts  [2]Text // for clients of IPv4 and of IPv6

	v4, v6 int  // prefix lengths, own or none
	apart  bool // it counts by Rule.apart, in place of the others
}

// Of returns the source that the limit counts, of a request from client whose source by the rule's
// key is given; false: none.
func (l *Limit) Of(source counter.Source, client netip.Addr) (counter.Source, bool) {
	width := l.v6
	if client = client.Unmap(); client.Is4() {
		width = l.v4
	}
	switch width {
	case own:
		return source, true
	case none:
		return source, false
	}
	return counter.SourceOf(client, max(l.v4, 0), max(l.v6, 0)), true
}

// Widths are the lengths of the prefixes that the limit counts by, of IPv4 and of IPv6, if sources
// are distinguished by v4 and v6; -1: it counts no addresses of that family.
func (l *Limit) Widths(v4, v6 int) (int, int) {
	if l.v4 != own {
		v4 = l.v4
	}
	if l.v6 != own {
		v6 = l.v6
	}
	return v4, v6
}

// spec is a limit of a rule as its Config has it.
type spec struct {
	limit  uint32
	window time.Duration
	v4, v6 int
	suffix string // of the policy's name
	apart  bool
}

// Afresh says that a rule whose limit has changed begins afresh by that alone, because its counters
// become wider or narrower; "": it does not. That other changes do (a bucket's limit among them) is
// seen by what has changed.
func Afresh(before, now *Config) string {
	if before.Limit == 0 || now.Limit == 0 || before.Algorithm != now.Algorithm ||
		now.Algorithm == TokenBucket || now.Algorithm == LeakyBucket {
		return ""
	}
	wide := func(c *Config, s spec) bool {
		own := *c
		own.Limit, own.Window = s.limit, Duration(s.window)
		counter, err := own.NewCounter("", algorithm.Nearest)
		return err == nil && counter.Wide()
	}
	a, b := before.specs(), now.specs()
	for i := range min(len(a), len(b)) {
		if a[i].window == b[i].window && wide(before, a[i]) != wide(now, b[i]) {
			return fmt.Sprintf("counters are wider above a limit of %d, so it begins afresh, blocks included", algorithm.MaxNarrow)
		}
	}
	return ""
}

// specs are the limits of a rule. The first is the rule's own limit in its own window; it is about
// clients of both families.
func (c *Config) specs() (list []spec) {
	narrow := spec{v4: own, v6: own}
	v4, v6 := c.widths(true), c.widths(false)
	if len(v4) > 0 {
		narrow.v4 = v4[0].Prefix
	}
	if len(v6) > 0 {
		narrow.v6 = v6[0].Prefix
	}
	add := func(s spec, own uint32) { // own is the limit in the rule's own window
		for i, w := range append([]Window{{c.Limit, c.Window}}, c.Windows...) {
			s := s
			// Rounded up. Factors are below 2^30, so that their product fits.
			s.limit, s.window = uint32(min(algorithm.MaxLimit,
				(uint64(w.Limit)*uint64(own)+uint64(c.Limit)-1)/uint64(c.Limit))), time.Duration(w.Window)
			if i > 0 {
				s.suffix += "/" + w.Window.String()
			}
			list = append(list, s)
		}
	}
	add(narrow, c.Limit)
	for _, family := range [][]Prefix{v4, v6} {
		for i := 1; i < len(family); i++ {
			s := spec{v4: none, v6: none, suffix: fmt.Sprintf("/%d", family[i].Prefix)}
			if family[i].v4() {
				s.v4 = family[i].Prefix
			} else {
				s.v6 = family[i].Prefix
			}
			add(s, c.widened(family, i))
		}
	}
	return list
}

// countsBy names all that makes a rule's numbers mean what they mean, beside the shape of its
// counters, which algorithm.Spec.Identity has: its name, its key, which requests it is about and
// which of them it counts at what cost, and whether it enforces, because a shadow counts what it
// would have admitted. A rule that is changed in any of that begins afresh, and so do its
// mitigations: a number of requests is no number of failed logins. In all else it goes on counting.
//
// What most rules do not say is in it by a digest, so that names are short. The width of prefixes
// is part of a source.
func (c *Config) countsBy() string {
	parts := slices.Clone(c.Key)
	for i, part := range parts {
		parts[i] = key.Fold(part)
	}
	name := fmt.Sprintf("%s %s %s", c.Name, strings.Join(parts, ","), c.Mode)
	said := struct {
		Match match.Config
		Count Count
		Cost  Cost
	}{c.Match.Plainly(), c.Count, c.Cost}
	said.Count.Statuses = slices.Sorted(slices.Values(c.Count.Statuses))
	text, err := json.Marshal(said)
	if err != nil {
		panic(err) // these have no values that JSON has not
	}
	if string(text) != everyRequest {
		sum := sha256.Sum256(text)
		name += " " + hex.EncodeToString(sum[:8])
	}
	return name
}

// everyRequest is what a rule counts by default.
const everyRequest = `{"Match":{},"Count":{},"Cost":1}`

// addLimits gives a rule its limits. Counters of the first are those that the rule has without the
// others; others are named by their width, because numbers of one width mean nothing in another.
func (r *Rule) addLimits(estimate algorithm.Estimate, apart uint32) error {
	config := r.Config
	c := &config
	if c.Limit == 0 && c.MayLackLimit() {
		// No source is counted under it, but lists of rules find a counter
		c.Limit = algorithm.MaxLimit
	}
	if c.Limit == 0 {
		return fmt.Errorf("limit 0: want 1 to %d", algorithm.MaxLimit)
	}
	for _, check := range []func() error{c.CheckWindows, c.CheckPrefixes} {
		if err := check(); err != nil {
			return err
		}
	}
	list := c.specs()
	if r.apart != nil {
		list = append(list, spec{limit: apart, window: time.Duration(c.Window), v4: none, v6: none,
			suffix: "/" + r.apart.Name, apart: true})
	}
	r.several = len(list) > 1 || len(c.Prefixes) > 0
	common, counts := r.Rule, c.countsBy()
	for i, s := range list {
		to := &r.Rule
		name := counts
		if i > 0 {
			other := common
			other.ExtraLimit = true
			to = &other
			if s.apart {
				name += " " + r.apart.Name
			} else if s.v4 == none || s.v6 == none {
				name += fmt.Sprintf(" /%d", max(s.v4, s.v6))
			}
		}
		own := *c
		own.Limit, own.Window = s.limit, Duration(s.window)
		var err error
		if to.Counter, err = own.NewCounter(name, estimate); err != nil {
			return err
		}
		if c.keeps() {
			to.Exact = exact.NewSpec(to.Counter, c.OnStoreFailure == limiter.Closed,
				len(c.Count.Statuses) > 0)
		}
		r.Limits = append(r.Limits, Limit{Rule: to, Parent: r, Policy: c.Name + s.suffix, v4: s.v4,
			v6: s.v6, apart: s.apart})
	}
	r.ownLimits()
	v4, v6 := policy(r.Limits, true), policy(r.Limits, false)
	for i := range r.Limits {
		l := &r.Limits[i]
		if l.Texts[0], l.Texts[1] = newText(l, v4, true), newText(l, v6, false); l.apart {
			l.Texts[0] = newText(l, l.appendPolicy(nil), true)
			l.Texts[1] = l.Texts[0]
		}
	}
	return nil
}

// Limit is the limit of that policy; nil: there is none.
func (r *Rule) Limit(policy string) *Limit {
	i := slices.IndexFunc(r.Limits, func(l Limit) bool { return l.Policy == policy })
	if i < 0 {
		return nil
	}
	return &r.Limits[i]
}

// ownLimits makes the rule's limits known to results.
func (r *Rule) ownLimits() {
	for i := range r.Limits {
		r.Limits[i].Owner = &r.Limits[i]
	}
}

// LimitOf is the limit that a result is of, and RuleOf the rule that has it.
func LimitOf(r *limiter.RuleResult) *Limit { return r.Rule.Owner.(*Limit) }

func RuleOf(r *limiter.RuleResult) *Rule { return LimitOf(r).Parent }

// OwnPolicy names the limit where its rule's name does not; "" otherwise.
func (l *Limit) OwnPolicy() string {
	if l.Policy == l.Parent.Config.Name {
		return ""
	}
	return l.Policy
}
