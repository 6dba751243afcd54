package whatif

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/edge/edgetest/golden"
	"sluice/loadgen/judge"
	"sluice/loadgen/trace"
)

// someTrace is three sources: one far over four a second, one over it once, one never.
func someTrace() *trace.Trace {
	t := &trace.Trace{Name: "mill.log", Seed: 1, Lines: 40, Skipped: map[string]int{}, Start: time.Date(2021, 3, 15, 7, 0, 0, 0, time.UTC),
		Sources: []trace.Source{
			{Name: "192.0.2.1", Addr: netip.MustParseAddr("192.0.2.1")},
			{Name: "192.0.2.2", Addr: netip.MustParseAddr("192.0.2.2")},
			{Name: "<b>198.51.100.3", Addr: netip.MustParseAddr("198.51.100.3")},
		}}
	t.Agents = []string{"", "curl/8", "<i>a\x1b browser"}
	add := func(source int32, every time.Duration, n int, status int16) {
		for i := range n {
			path := "/?n=1"
			if i%3 == 0 {
				path = "/page"
			}
			t.Requests = append(t.Requests, trace.Request{At: time.Duration(i) * every, Source: source, Status: status, Method: "GET", Path: path, Agent: source})
		}
	}
	add(0, 100*time.Millisecond, 30, 401)
	add(1, 150*time.Millisecond, 6, 200)
	add(2, 700*time.Millisecond, 4, 304)
	trace.Sort(t)
	return t
}

// strictEvery is a rule whose limiter refuses each source's requests from the n-th on, which is no good limiter: what is tested
// is the report. It blocks for good.
func strictEvery(t *trace.Trace, n int) func(int) Outcome {
	seen := map[int32]int{}
	return func(i int) Outcome {
		s := t.Requests[i].Source
		seen[s]++
		refuses := seen[s] >= n
		return Outcome{Refused: refuses, Results: []RuleResult{{Counter: s, Refuses: refuses, Begins: seen[s] == n, Counts: true}}}
	}
}

func TestWhatIf(t *testing.T) {
	trace := someTrace()
	rules := []JudgedRule{{Name: "default", Limit: 4, Window: time.Second, Timeout: time.Minute}}
	w, err := Run(t.Context(), trace, Options{Rules: rules, DryRun: strictEvery(trace, 4), Good: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/32")}, Characters: true})
	if err != nil {
		t.Fatal(err)
	}
	w.Run.Command = "what-if"
	w.Run.Describe(trace)
	want := Figures{Requests: 40, Refused: 27 + 3 + 1, RefusedRatio: 31. / 40, Sources: 3, RefusedSources: 3, Blocks: 3}
	if diff := cmp.Diff(want, w.Figures); diff != "" {
		t.Error(diff)
	}
	good := GoodTraffic{
		Within: Caught{Requests: 4, Refused: 1, RefusedRatio: 0.25, Sources: 1, RefusedSources: 1},
		Called: &Caught{Requests: 6, Refused: 3, RefusedRatio: 0.5, Sources: 1, RefusedSources: 1},
		Known:  40, Answered: 10, RefusedKnown: 31, RefusedAnswered: 4, AnsweredRatio: 4. / 31,
	}
	if diff := cmp.Diff(good, w.Good); diff != "" {
		t.Error(diff)
	}
	if o := w.Rules[0]; o.Over != 2 || o.RefusedSources != 3 || o.First.String() != "2021-03-15 07:00:00Z" || o.First.Since != 300*time.Millisecond {
		t.Errorf("%+v", o)
	}
	if s := w.Refused; len(s) != 3 || s[0].Source != "192.0.2.1" || s[0].Most != 10 || s[0].Refused != 27 || s[0].Innocent ||
		!s[1].Good || s[1].Answered != 3 || !s[2].Innocent {
		t.Errorf("%+v", s)
	}

	curve := Curve{Rule: "default", Limit: 4}
	for _, limit := range LimitsAround(4, 100) {
		r := rules[0]
		r.Limit = limit
		p, err := Run(t.Context(), trace, Options{Rules: []JudgedRule{r}, DryRun: strictEvery(trace, int(limit)), Answered: 1})
		if err != nil {
			t.Fatal(err)
		}
		curve.Points = append(curve.Points, p.Point(limit))
	}
	w.Curves = append(w.Curves, curve)
	var text, page, data bytes.Buffer
	if err := WriteText(&text, w); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "what-if.txt", text.Bytes())
	if err := WriteJSON(&data, w); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "what-if.json", data.Bytes())
	if err := WriteHTML(&page, w); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(page.String(), "<svg"); n != 2 {
		t.Errorf("%d plots, want the timeline and the curve", n)
	}
	for _, bad := range []string{"<script", "<b>198", "<i>a", "http://", "https://", "src=", "url(", "NaN"} {
		if strings.Contains(page.String(), bad) {
			t.Errorf("the page has %q in it", bad)
		}
	}
}

// crowd is sources whose busiest windows are as given, all their requests at once and answered with 200, or 403 from the n-th source on.
func crowd(refused int, most ...int) *trace.Trace {
	t := &trace.Trace{Name: "crowd"}
	for i, n := range most {
		t.Sources = append(t.Sources, trace.Source{Name: fmt.Sprint("source", i), Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})})
		status := int16(200)
		if i >= refused {
			status = 403
		}
		for range n {
			t.Requests = append(t.Requests, trace.Request{Source: int32(i), Status: status})
		}
	}
	return t
}

// people is a crowd of a thousand: a hundred make ten, ten up to thirty.
func people(more ...int) (most []int) {
	for i := range 1000 {
		switch {
		case i < 10:
			most = append(most, 21+i)
		case i < 110:
			most = append(most, 10)
		default:
			most = append(most, 1+i%3)
		}
	}
	return append(most, more...)
}

// What is recommended of whom, and why.
func TestRecommendation(t *testing.T) {
	attack := people(slices.Repeat([]int{500, 1000, 7000}, 40)...)
	machines := people(300, 300, 400, 500, 5000)
	for name, test := range map[string]struct {
		most    []int
		refused int // from that source on
		limit   uint32
		good    []netip.Prefix
		share   float64
		want    string
	}{
		"people and machines":       {machines, 0, 450, nil, 0, "Lower default's limit from 450 to 30 in 1s: 5 of 1,005 sources (0.498 %) made more, and a higher limit would spare few of them."},
		"the same sources are over": {machines, 0, 40, nil, 0, "Keep default's limit of 40 in 1s: 5 of 1,005 sources"},
		"people alone":              {people(), 0, 15, nil, 0, "Raise default's limit from 15 to 30 in 1s: nobody stands out, and the busiest source made 30."},
		"nobody over":               {people(), 0, 100, nil, 0, "Keep default's limit of 100 in 1s: nobody stands out, and the busiest source made 30."},
		"a good machine":            {machines, 0, 100, []netip.Prefix{netip.MustParsePrefix("10.0.3.234/32")}, 0, "Raise default's limit from 100 to 500 in 1s: the busiest source called good, source1002, made 400, which leaves it some room, and 1 of 1,005 sources (0.0995 %) made more."},
		"good by their answers":     {machines, 1000, 20, nil, 0.95, "Raise default's limit from 20 to 38 in 1s: the busiest source called good, source9, made 30, which leaves it some room, and 5 of 1,005 sources (0.498 %) made more."},
		"good, and far below":       {machines, 5, 100, nil, 1, "the busiest source called good, source4, made 25"},
		"an attack":                 {attack, 0, 60, nil, 0, "No limit to recommend for default: the busiest source made 7,000, 3,500 times what half of them make, and no gap parts the busy ones: this may be an attack; say with --good who must not be refused."},
		"an attack below the limit": {attack, 0, 9000, nil, 0, "No limit to recommend for default: the busiest source made 7,000, "},
		"an attack, good below":     {attack, 0, 60, []netip.Prefix{netip.MustParsePrefix("10.0.0.9/32")}, 0, "this may be an attack; the busiest source called good, source9, made 30."},
		"an attack, good above":     {attack, 0, 20, []netip.Prefix{netip.MustParsePrefix("10.0.0.9/32")}, 0, "Raise default's limit from 20 to 38 in 1s: the busiest source called good, source9, made 30, which leaves it some room."},
		"few":                       {[]int{1, 2, 300}, 0, 100, nil, 0, "No limit to recommend for default: 3 sources under it are too few to suggest a limit."},
		"one":                       {[]int{1}, 0, 100, nil, 0, "No limit to recommend for default: 1 source under it is too few to suggest a limit."},
		"all alike":                 {slices.Repeat([]int{7}, 50), 0, 100, nil, 0, "nobody stands out, and the busiest source made 7."},
	} {
		trace := crowd(test.refused, test.most...)
		w, err := Run(t.Context(), trace, Options{Rules: []JudgedRule{{Name: "default", Limit: test.limit, Window: time.Second}}, DryRun: strictEvery(trace, 1000), Good: test.good, Answered: test.share})
		if err != nil {
			t.Fatal(err)
		}
		if got := w.recommendation(); !strings.Contains(got, test.want) {
			t.Errorf("%s: %s\nwant %s", name, got, test.want)
		}
		if text := w.document().Answer; !strings.Contains(text, " But the log is of 0s only, and the window of default is 1s: ") {
			t.Errorf("%s: the log is shorter than a window, and the answer does not say so: %s", name, text)
		}
		if len(w.Next) == 0 || w.Next[0].Most > test.limit {
			t.Errorf("%s: next %+v", name, w.Next)
		}
	}
	b := busiest([]uint32{1, 1, 1, 1, 2, 2, 3, 3, 4, 900})
	if b.Sources != 10 || b.P50 != 2 || b.P99 != 900 || b.P999 != 900 || b.Most != 900 {
		t.Errorf("%+v", b)
	}
	if b := busiest(nil); b != (Busiest{}) {
		t.Errorf("%+v", b)
	}
	for v, want := range map[float64]uint32{0: 0, 1.2: 2, 9: 9, 10: 10, 37.5: 38, 99.5: 100, 101: 110, 1234: 1300, 2e9: 1e9} {
		if got := round(v); got != want {
			t.Errorf("round(%v) is %d, want %d", v, got, want)
		}
	}
}

// Of several rules the sentence says which limits should change.
func TestRecommendations(t *testing.T) {
	trace := crowd(0, people(300, 300, 400, 500, 5000)...)
	f := func(limits [3]uint32, want string) {
		t.Helper()
		var rules []JudgedRule
		for i, l := range limits {
			rules = append(rules, JudgedRule{Name: string(rune('a' + i)), Limit: l, Window: time.Second})
		}
		w, err := Run(t.Context(), trace, Options{Rules: rules, DryRun: func(i int) Outcome {
			s := trace.Requests[i].Source
			return Outcome{Results: []RuleResult{{Rule: 0, Counter: s, Counts: true}, {Rule: 1, Counter: s, Counts: true}}}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if got := w.recommendation(); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %s", limits, got)
		}
		if n := len(w.busiestTable()); n != 4 || len(w.Next) != 2*nexts {
			t.Errorf("%d rows, %d next", n, len(w.Next))
		}
	}
	f([3]uint32{35, 32, 1}, "Keep the limits of a and b: ")
	f([3]uint32{10, 35, 1}, "Raise a's limit from 10 to 30 in 1s: ")
	f([3]uint32{10, 1000, 1}, "Change the limits of a from 10 to 30 and b from 1,000 to 30: ")
}

// Where no limit can be recommended, none is said to be kept.
func TestNothingToRecommend(t *testing.T) {
	trace := crowd(0, people(300, 300, 400, 500, 5000)...)
	every := func(rules int) func(int) Outcome {
		return func(i int) (said Outcome) {
			for r := range rules {
				said.Results = append(said.Results, RuleResult{Rule: r, Counter: trace.Requests[i].Source, Counts: true})
			}
			return said
		}
	}
	second := JudgedRule{Limit: 35, Window: time.Second}
	lacks, bucket := second, second
	lacks.Name, lacks.Lacks = "who", "jwt:sub"
	bucket.Name, bucket.Truth = "even", judge.Truth{Interval: 1e9}
	f := func(want string, rules ...JudgedRule) {
		t.Helper()
		w, err := Run(t.Context(), trace, Options{Rules: rules, DryRun: every(len(rules))})
		if err != nil {
			t.Fatal(err)
		}
		if got := w.document().Answer; !strings.Contains(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	f("No limit to recommend for who: it asks for jwt:sub, which the log does not have. ", lacks)
	f("The log does not have jwt:sub (rule who): figures about that are not what an edge would do", lacks)
	f("No limit to recommend for even: a bucket has a rate and a size", bucket)
	f("No limit to recommend for who and even: who, because it asks for jwt:sub", lacks, bucket)
	second.Name = "kept"
	f("Keep the limits of kept: those that the traffic of each rule suggests are exceeded by the same sources. None to recommend for even.", bucket, second)
}

// What sources made at most is in the unit of the limit, and by what is exact of the rule: who is refused was over it.
func TestDemand(t *testing.T) {
	trace := someTrace()
	f := func(r JudgedRule, most ...uint32) {
		t.Helper()
		r.Name, r.Limit, r.Window = "r", 5, time.Second
		w, err := Run(t.Context(), trace, Options{Rules: []JudgedRule{r}, DryRun: func(i int) Outcome {
			return Outcome{Refused: true, Results: []RuleResult{{Counter: trace.Requests[i].Source, Counts: true, Refuses: true}}}
		}})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range w.Refused {
			if i := s.counter; s.Most != most[i] || s.Innocent != (most[i] <= 5) {
				t.Errorf("%+v: source %d has %d, want %d", r, i, s.Most, most[i])
			}
		}
	}
	f(JudgedRule{}, 10, 6, 2)
	f(JudgedRule{Units: 3}, 30, 18, 6)
	f(JudgedRule{Truth: judge.Truth{Interval: 200e6}}, 16, 3, 1)           // twice as fast as it drains; somewhat faster; slower
	f(JudgedRule{Truth: judge.Truth{Fixed: true, Start: 950e6}}, 10, 5, 1) // the first window ends after 50 ms
}

// One source's story, as a text and as data.
func TestStory(t *testing.T) {
	trace := someTrace()
	rules := []JudgedRule{{Name: "default", Limit: 4, Window: time.Second, Timeout: time.Minute}, {Name: "throttle", Limit: 4, Window: time.Second, Shadow: true}}
	f := func(addr string) (*Report, error) {
		seen := 0
		return Run(t.Context(), trace, Options{Rules: rules, Source: netip.MustParseAddr(addr), DryRun: func(i int) Outcome {
			s := trace.Requests[i].Source
			if s != 0 {
				return Outcome{Results: []RuleResult{{Counter: s, Counts: true}}}
			}
			seen++
			blocked, over := seen > 4 && seen < 10 || seen > 20, seen%4 == 0
			return Outcome{Refused: blocked, Results: []RuleResult{
				{Rule: 0, Counter: s, Refuses: blocked, Begins: seen == 5 || seen == 21, Counts: true}, {Rule: 1, Counter: s, Refuses: over, Begins: over, Counts: true}}}
		}})
	}
	w, err := f("192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	w.Run.Describe(trace)
	var text, page bytes.Buffer
	if err := WriteText(&text, w); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "story.txt", text.Bytes())
	if err := WriteHTML(&page, w); err != nil || !strings.Contains(page.String(), "would have been refused") {
		t.Errorf("%v: %s", err, page.String())
	}
	data, err := json.MarshalIndent(w.Story, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "story.json", data)
	if _, err := f("192.0.2.9"); err == nil || err.Error() != "loadgen: 192.0.2.9 made no request in mill.log" {
		t.Error(err)
	}
	trace.Sources[1].Addr = netip.MustParseAddr("2001:db8::1")
	if w, err := f("2001:db8::77"); err != nil || w.Story.Requests != 6 || w.Story.Refused != 0 {
		t.Errorf("another address of a /64: %+v, %v", w, err)
	}
}

// TestWhatIfRules: shadows refuse nobody, lists come first, a throttle's runs of refusals are its blocks, and a rule counts
// what it counts.
func TestWhatIfRules(t *testing.T) {
	trace := someTrace()
	seen := 0
	w, err := Run(t.Context(), trace, Options{
		Rules: []JudgedRule{{Name: "trial", Limit: 1, Window: time.Second, Shadow: true}, {Name: "throttle", Limit: 1, Window: time.Second}},
		DryRun: func(i int) Outcome {
			switch trace.Requests[i].Source {
			case 1:
				return Outcome{Denied: true}
			case 2:
				return Outcome{Allowed: true}
			}
			seen++
			return Outcome{Refused: seen%10 < 3, Results: []RuleResult{
				{Rule: 0, Refuses: true, Counts: true},
				{Rule: 1, Refuses: seen%10 < 3, Begins: true, Counts: false},
			}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if f := w.Figures; f.Requests != 40 || f.Denied != 6 || f.Allowed != 4 || f.Refused != 9 || f.Blocks != 4 || f.Sources != 2 || f.RefusedSources != 1 {
		t.Errorf("%+v", f)
	}
	if o := w.Rules[0]; o.Refused != 30 || o.Blocks != 1 || o.Over != 1 {
		t.Errorf("shadow: %+v", o)
	}
	if o := w.Rules[1]; o.Refused != 9 || o.Blocks != 4 || o.Over != 0 {
		t.Errorf("throttle: %+v", o)
	}
	if s := w.Refused; len(s) != 2 || s[0].Rule != "throttle" || !s[0].Innocent || s[1].Rule != "trial" || !s[1].Shadow {
		t.Errorf("%+v", s)
	}
	if w.Good.Within.Requests != 34 || w.Good.Within.Refused != 9 { // nothing that was counted was over
		t.Errorf("%+v", w.Good.Within)
	}
}

// TestWhatIfOfNothing: a trace whose requests are all fine, without instants and without statuses.
func TestWhatIfOfNothing(t *testing.T) {
	trace := &trace.Trace{Name: "calm", Sources: []trace.Source{{Name: "a", Role: trace.Good}}, Requests: []trace.Request{{At: time.Second}}}
	w, err := Run(t.Context(), trace, Options{
		Rules:  []JudgedRule{{Name: "default", Limit: 1, Window: time.Second}},
		DryRun: func(int) Outcome { return Outcome{Results: []RuleResult{{Counts: true}}} },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Curves = append(w.Curves, Curve{Rule: "default", Limit: 1, Points: []CurvePoint{w.Point(1), w.Point(2)}})
	var text, page, data bytes.Buffer
	if err := WriteText(&text, w); err != nil {
		t.Fatal(err)
	}
	if s := text.String(); strings.Contains(s, "who would be refused") || strings.Contains(s, "2xx") || !strings.Contains(strings.ReplaceAll(s, "\n", " "), "Would have refused 0 of 1 request (0 %), of 0 of 1 source (0 %). ") {
		t.Error(s)
	}
	if err := WriteHTML(&page, w); err != nil {
		t.Fatal(err)
	}
	if err := WriteJSON(&data, w); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Refused, Curves []any
		Rules           []struct{ First *float64 }
	}
	if err := json.Unmarshal(data.Bytes(), &got); err != nil || got.Refused == nil || len(got.Curves) != 1 || got.Rules[0].First != nil {
		t.Errorf("%v: %s", err, data.String())
	}
}

func TestWhatIfEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, someTrace(), Options{}); err == nil {
		t.Error("it ran though its context was done")
	}
}

func TestLimitsAround(t *testing.T) {
	f := func(limit, most uint32, want ...uint32) {
		t.Helper()
		if diff := cmp.Diff(want, LimitsAround(limit, most)); diff != "" {
			t.Errorf("%d: %s", limit, diff)
		}
	}
	f(1, 1e9, 1, 2, 3, 4, 6, 8)
	f(5, 1e9, 1, 2, 3, 4, 5, 7, 10, 14, 20, 28, 40)
	f(100, 1e9, 13, 18, 25, 35, 50, 71, 100, 141, 200, 283, 400, 566, 800)
	f(1e9, 1e9, 125000000, 176776695, 250000000, 353553391, 500000000, 707106781, 1000000000)
}
