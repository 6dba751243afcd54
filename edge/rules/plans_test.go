package rules

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/edge/message"
	"sluice/edge/plans"
	"sluice/edge/rules/key"
	"sluice/edge/rules/match"
	"sluice/mitigation"
)

var plansConfig = PlansConfig{Key: "header:X-Key", Default: "free"}

func plannedSet(t testing.TB, list ...Config) *Set {
	t.Helper()
	s, err := New(list, Defaults{Plans: plansConfig}, func(string) *Tally { return NewTally() })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Vary(nil); err != nil {
		t.Fatal(err)
	}
	return s
}

func api() Config {
	c := Default("api", 10)
	c.Key, c.Plans = []string{"header:x-key"}, map[string]PlanLimit{"free": {10}, "pro": {100}, "gold": {100}}
	return c
}

func clientKeys(t testing.TB, p PlansConfig) ClientKeys {
	t.Helper()
	l, err := NewClientKeys(p, testSecret)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func clientKey(t testing.TB) ClientKey {
	t.Helper()
	return clientKeys(t, plansConfig)[0]
}

// book is who is on which plan.
func book(t testing.TB, said map[string]plans.Quota) *plans.Snapshot {
	t.Helper()
	var b plans.Builder
	for key, q := range said {
		client, _, ok := clientKey(t).Of(key)
		if !ok {
			t.Fatalf("%q is no key", key)
		}
		b.Put(client, q, false)
	}
	return b.Snapshot(time.Unix(1000, 0))
}

// under is the limit of each rule that a request with these headers is under; nil: there is no telling.
func under(t testing.TB, s *Set, who *plans.Snapshot, lines ...string) map[string]uint32 {
	t.Helper()
	var d Decision
	d.Plans = who
	q := &message.Request{Target: []byte("/"), Path: []byte("/"), Head: *headOf(t, lines...)}
	d.Match(s, nil, []byte("/"), []byte("/"), []byte("GET"), 0)
	addr := netip.MustParseAddr("192.0.2.1")
	if d.AddRules(testSecret, q, addr, counter.SourceOf(addr, 32, 64)) != nil {
		return nil
	}
	limits := make(map[string]uint32)
	for i, r := range d.Rules {
		limits[r.Config.Name] = d.Results[i].Rule.Counter.Limit
		if text := TextOf(&d.Results[i], addr); string(text.Limit) != strconv.Itoa(int(r.Config.Limit)) || r.Config.Limit != r.Counter.Limit || RuleOf(&d.Results[i]) != r {
			t.Errorf("rule %s says %s, and counts to %d", r.Config.Name, text.Limit, r.Counter.Limit)
		}
	}
	return limits
}

// Which limit a request has, by what was said of the client that sends it.
func TestPlans(t *testing.T) {
	paying := Default("paying", 7)
	paying.Match.Plans = []string{"pro", "gold"}
	others := Default("others", 8)
	others.Match.Not = &match.Config{Plans: []string{"pro"}}
	set := plannedSet(t, api(), paying, others)
	who := book(t, map[string]plans.Quota{
		"p": {Plan: "pro"}, "g": {Plan: "gold"}, "own": {Rule: "api", Limit: 55}, "both": {Rule: "api", Plan: "pro", Limit: 10},
		"odd": {Plan: "odd"}, "here": {Rule: "paying", Plan: "pro"},
	})
	if _, err := set.Vary(who); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		lines string
		want  map[string]uint32
	}{
		{"", map[string]uint32{"api": 10, "others": 8}},
		{"X-Key: nobody", map[string]uint32{"api": 10, "others": 8}},
		{"X-Key: p", map[string]uint32{"api": 100, "paying": 7}},
		{"X-Key: g", map[string]uint32{"api": 100, "paying": 7, "others": 8}},
		{"X-Key: own", map[string]uint32{"api": 55, "others": 8}},
		{"X-Key: both", map[string]uint32{"api": 10, "others": 8}}, // of plan pro under api alone, and its own limit there
		{"X-Key: odd", map[string]uint32{"api": 10, "others": 8}},  // a plan that the rule does not name
		{"X-Key: here", map[string]uint32{"api": 10, "paying": 7, "others": 8}},
		{"X-Key: p|X-Key: p", map[string]uint32{"api": 100, "paying": 7}},
		{"X-Key: p|X-Key: g", nil}, // whose is it?
	} {
		var lines []string
		if c.lines != "" {
			lines = strings.Split(c.lines, "|")
		}
		if got := under(t, set, who, lines...); !maps.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%q: %v, want %v", c.lines, got, c.want)
		}
	}
	if got := under(t, set, nil, "X-Key: p"); got["api"] != 10 {
		t.Errorf("without a store: %v", got)
	}
	// A limit that came after this version of the rules was left is that of the plan.
	later := book(t, map[string]plans.Quota{"p": {Rule: "api", Plan: "pro", Limit: 77}})
	if got := under(t, set, later, "X-Key: p"); got["api"] != 100 {
		t.Errorf("a limit without a variant: %v", got)
	}
}

// A variant is its rule but for the limit: it costs, asks the tier, tags and counts as the rule does, and is a limit of the set by its own.
func TestVariantsAreTheirRule(t *testing.T) {
	for name, change := range map[string]func(c *Config){
		"units":  func(c *Config) { c.Cost.Units = 4 },
		"bytes":  func(c *Config) { c.Cost.Bytes = 10 },
		"header": func(c *Config) { c.Cost.Header = "X-Cost" },
		"fixed":  func(c *Config) { c.Algorithm = Fixed },
		"tag":    func(c *Config) { c.Action = Tag },
		"shadow": func(c *Config) { c.Mode = Shadow },
	} {
		c := api()
		change(&c)
		set := plannedSet(t, c, Default("other", 5))
		base := set.ByName("api")
		var d Decision
		d.Plans = book(t, map[string]plans.Quota{"p": {Plan: "pro"}})
		q := &message.Request{Target: []byte("/"), Path: []byte("/"), Head: *headOf(t, "X-Key: p"), Length: 35}
		d.Match(set, nil, []byte("/"), []byte("/"), []byte("POST"), 0)
		addr := netip.MustParseAddr("192.0.2.1")
		if d.AddRules(testSecret, q, addr, counter.SourceOf(addr, 32, 64)) != nil || len(d.Results) != 2 {
			t.Fatalf("%s: %d results", name, len(d.Results))
		}
		if d.Results[0].Rule == &base.Rule {
			t.Errorf("%s: the rule, and not its variant, counts the client", name)
		}
		is := &d.Results[0]
		if want := map[string]uint32{"units": 4, "bytes": 4}[name]; is.Hits != want || is.Due != (name == "header") {
			t.Errorf("%s: %d hits, due %v", name, is.Hits, is.Due)
		}
		policy := `"api";q=100;w=60`
		if name == "bytes" {
			policy = `"api";q=1000;qu="content-bytes";w=60`
		}
		v, l := RuleOf(is), LimitOf(is)
		if !v.IsVariant() || l == nil || l.Counter != is.Rule.Counter || l.Counter.Limit != 100 || l.OwnPolicy() != "" || string(TextOf(is, addr).Policy) != policy {
			t.Errorf("%s: %+v of %+v", name, l, v)
		}
		if is.Rule.Tag != (name == "tag") || is.Rule.Shadow != (name == "shadow") || is.Rule.Counter.Algorithm() != base.Counter.Algorithm() {
			t.Errorf("%s: %+v", name, is.Rule)
		}
		var listed []string
		for r, l := range set.EachLimit() {
			listed = append(listed, fmt.Sprint(r.Config.Name, " ", l.Counter.Limit, " ", r.VariantOf != 0))
			if l.Rule != &r.Rule {
				t.Errorf("%s: %s is a further limit", name, l.Policy)
			}
		}
		if got := strings.Join(listed, ", "); got != "api 10 false, api 100 true, other 5 false" {
			t.Errorf("%s: limits are %s", name, got)
		}
		if base.Limits[0].Rule != &base.Rule || base.Limits[0].Counter.Limit != 10 {
			t.Errorf("%s: the rule has lost its limit: %+v", name, base.Limits)
		}
	}
}

// A rule about clients on a plan is not about a source's every request.
func TestWhoIsOnAPlanIsNotSure(t *testing.T) {
	c := Default("paying", 7)
	c.Match.Plans = []string{"pro"}
	set := plannedSet(t, c, Default("all", 7))
	addr := netip.MustParseAddr("192.0.2.1")
	for name, want := range map[string]bool{"paying": false, "all": true} {
		if set.ByName(name).IsSure(testSecret, counter.SourceOf(addr, 32, 64)) != want {
			t.Errorf("rule %s is sure: want %v", name, want)
		}
	}
}

// Variants are named by rule and limit, one for all who have it; they stay the same rules, by the same IDs, while others come and go.
func TestVariantsStay(t *testing.T) {
	set := plannedSet(t, api(), Default("other", 5))
	r := set.ByName("api")
	pro := r.Variants()[100]
	if pro == nil || len(r.Variants()) != 1 || !strings.HasSuffix(pro.Counter.Name, " limit 100") || pro.VariantOf != r.Counter.ID || !pro.IsVariant() || pro.Tally != r.Tally {
		t.Fatalf("%+v", r.Variants())
	}
	twin, err := algorithm.NewSliding(r.Counter.Name+" limit 200", 200, r.Counter.Window, r.Counter.SubWindows, r.Counter.Estimate)
	if err != nil {
		t.Fatal(err)
	}
	pro.Counter.ID = twin.ID // as if their names had one hash
	id := pro.Counter.ID
	said := make(map[string]plans.Quota)
	for i := range 1000 {
		said[fmt.Sprint("k", i)] = plans.Quota{Rule: "api", Limit: uint32(200 + i)}
	}
	changed, err := set.Vary(book(t, said))
	if err != nil || !changed || len(r.Variants()) != 1001 || r.Variants()[100] != pro || pro.Counter.ID != id {
		t.Fatalf("changed %v, %v, %d variants", changed, err, len(r.Variants()))
	}
	ids := make(map[uint32]bool)
	for v := range set.Each() {
		ids[v.Counter.ID] = true
	}
	if len(ids) != 1003 {
		t.Errorf("%d IDs for 1003 counters", len(ids))
	}
	if changed, err = set.Vary(book(t, said)); changed || err != nil {
		t.Errorf("changed %v, %v by nothing new", changed, err)
	}
	if changed, err = set.Vary(nil); !changed || err != nil || len(r.Variants()) != 1 {
		t.Errorf("changed %v, %v, %d variants are left", changed, err, len(r.Variants()))
	}
	// After the rules are read again, counters and mitigations go on: their names are the same.
	if again := plannedSet(t, api()).ByName("api").Variants()[100]; again.Counter.Identity() != pro.Counter.Identity() {
		t.Errorf("%s is now %s", pro.Counter.Identity(), again.Counter.Identity())
	}
}

// A client that is given another limit keeps what the tier has of its requests: begun anew it would have both limits in one window, or
// nobody would know what it has used. A bucket of another rate has other numbers.
func TestVariantsKeepInstants(t *testing.T) {
	for algorithm, same := range map[Algorithm]bool{Exact: true, TokenBucket: false} {
		c := api()
		c.Check, c.Algorithm, c.OnStoreFailure = limiter.Sync, algorithm, limiter.Closed
		set := plannedSet(t, c)
		r := set.ByName("api")
		if _, err := set.Vary(book(t, map[string]plans.Quota{"k": {Rule: "api", Limit: 50}})); err != nil {
			t.Fatal(err)
		}
		for _, limit := range []uint32{50, 100} {
			v := r.Variants()[limit].Exact
			if v == nil || v.Limit != int(limit) || !v.Closed || v.Window != r.Exact.Window || (v.ID == r.Exact.ID) != same {
				t.Errorf("%s, limit %d: %+v beside %+v", algorithm, limit, v, r.Exact)
			}
		}
	}
}

// A limit of a client's that the rule's algorithm cannot have, because it was said when the rule had another, is that of the client's plan, and in
// nobody's way.
func TestLimitBeyondTheAlgorithm(t *testing.T) {
	who := book(t, map[string]plans.Quota{"k": {Rule: "api", Limit: 5000}, "l": {Rule: "api", Limit: 50}})
	for algorithm, want := range map[Algorithm]uint32{Exact: 10, Sliding: 5000} {
		c := api()
		if c.Limit, c.Algorithm = 10, algorithm; algorithm == Exact {
			c.Check = limiter.Sync
		}
		set := plannedSet(t, c)
		if _, err := set.Vary(who); err != nil {
			t.Fatalf("%s: %v", algorithm, err)
		}
		for client, want := range map[string]uint32{"k": want, "l": 50} {
			if got := under(t, set, who, "X-Key: "+client)["api"]; got != want {
				t.Errorf("%s: %s has %d, want %d", algorithm, client, got, want)
			}
		}
	}
}

// A client is the same by what it sends, by what operators call it, and by both keys that a store may have.
func TestClientKey(t *testing.T) {
	k := clientKey(t)
	parts := []key.Part{{Kind: key.Header, Name: []byte("x-key")}}
	new(key.Names).Add(&parts[0])
	sent, _, bad := testSecret.Digest(parts, &key.View{Request: &message.Request{Head: *headOf(t, "X-Key: k-1")}}, ip("192.0.2.1"), nil)
	client, form, known := k.Of("k-1")
	if bad != nil || !known || client != sent || form != "k-1" {
		t.Errorf("sent %v, said %v %q", sent, client, form)
	}
	for _, hidden := range []bool{false, true} {
		k.hidden = hidden
		keys, ok := k.Keys("k-1")
		if !ok || len(keys) != 2 || strings.Contains(keys[0], "k-1") == hidden {
			t.Errorf("%q", keys)
		}
		for _, key := range keys {
			if of, ok := (ClientKeys{k}).Source(key); !ok || of != client {
				t.Errorf("%s is %v, want %v", key, of, client)
			}
		}
	}
	for _, bad := range []string{"", " a", "a ", "\x00", "a\tb", "ä", strings.Repeat("x", 257)} {
		if _, _, ok := k.Of(bad); ok {
			t.Errorf("%q is a key", bad)
		}
	}
	for _, bad := range []string{"", "k-1", "#12", "192.0.2.1"} {
		if _, ok := (ClientKeys{k}).Source(bad); ok {
			t.Errorf("%q is a key of a store", bad)
		}
	}
}

// What is said of an organisation holds for it alone, and nothing that is said of a client who sends the same as a key holds for it; a request
// counts for both.
func TestOrganisations(t *testing.T) {
	p := PlansConfig{Key: "header:X-Key", Also: []string{"header:X-Organisation"}, Default: "free"}
	org := Default("org", 50)
	org.Key, org.Plans = []string{"header:x-organisation"}, map[string]PlanLimit{"large": {500}}
	large := Default("large", 7)
	large.Key, large.Match.Plans = []string{"header:x-organisation", "path"}, []string{"large"}
	set, err := New([]Config{api(), org, large}, Defaults{Plans: p}, func(string) *Tally { return NewTally() })
	if err != nil {
		t.Fatal(err)
	}
	for _, hidden := range []bool{false, true} {
		p.SecretKeys = hidden
		keys := clientKeys(t, p)
		var b plans.Builder
		for _, said := range []struct {
			by, client string
			quota      plans.Quota
		}{
			{"", "acme", plans.Quota{Plan: "pro"}},
			{"", "acme", plans.Quota{Rule: "org", Limit: 3}}, // as if somebody had written it into the store
			{"header:x-ORGANISATION", "acme", plans.Quota{Rule: "org", Limit: 80}},
			{"header:x-organisation", "big", plans.Quota{Plan: "large"}},
		} {
			k, err := keys.By(said.by)
			if err != nil {
				t.Fatal(err)
			}
			client, _, _ := k.Of(said.client)
			for _, text := range second(k.Keys(said.client)) {
				if s, _ := keys.Read(text); strings.HasPrefix(text, "#") && s.By != nil || s.By != nil && (s.By.String() != k.String() || s.Form != said.client || s.Client != client) {
					t.Errorf("%s is read as %+v", text, s)
				}
				if got, ok := keys.Source(text); !ok || got != k.Known(client) || strings.Contains(text, said.client) == strings.HasPrefix(text, "#") {
					t.Errorf("%s %s: the store's %s is %v, want %v", said.by, said.client, text, got, k.Known(client))
				}
			}
			b.Put(k.Known(client), said.quota, false)
		}
		who := b.Snapshot(time.Unix(1000, 0))
		if _, err := set.Vary(who); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			lines []string
			want  map[string]uint32
		}{
			{[]string{"X-Key: acme", "X-Organisation: acme"}, map[string]uint32{"api": 100, "org": 80}},
			{[]string{"X-Key: big", "X-Organisation: big"}, map[string]uint32{"api": 10, "org": 500, "large": 7}},
			{[]string{"X-Organisation: acme"}, map[string]uint32{"api": 10, "org": 80}},
			{[]string{"X-Key: acme"}, map[string]uint32{"api": 100, "org": 50}},
			{[]string{"X-Organisation: acme", "X-Organisation: big"}, nil},
		} {
			if got := under(t, set, who, test.lines...); !maps.Equal(got, test.want) {
				t.Errorf("%q: limits %v, want %v", test.lines, got, test.want)
			}
		}
		decide := deciding(t, set, who, "X-Organisation: acme")
		decide()
		if n := testing.AllocsPerRun(100, decide); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
	if _, err := clientKeys(t, p).By("cookie:id"); err == nil || !strings.Contains(err.Error(), `no client is known by "cookie:id": want header:x-key, or one of plans.also, which is [header:x-organisation]`) {
		t.Error(err)
	}
}

func second(list []string, _ bool) []string { return list }

// BenchmarkPlans is what plans cost a decision, beside the rule without them, and allocates nothing: of whom nothing was said, of a client on a plan,
// and of one with a limit of its own among ten thousand. "none" is a rule that does not ask.
func BenchmarkPlans(b *testing.B) {
	said := map[string]plans.Quota{"pro": {Plan: "pro"}}
	for i := range 10_000 {
		said[fmt.Sprint("k", i)] = plans.Quota{Rule: "api", Limit: uint32(200 + i)}
	}
	who := book(b, said)
	for _, key := range []string{"none", "nobody", "pro", "k5000"} {
		b.Run(key, func(b *testing.B) {
			c := api()
			c.Limit, c.Plans["free"] = algorithm.MaxLimit, PlanLimit{algorithm.MaxLimit}
			if key == "none" {
				c.Plans = nil
			}
			decide := deciding(b, plannedSet(b, c), who, "X-Key: "+key)
			b.ReportAllocs()
			for b.Loop() {
				decide()
			}
		})
	}
}

// deciding is a decision about a request with a line.
func deciding(b testing.TB, set *Set, who *plans.Snapshot, line string) func() {
	b.Helper()
	if _, err := set.Vary(who); err != nil {
		b.Fatal(err)
	}
	l := limiter.Limiter{Counters: counter.New(counter.Options{Counters: 100_000}), Blocks: mitigation.New(1024, nil)}
	q := &message.Request{Target: []byte("/"), Path: []byte("/"), Head: *headOf(b, "Host: example.com", "User-Agent: bench", line)}
	addr := netip.MustParseAddr("192.0.2.1")
	source, now := counter.SourceOf(addr, 32, 64), epoch
	d := &Decision{Plans: who}
	return func() {
		d.Reset()
		d.Match(set, nil, q.Path, q.Target, []byte("GET"), 0)
		if d.AddRules(testSecret, q, addr, source) != nil {
			b.Fatal("no telling who it is")
		}
		l.Decide(&d.Decision, now)
		now = now.Add(time.Millisecond * 20)
	}
}

// A rule with plans allocates nothing, whoever asks.
func TestPlansAllocateNothing(t *testing.T) {
	for _, name := range []string{"none", "pro", "own"} {
		decide := deciding(t, plannedSet(t, api()), book(t, map[string]plans.Quota{"pro": {Plan: "pro"}, "own": {Rule: "api", Limit: 77}}), "X-Key: "+name)
		decide()
		if n := testing.AllocsPerRun(1000, decide); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// memory is what this process takes.
func memory(tb testing.TB) int {
	tb.Helper()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		tb.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		tb.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// BenchmarkMillionClients is the memory of an edge with a million clients, each on a plan that was said, ten thousand of them with limits of their
// own, and all of them counted: by the process, counters and variants included. It fails above 250 MB.
func BenchmarkMillionClients(b *testing.B) {
	const clients, own = 1_000_000, 10_000
	k := clientKey(b)
	for b.Loop() {
		before := memory(b)
		var said plans.Builder
		sources := func(i int) counter.Source {
			client, _, _ := k.Of("client-key-" + strconv.Itoa(i))
			return client
		}
		for i := range clients {
			said.Put(sources(i), plans.Quota{Plan: []string{"free", "pro", "gold"}[i%3]}, false)
		}
		for i := range own {
			said.Put(sources(i*97), plans.Quota{Rule: "api", Limit: uint32(1000 + i), End: 4_000_000_000_000}, false)
		}
		who := said.Snapshot(epoch)
		set := plannedSet(b, api())
		if _, err := set.Vary(who); err != nil {
			b.Fatal(err)
		}
		store := memory(b) - before
		table := counter.New(counter.Options{Counters: clients})
		asks := make([]counter.Reservation, 1)
		for i := range clients {
			client := sources(i)
			r, _, _ := set.ByName("api").For(who.Of(client))
			asks[0] = counter.Reservation{Rule: r.Counter, Source: client, Hits: 1}
			if !table.Reserve(asks, epoch) {
				b.Fatal("refused")
			}
		}
		all := memory(b) - before
		if n := table.Stats().Counters; n < clients*99/100 || who.Clients() != clients || len(set.ByName("api").Variants()) != own+1 {
			b.Errorf("%d counters, %d clients, %d variants", n, who.Clients(), len(set.ByName("api").Variants()))
		}
		b.ReportMetric(float64(store)/1e6, "plans-MB")
		b.ReportMetric(float64(all)/1e6, "all-MB")
		if all > 250e6 {
			b.Errorf("%d MB, want at most 250", all/1e6)
		}
		// A change copies a shard, and what it takes is not above a millisecond's work.
		said.Put(sources(5), plans.Quota{Plan: "gold"}, false)
		if said.Snapshot(epoch).Clients() < clients {
			b.Error("a change lost clients")
		}
	}
}

// TestBucketsByPlan: under a bucket a client's limit is how fast its bucket drains, and the burst grows with it: it is full after as long as any
// other's, and who is last in the queue waits as long.
func TestBucketsByPlan(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, test := range []struct {
		about string
		edit  func(*Config)
		size  map[uint32]uint32 // by limit, how many are admitted at once
		queue map[uint32]uint32 // how many of them wait
	}{
		{"the limit at once", func(c *Config) { c.Algorithm = TokenBucket }, map[uint32]uint32{60: 60, 600: 600, 6: 6, 1: 1}, nil},
		{"a burst", func(c *Config) { c.Algorithm, c.Burst = TokenBucket, 10 }, map[uint32]uint32{60: 10, 600: 100, 6: 1, 1: 1, 90: 15, 65: 10}, nil},
		{"delayed", func(c *Config) { c.Algorithm, c.Burst, c.Action = TokenBucket, 10, Delay }, map[uint32]uint32{60: 20, 600: 200, 6: 2, 1: 1}, map[uint32]uint32{60: 10, 600: 100, 6: 1}},
		{"one after the other", func(c *Config) { c.Algorithm = LeakyBucket }, map[uint32]uint32{60: 1, 600: 1, 6: 1}, nil},
		{"a queue", func(c *Config) { c.Algorithm, c.Burst = LeakyBucket, 10 }, map[uint32]uint32{60: 11, 600: 101, 6: 2, 1: 1}, map[uint32]uint32{60: 10, 600: 100, 6: 1}},
	} {
		c := Default("api", 60)
		c.Key, c.Plans = []string{"header:x-key"}, map[string]PlanLimit{"free": {60}}
		test.edit(&c)
		said := make(map[string]plans.Quota)
		for limit := range test.size {
			said[fmt.Sprint("client", limit)] = plans.Quota{Rule: "api", Limit: limit}
		}
		s := plannedSet(t, c)
		if _, err := s.Vary(book(t, said)); err != nil {
			t.Fatal(err)
		}
		r := s.ByName("api")
		table := counter.New(counter.Options{Counters: 100})
		for limit, size := range test.size {
			v := r
			if limit != 60 {
				v = r.Variants()[limit]
			}
			source := counter.Source{}
			admit := func(at time.Duration) (admitted, waits uint32) {
				for range size + 10 {
					ask := []counter.Reservation{{Rule: v.Counter, Source: source, Hits: 1}}
					if table.Reserve(ask, now.Add(at)) {
						admitted++
						if ask[0].Delay > 0 {
							waits++
						}
						if most := longestWait(&c); ask[0].Delay > most {
							t.Errorf("%s, %d: one waits %v", test.about, limit, ask[0].Delay)
						}
					}
				}
				return admitted, waits
			}
			if admitted, waits := admit(0); admitted != size || waits != test.queue[limit] {
				t.Errorf("%s, %d: %d were admitted at once and %d of them waited, want %d and %d", test.about, limit, admitted, waits, size, test.queue[limit])
			}
			interval := time.Minute / time.Duration(limit)
			if admitted, _ := admit(interval + time.Millisecond); admitted != 1 {
				t.Errorf("%s, %d: %d were admitted after %v, want 1", test.about, limit, admitted, interval)
			}
		}
	}
}

// longestWait is the longest that a request waits in the queue of a bucket.
func longestWait(c *Config) time.Duration {
	_, queue := c.bucket()
	return time.Duration(float64(c.Window)/float64(c.Limit)*float64(queue)) + time.Second/100
}

// TestAnyLimitOfABucket: whatever a client's limit is, its bucket can be made: one that could not would keep those of all others out.
func TestAnyLimitOfABucket(t *testing.T) {
	for _, a := range []Algorithm{TokenBucket, LeakyBucket} {
		for _, action := range []Action{Refuse, Delay} {
			for _, limit := range []uint32{1, 7, 1000, algorithm.MaxLimit / 2} {
				for _, burst := range []uint32{0, 1, 3, 1000, algorithm.MaxLimit / 2} {
					for _, window := range []time.Duration{time.Second, time.Minute, 24 * time.Hour} {
						c := Default("api", limit)
						c.Key, c.Plans, c.Algorithm, c.Action, c.Burst, c.Window = []string{"header:x-key"}, map[string]PlanLimit{"free": {limit}}, a, action, burst, Duration(window)
						if _, err := c.CheckAlgorithm(); err != nil {
							continue
						}
						said := make(map[string]plans.Quota)
						for _, l := range []uint32{1, 2, 3, 999, 123_456_789, algorithm.MaxLimit} {
							said[fmt.Sprint("client", l)] = plans.Quota{Rule: "api", Limit: l}
						}
						if _, err := plannedSet(t, c).Vary(book(t, said)); err != nil {
							t.Errorf("%s, %s, limit %d, burst %d, %v: %v", a, action, limit, burst, window, err)
						}
					}
				}
			}
		}
	}
}

// What a rule says is counted by plan as well: plans that it does not name together, however many a store has; and it goes on when rules are
// read again.
func TestTalliesByPlan(t *testing.T) {
	tallies := map[string]*Tally{}
	read := func(list ...Config) *Set {
		s, err := New(list, Defaults{Plans: plansConfig}, func(name string) *Tally {
			if tallies[name] == nil {
				tallies[name] = NewTally()
			}
			return tallies[name]
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Vary(nil); err != nil {
			t.Fatal(err)
		}
		return s
	}
	who := book(t, map[string]plans.Quota{"p": {Plan: "pro"}, "x": {Plan: "x"}, "y": {Plan: "y"}, "g": {Plan: "gold"}})
	paying := Default("paying", 7)
	paying.Match.Plans = []string{"pro"}
	plain := Default("plain", 7)
	ask := func(s *Set, key string, verdict limiter.Verdict) {
		t.Helper()
		var d Decision
		d.Plans = who
		q := &message.Request{Target: []byte("/"), Path: []byte("/"), Head: *headOf(t, "X-Key: "+key)}
		d.Match(s, nil, []byte("/"), []byte("/"), []byte("GET"), 0)
		addr := netip.MustParseAddr("192.0.2.1")
		if no := d.AddRules(testSecret, q, addr, counter.SourceOf(addr, 32, 64)); no != nil {
			t.Fatal(no)
		}
		for i := range d.Results {
			r := &d.Results[i]
			r.Verdict, r.Reservation = verdict, &counter.Reservation{Rule: r.CountedBy(), Verdict: counter.Verdict{Estimate: float64(r.CountedBy().Limit) / 2}}
		}
		d.Tally()
		d.Sample()
	}
	set := read(plain, api(), paying)
	for _, key := range []string{"p", "p", "x", "y", "nobody"} {
		ask(set, key, limiter.Passed)
	}
	ask(set, "p", limiter.Limited)
	set = read(paying, api(), plain) // in another order
	ask(set, "g", limiter.Mitigated)
	for _, c := range []struct {
		rule, plan                 string
		passed, limited, mitigated uint64
	}{
		{"api", "pro", 2, 1, 0}, {"api", "gold", 0, 0, 1}, {"api", "free", 1, 0, 0}, {"api", "other", 2, 0, 0}, {"paying", "pro", 2, 1, 0}, {"paying", "free", 0, 0, 0},
	} {
		tally := set.ByName(c.rule).plans.tallyOf(c.plan)
		got := []uint64{tally.Verdicts[limiter.Passed].Load(), tally.Verdicts[limiter.Limited].Load(), tally.Verdicts[limiter.Mitigated].Load()}
		if want := []uint64{c.passed, c.limited, c.mitigated}; !slices.Equal(got, want) {
			t.Errorf("rule %s, plan %s: %v, want %v", c.rule, c.plan, got, want)
		}
		if by, n, _ := tally.Used.Snapshot(); n != c.passed+c.limited+c.mitigated || by[0.5] != n || by[0.25] != 0 {
			t.Errorf("rule %s, plan %s: %v of %d", c.rule, c.plan, by, n)
		}
	}
	if n := tallies["plain"].Verdicts[limiter.Passed].Load(); n != 5 || len(tallies["plain"].plans) != 0 {
		t.Errorf("rule plain: %d", n)
	}
	many := api()
	for i := range 3 * maxPlans {
		many.Plans[fmt.Sprint("plan", i)] = PlanLimit{Limit: uint32(i + 20)}
	}
	if v := read(many).ByName("api").plans; len(v.tallies) != maxPlans || v.tallyOf("plan9") != v.others || v.tallyOf("free") == v.others {
		t.Errorf("%d plans are counted apart", len(v.tallies))
	}
}

// A client can have a limit of its own under a rule without plans: it holds for that client alone, on the counters of a
// variant.
func TestOwnLimitWithoutPlans(t *testing.T) {
	plain, both, third, source := Default("plain", 10), Default("both", 20), Default("third", 30), Default("site", 40)
	plain.Key, both.Key, third.Key = []string{"header:X-Key"}, []string{"path", "header:x-key"}, []string{"header:X-Key"}
	about := Default("about", 50)
	about.Key, about.Match.Plans = []string{"header:X-Key"}, []string{"free"}
	set := plannedSet(t, plain, both, third, source, about)
	all := map[string]uint32{"plain": 10, "both": 20, "third": 30, "site": 40, "about": 50}
	lookups := func(r *Rule) bool { return r.knows() != nil }
	if slices.ContainsFunc(set.Rules[:4], lookups) {
		t.Error("a rule looks clients up of whom nothing is said")
	}
	if got := under(t, set, nil, "X-Key: own"); !maps.Equal(got, all) {
		t.Errorf("%v, want %v", got, all)
	}
	var b plans.Builder
	client, _, _ := clientKey(t).Of("own")
	own := map[string]uint32{"plain": 5, "both": 6, "third": 7, "site": 8, "about": 9}
	for rule, limit := range own {
		b.Put(client, plans.Quota{Rule: rule, Limit: limit}, false)
	}
	who := b.Snapshot(time.Unix(1000, 0))
	if changed, err := set.Vary(who); err != nil || !changed {
		t.Fatalf("%v, %v", changed, err)
	}
	own["site"] = 40 // it counts by address
	if got := under(t, set, who, "X-Key: own"); !maps.Equal(got, own) {
		t.Errorf("%v, want %v", got, own)
	}
	for _, lines := range [][]string{{"X-Key: other"}, nil} {
		if got := under(t, set, who, lines...); !maps.Equal(got, all) {
			t.Errorf("%q: %v, want %v", lines, got, all)
		}
	}
	if got := under(t, set, who, "X-Key: own", "X-Key: other"); got != nil {
		t.Errorf("whose is it? %v", got)
	}
	for _, r := range set.Rules {
		if variants := len(r.Variants()); (variants == 1) != (r.Config.Name != "site") {
			t.Errorf("rule %s has %d variants", r.Config.Name, variants)
		}
		for _, v := range r.Variants() {
			if v.Counter.ID == r.Counter.ID || v.Config.Mode != r.Config.Mode {
				t.Errorf("%+v", v)
			}
		}
		if v, _, about := r.For(who.Of(client)); !about || v.Config.Limit != own[r.Config.Name] {
			t.Errorf("rule %s: %d, %v", r.Config.Name, v.Config.Limit, about)
		}
	}
	if changed, err := set.Vary(nil); err != nil || !changed || slices.ContainsFunc(set.Rules[:4], lookups) {
		t.Errorf("the limits stay: %v, %v", changed, err)
	}
}

// Where no client can have a limit of its own, the reason is told.
func TestTakesOwn(t *testing.T) {
	rule := func(change func(*Config)) Config {
		c := Default("r", 10)
		c.Key = []string{"header:X-Key"}
		change(&c)
		return c
	}
	for want, c := range map[string]Config{
		"": rule(func(*Config) {}),
		"it counts by source, which names no client":      rule(func(c *Config) { c.Key = []string{"source"} }),
		"it counts by header:X-Org, path, which names no": rule(func(c *Config) { c.Key = []string{"header:X-Org", "path"} }),
		"it counts no requests":                           rule(func(c *Config) { c.Limit, c.Concurrency = 0, 5 }),
		"it has windows or prefixes":                      rule(func(c *Config) { c.Windows = []Window{{Limit: 100, Window: Duration(time.Hour)}} }),
		"algorithm: exact without":                        rule(func(c *Config) { c.Algorithm = Exact }),
	} {
		err := plannedSet(t, c).Rules[0].TakesOwn()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
