package workload

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/loadgen/judge"
	"sluice/loadgen/trace"
)

// busiest is the largest exact count of each source.
func busiest(trace *trace.Trace, window time.Duration) []uint32 {
	j := judge.NewEstimatorJudge(judge.Options{Limit: 1, Window: window})
	most := make([]uint32, len(trace.Sources))
	for _, r := range trace.Requests {
		most[r.Source] = max(most[r.Source], j.Observe(r.Source, int64(r.At), 1, false))
	}
	return most
}

func TestWorkloads(t *testing.T) {
	rules := []struct {
		limit  uint32
		window time.Duration
	}{{1, time.Second}, {5, time.Second}, {20, 10 * time.Second}}
	for _, w := range List() {
		for _, rule := range rules {
			o := Options{Seed: 1, Limit: rule.limit, Window: rule.window, Duration: max(5*rule.window, 30*time.Second)}
			traffic, err := Generate(w.Name, o)
			if err != nil {
				t.Errorf("%s: %v", w.Name, err)
				continue
			}
			names := make(map[string]bool)
			for i, s := range traffic.Sources {
				if !s.Addr.IsValid() || names[s.Name] {
					t.Errorf("%s: source %d is %q at %v", w.Name, i, s.Name, s.Addr)
				}
				names[s.Name] = true
			}
			last := time.Duration(0)
			for _, r := range traffic.Requests {
				if r.At < last || r.At >= o.Duration || r.Method == "" || !strings.HasPrefix(r.Path, "/") {
					t.Fatalf("%s: request %+v after %v", w.Name, r, last)
				}
				last = r.At
			}
			over, good := 0, 0
			for i, most := range busiest(traffic, rule.window) {
				switch s := traffic.Sources[i]; {
				case s.Role == trace.Good:
					good++
					// A crowd of people behind one address, or logins and pages together, may add up.
					if most > rule.limit && w.Name != "flash-crowd" && w.Name != "residential" && (w.Name != "stuffing" || rule.limit > 5) {
						t.Errorf("%s, limit %d: the good source %s sends %d", w.Name, rule.limit, s.Name, most)
					}
				case most > rule.limit:
					over++
				case w.Name == "just-above", w.Name == "onoff", w.Name == "distributed", w.Name == "constant":
					t.Errorf("%s, limit %d: the abuser %s sends %d", w.Name, rule.limit, s.Name, most)
				}
			}
			if (over == 0) != (w.Name == "steady" || w.Name == "innocents" || w.Name == "below" || w.Name == "rotate-24" || w.Name == "flash-crowd" || w.Name == "residential") {
				t.Errorf("%s, limit %d: %d abusers over the limit", w.Name, rule.limit, over)
			}
			if rate := float64(len(traffic.Requests)) / traffic.Duration().Seconds(); w.Name == "mixed" && (rate < 1000 || good < 200) {
				t.Errorf("mixed, limit %d: %.0f requests/s, %d good sources", rule.limit, rate, good)
			}
		}
	}
}

// TestInnocentsByClocksApart: where clocks are apart an innocent is within its limit in a window and that much more, so that no log by
// those clocks has it over the limit. Without, one of these seeds has a source that is at its limit to the microsecond.
func TestInnocentsByClocksApart(t *testing.T) {
	const limit, apart = 60, 100 * time.Millisecond
	closest := func(apart time.Duration) time.Duration {
		least := time.Hour
		for seed := range uint64(4) {
			traffic, err := Generate("innocents", Options{Seed: seed + 1, Limit: limit, Window: time.Minute, Duration: 11 * time.Minute, Apart: apart})
			if err != nil {
				t.Fatal(err)
			}
			sent := make([][]time.Duration, len(traffic.Sources))
			for _, r := range traffic.Requests {
				at := append(sent[r.Source], r.At)
				if sent[r.Source] = at; len(at) > limit {
					least = min(least, r.At-at[len(at)-1-limit]-time.Minute)
				}
			}
		}
		return least
	}
	if got := closest(0); got < 0 || got > time.Millisecond {
		t.Errorf("the last request but %d left the window %v before", limit, got)
	}
	if got := closest(apart); got < apart {
		t.Errorf("clocks %v apart: the last request but %d left the window %v before", apart, limit, got)
	}
}

func TestWorkloadSeeds(t *testing.T) {
	o := Options{Seed: 1, Limit: 20, Window: time.Second, Duration: 5 * time.Second}
	make := func(o Options) *trace.Trace {
		trace, err := Generate("mixed", o)
		if err != nil {
			t.Fatal(err)
		}
		return trace
	}
	a, b := make(o), make(o)
	if !cmp.Equal(a.Requests, b.Requests) {
		t.Error("one seed, two traces")
	}
	o.Seed = 2
	if cmp.Equal(a.Requests, make(o).Requests) {
		t.Error("two seeds, one trace")
	}
	o.Rate = 3000
	fast := make(o)
	if rate := float64(len(fast.Requests)) / 5; rate < 2500 || rate > 3600 {
		t.Errorf("asked for 3000 requests/s, got %.0f", rate)
	}
}

func TestGenerateErrors(t *testing.T) {
	f := func(name string, o Options, want string) {
		t.Helper()
		if _, err := Generate(name, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", name, err, want)
		}
	}
	f("storm", Options{}, `workload "storm": there is none of that name; want one of steady, burst`)
	f("constant", Options{Rate: -1}, "must be positive")
	f("constant", Options{Rate: 1e12}, "lower --rate or --duration")
}

func TestMergeAndSpeed(t *testing.T) {
	log, err := trace.Read(trace.ReadOptions{}, written(t, "a.log", `198.19.0.1 - - [15/Mar/2021:12:00:00 +0000] "GET /a HTTP/1.1" 200 12`+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	attack, err := Generate("constant", Options{Limit: 10, Window: time.Second, Duration: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	m := trace.Merge(log, attack)
	if len(m.Requests) != 1+len(attack.Requests) || len(m.Sources) != 2 || m.Sources[0].Name == m.Sources[1].Name || !m.Start.Equal(log.Start) {
		t.Errorf("merged: %d requests of %v from %v", len(m.Requests), m.Sources, m.Start)
	}
	fast := attack.Speed(10)
	if got, want := fast.Duration(), attack.Duration()/10; got != want {
		t.Errorf("ten times as fast takes %v, want %v", got, want)
	}
}

func TestRotation(t *testing.T) {
	trace, err := Generate("rotate-64", Options{Seed: 1, Limit: 20, Window: time.Second, Duration: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	addrs := make(map[string]bool)
	n := 0
	for i, r := range trace.Requests {
		if r.Source != 0 {
			continue
		}
		n++
		a := trace.Addr(i)
		addrs[a.String()] = true
		if p, _ := a.Prefix(64); p.String() != "2001:db8:1:1::/64" {
			t.Fatalf("%v is of another /64", a)
		}
		if a != trace.Addr(i) {
			t.Fatal("an address changes")
		}
	}
	if len(addrs) < n*9/10 {
		t.Errorf("%d addresses in %d requests", len(addrs), n)
	}
}

// TestWriteAndReadAgain writes workloads in every format and reads them again.
func TestWriteAndReadAgain(t *testing.T) {
	for _, name := range []string{"mixed", "nat", "rotate-64", "stuffing", "rapid-reset"} {
		traffic, err := Generate(name, Options{Seed: 3, Limit: 20, Window: time.Second, Duration: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for format, ending := range []string{".jsonl", ".csv", ".log"} {
			var b bytes.Buffer
			if err := trace.Write(&b, traffic, trace.Format(format)); err != nil {
				t.Fatal(err)
			}
			again, err := trace.Read(trace.ReadOptions{}, written(t, name+ending, b.String()))
			if err != nil {
				t.Fatal(err)
			}
			if len(again.Requests) != len(traffic.Requests) {
				t.Errorf("%s%s: %d requests, want %d", name, ending, len(again.Requests), len(traffic.Requests))
				continue
			}
			if trace.Format(format) == trace.CLF {
				continue // whole seconds only
			}
			for i := range traffic.Requests {
				a, b := traffic.Requests[i], again.Requests[i]
				if a.At != b.At || a.Path != b.Path || a.Method != b.Method || a.Reset != b.Reset || traffic.Role(i) != again.Role(i) {
					t.Fatalf("%s%s: request %d is %v, want %v", name, ending, i, b, a)
				}
			}
		}
	}
}

// written writes text to a file of that name in a directory of the test's own.
func written(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
