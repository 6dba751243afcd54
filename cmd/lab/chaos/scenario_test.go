package chaos

import (
	"strings"
	"testing"
	"time"

	"sluice/loadgen/lab"
)

const story = `# what is about nodes
a node is killed
    3 edges live; 2 nodes
    limit 50 in 5s   # blocks as long as the window
    20 steady sources at 90% of the limit; 1,000 attackers at 25 a second
    at 5s  kill memcached/0
    at 12s restart memcached/0
    for 20s; short
    at most 0 failed; at most 1.5 limits in a window; normal within 2s
`

func TestParse(t *testing.T) {
	all, err := Parse("made.txt", story)
	if err != nil {
		t.Fatal(err)
	}
	s := all[0]
	if len(all) != 1 || s.Story != "a node is killed" || s.Place != "made.txt:2" || s.Edges != 3 || s.Nodes != 2 ||
		s.Limit != 50 || s.Window != 5*time.Second || s.Block != 5*time.Second || s.Steady != 20 || s.Share != 0.9 || s.Attackers != 1000 || s.Rate != 25 ||
		s.For != 20*time.Second || !s.Short {
		t.Errorf("it is read as %+v", s)
	}
	want := noBound
	want.Failed, want.Limits, want.Normal = 0, 1.5, 2*time.Second
	if s.Bound != want {
		t.Errorf("the bound is %+v, want %+v", s.Bound, want)
	}
	if len(s.faults()) != 2 || s.faults()[1] != (lab.Fault{At: 12 * time.Second, Action: lab.Restart, Kind: "memcached"}) {
		t.Errorf("what happens is %v", s.faults())
	}
}

// What cannot be read is said with its place, and so is what a story lacks.
func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"2 nodes", "2 knots", `made.txt:3: "2 knots" says nothing that is known here`},
		{"at 5s  kill", "at 5s  tickle", "made.txt:6: "},
		{"limit 50 in 5s", "limit 0 in 5s", "made.txt:4: \"limit 0 in 5s\": 0: want 1 to"},
		{"at 12s", "at 22s", `made.txt:2: the story "a node is killed" is over after 20s`},
		{"    limit 50 in 5s", "", "made.txt:2: the story \"a node is killed\" has no limit"},
		{"a node is killed\n", "", `made.txt:2: "3 edges live; 2 nodes" belongs to no story`},
		{"restart memcached/0", "fill memcached/0 with 0 items", "0: want 1 to"},
		{"    at 12s restart memcached/0", "    ready within 1s", "has no restart at its end"},
		{"attackers at 25 a second", "attackers at 14 a second", "has more allowed in a window than an attacker sends"},
		{"at most 1.5 limits in", "at most 1 limit for each edge in", "has more allowed in a window than an attacker sends"},
		{"limit 50", "limit 3", "has steady sources that would come over their limit"},
	} {
		if _, err := Parse("made.txt", strings.Replace(story, c.from, c.to, 1)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q in place of %q: %v, want %q", c.to, c.from, err, c.want)
		}
	}
}

// Steady sources never hold more in a window than the limit, whatever the seed; else what they are refused would be right.
func TestSteadySources(t *testing.T) {
	all, err := Parse("made.txt", strings.Replace(story, "1,000 attackers at 25 a second", "1 attacker at 25 a second", 1))
	if err != nil {
		t.Fatal(err)
	}
	s := all[0]
	for seed := range uint64(5) {
		in := make(map[int32][]time.Duration)
		for _, r := range s.Traffic(seed).Requests {
			in[r.Source] = append(in[r.Source], r.At)
		}
		for source, at := range in {
			most, from := 0, 0
			for i := range at {
				for at[i]-at[from] >= s.Window {
					from++
				}
				most = max(most, i-from+1)
			}
			if steady := source < int32(s.Steady); steady && (most < 40 || most > 50) || !steady && most < 100 {
				t.Errorf("seed %d, source %d: %d requests in the worst window", seed, source, most)
			}
		}
	}
}
