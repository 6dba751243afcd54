package rules

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/edge/message"
	"sluice/edge/rules/key"
	"sluice/mitigation"
)

// ledger is what one limit has against one source, kept plainly: every hit by itself.
type ledger struct {
	hits    []hit
	held    uint32
	level   float64 // of a bucket,
	at      time.Time
	blocked time.Time // until then
}

type hit struct {
	at   time.Time
	cost uint32
}

// twinLimit is one limit as the documents describe it.
type twinLimit struct {
	config *Config
	limit  uint32
	window time.Duration
	whom   netip.Prefix
}

// twinLimits are the limits that a client is under by a rule.
func twinLimits(c *Config, client netip.Addr) (list []twinLimit) {
	var widths []Prefix
	for _, p := range c.Prefixes {
		if (p.Prefix <= 32) == client.Is4() {
			widths = append(widths, p)
		}
	}
	slices.SortFunc(widths, func(a, b Prefix) int { return cmp.Compare(b.Prefix, a.Prefix) })
	if len(widths) == 0 {
		widths = []Prefix{{Prefix: map[bool]int{true: 32, false: 64}[client.Is4()]}}
	}
	for _, p := range widths {
		own := c.Limit
		switch {
		case p.Limit != 0:
			own = p.Limit
		default:
			for n := widths[0].Prefix; n-2 >= p.Prefix; n -= 2 {
				own = min(2*own, algorithm.MaxLimit)
			}
		}
		whom, _ := client.Prefix(p.Prefix)
		list = append(list, twinLimit{c, own, time.Duration(c.Window), whom})
		for _, w := range c.Windows {
			list = append(list, twinLimit{c, uint32(min(algorithm.MaxLimit, math.Ceil(float64(w.Limit)*float64(own)/float64(c.Limit)))), time.Duration(w.Window), whom})
		}
	}
	return list
}

// size is how many hits a limit has room for.
func (l *twinLimit) size() (size, free uint32) {
	switch burst := cmp.Or(l.config.Burst, l.limit); {
	case l.config.Algorithm == LeakyBucket:
		return 1 + l.config.Burst, 1
	case l.config.Algorithm == TokenBucket && l.config.Action == Delay:
		return 2 * burst, burst
	case l.config.Algorithm == TokenBucket:
		return burst, burst
	}
	return l.limit, l.limit
}

// used is between which two numbers the limit may think that so much is used, for any estimate that the documents allow.
func (l *twinLimit) used(of *ledger, now time.Time) (least, most float64) {
	switch l.config.Algorithm {
	case TokenBucket, LeakyBucket:
		level := max(0, of.level-now.Sub(of.at).Seconds()*float64(l.limit)/l.window.Seconds())
		return level - 1e-3, level
	case Fixed:
		for _, h := range of.hits {
			if h.at.UnixNano()/int64(l.window) == now.UnixNano()/int64(l.window) {
				least += float64(h.cost)
			}
		}
		return least, least
	}
	sub := int64(l.window) / int64(l.config.SubWindows)
	lane := now.UnixNano() / sub
	within := 0.0
	for _, h := range of.hits {
		n := h.at.UnixNano() / sub
		if n > lane-int64(l.config.SubWindows) {
			least += float64(h.cost)
		}
		if n >= lane-int64(l.config.SubWindows) {
			most += float64(h.cost)
		}
		if now.Sub(h.at) < l.window {
			within += float64(h.cost)
		}
	}
	switch {
	case l.config.Algorithm == Exact:
		return within, within
	case *l.config.Estimate == algorithm.Lower:
		return least, within
	}
	return least, most
}

func (l *twinLimit) count(of *ledger, cost uint32, now time.Time) {
	_, of.level = l.used(of, now)
	of.level, of.at = of.level+float64(cost), now
	of.hits = append(of.hits, hit{now, cost})
}

// randomRule is a rule that may make no sense.
func randomRule(rng *rand.Rand, name string) Config {
	one := func(n int) bool { return rng.IntN(n) == 0 }
	c := Default(name, uint32(1+rng.IntN(30)))
	c.Window = Duration([]time.Duration{time.Second, 3 * time.Second, 10 * time.Second, time.Minute}[rng.IntN(4)])
	c.MitigationTimeout = 0
	if one(3) {
		c.MitigationTimeout = Duration(time.Duration(1+rng.IntN(20)) * time.Second)
	}
	e := []algorithm.Estimate{algorithm.Nearest, algorithm.Lower}[rng.IntN(2)]
	c.Algorithm = Algorithms[rng.IntN(len(Algorithms))]
	if c.Algorithm != Sliding {
		e = algorithm.Nearest
	}
	c.Estimate = &e
	if c.Algorithm != Fixed {
		c.SubWindows = []int{1, 2, 4, 8, 12, 12, 12}[rng.IntN(7)]
	}
	switch rng.IntN(6) {
	case 0:
		c.Mode = Shadow
	case 1:
		c.Action = Tag
	case 2:
		c.Action = Delay
	}
	if one(3) {
		c.Burst = uint32(rng.IntN(20))
	}
	switch rng.IntN(5) {
	case 0:
		c.Count.Statuses = []int{401}
	case 1:
		c.Count.Refused = true
	}
	switch rng.IntN(6) {
	case 0:
		c.Cost = Cost{Units: uint32(2 + rng.IntN(10))}
	case 1:
		c.Cost = Cost{Bytes: 100}
	case 2:
		c.Cost = Cost{Header: "X-Cost"}
	}
	if one(2) {
		c.Windows = []Window{{c.Limit + uint32(rng.IntN(60)), c.Window * Duration(2+rng.IntN(3))}}
		if one(3) {
			c.Windows = append(c.Windows, Window{1 + uint32(rng.IntN(int(c.Limit))), Duration(time.Second)})
		}
	}
	if one(2) {
		c.Prefixes = [][]Prefix{{{Prefix: 32}, {Prefix: 24, Limit: c.Limit + uint32(rng.IntN(30))}}, {{Prefix: 64}, {Prefix: 48}, {Prefix: 32}, {Prefix: 30}}, {{Prefix: 24}}, {{Prefix: 16, Limit: 60}, {Prefix: 128}, {Prefix: 32}, {Prefix: 62}}}[rng.IntN(4)]
	}
	return c
}

// underWay is a request whose answer is still to come.
type underWay struct {
	d     Decision
	asked []twinAsk
}

type twinAsk struct {
	limit twinLimit
	of    *ledger
	costs uint32 // held
}

// TestRulesAgainstPlainLedgers has random rules, in whatever combination they may be had, decide about random requests, and holds what they say
// against ledgers in which every hit is kept. An algorithm that estimates may say what its document allows; all others are right or wrong.
func TestRulesAgainstPlainLedgers(t *testing.T) {
	verdicts := make(map[string]int)
	for seed := range uint64(500) {
		if fault := rulesAgainstLedgers(seed, verdicts); fault != "" {
			t.Fatalf("seed %d: %s", seed, fault)
		}
	}
	t.Log(verdicts)
}

func rulesAgainstLedgers(seed uint64, verdicts map[string]int) (fault string) {
	rng := rand.New(rand.NewPCG(seed, 5))
	var list []Config
	for want := 1 + rng.IntN(3); len(list) < want; {
		c := randomRule(rng, fmt.Sprint("r", len(list)))
		if _, err := newRule(c, Defaults{}); err == nil {
			list = append(list, c)
		}
	}
	set, err := New(list, Defaults{}, newTally)
	if err != nil {
		return err.Error()
	}
	decides := limiter.Limiter{Counters: counter.New(counter.Options{Counters: 4096}), Blocks: mitigation.New(1<<12, nil)}
	clients := []netip.Addr{
		netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.9.2"),
		netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("2001:db8:0:1::1"),
	}
	clients = clients[rng.IntN(3):][:1+rng.IntN(3)]
	ledgers := make(map[string]*ledger)
	ledgerOf := func(l *twinLimit) *ledger {
		key := fmt.Sprint(l.config.Name, l.limit, l.window, l.whom)
		if ledgers[key] == nil {
			ledgers[key] = new(ledger)
		}
		return ledgers[key]
	}
	var waiting []*underWay
	now := epoch.Add(time.Duration(rng.Int64N(int64(time.Hour))))
	pace := time.Duration(1 << (20 + rng.IntN(12)))
	settle := func(u *underWay) {
		status := []int{0, 200, 401, 401}[rng.IntN(4)]
		for i := range u.d.Results {
			r, a := &u.d.Results[i], &u.asked[i]
			if r.Due {
				r.Hits = uint32(1 + rng.IntN(12))
			}
			if a.costs == 0 {
				continue
			}
			a.of.held -= a.costs
			if r.Rule.Counts(status) {
				cost := a.costs
				if r.Due {
					cost = r.Hits
				}
				a.limit.count(a.of, cost, now)
			}
		}
		decides.Settle(&u.d.Decision, status, now)
	}
	for step := range 150 {
		if now = now.Add(time.Duration(rng.Int64N(int64(pace)))); rng.IntN(10) == 0 {
			now = now.Add(time.Duration(rng.Int64N(int64(20 * time.Second))))
		}
		if len(waiting) > 0 && rng.IntN(3) == 0 {
			i := rng.IntN(len(waiting))
			settle(waiting[i])
			waiting = slices.Delete(waiting, i, i+1)
		}
		client := clients[rng.IntN(len(clients))]
		source := counter.SourceOf(client, 32, 64)
		u := new(underWay)
		d := &u.d
		d.Rules = set.index.Find(nil, []byte("example.com"), []byte("/"), []byte("GET"), false)
		q := message.Request{Length: []int64{0, 10, 250, 3000, message.LengthChunked}[rng.IntN(5)]}
		d.AddRules(key.Secret{}, &q, client, source)
		for i := range list {
			for _, l := range twinLimits(&list[i], client) {
				u.asked = append(u.asked, twinAsk{limit: l, of: ledgerOf(&l)})
			}
		}
		if len(d.Results) != len(u.asked) {
			return fmt.Sprintf("%d limits, want %d", len(d.Results), len(u.asked))
		}
		decides.Decide(&d.Decision, now)
		refused, mitigated := false, false
		for i := range u.asked {
			a := &u.asked[i]
			c := a.limit.config
			enforces := c.Mode != Shadow && c.Action != Tag
			mitigated = mitigated || enforces && now.Before(a.of.blocked)
		}
		for i := range u.asked {
			a, r := &u.asked[i], &d.Results[i]
			c := a.limit.config
			say := func(format string, args ...any) string {
				return fmt.Sprintf("step %d, %v, rule %s limit %d in %v of %v (%+v): %s\n%+v", step, now.Sub(epoch), c.Name, a.limit.limit, a.limit.window, a.limit.whom, *c, fmt.Sprintf(format, args...), r.Reservation)
			}
			blocked := now.Before(a.of.blocked)
			if asked := !mitigated && !blocked; asked != (r.Reservation != nil) {
				return say("asked %v, want %v; blocked until %v", r.Reservation != nil, asked, a.of.blocked.Sub(epoch))
			}
			if blocked && !r.Until.Equal(a.of.blocked) {
				return say("blocked until %v, want %v", r.Until.Sub(epoch), a.of.blocked.Sub(epoch))
			}
			if r.Reservation == nil {
				continue
			}
			cost := uint32(1)
			switch {
			case c.Cost.Bytes > 0 && q.Length > 0:
				cost = uint32((q.Length + 99) / 100)
			case c.Cost.Units > 1:
				cost = c.Cost.Units
			}
			size, free := a.limit.size()
			least, most := a.limit.used(a.of, now)
			least, most = least+float64(cost), most+float64(cost)
			held := float64(a.of.held)
			switch {
			case r.Reservation.Over && most+held <= float64(size):
				return say("refused with %v of %d used", most+held, size)
			case !r.Reservation.Over && least+held > float64(size):
				return say("admitted with %v of %d used", least+held, size)
			case r.Reservation.Committed && most <= float64(size):
				return say("blocks by what is under way: %v and %v of %d", most, held, size)
			case r.Reservation.Over && !r.Reservation.Committed && least > float64(size):
				return say("does not block: %v of %d", least, size)
			}
			if r.Reservation.Over && r.Reservation.Committed && cost <= size {
				later := now.Add(r.Reservation.RetryAfter)
				if v, _ := decides.Counters.PeekFor(r.Rule.Counter, r.Source, cost, later); v.Committed {
					return say("a retry after %v is refused: %+v", r.Reservation.RetryAfter, v)
				}
				if r.Reservation.RetryAfter > a.limit.window+a.limit.window/time.Duration(c.SubWindows) && c.Algorithm != TokenBucket && c.Algorithm != LeakyBucket {
					return say("a retry after %v", r.Reservation.RetryAfter)
				}
			}
			if want := max(0, (most+held-float64(free))*a.limit.window.Seconds()/float64(a.limit.limit)); !r.Reservation.Over && size > free && math.Abs(r.Reservation.Delay.Seconds()-want) > 0.01+want/1000 {
				return say("its turn is in %v, want %v s", r.Reservation.Delay, want)
			}
			enforces := c.Mode != Shadow && c.Action != Tag
			refused = refused || enforces && r.Reservation.Over
		}
		if refused = refused || mitigated; refused != d.Refused() {
			return fmt.Sprintf("step %d: refused %v, want %v", step, d.Refused(), refused)
		}
		for i := range u.asked {
			a, r := &u.asked[i], &d.Results[i]
			c := a.limit.config
			if r.Reservation == nil {
				continue
			}
			if r.Reservation.Over && r.Reservation.Committed && c.MitigationTimeout > 0 {
				a.of.blocked = now.Add(max(time.Duration(c.MitigationTimeout), r.Reservation.RetryAfter))
				if c.Count.Refused { // what it counts of a refused request comes on top
					a.of.blocked = r.Until
				}
			}
			switch {
			case !c.Count.Refused && (refused || r.Reservation.Over):
			case refused || r.Reservation.Over || len(c.Count.Statuses) == 0 && !r.Due:
				a.limit.count(a.of, r.Reservation.Hits, now)
			default:
				a.costs = r.Reservation.Hits
				a.of.held += a.costs
			}
		}
		verdicts[d.Verdict.String()]++
		if d.Held {
			waiting = append(waiting, u)
		}
	}
	return ""
}
