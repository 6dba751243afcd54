// Package embed is the limiter for a Go program of your own, with the PoP behind it: rules, nodes
// and a secret go in, a verdict and its header fields come out. Programs that are given the same
// PoP, nodes, secret and rules count together, and a source that one of them blocks is blocked in
// all.
//
//	limits, err := embed.New(embed.Config{
//		PoP: "fra1", Nodes: []string{"10.0.0.1:11211"}, Secret: secret,
//		Rules: []embed.Rule{{Name: "all", Limit: 600, Window: time.Minute, Block: time.Minute}},
//	})
//	…
//	defer limits.Close()
//	if verdict := limits.Decide(client); verdict.Refused { …
//
// It counts addresses, in sliding windows, and knows nothing of HTTP but the names of fields. What
// else rules can do, as keys, conditions and plans, needs an edge, which a program may ask over the
// network (docs/rules/limit-api.md).
package embed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/edge/limitfields"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/memcached"
	"sluice/pop/secret"
)

// Config is what a Limiter is made of.
type Config struct {
	PoP    string   // the name of the point of presence; required with Nodes
	Nodes  []string // host:port of memcached, at every program the same; none: it counts alone
	Secret []byte   // the PoP's, hard to guess; required with Nodes
	Name   string   // of this program, for operators; "": none
	Rules  []Rule   // a client must be within all of them; at least one
	// Counters is how many clients are counted at once under all rules; 0: 1,000,000. The table
	// takes up to 72 bytes for each.
	Counters int
}

// A Rule allows a client so many requests in any window of that length.
type Rule struct {
	Name   string        // names its counters in the PoP; required, and no other rule's
	Limit  uint32        // 1 to algorithm.MaxLimit
	Window time.Duration // 1 s to 24 h
	// Block is how long a client is refused that went over; 0: as long as it is over.
	Block  time.Duration
	Shadow bool // it counts and decides, and refuses nobody
}

// A Limiter decides. It is safe for concurrent use.
type Limiter struct {
	limiter   limiter.Limiter
	rules     []limiter.Rule
	decisions sync.Pool
	stop      context.CancelFunc
	done      chan error
}

// Verdict is what was decided about one request.
type Verdict struct {
	Refused    bool
	Rule       string        // that refused it, or has the least left; "": all are shadows
	Limit      uint32        // the rule's,
	Window     time.Duration // and its window
	Remaining  uint32        // how many more requests the rule would admit now
	RetryAfter time.Duration // of a refused request: from then on one is admitted again
}

// New makes a Limiter and, if there are nodes, connects to them in the background: a program whose
// nodes cannot be reached counts alone until they can. Errors say which field of c is wrong.
func New(c Config) (*Limiter, error) {
	l := &Limiter{done: make(chan error, 1)}
	l.decisions.New = func() any { return new(limiter.Decision) }
	if err := l.addRules(c.Rules); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	if len(c.Nodes) == 0 {
		table := counter.New(counter.Options{Counters: c.Counters, Began: time.Now()})
		l.limiter = limiter.Limiter{Counters: table, Blocks: mitigation.New(c.Counters, nil)}
		go func() { l.done <- alone(ctx, table, l.limiter.Blocks) }()
		return l, nil
	}
	tier, err := l.join(&c)
	if err != nil {
		stop()
		return nil, err
	}
	go func() { l.done <- tier.Sync(ctx) }()
	return l, nil
}

// addRules compiles rules.
func (l *Limiter) addRules(rules []Rule) error {
	if len(rules) == 0 {
		return errors.New("embed: no rule: want at least one in Rules")
	}
	names := make(map[string]bool, len(rules))
	var specs []*algorithm.Spec
	for i, r := range rules {
		if r.Name == "" || names[r.Name] {
			return fmt.Errorf("embed: rule %d: its name %q is empty or another rule's: "+
				"want one of its own", i+1, r.Name)
		}
		names[r.Name] = true
		if r.Block < 0 || r.Block > mitigation.MaxTimeout {
			return fmt.Errorf("embed: rule %s: block %v: want 0 to %v",
				r.Name, r.Block, mitigation.MaxTimeout)
		}
		counted := r.Name // a shadow counts what it would have admitted: that is another number
		if r.Shadow {
			counted += " shadow"
		}
		spec, err := algorithm.NewSliding(counted, r.Limit, r.Window, 12, algorithm.Nearest)
		if err != nil {
			return fmt.Errorf("embed: rule %s: %w", r.Name, err)
		}
		specs = append(specs, spec)
		l.rules = append(l.rules, limiter.Rule{Rule: mitigation.Rule{
			Name: r.Name, Counter: spec, Timeout: r.Block, Shadow: r.Shadow,
		}})
	}
	algorithm.Renumber(specs)
	return nil
}

// join makes what counts together with the PoP.
func (l *Limiter) join(c *Config) (tier *memcached.Tier, err error) {
	if c.PoP == "" || len(c.Secret) == 0 {
		return nil, errors.New("embed: with Nodes, PoP and Secret are required: " +
			"whoever knows neither cannot have clients blocked")
	}
	wake := func() { tier.Wake() }
	key := secret.Of(c.Secret).At(c.PoP)
	l.limiter = limiter.Limiter{
		Counters: counter.New(counter.Options{
			Counters: c.Counters, Tier: true, Began: time.Now(), Phase: key.Phase, Wake: wake,
		}),
		Blocks: mitigation.New(c.Counters, wake),
	}
	machine, err := pop.NewMachine(pop.Config{
		PoP: c.PoP, Nodes: c.Nodes, Secret: key, ID: rand.Uint64(), Name: c.Name,
		Counters: l.limiter.Counters, Blocks: l.limiter.Blocks,
	}, time.Now())
	if err != nil {
		return nil, fmt.Errorf("embed: %w", err)
	}
	if tier, err = memcached.NewTier(machine, c.Nodes); err != nil {
		return nil, fmt.Errorf("embed: Nodes: %w", err)
	}
	l.limiter.Up = func(counter.Source) bool { return machine.Nodes.Up() }
	l.limiter.Alone = machine.Alone
	var rules []mitigation.Rule
	for i := range l.rules {
		rules = append(rules, l.rules[i].Rule)
	}
	machine.SetRules(rules)
	return tier, nil
}

// alone does what a tier does besides: it forgets what is over, and follows steps of the wall
// clock.
func alone(ctx context.Context, table *counter.Table, blocks *mitigation.Table) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			if step := table.Stepped(now); step != 0 {
				table.Adjust(step, false, now)
			}
			table.Reports().Sweep(now, true)
			blocks.Sweep(now)
		}
	}
}

// Decide counts one request of a client, an IPv6 client by its /64, and says whether it may go on.
// An admitted request counts under all rules, a refused one under none. It does not wait, and
// allocates nothing. client must be the address of the client itself: behind a proxy find out
// first who that is.
func (l *Limiter) Decide(client netip.Addr) (v Verdict) {
	now := time.Now()
	source := counter.SourceOf(client, 32, 64)
	d := l.decisions.Get().(*limiter.Decision)
	defer l.decisions.Put(d)
	d.Reset()
	for i := range l.rules {
		d.Add(&l.rules[i], source)
	}
	l.limiter.Decide(d, now)
	v.Refused = d.Refused()
	if r := d.Reported; r != nil {
		by := r.CountedBy()
		v.Rule, v.Limit, v.Window = r.Rule.Name, by.Limit, by.Window
		if !v.Refused && r.Reservation != nil {
			v.Remaining = r.Reservation.Remaining
		}
		if v.Refused {
			v.RetryAfter = max(r.Wait, r.Until.Sub(now))
		}
	}
	return v
}

// Headers has set called with the fields that an answer should have: Retry-After of a refused
// request (RFC 9110, 10.2.3), RateLimit and RateLimit-Policy of any (package limitfields).
func (v *Verdict) Headers(set func(name, value string)) {
	if v.Rule == "" {
		return
	}
	wait := cmp.Or(v.RetryAfter, v.Window)
	policy := limitfields.Policy{Name: v.Rule, Quota: uint64(v.Limit), Window: v.Window}
	set("RateLimit-Policy", string(policy.Append(nil)))
	set("RateLimit", string(limitfields.AppendLimit(nil, limitfields.AppendName(nil, v.Rule),
		uint64(v.Remaining), limitfields.Seconds(wait))))
	if v.Refused {
		set("Retry-After", strconv.FormatInt(limitfields.Seconds(wait), 10))
	}
}

// Close reports what the PoP does not know yet, for a second at most without an answer, and leaves
// it. The error says how many hits could not be reported. Close is called once, when Decide is not
// any more.
func (l *Limiter) Close() error {
	l.stop()
	return <-l.done
}
