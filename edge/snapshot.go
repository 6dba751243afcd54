package edge

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/address"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/limiter"
	"sluice/edge/message"
	"sluice/edge/plans"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
	"sluice/edge/upstream"
	"sluice/mitigation"
)

// A snapshot is everything that a reload changes. It is immutable; a request keeps the one that it
// began with.
type snapshot struct {
	generation    int
	hash          uint64    // of the rules
	since         time.Time // the rules are these
	config        *config.Config
	rules         *rules.Set
	sources       *address.Sources
	deny, allow   *address.Group // nil: nobody
	origins       *upstream.Origins
	check         config.CheckPath
	verdictHeader bool

	// What modules do: gates before deny and after it, which of them may wait, and who is told
	// when the snapshot comes into force
	proofs, gates []func(*Exchange) bool
	mayWait       []func(*Exchange) bool
	bodies        []func(*Exchange, []byte) bool // in place of the edge's own
	answers       []func(*Exchange)              // of the edge's own
	answered      []func(*Exchange, *Outcome)    // told of each request
	watches       []func(*Exchange) Watcher
	inForce       []func()
	closed        []func(netip.Prefix)
	decided       []func(*rules.Decision, time.Time, []Told) []Told
	facts         []*key.Fact
	actions       map[rules.Action]func(*Exchange, *rules.Rule) bool
	hellos        []func(*tls.ClientHelloInfo) any
	trials        []rules.Trial

	// Strict-Transport-Security of answers over TLS; nil: the edge says none
	hsts []byte
	// Requests may wait for the tier: a rule has a concurrency, first_sight: wait or check: sync
	waits bool
	// Those about all requests whose mitigations end connections
	sheds    []*rules.Rule
	plans    *plans.Snapshot                 // which client is on which plan; nil: none
	refusals map[*rules.Text]*message.Common // but for variants of rules
	// Names of headers that tell origins what is over a limit: those of clients are dropped
	tags [][]byte
	// And of those in which origins say what a request costs: no client sees them
	prices [][]byte
}

// view is the part of it that operators see.
func (s *Server) view() control.View {
	snap := s.snap.Load()
	return control.View{Rules: snap.rules, Sources: snap.sources, Deny: snap.deny,
		Allow: snap.allow, Facts: snap.facts, Plans: snap.plans, PlansConfig: snap.config.Plans}
}

// Apply puts a configuration in force: rules, lists, sources and origins, at once and for every
// request that begins from now on. Other fields take effect when the process starts. If c cannot be
// put in force, the old configuration stays, and the error says why. Counters of rules whose
// counting did not change go on; so do mitigations, unless their rule is gone, counts otherwise, or
// allows more.
func (s *Server) Apply(c *config.Config) error {
	s.apply.Lock()
	defer s.apply.Unlock()
	next, err := s.newSnapshot(c, s.snap.Load())
	if err != nil {
		s.Failed()
		return err
	}
	s.putInForce(next)
	s.stats.reloads[1].Add(1)
	return nil
}

// Check returns why a configuration cannot be put in force; nil: it can. Nothing changes by it.
func (s *Server) Check(c *config.Config) error {
	s.apply.Lock()
	defer s.apply.Unlock()
	_, err := s.newSnapshot(c, s.snap.Load())
	return err
}

// Renew has modules prepare anew under the configuration in force, because what one of them has to
// do is not what it was. After an error what was in force stays.
func (s *Server) Renew() error {
	s.apply.Lock()
	defer s.apply.Unlock()
	before := s.snap.Load()
	next, err := s.newSnapshot(before.config, before)
	if err != nil {
		return err
	}
	next.generation = before.generation // no configuration was read
	s.putInForce(next)
	return nil
}

// newSnapshot makes a snapshot of c, after before; nil: it is the first.
func (s *Server) newSnapshot(c *config.Config, before *snapshot) (*snapshot, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if before != nil && (c.Plans.Key != before.config.Plans.Key ||
		!slices.Equal(c.Plans.Also, before.config.Plans.Also) ||
		c.Plans.SecretKeys != before.config.Plans.SecretKeys) {
		return nil,
			errors.New("plans.key, plans.also and plans.secret_keys cannot change while the edge runs, because every client's plan is found by them: restart it")
	}
	now := &snapshot{generation: 1, config: c, since: time.Now()}
	setup, err := s.prepare(c, now)
	if err != nil {
		return nil, err
	}
	defaults := c.RuleDefaults()
	defaults.Facts = now.facts
	set, err := rules.New(c.Rules, defaults, s.stats.tally)
	if err != nil {
		return nil, err
	}
	// Nothing that is only tried keeps a configuration from being in force
	if err := set.Try(now.trials, defaults); err != nil {
		s.warn("a rule cannot be tried on this edge", "error", err)
	}
	now.rules, now.hash, setup.Made = set, config.Hash(set.Configs()), set
	now.sources = address.NewSources(c.Source)
	now.deny = address.NewGroup(c.Deny, key.Marked(now.facts, c.DenyMarked)...)
	now.allow = address.NewGroup(c.Allow, key.Marked(now.facts, c.AllowMarked)...)
	now.verdictHeader, now.hsts = c.VerdictHeader, c.HSTS.Value()
	now.refusals, now.tags = refusals(set), set.Tags()
	now.sources.Invalid = &s.stats.invalidSources
	var had *upstream.Origins
	if before != nil {
		now.generation, now.plans, had = before.generation+1, before.plans, before.origins
		if now.hash == before.hash {
			now.since = before.since
		}
	}
	if _, err = set.Vary(now.plans); err != nil {
		return nil, err
	}
	if now.check, err = config.ParseCheckPath(c.CheckPath); err != nil {
		return nil, err
	}
	for _, r := range set.Rules {
		waits := r.AsksTier()
		if waits && s.limiter.Wait == nil && s.tier.Fetch != nil {
			return nil,
				fmt.Errorf("rule %s waits for the tier, and pop.wait is 0 until this edge starts again: restart it", r.Config.Name)
		}
		now.waits = now.waits || waits || r.FirstSight == limiter.Wait
		if name := r.Config.Cost.Header; name != "" {
			now.prices = append(now.prices, []byte(name))
		}
	}
	for _, r := range set.Everything {
		if c.Shed.Closes() && !r.Shadow && !r.Tag && r.Config.Share == 100 &&
			r.IsSure(s.secret, counter.Source{}) {
			now.sheds = append(now.sheds, r)
		}
	}
	if now.origins, err = upstream.New(c.Origins, had, s.fault); err != nil {
		return nil, err
	}
	return now, nil
}

// refusals are the parts that all refusals under a limit have in common, except variants, and
// except rules about descriptors, whose proxy gets the fields one by one.
func refusals(set *rules.Set) map[*rules.Text]*message.Common {
	said := make(map[*rules.Text]*message.Common, 2*len(set.Rules))
	for _, r := range set.Rules {
		if r.Config.Match.Descriptors != nil {
			continue
		}
		if r.Crowded != nil {
			said[r.Crowded] = refusalHeader(r.Crowded)
		}
		for i := range r.Limits {
			for family := range r.Limits[i].Texts {
				t := &r.Limits[i].Texts[family]
				said[t] = refusalHeader(t)
			}
		}
	}
	return said
}

// putInForce has every request from now on judged by a snapshot.
func (s *Server) putInForce(now *snapshot) {
	before := s.snap.Load()
	// First: no verdict under a rule that was in force starts after those that are void have been
	// dropped
	void := s.putVersions(now.rules)
	// The tier may be read for them as soon as they are in force
	s.registerRules(now.rules, now.sources)
	if before != nil {
		s.carryOver(before.rules, now.rules, void)
	}
	for _, tell := range now.inForce {
		tell()
	}
	s.snap.Store(now)
	s.stats.keep(now.rules.All)
	s.stats.applied.Store(time.Now().UnixNano())
	if before != nil {
		closeUnused(before.origins, now.origins)
	}
}

// putVersions drops what does not go with the rules in force from now on, with their variants, and
// returns which mitigations were void.
func (s *Server) putVersions(set *rules.Set) map[mitigation.Key]mitigation.Bit {
	versions, inForce := make(map[uint32]mitigation.RuleVersion), make(map[uint32]bool)
	for _, l := range set.EachLimit() {
		versions[l.Counter.ID] = l.Version()
	}
	for id := range versions {
		inForce[id] = true
	}
	for _, r := range set.Rules {
		for _, asked := range r.Asked {
			inForce[asked.ID] = true
		}
	}
	for _, r := range set.Trials {
		for i := range r.Limits {
			id := r.Limits[i].Counter.ID
			versions[id], inForce[id] = r.Limits[i].Version(), true
		}
	}
	s.limiter.Blocks.Forget(func(id uint32) bool { return id >= algorithm.Reserved || inForce[id] })
	s.limiter.Counters.Keep(func(id uint32) bool { return inForce[id] })
	return s.limiter.Blocks.SetVersions(versions)
}

// registerRules registers the rules that are in force from now on, with their variants, at the
// tier.
func (s *Server) registerRules(set *rules.Set, sources *address.Sources) {
	if s.tier.Rules == nil {
		return
	}
	var tier []mitigation.Rule
	for _, r := range set.Rules {
		for _, asked := range r.Asked {
			tier = append(tier, mitigation.Rule{Counter: asked, Name: r.Config.Name, ExtraLimit: true})
		}
	}
	for r, l := range set.EachLimit() {
		known := l.Rule.Rule
		if len(r.Asked) == 0 { // else proxies send addresses, and prefixes of any length
			known.V4, known.V6 = l.Widths(sources.V4, sources.V6)
		}
		tier = append(tier, known)
	}
	for _, r := range set.Trials {
		for i := range r.Limits {
			known := r.Limits[i].Rule.Rule
			known.V4, known.V6 = r.Limits[i].Widths(sources.V4, sources.V6)
			tier = append(tier, known)
		}
	}
	for _, scope := range control.Scopes {
		tier = append(tier, mitigation.Rule{Counter: scope.Counter, Name: scope.Name})
	}
	s.tier.Rules(tier)
}

// SetPlans sets which client is on which plan from now on. Limits that were not there before get
// their variants first, so the tier knows each before a request is counted under it; what was
// blocked under those that go is over.
func (s *Server) SetPlans(now *plans.Snapshot) {
	s.apply.Lock()
	defer s.apply.Unlock()
	next := *s.snap.Load()
	next.plans = now
	changed, err := next.rules.Vary(now)
	if err != nil {
		s.warn("limits of clients are not in force", "error", err) // Vary has made none of them
		return
	}
	if changed {
		s.putVersions(next.rules)
		s.registerRules(next.rules, next.sources)
	}
	s.snap.Store(&next)
}

// carryOver records the mitigations that are void under the new rules, and lifts those that no
// RuleVersion covers. What an operator has blocked stays blocked as long as there is a rule of that
// name: of each limit separately, which is known by its policy.
func (s *Server) carryOver(before, now *rules.Set, void map[mitigation.Key]mitigation.Bit) {
	bits, at := s.limiter.Blocks, time.Now()
	type heir struct {
		name string          // of the old rule
		rule *algorithm.Spec // nil: there is none
		less bool            // it is about fewer sources
	}
	to := make(map[uint32]heir)
	for old, was := range before.EachLimit() {
		h := heir{name: old.Config.Name}
		r := now.ByName(old.Config.Name)
		if r != nil && old.IsVariant() {
			r = r.Variants()[old.Config.Limit]
		}
		if r != nil {
			if l := r.Limit(was.Policy); l != nil {
				h.rule, h.less = l.Counter, r.Config.Share < old.Config.Share
			}
		}
		to[was.Counter.ID] = h
	}
	for key, bit := range void {
		if h, known := to[key.Rule]; known && at.Before(bit.End) {
			s.lifted(h.name, key.Source, at)
		}
	}
	moves := make(map[mitigation.Key]mitigation.Bit)
	for key, bit := range bits.Remembered(at) {
		said := bit.By == mitigation.ByAdmin
		if h, known := to[key.Rule]; known && (said && (h.rule == nil || h.rule.ID != key.Rule) ||
			!said && h.less) {
			moves[key] = bit
		}
	}
	for key, bit := range moves {
		h, said := to[key.Rule], bit.By == mitigation.ByAdmin
		bits.Lift(key, at)
		switch {
		case said && h.rule != nil:
			bits.Start(mitigation.Key{Rule: h.rule.ID, Source: key.Source}, bit, at)
		case at.Before(bit.End):
			s.lifted(h.name, key.Source, at)
		}
	}
}

func closeUnused(before, now *upstream.Origins) {
	used := make(map[*upstream.Origin]bool, len(now.All))
	for _, o := range now.All {
		used[o] = true
	}
	for _, o := range before.All {
		if !used[o] {
			o.Retire()
		}
	}
}

// Rules returns the rules as they are configured, those that are off as well.
func (s *Server) Rules() []rules.Config {
	return s.snap.Load().rules.Configs()
}

// Counted returns what the rules in force count by.
func (s *Server) Counted() []*algorithm.Spec {
	var list []*algorithm.Spec
	for _, l := range s.snap.Load().rules.EachLimit() {
		list = append(list, l.Counter)
	}
	return list
}

// Config returns the configuration in force. It must not be changed.
func (s *Server) Config() *config.Config { return s.snap.Load().config }

// RulesHash returns a number that is the same on edges with the same rules, and since when these
// are in force.
func (s *Server) RulesHash() (hash uint64, since time.Time) {
	snap := s.snap.Load()
	return snap.hash, snap.since
}

// Failed counts a reload that never came to Apply.
func (s *Server) Failed() { s.stats.reloads[0].Add(1) }

// Origins are the groups of servers, as configured, and how they stand.
func (s *Server) Origins(now time.Time) []upstream.GroupStatus {
	return s.Upstreams().Status(now)
}
