package control

import (
	"context"
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"sluice/counter"
	"sluice/counter/inflight"
	"sluice/edge/address"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
	"sluice/edge/rules/match"
	"sluice/mitigation"
)

// SourceState is how a source stands under a rule.
type SourceState struct {
	Rule      string      `json:"rule"`
	Source    string      `json:"source"`
	Mode      rules.Mode  `json:"mode"`
	Estimate  float64     `json:"estimate"` // hits in the window
	Limit     uint32      `json:"limit"`
	Remaining uint32      `json:"remaining"`
	Until     *time.Time  `json:"mitigated_until"` // null: not mitigated
	Block     *Mitigation `json:"block,omitempty"` // why not

	OutsideShare bool `json:"outside_share,omitempty"` // the rule is not about this source

	// Under which of the rule's limits, where it has several; none: the first
	Policy string `json:"policy,omitempty"`

	Places *Places `json:"places,omitempty"` // nil: the rule has no concurrency

	// Of who is counted by a key:
	// "": the rule does not ask for plans, or the digest does not tell who it is
	Plan string `json:"plan,omitempty"`
	// When all of the limit is there again, if nothing more comes
	Reset time.Time `json:"reset,omitzero"`
}

// Places are those that requests in flight hold under a rule's concurrency.
type Places struct {
	Held  int `json:"held"`  // on all edges, or, where the tier has not answered, on this one
	Here  int `json:"here"`  // on this edge
	Limit int `json:"limit"` // so many there are
}

// places are those of a source, once askTier has asked; nil: the rule has none.
func (c *Admin) places(u *where) *Places {
	if u.rule.InFlight == nil {
		return nil
	}
	all, here := c.with.Limiter.InFlight.Of(u.rule.InFlight, u.source, u.look)
	return &Places{all, here, int(u.rule.InFlight.Limit)}
}

// Looked is what is known of a source.
type Looked struct {
	Source  string `json:"source"`
	Allowed bool   `json:"allowed"` // by the list allow: never limited
	Denied  bool   `json:"denied"`  // by the list deny: always refused
	// The tier has answered; else this is what this edge alone knows
	Asked bool          `json:"asked"`
	Rules []SourceState `json:"rules"`
	// Of an address: the keys by which rules count it as well
	ByKey []ByKey `json:"by_key,omitempty"`
	// Of an address: what is known of it, by the name of each key.Fact, which are fields like others
	// in JSON, and in words
	Facts map[string]any `json:"-"`
	Known string         `json:"known,omitempty"`
	// Of who was asked about by a key: what it is of, without its value
	Key string `json:"key,omitempty"`
}

// MarshalJSON shows facts as fields like others.
func (l Looked) MarshalJSON() ([]byte, error) {
	type plain Looked
	text, err := json.Marshal(plain(l))
	if err != nil || len(l.Facts) == 0 {
		return text, err
	}
	return match.Joined(text, l.Facts)
}

// UnmarshalJSON takes fields that Looked has not for facts: another edge may know other ones.
func (l *Looked) UnmarshalJSON(text []byte) error {
	type plain Looked
	if err := json.Unmarshal(text, (*plain)(l)); err != nil {
		return err
	}
	l.Facts = nil
	if err := json.Unmarshal(text, &l.Facts); err != nil {
		return err
	}
	for f := range reflect.TypeFor[Looked]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		delete(l.Facts, name)
	}
	return nil
}

// addFacts adds what is known of an address.
func (l *Looked) addFacts(facts []*key.Fact, addr netip.Addr) {
	for _, f := range facts {
		value := f.OfAddress(addr)
		if value == "" {
			continue
		}
		if l.Facts == nil {
			l.Facts = make(map[string]any)
		}
		if l.Facts[f.Name] = value; f.Numbers {
			l.Facts[f.Name] = json.Number(value)
		}
	}
	l.Known = known(facts, addr)
}

// known is what is known of an address, in words.
func known(facts []*key.Fact, addr netip.Addr) string {
	var words []string
	for _, f := range facts {
		if value := f.OfAddress(addr); value != "" {
			words = append(words, f.Before+value)
		}
	}
	return strings.Join(words, ", ")
}

// Look tells what is known of an address: what lists say of it, and how it stands under every limit
// of every rule that counts by source. The tier is asked what it has of it, and waited for until
// ctx is done; what this edge knows is told all the same.
func (c *Admin) Look(ctx context.Context, addr netip.Addr) Looked {
	in := c.with.View()
	source := in.Sources.Of(addr)
	l := Looked{Source: source.String(), Rules: []SourceState{}, ByKey: c.byKeys(&in, source)}
	l.addFacts(in.Facts, addr)
	under := bySource(in, source, addr)
	l.Asked = c.askTier(ctx, under, source)
	now := time.Now()
	denied, allowed, covering := c.listed(address.Single(addr), now)
	l.Denied, l.Allowed = denied, allowed
	for i := range under {
		u := &under[i]
		st := c.state(u, covering, now)
		st.OutsideShare = !u.rule.IsAbout(c.with.Secret, source)
		if st.Block != nil {
			// Of a wider block it refuses those that knock, one by one
			c.inKernel(st.Block, u.source)
		}
		l.Rules = append(l.Rules, st)
	}
	return l
}

// bySource are the limits that an address, whose source that is, tells all about, and whom each
// counts.
func bySource(in View, source counter.Source, addr netip.Addr) (list []where) {
	for r, l := range in.Rules.EachLimit() {
		if src, counts := l.Of(source, addr); counts && r.Parts == nil && (r.Config.Limit != 0 ||
			r.InFlight != nil) {
			list = append(list, where{rule: r, limit: l, source: src})
		}
	}
	return list
}

// askTier asks the tier what it has under limits of a source, as rules tell sources apart, and
// reports whether it has answered by the time that ctx is done. If it is done already, the tier is
// not asked.
func (c *Admin) askTier(ctx context.Context, under []where, source counter.Source) bool {
	replies, asked := c.startAsking(ctx, under, source)
	return asked && answered(ctx, replies)
}

// startAsking asks, and returns what is closed when there are answers. It reports false where
// nobody can be asked.
func (c *Admin) startAsking(ctx context.Context, under []where,
	source counter.Source) (replies []<-chan struct{}, asked bool) {
	if ctx.Err() != nil || c.with.Limiter.Fetch == nil || c.with.Limiter.Up != nil &&
		!c.with.Limiter.Up(source) {
		return nil, false
	}
	for i := range under {
		u := &under[i]
		if u.rule.InFlight != nil {
			if u.look = c.with.Limiter.InFlight.Look(u.rule.InFlight,
				u.source); u.look.Reply != nil {
				replies = append(replies, u.look.Reply)
			}
		}
		if u.rule.Uncounted {
			continue
		}
		if u.limit.Exact != nil {
			replies = append(replies, c.with.Limiter.Exact.Look(u.limit.Exact, u.source))
			continue
		}
		reply, first := c.with.Limiter.Counters.Await(u.limit.Counter, u.source)
		if first {
			c.with.Limiter.Fetch(u.limit.Counter, u.source)
		}
		replies = append(replies, reply)
	}
	return replies, true
}

// answered waits for the answers, and reports whether they came by the time that ctx is done.
func answered(ctx context.Context, replies []<-chan struct{}) bool {
	for _, reply := range replies {
		select {
		case <-reply:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Nearest returns, for every rule that counts by address, the source that has used most of its
// limit and is not mitigated, of the n with the most requests of late: how much room a rule leaves
// to whom it does not refuse.
func (c *Admin) Nearest(n int, now time.Time) map[string]SourceState {
	var heavy []counter.Source
	for _, h := range c.with.Requests.Heaviest(n) {
		if src, err := counter.ParseSource(h.Source); err == nil {
			heavy = append(heavy, src)
		}
	}
	nearest := make(map[string]SourceState)
	for r, l := range c.with.View().Rules.EachLimit() {
		if r.Parts != nil {
			continue // counted by something that an address does not tell
		}
		for _, src := range heavy {
			if p, ok := src.Prefix(); ok {
				// Of a prefix narrower than src it is some source, of which there is a counter or
				// none
				src, ok = l.Of(src, p.Addr())
				if !ok {
					continue
				}
			}
			v, known := c.with.Limiter.Peek(l.Rule, src, now)
			most, there := nearest[r.Config.Name]
			if used := v.Estimate / float64(l.Counter.Limit); !known || v.Estimate == 0 || there &&
				used <= most.Estimate/float64(most.Limit) ||
				!c.with.Limiter.Blocks.Until(mitigation.Key{Rule: l.Counter.ID, Source: src}, now).
					IsZero() {
				continue
			}
			nearest[r.Config.Name] = SourceState{Rule: r.Config.Name, Policy: l.OwnPolicy(),
				Source: src.String(), Mode: r.Config.Mode,
				Estimate: v.Estimate, Limit: l.Counter.Limit, Remaining: v.Remaining}
		}
	}
	return nearest
}

// where is a limit of a rule, and whom it counts.
type where struct {
	rule   *rules.Rule
	limit  *rules.Limit
	source counter.Source
	look   inflight.Look // at its places, once the tier is asked
}

// over is what is in force at now over a source under some limits or under AllRules, said of it or
// of a prefix that covers it: what ends last; nil if nothing is.
func (c *Admin) over(covering []counter.Source, now time.Time, under ...where) (last *Mitigation) {
	look := func(n named, id uint32, source counter.Source) {
		if bit, in := c.with.Limiter.Blocks.Get(mitigation.Key{Rule: id, Source: source}, now); in &&
			(last == nil || bit.End.After(last.End)) {
			m := n.shown(source, bit)
			last = &m
		}
	}
	for _, u := range under {
		n := namedBy(u.rule, u.limit)
		look(n, u.limit.Counter.ID, u.source)
		if u.rule.IsVariant() {
			look(n, u.rule.VariantOf, u.source) // an operator's block is under the rule itself
		}
		for _, wider := range covering {
			look(n, u.limit.Counter.ID, wider)
		}
	}
	for _, wider := range covering {
		look(named{rule: AllRules, mode: rules.Enforce}, mitigation.AllRules, wider)
	}
	return last
}
