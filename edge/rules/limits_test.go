package rules

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/edge/rules/key"
)

func windows(list ...Window) func(*Config)  { return func(c *Config) { c.Windows = list } }
func prefixes(list ...Prefix) func(*Config) { return func(c *Config) { c.Prefixes = list } }

func in(limit uint32, window time.Duration) Window { return Window{limit, Duration(window)} }

// decideFor is decide for a client's address, at the widths that are told apart everywhere.
func (b *bench) decideFor(client string, at time.Time) limiter.Verdict {
	addr := netip.MustParseAddr(client)
	b.d.Reset()
	b.d.Rules = b.rules.index.Find(b.d.Rules, b.host, b.path, b.method, false)
	b.d.AddRules(key.Secret{}, &b.request, addr, counter.SourceOf(addr, 32, 64))
	b.limiter.Decide(&b.d.Decision, at)
	b.d.Tally()
	return b.d.Verdict
}

// Which limits a rule has, and what its clients are told of them.
func TestLimitsOfARule(t *testing.T) {
	f := func(c Config, v4, v6 string) {
		t.Helper()
		r, err := newRule(c, Defaults{})
		must(t, err)
		for i, want := range []string{v4, v6} {
			if got := string(r.Limits[0].Texts[i].Policy); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		if n := c.Limits(); n != len(r.Limits) {
			t.Errorf("%d limits are announced, there are %d", n, len(r.Limits))
		}
		if r.Limits[0].Rule != &r.Rule {
			t.Errorf("%+v", r.Limits)
		}
	}
	const alone = `"r";q=100;w=10`
	f(ruleOf("r", 100), alone, alone)
	both := alone + `, "r/1s";q=20;w=1, "r/1h";q=2000;w=3600`
	f(ruleOf("r", 100, windows(in(20, time.Second), in(2000, time.Hour))), both, both)
	f(ruleOf("r", 100, prefixes(Prefix{24, 0})), alone, alone)
	f(ruleOf("r", 100, prefixes(Prefix{24, 0}, Prefix{32, 0})), alone+`, "r/24";q=1600;w=10`, alone)
	f(ruleOf("r", 100, prefixes(Prefix{64, 0}, Prefix{56, 0}, Prefix{48, 0})), alone, alone+`, "r/56";q=1600;w=10, "r/48";q=25600;w=10`)
	f(ruleOf("r", 100, prefixes(Prefix{64, 0}, Prefix{61, 0})), alone, alone+`, "r/61";q=200;w=10`) // rounded down
	f(ruleOf("r", 100, windows(in(15, time.Second)), prefixes(Prefix{32, 0}, Prefix{24, 250})),
		alone+`, "r/1s";q=15;w=1, "r/24";q=250;w=10, "r/24/1s";q=38;w=1`, alone+`, "r/1s";q=15;w=1`)
	f(ruleOf("r", algorithm.MaxLimit-1, prefixes(Prefix{128, 0}, Prefix{48, 0})), `"r";q=999999999;w=10`, `"r";q=999999999;w=10, "r/48";q=1000000000;w=10`)
}

// Limits of which one can never be reached, and widths of what has none, are refused with what to do.
func TestSenselessLimits(t *testing.T) {
	f := func(want string, change ...func(*Config)) {
		t.Helper()
		_, err := newRule(ruleOf("r", 100, change...), Defaults{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	f("two limits in 10s", windows(in(200, 10*time.Second)))
	f("two limits in 1s", windows(in(20, time.Second), in(30, time.Second)))
	f("a longer window needs the larger limit", windows(in(100, time.Second)))
	f("a longer window needs the lower rate", windows(in(10, time.Second)))
	f("a longer window needs the lower rate", windows(in(600, time.Minute)))
	f("more than 4", windows(in(50, time.Second), in(60, 2*time.Second), in(70, 3*time.Second), in(80, 4*time.Second), in(90, 5*time.Second)))
	f("this rule counts by header:a", prefixes(Prefix{32, 0}, Prefix{24, 0}), func(c *Config) { c.Key = []string{"header:a"} })
	f("write 32 alone", prefixes(Prefix{32, 50}, Prefix{24, 0}))
	f("24 is there twice", prefixes(Prefix{32, 0}, Prefix{24, 0}, Prefix{24, 500}))
	f("24 has a limit of 100, and a prefix within it 100", prefixes(Prefix{32, 0}, Prefix{24, 100}))
	f("31 has a limit of 100, and", prefixes(Prefix{32, 0}, Prefix{31, 0}))
	f("more than 4 of a family", prefixes(Prefix{128, 0}, Prefix{64, 0}, Prefix{60, 0}, Prefix{56, 0}, Prefix{48, 0}))
	f("under 9 limits", windows(in(20, time.Second), in(300, time.Minute)), prefixes(Prefix{64, 0}, Prefix{56, 0}, Prefix{48, 0}))
}

// A rule with several windows says what as many rules with one each would have said, and counts each request once.
func TestWindowsAreAsRules(t *testing.T) {
	short := func(c *Config) { c.MitigationTimeout = Duration(2 * time.Second) }
	window := func(d time.Duration) func(*Config) { return func(c *Config) { c.Window = Duration(d) } }
	one := newBench(t, ruleOf("r", 20, short, windows(in(5, time.Second), in(60, time.Minute))))
	many := newBench(t, ruleOf("a", 20, short), ruleOf("b", 5, short, window(time.Second)), ruleOf("c", 60, short, window(time.Minute)))
	rng := rand.New(rand.NewPCG(1, 0))
	at, refused, told := epoch, 0, make(map[string]int)
	const n = 20_000
	for i := range n {
		at = at.Add(time.Duration(rng.IntN(1+[]int{60, 300, 900}[i/100%3])) * time.Millisecond)
		who := fmt.Sprintf("192.0.2.%d", rng.IntN(3))
		got, want := one.decideFor(who, at), many.decideFor(who, at)
		if got != want || one.d.Reported.Wait != many.d.Reported.Wait || RuleOf(one.d.Reported) != one.rules.Rules[0] {
			t.Fatalf("request %d: %v for %v, want %v for %v", i, got, one.d.Reported.Wait, want, many.d.Reported.Wait)
		}
		if one.d.Refused() {
			refused++
			told[LimitOf(one.d.Reported).Policy]++
		}
	}
	var tally [limiter.Verdicts]uint64
	sum := uint64(0)
	for v := range tally {
		tally[v] = one.rules.Rules[0].Tally.Verdicts[v].Load()
		sum += tally[v]
	}
	if sum != n || tally[limiter.Passed] != uint64(n-refused) || len(told) != 3 {
		t.Errorf("%v of %d, %d of them refused, under %v", tally, n, refused, told)
	}
}

// Each width counts in one counter, the strictest decides, and what it refuses no other counts.
func TestPrefixesCountTogether(t *testing.T) {
	b := newBench(t, ruleOf("r", 3, prefixes(Prefix{32, 0}, Prefix{24, 5}, Prefix{64, 0}, Prefix{48, 5})))
	f := func(client string, want limiter.Verdict, policy string) {
		t.Helper()
		if got := b.decideFor(client, epoch); got != want || LimitOf(b.d.Reported).Policy != policy {
			t.Errorf("%s: %v under %v, want %v under %s", client, got, LimitOf(b.d.Reported).Policy, want, policy)
		}
	}
	const passed, limited, mitigated = limiter.Passed, limiter.Limited, limiter.Mitigated
	f("192.0.2.1", passed, "r")
	f("192.0.2.1", passed, "r")
	f("192.0.2.2", passed, "r") // 2 left of both: the rule's own comes first
	f("192.0.2.3", passed, "r/24")
	f("192.0.2.4", passed, "r/24")
	f("192.0.2.5", limited, "r/24")
	f("192.0.2.6", mitigated, "r/24")
	f("::ffff:192.0.2.6", mitigated, "r/24")
	f("192.0.3.6", passed, "r") // a neighbour
	f("2001:db8:0:1::1", passed, "r")
	f("2001:db8:0:1::2", passed, "r") // of one /64
	f("2001:db8:0:1::3", passed, "r")
	f("2001:db8:0:1::4", limited, "r") // which is blocked by itself, and counts in the /48 no more
	f("2001:db8:0:2::1", passed, "r/48")
	f("2001:db8:0:3::1", passed, "r/48")
	f("2001:db8:0:4::1", limited, "r/48")
	f("2001:db8:0:1::4", mitigated, "r") // both, and as long
	f("2001:db8:1:4::1", passed, "r")
	if got := b.d.Results[1].Source.String(); got != "2001:db8:1::/48" {
		t.Error(got)
	}
}

// What a rule says of a request is told once, with the strictest of its limits, also where nobody in the tier answers.
func TestTalliesOfSeveralLimits(t *testing.T) {
	b := newBench(t, ruleOf("a", 1000), ruleOf("r", 9, windows(in(4, time.Second)), prefixes(Prefix{32, 0}, Prefix{24, 0}), func(c *Config) {
		c.MitigationTimeout = 0
	}), ruleOf("z", 1000, func(c *Config) { c.OnStoreFailure = limiter.Open }))
	for range 6 {
		b.decideFor("192.0.2.1", epoch)
	}
	b.limiter.Up = func(counter.Source) bool { return false }
	b.decideFor("192.0.2.1", epoch)
	r, z := b.rules.Rules[1].Tally, b.rules.Rules[2].Tally
	got := fmt.Sprint(r.Verdicts[limiter.Passed].Load(), r.Verdicts[limiter.Limited].Load(), z.Verdicts[limiter.Passed].Load(), z.Open.Load())
	if want := "4 3 6 1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if opened := b.d.Opened(); opened != b.rules.Rules[2] {
		t.Errorf("%v", opened)
	}
}

// A sample has a request once for a rule, by the limit of which most is used.
func TestSampleOfSeveralLimits(t *testing.T) {
	b := newBench(t, ruleOf("r", 100, windows(in(20, time.Second))), ruleOf("b", 100))
	for _, r := range b.rules.Rules {
		r.Tally = NewTally()
	}
	b.decideFor("192.0.2.1", epoch)
	b.d.Sample()
	for i, want := range []float64{0.05, 0.01} {
		if _, n, sum := b.rules.Rules[i].Tally.Used.Snapshot(); n != 1 || sum != want {
			t.Errorf("rule %d: %d samples, of %v together, want %v", i, n, sum, want)
		}
	}
}

// Counters go on when a rule gets other limits beside its own, and mean the same where a limit stays.
func TestLimitsKeepTheirCounters(t *testing.T) {
	names := func(c Config) map[string]string {
		r, err := newRule(c, Defaults{})
		must(t, err)
		all := make(map[string]string)
		for _, l := range r.Limits {
			for policy, identity := range all {
				if identity == l.Counter.Identity() {
					t.Errorf("%s and %s count in one", policy, l.Policy)
				}
			}
			all[l.Policy] = l.Counter.Identity()
		}
		return all
	}
	few := names(ruleOf("r", 100))
	some := names(ruleOf("r", 100, windows(in(20, time.Second))))
	many := names(ruleOf("r", 90, windows(in(30, time.Second), in(900, time.Hour)), prefixes(Prefix{32, 0}, Prefix{24, 0})))
	for _, policy := range []string{"r", "r/1s"} {
		if some[policy] != many[policy] || policy == "r" && few[policy] != some[policy] {
			t.Errorf("%s: %v, %v, %v", policy, few, some, many)
		}
	}
	if len(many) != 6 {
		t.Errorf("%v", many)
	}
}

// A key in another spelling counts on, unless it is about something else: names of claims differ by their case, all others do not.
func TestCountsByKey(t *testing.T) {
	for _, test := range []struct {
		one, other string
		same       bool
	}{
		{"header:X-Key", "header:x-key", true}, {"query:ID", "query:id", true}, {"cookie:S", "cookie:s", true},
		{"jwt:sub", "jwt:Sub", false}, {"query:id", "cookie:id", false}, {"query:id", "query:key", false},
	} {
		one, other := ruleOf("r", 5), ruleOf("r", 5)
		one.Key, other.Key = []string{test.one}, []string{test.other}
		if same := one.countsBy() == other.countsBy(); same != test.same {
			t.Errorf("%s and %s count in one: %t", test.one, test.other, same)
		}
	}
}

// The limits of many rules have IDs of their own, as rules have: a 32-bit hash would give two of so many the same.
func TestLimitsHaveIDsOfTheirOwn(t *testing.T) {
	var list []Config
	for i := range 4_000 { // so many that two of their hashes are the same
		list = append(list, ruleOf(fmt.Sprint("r", i), 100, windows(in(20, time.Second)), prefixes(Prefix{32, 0}, Prefix{24, 0}, Prefix{16, 0}, Prefix{8, 0})))
	}
	set, err := New(list, Defaults{}, newTally)
	must(t, err)
	seen := make(map[uint32]string)
	for _, l := range set.EachLimit() {
		if other, there := seen[l.Counter.ID]; there {
			t.Errorf("%s and %s have one ID", other, l.Policy)
		}
		seen[l.Counter.ID] = l.Policy
	}
	if len(seen) != 32_000 {
		t.Errorf("%d limits", len(seen))
	}
}

// Each limit knows the lengths of the prefixes that it counts by: those of which Of makes sources.
func TestWidths(t *testing.T) {
	got := make(map[string][2]int)
	set, err := New([]Config{ruleOf("plain", 5), ruleOf("wide", 5, prefixes(Prefix{28, 0}, Prefix{24, 0}, Prefix{48, 0}))}, Defaults{}, newTally)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range set.EachLimit() {
		v4, v6 := l.Widths(30, 60)
		got[l.Policy] = [2]int{v4, v6}
		for i, client := range []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")} {
			source, counts := l.Of(counter.SourceOf(client, 30, 60), client)
			if p, _ := source.Prefix(); counts && p.Bits() != got[l.Policy][i] || counts != (got[l.Policy][i] >= 0) {
				t.Errorf("%s counts %v: %v, %v", l.Policy, source, counts, got[l.Policy])
			}
		}
	}
	if diff := cmp.Diff(map[string][2]int{"plain": {30, 60}, "wide": {28, 48}, "wide/24": {24, -1}}, got); diff != "" {
		t.Error(diff)
	}
}

// Prefixes are shown as files have them.
func TestPrefixJSON(t *testing.T) {
	text, err := Prefix{24, 7}.MarshalJSON()
	plain, _ := Prefix{24, 0}.MarshalJSON()
	if diff := cmp.Diff([]string{`{"prefix":24,"limit":7}`, `24`}, []string{string(text), string(plain)}); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// What a decision costs under one rule, by its limits: one is what it costs without windows and prefixes.
func BenchmarkLimits(b *testing.B) {
	for _, of := range []struct {
		name string
		rule Config
	}{
		{"one", ruleOf("r", 1_000_000)},
		{"prefix", ruleOf("r", 1_000_000, prefixes(Prefix{24, 0}))},
		{"windows=2", ruleOf("r", 1_000_000, windows(in(500_000, time.Second)))},
		{"windows=2,prefixes=3", ruleOf("r", 1_000_000, windows(in(500_000, time.Second)), prefixes(Prefix{32, 0}, Prefix{24, 2_000_000}, Prefix{16, 4_000_000}))},
	} {
		b.Run(of.name, func(b *testing.B) {
			t := newBench(b, of.rule)
			at := epoch
			b.ReportAllocs()
			for b.Loop() {
				at = at.Add(time.Millisecond)
				t.decideFor("192.0.2.1", at)
			}
		})
	}
}
