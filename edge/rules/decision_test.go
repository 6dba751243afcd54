package rules

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge/http1"
	"sluice/edge/limiter"
	"sluice/edge/message"
	"sluice/edge/rules/key"
	"sluice/edge/rules/match"
	"sluice/mitigation"
)

// epoch is when the tests' time begins. It has no monotonic reading, so differences are exact.
var epoch = time.Unix(1_700_000_000, 0)

var testSecret = key.NewSecret([16]byte{0: 1, 8: 2})

func ip(s string) counter.Source { return counter.SourceOf(netip.MustParseAddr(s), 32, 64) }

func headOf(t testing.TB, lines ...string) *message.Head {
	h := &message.Head{}
	if _, err := http1.ScanHead(h, []byte(strings.Join(append(lines, "", ""), "\r\n")), message.MaxLines); err != nil {
		t.Fatal(err)
	}
	return h
}

// bench is rules and a limiter, and a hand to use them without HTTP.
type bench struct {
	limiter limiter.Limiter
	rules   *Set
	d       Decision
	request message.Request

	host, path, method []byte
}

func newBench(t testing.TB, list ...Config) *bench {
	t.Helper()
	set, err := New(list, Defaults{Facts: []*key.Fact{claim}}, newTally)
	must(t, err)
	return &bench{
		rules: set, host: []byte("example.com"), path: []byte("/"), method: []byte("GET"),
		limiter: limiter.Limiter{Counters: counter.New(counter.Options{Counters: 1 << 18}), Blocks: mitigation.New(1<<16, nil)},
	}
}

// claim is a fact with an argument, as a module has them.
var claim = &key.Fact{Name: "jwt", Argument: "CLAIM", Kind: 7, Slow: true, Find: func(buf []byte, _ *key.View) []byte { return append(buf, "anna"...) },
	Of: func(value, _ []byte) []byte { return value }}

func newTally(string) *Tally { return new(Tally) }

// decide asks all rules about a source.
func (b *bench) decide(source counter.Source, at time.Time) {
	b.d.Reset()
	b.d.Rules = b.rules.index.Find(b.d.Rules, b.host, b.path, b.method, false)
	b.d.AddRules(key.Secret{}, &b.request, netip.Addr{}, source)
	b.limiter.Decide(&b.d.Decision, at)
	b.d.Tally()
}

// ruleOf is a rule of so many hits in ten seconds, changed as the test needs it.
func ruleOf(name string, limit uint32, change ...func(*Config)) Config {
	r := Default(name, limit)
	r.Window, r.MitigationTimeout = Duration(10*time.Second), Duration(20*time.Second)
	for _, c := range change {
		c(&r)
	}
	return r
}

// The limiter gets all of a rule that it decides by.
func TestRuleForLimiter(t *testing.T) {
	f := func(config Config, all bool, want limiter.Rule) {
		t.Helper()
		r, err := newRule(config, Defaults{Shadow: all})
		must(t, err)
		got := r.Rule
		if got.Timeout != want.Timeout || got.Shadow != want.Shadow || got.Counts(200) != want.Counts(200) || got.Counts(401) != want.Counts(401) ||
			got.Refused != want.Refused || got.OnStoreFailure != want.OnStoreFailure || got.FirstSight != want.FirstSight || got.Counter.Limit != 3 {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	f(Default("r", 3), false, limiter.Rule{Rule: mitigation.Rule{Timeout: time.Minute}, OnStoreFailure: limiter.Local, FirstSight: limiter.Go})
	f(Default("r", 3), true, limiter.Rule{Rule: mitigation.Rule{Timeout: time.Minute, Shadow: true}, OnStoreFailure: limiter.Local, FirstSight: limiter.Go})
	f(ruleOf("r", 3, func(r *Config) {
		r.Mode, r.MitigationTimeout, r.FirstSight, r.OnStoreFailure = Shadow, 0, limiter.Wait, limiter.Closed
		r.Count = Count{Statuses: []int{401}, Refused: true}
	}), false, limiter.Rule{Rule: mitigation.Rule{Shadow: true}, FirstSight: limiter.Wait, OnStoreFailure: limiter.Closed, Statuses: []int{401}, Refused: true})
}

func TestTalliesCountEachRequestInEachRule(t *testing.T) {
	b := newBench(t, ruleOf("a", 2), ruleOf("b", 100), ruleOf("s", 1, func(r *Config) { r.Mode = Shadow }),
		ruleOf("off", 1, func(r *Config) { r.Mode = Off }))
	for i := range 10 {
		b.decide(ip("192.0.2.1"), epoch.Add(time.Duration(i)*time.Millisecond))
	}
	for _, r := range b.rules.All {
		sum, want := uint64(0), uint64(10)
		for v := range limiter.Verdicts {
			sum += r.Tally.Verdicts[v].Load()
		}
		if r.Config.Mode == Off {
			want = 0
		}
		if sum != want {
			t.Errorf("rule %s: %d requests, want %d", r.Config.Name, sum, want)
		}
	}
}

func TestTalliesCountWhatWasSkipped(t *testing.T) {
	for _, p := range []limiter.FailurePolicy{limiter.Local, limiter.Open, limiter.Closed} {
		b := newBench(t, ruleOf("r", 1, func(r *Config) { r.OnStoreFailure = p }))
		b.limiter.Up = func(counter.Source) bool { return false }
		for range 3 {
			b.decide(ip("192.0.2.9"), epoch)
		}
		want := map[limiter.FailurePolicy][2]uint64{limiter.Open: {3, 0}, limiter.Closed: {0, 3}}[p]
		if tally := b.rules.Rules[0].Tally; tally.Open.Load() != want[0] || tally.Closed.Load() != want[1] {
			t.Errorf("%s: %d admitted and %d refused without asking, want %v", p, tally.Open.Load(), tally.Closed.Load(), want)
		}
	}
}

// The request path allocates nothing for a source that it knows: rules are found, asked and tallied.
func TestDecideAllocatesNothing(t *testing.T) {
	for _, list := range [][]Config{
		{ruleOf("r", 1_000_000)},
		{ruleOf("a", 1_000_000), ruleOf("b", 10_000), ruleOf("c", 1_000_000)},
		{ruleOf("r", 1)},
		{ruleOf("r", 1_000_000, windows(in(500_000, time.Second)), prefixes(Prefix{64, 0}, Prefix{48, 0})), ruleOf("b", 10_000)},
	} {
		b := newBench(t, list...)
		at := epoch
		for range 10 {
			b.decide(ip("192.0.2.1"), at)
		}
		if n := testing.AllocsPerRun(1000, func() {
			at = at.Add(time.Microsecond)
			b.decide(ip("192.0.2.1"), at)
		}); n != 0 {
			t.Errorf("%d rules, %s: %v allocations", len(list), b.d.Verdict, n)
		}
	}
}

// Nor does a path that origins read in several ways, or a key that is brought into one form.
func TestReadingsAndKeysAllocateNothing(t *testing.T) {
	b := newBench(t,
		ruleOf("path", 1_000_000, func(r *Config) { r.Match.Path = "/api/*" }),
		ruleOf("token", 1_000_000, func(r *Config) { r.Key = []string{"header:Authorization", "header:Host"} }),
		ruleOf("session", 1_000_000, func(r *Config) {
			r.Key = []string{"source", "cookie:sid", "host", "global"}
			r.Match.Headers, r.Match.Cookies, r.Match.Query = map[string]match.Value{"authorization": {Text: "Basic YTpi"}}, map[string]match.Value{"sid": {Text: "*"}}, map[string]match.Value{"a": {Text: "1"}}
			r.Match.Not = &match.Config{Path: "/x", Query: map[string]match.Value{"a": {Text: "2"}}}
		}))
	target := []byte("//h/api;x/ab?a=%31;b=2")
	q := &message.Request{Target: target, Head: *headOf(t, "Host: A.example:80", "Authorization: Basic  YTpi", `Cookie: a=b; SID="%61+b"`)}
	buf, at := make([]byte, 0, 64), epoch
	decide := func() {
		b.d.Reset()
		path, readings := message.AppendPath(buf, target)
		if readings != message.HostCut|message.ParamsCut|message.QueryCut {
			t.Fatalf("%s has the readings %04b", target, readings)
		}
		b.d.Match(b.rules, b.host, path, target, b.method, readings)
		if b.d.AddRules(key.Secret{}, q, netip.MustParseAddr("192.0.2.1"), ip("192.0.2.1")) != nil || len(b.d.Rules) != 3 {
			t.Fatalf("%d rules", len(b.d.Rules))
		}
		b.limiter.Decide(&b.d.Decision, at)
	}
	for range 10 {
		decide()
	}
	if n := testing.AllocsPerRun(1000, func() { at = at.Add(time.Microsecond); decide() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A share of the sources, always the same by the PoP's secret, grows by others; a rule of another name has another.
func TestShare(t *testing.T) {
	const n = 20_000
	within := func(name string, share int, secret key.Secret) (list []bool) {
		r, err := newRule(ruleOf(name, 5, func(c *Config) { c.Share = share }), Defaults{})
		must(t, err)
		for i := range n {
			list = append(list, r.IsAbout(secret, counter.SourceOf(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32, 64)))
		}
		return list
	}
	count := func(list []bool) (n int) {
		for _, is := range list {
			if is {
				n++
			}
		}
		return n
	}
	both := func(a, b []bool) (n int) {
		for i := range a {
			if a[i] && b[i] {
				n++
			}
		}
		return n
	}
	near := func(what string, got, want int) {
		t.Helper()
		if got < want*9/10 || got > want*11/10 {
			t.Errorf("%s: %d, want about %d", what, got, want)
		}
	}
	ours := testSecret
	tenth, half := within("r", 10, ours), within("r", 50, ours)
	near("a tenth", count(tenth), n/10)
	near("a half", count(half), n/2)
	if both(tenth, half) != count(tenth) {
		t.Error("whoever is within a tenth is not within a half")
	}
	if count(within("r", 100, ours)) != n {
		t.Error("a rule about all is not about some")
	}
	near("of half under another secret", both(half, within("r", 50, key.NewSecret([16]byte{3}))), n/4)
	near("of half under another rule", both(half, within("s", 50, ours)), n/4)

	if _, err := New([]Config{ruleOf("r", 5, func(c *Config) { c.Share = 0 })}, Defaults{}, newTally); err == nil {
		t.Error("a share of nothing is taken")
	}
}

// Whom a rule with a key counts is whom it is about, and a rule that is left out does not count.
func TestShareByKey(t *testing.T) {
	list := []Config{ruleOf("all", 5), ruleOf("some", 5, func(c *Config) { c.Share, c.Key = 50, []string{"header:k"} }), ruleOf("last", 5)}
	b := newBench(t, list...)
	var with, without int
	for i := range 100 {
		b.decide(ip("192.0.2."+strconv.Itoa(i)), epoch)
		switch len(b.d.Rules) {
		case 3:
			with++
		case 2:
			without++
		}
		for j, r := range b.d.Rules {
			if RuleOf(&b.d.Results[j]) != r || b.d.Results[j].Rule != &r.Rule || b.d.Results[j].Reservation == nil {
				t.Fatalf("result %d is not of rule %s", j, r.Config.Name)
			}
		}
	}
	if with < 30 || without < 30 || with+without != 100 {
		t.Errorf("%d sources under three rules, %d under two", with, without)
	}
	if n := testing.AllocsPerRun(100, func() { b.decide(ip("192.0.2.1"), epoch) }); n > 1 { // one for the address
		t.Errorf("%v allocations", n)
	}
}

// must ends a test that cannot go on.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
