package try

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge/changes"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
)

var start = time.Date(2026, 5, 4, 14, 0, 0, 0, time.UTC)

func from(i int) counter.Source {
	return counter.SourceOf(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32, 64)
}

func order(t *testing.T, name string, version uint64, until time.Time) Order {
	t.Helper()
	rule, err := Parse(config.Default(), name, []byte(`{"limit":5}`))
	if err != nil {
		t.Fatal(err)
	}
	return Order{Name: name, Rule: rule, Version: version, Maker: 1, Began: start, Until: until}
}

// Each request is said to be refused or not, and each answer comes after it: who had three answers before, nine in ten good ones, looks honest.
func TestHonest(t *testing.T) {
	run := newRun(order(t, "a", 1, start.Add(time.Minute)), start)
	ask := func(s int, refuses bool, status int) {
		run.decided(&rules.TrialResult{Source: from(s), Refuses: refuses}).Answered(status)
	}
	for _, test := range []struct {
		source   int
		statuses []int // before
		honest   bool
	}{
		{1, []int{200, 302, 204}, true},
		{2, []int{200, 200}, false},
		{3, []int{401, 401, 401, 200}, false},
		{4, []int{200, 200, 200, 200, 200, 200, 200, 200, 200, 404}, true},
		{5, []int{200, 200, 200, 200, 200, 200, 200, 200, 404}, false},
		{6, nil, false},
	} {
		for _, status := range test.statuses {
			ask(test.source, false, status)
		}
		for range 3 {
			ask(test.source, true, 200) // what comes after does not matter
		}
		ask(test.source, false, 200)
		for _, h := range run.Part(key.Secret{}, start).Heavy {
			if h.Source == from(test.source).String() && (h.Honest != test.honest || h.Count != 3 || int(h.Requests) != len(test.statuses)+4) {
				t.Errorf("%d: %+v", test.source, h)
			}
		}
	}
	if told := run.decided(&rules.TrialResult{Source: from(7), Moot: true}); told != nil {
		t.Error("of what the rules in force refuse it is told what is answered")
	}
	sum := Sum([]*Part{run.Part(key.Secret{}, start)}, 3)
	if sum.Requests != 28+24 || sum.Refused != 18 || sum.Known != 18 || sum.Well != 18 || sum.Moot != 1 || sum.Sources != (Number{N: 6}) || sum.RefusedSources != (Number{N: 6}) || sum.Honest != (Number{N: 2}) || len(sum.Heavy) != 3 {
		t.Errorf("%+v", sum)
	}
}

// Edges see some of the sources each, many of them both: together they are counted once, exactly while they are few, and else about, within four
// standard errors.
func TestSum(t *testing.T) {
	secret := key.NewSecret([16]byte{1, 2, 3})
	for _, n := range []int{0, 1, 300, 5000, 20000} {
		var parts []*Part
		rng := rand.New(rand.NewPCG(uint64(n), 2))
		refused, good := make(map[int]bool), make(map[int]bool)
		for range 3 {
			run := newRun(order(t, "a", 1, start.Add(time.Hour)), start)
			for i := range n {
				if rng.IntN(2) == 0 {
					continue
				}
				r := rules.TrialResult{Source: from(i)}
				for range 3 {
					run.decided(&r).Answered(200 + 200*(i%4)) // one in four is answered well
				}
				if i%2 == 0 {
					refused[i] = true
					good[i] = i%4 == 0 || good[i]
					r.Refuses = true
					run.decided(&r)
				}
			}
			parts = append(parts, run.Part(secret, start))
		}
		honest := 0
		for _, g := range good {
			if g {
				honest++
			}
		}
		sum := Sum(parts, 10)
		for what, c := range map[string]struct {
			is   Number
			want int
		}{"refused": {sum.RefusedSources, len(refused)}, "honest": {sum.Honest, honest}} {
			few := len(refused) <= 512
			if d := math.Abs(float64(c.is.N) - float64(c.want)); few && (d != 0 || c.is.Error != 0) || !few && (d > 4*c.is.Error*float64(c.want) || c.is.Error == 0) || c.is.AtLeast {
				t.Errorf("%d sources, %s: %+v, want %d", n, what, c.is, c.want)
			}
		}
		short := *parts[0]
		short.cut(64, 64)
		if n == 5000 {
			some := Sum([]*Part{&short, parts[1], parts[2]}, 10)
			if d := math.Abs(float64(some.RefusedSources.N) - float64(len(refused))); d > 4*some.RefusedSources.Error*float64(len(refused)) {
				t.Errorf("with a shorter part: %+v, want %d", some.RefusedSources, len(refused))
			}
		}
	}
}

// A source that one edge lists among its heaviest, and another does not, has all its requests and answers, and no more refusals than requests.
func TestHeavySomewhere(t *testing.T) {
	var parts []*Part
	for edge := range 2 {
		run := newRun(order(t, "a", 1, start.Add(time.Hour)), start)
		hit := func(source, n int, refuses bool) {
			for range n {
				r := rules.TrialResult{Source: from(source), Refuses: refuses}
				run.decided(&r).Answered(200)
			}
		}
		hit(1, 4, false)
		hit(1, []int{50, 3}[edge], true)
		hit(3, []int{60, 0}[edge], true)
		for i := range 3 * heaviest {
			hit(100+i, 10, edge == 1)
		}
		for i := range 2000 {
			hit(1000+i, 1, false)
		}
		parts = append(parts, run.Part(key.NewSecret([16]byte{1}), start))
	}
	sum := Sum(parts, 2)
	for i, want := range []Heavy{{Requests: 61, Answers: 8, Well: 8, Honest: true}, {Requests: 60}} {
		want.Source, want.Count = from(1+2*i).String(), want.Requests-want.Answers
		if i >= len(sum.Heavy) || !slices.Contains(sum.Heavy, want) {
			t.Errorf("%+v, want %+v", sum.Heavy, want)
		}
	}
}

// A flood of sources takes no more room than there is. Those that would be refused stay.
func TestBounded(t *testing.T) {
	run := newRun(order(t, "a", 1, start.Add(time.Hour)), start)
	for i := range 100 {
		run.decided(&rules.TrialResult{Source: from(i), Refuses: true})
	}
	for i := range 3 * MaxSources {
		run.decided(&rules.TrialResult{Source: from(1000 + i)})
	}
	sum := Sum([]*Part{run.Part(key.Secret{}, start)}, 10)
	if sum.RefusedSources != (Number{N: 100}) || !sum.Sources.AtLeast || sum.Forgotten == 0 || !sum.Honest.AtLeast {
		t.Errorf("%+v", sum)
	}
	for i := range 3 * MaxSources {
		run.decided(&rules.TrialResult{Source: from(1000 + i), Refuses: true})
	}
	if sum = Sum([]*Part{run.Part(key.Secret{}, start)}, 10); !sum.RefusedSources.AtLeast || sum.Bytes > 16<<20 || sum.Refused != 100+3*MaxSources {
		t.Errorf("%+v", sum)
	}
}

// Those in a list of changes that run are found on every edge the same: the newest of a name, before its end, not stopped, the first eight.
func TestInForce(t *testing.T) {
	rule := rules.Default("x", 5)
	said := func(name string, version uint64, does changes.Does, until time.Duration) changes.Change {
		c := begin(name, rule, start.Add(until), control.Operator{Who: "ada"})
		c.Does = does
		return changes.Read(c.Subject(), version, 1, start, c.Text())
	}
	list := []changes.Change{
		said("again", 9, begins, time.Hour), said("again", 3, stops, time.Hour),
		said("over", 4, begins, -time.Second),
		said("runs", 2, begins, time.Minute),
		said("stopped", 8, stops, time.Minute), said("stopped", 5, begins, time.Minute),
	}
	names := func(list []Order) (text string) {
		for _, o := range list {
			text += fmt.Sprintf("%s-%d ", o.Name, o.Version)
		}
		return text
	}
	running, refused := inForce(config.Default(), list, start)
	if names(running) != "runs-2 again-9 " || len(refused) != 0 || running[0].Rule.Name != "try:runs" || running[0].Rule.Mode != rules.Shadow || running[0].Who != "ada" {
		t.Errorf("%s %v", names(running), refused)
	}
	if running, _ = inForce(config.Default(), list, start.Add(time.Minute)); names(running) != "again-9 " {
		t.Error(names(running))
	}
	for i := range MaxRuns {
		list = append(list, said(fmt.Sprint("t", i), uint64(20+i), begins, time.Hour))
	}
	if running, refused = inForce(config.Default(), list, start); len(running) != MaxRuns || len(refused) != 2 || refused[0].Change.Subject() != "try:t6" {
		t.Errorf("%s %v", names(running), refused)
	}
	if o := changes.Lay(config.Default(), changes.File, list, changes.PoP); len(o.Rules) != 0 || len(o.Refused) != 0 {
		t.Errorf("tries are in an overlay: %v %v", o.Rules, o.Refused)
	}
	alien := said("x", 1, begins, 0)
	if c := changes.Read("login", 1, 1, start, alien.Text()); c.Wrong() == nil {
		t.Error("a rule of a file is tried")
	}
}

// What is wrong with a rule is said with its field, and what would do something to requests is left out.
func TestParse(t *testing.T) {
	with := config.Default()
	with.Modules = []config.Module{{Facts: []*key.Fact{{Name: "moon"}}, Lacks: func(*config.Config, string, string) error { return errors.New("nobody says where it is") }}}
	for text, want := range map[string]string{
		`{}`:                                "limit",
		`{"limit":0}`:                       "limit",
		`{"limit":5,"windows":"x"}`:         "windows",
		`{"limt":5}`:                        "limt",
		`{"limit":5,"check":"sync"}`:        "check: sync",
		`{"limit":5,"plans":{"pro":9}}`:     "plans",
		`{"limit":5,"concurrency":3}`:       "concurrency",
		`{"limit":5,"key":["moon"]}`:        "rule n: key: nobody says where it is",
		`{"limit":5,"key":["header:"]}`:     "header:",
		`{"limit":5,"match":{"path":"~("}}`: "regular expression",
		`{"limit":5,"concurrency":0}`:       "",
	} {
		rule, err := Parse(with, "n", []byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "try:")) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		if want == "" && (rule.Name != "try:n" || rule.Mode != rules.Shadow) {
			t.Errorf("%+v", rule)
		}
	}
}

// A try that is set again goes on; one that is not has ended, and is remembered.
func TestRegistry(t *testing.T) {
	var b Registry
	set := func(after time.Duration, list ...Order) {
		now := start.Add(after)
		b.set(b.next(list, now), now)
	}
	a, c := order(t, "a", 1, start.Add(time.Hour)), order(t, "c", 2, start.Add(time.Hour))
	set(0, a)
	first := b.Run("a")
	set(time.Second, a, c)
	if again := b.Run("a"); again != first || !slices.Contains(b.running(), first) {
		t.Error("it began afresh")
	}
	set(time.Minute, c)
	if over := b.Run("a"); over != first || slices.Contains(b.running(), first) ||
		!over.End().Equal(start.Add(time.Minute)) {
		t.Errorf("ended at %v", over.End())
	}
	set(2 * time.Hour)
	if over := b.Run("c"); !over.End().Equal(c.Until) || len(b.running()) != 0 {
		t.Errorf("ended at %v", over.End())
	}
}

// BenchmarkDecided is what one request costs a try, of a source that is known.
func BenchmarkDecided(b *testing.B) {
	run := newRun(Order{Rule: rules.Default("a", 5)}, start)
	r := rules.TrialResult{Source: from(1)}
	b.ReportAllocs()
	for b.Loop() {
		run.decided(&r).Answered(200)
	}
}
