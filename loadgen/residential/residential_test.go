package residential

import (
	"strings"
	"testing"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/workload"
)

// counting refuses what is beyond so many requests of a source, for good.
func counting(limit int) judge.Limiter {
	seen := make(map[int32]int)
	return judge.Limiter{
		Decide: func(_ int, source int32) (d judge.Decision) {
			if seen[source] >= limit {
				d.Verdict, d.Until = judge.Mitigated, 1e15
				return d
			}
			seen[source]++
			return d
		},
		InForce: func() []judge.InForce { return nil },
	}
}

func heavy(seconds float64, client int32) workload.Visit {
	return workload.Visit{At: time.Duration(seconds * 1e9), Client: client, Heavy: true}
}

// Two visitors, of whom one has no JavaScript, and two addresses of a scraper, of which one solves.
func four() *workload.Residential {
	return &workload.Residential{
		Options: workload.ResidentialOptions{Seed: 1},
		Clients: []workload.Client{{Network: 1, Script: true}, {Network: 2},
			{Network: 1, JA4: 1, Scraper: true}, {Network: 2, JA4: 1, Scraper: true, Script: true}},
	}
}

var options = Options{Edges: 1, Window: time.Minute, Timeout: time.Hour, PassFor: time.Hour}

func judged(t *testing.T, w *workload.Residential, row Row, rule, passes int) Figures {
	t.Helper()
	c, err := CountBy(w, row)
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.Run(t.Context(), options, counting(rule), counting(passes))
	if err != nil {
		t.Fatal(err)
	}
	f.TimeToBlock, f.Blocks = nil, 0
	return f
}

func TestWhoIsServed(t *testing.T) {
	w := four()
	for i := range 3 { // three of each, the scraper first
		at := float64(20 * i)
		w.Requests = append(w.Requests, heavy(at+1, 2), heavy(at+4, 3), heavy(at+7, 0),
			heavy(at+10, 1))
	}
	// All share a path, of which two requests are admitted: the scraper's first two
	path := Row{Key: Path, Answer: Refuse, Limit: 2}
	want := Figures{Scraped: 6, LetIn: 2, Heavy: 6, Refused: 6, RefusedWith: 3, Visitors: 2,
		LockedOut: 2, LockedOutWith: 1}
	if got := judged(t, w, path, 2, 10); got != want {
		t.Errorf("refused: %+v, want %+v", got, want)
	}
	// Challenged, the visitor with JavaScript is served, and so is who solves
	path.Answer = Challenge
	want = Figures{Scraped: 6, LetIn: 4, Solved: 2, Heavy: 6, Refused: 3, Visitors: 2,
		Challenged: 2, LockedOut: 1}
	if got := judged(t, w, path, 2, 10); got != want {
		t.Errorf("challenged: %+v, want %+v", got, want)
	}
	// A pass has a limit of its own, and who is over it is refused
	want.LetIn, want.Solved, want.Refused, want.RefusedWith = 3, 1, 5, 2
	if got := judged(t, w, path, 2, 1); got != want {
		t.Errorf("passes of one: %+v, want %+v", got, want)
	}
	// By TLS library no visitor is asked
	want = Figures{Scraped: 6, LetIn: 4, Solved: 2, Heavy: 6, Visitors: 2}
	row := Row{Key: JA4, Answer: Challenge, Limit: 2}
	c, err := CountBy(w, row)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Trace.Sources) != 2 {
		t.Errorf("%d TLS libraries, want 2", len(c.Trace.Sources))
	}
	limiter, seen := counting(100), map[int32]int{}
	f, err := c.Run(t.Context(), options, judge.Limiter{InForce: limiter.InForce,
		Decide: func(edge int, source int32) judge.Decision {
			if seen[source]++; source == c.by[2] && seen[source] > 2 {
				return judge.Decision{Verdict: judge.Mitigated, Until: 1e15}
			}
			return judge.Decision{}
		}}, counting(10))
	if err != nil {
		t.Fatal(err)
	}
	if f.TimeToBlock, f.Blocks = nil, 0; f != want {
		t.Errorf("by TLS library: %+v, want %+v", f, want)
	}
}

// What is counted is what the key says.
func TestKeys(t *testing.T) {
	o := workload.DefaultResidential()
	o.Duration, o.ScraperFrom = 2*time.Minute, time.Minute
	w, err := workload.NewResidential(o)
	if err != nil {
		t.Fatal(err)
	}
	sources := make(map[Key]int)
	for _, row := range Rows(nil) {
		c, err := CountBy(w, row)
		if err != nil {
			t.Fatal(err)
		}
		sources[row.Key] = len(c.Trace.Sources)
	}
	if s := sources; s[Path] != 1 || s[JA4] > 41 || s[Network] > 1200 || s[Prefix] <= s[Network] ||
		s[Source] <= s[Prefix] {
		t.Errorf("sources by key: %v", s)
	}
	if _, err := CountBy(w, Row{Key: "host"}); err == nil {
		t.Error("an unknown key is no error")
	}
}

func TestReportIsATable(t *testing.T) {
	r := Report{Workload: workload.DefaultResidential(), Edges: 3, Window: 60,
		MitigationTimeout: 300, PassLimit: 30, Cells: []Cell{
			{Row: Row{Path, Refuse, 120}, TLS: workload.OwnTLS, Rate: 20,
				Figures: Figures{Scraped: 100, LetIn: 2, Heavy: 10, Refused: 9}},
			{Row: Row{Path, Challenge, 120}, TLS: workload.OwnTLS, Rate: 20,
				Figures: Figures{Scraped: 100, LetIn: 22, Solved: 20, Heavy: 1000, Refused: 24,
					Visitors: 100, Challenged: 99, LockedOut: 3}},
			{Row: Row{Path, Challenge, 120}, TLS: workload.CommonTLS, Rate: 2},
		}}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, line := range strings.Split(b.String(), "\n") {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{"scraper at 20/s, with a TLS library of its own",
		"refuse by path 120 2.0 % 2.0 % 90.0 % 0 0.0 % 0.0 % 0 -",
		"challenge by path 120 22.0 % 2.0 % 2.4 % 0 99.0 % 3.0 % 0 -",
		"scraper at 2/s, with the commonest browser's TLS"} {
		found := false
		for _, line := range lines {
			found = found || line == want
		}
		if !found {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}
