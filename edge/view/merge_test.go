package view

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"sluice/counter"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/top"
)

var at = time.Date(2026, 5, 4, 14, 5, 0, 0, time.UTC)

func parts(list ...*Part) *PoP {
	p := new(PoP)
	for i, part := range list {
		s := Seen{Edge: Edge{Name: fmt.Sprintf("edge%d", i)}, Part: part}
		if part != nil {
			part.Name = s.Name
		} else {
			s.Missing = "it hangs"
		}
		p.Parts = append(p.Parts, s)
	}
	return p
}

// A merged count is never too small and never too large by more than it says, whatever each edge lists; and who is heaviest by far comes first.
func TestTop(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, listed := range []int{3, 50, 1000} {
		exact, p := make(map[string]uint64), parts(new(Part), new(Part), nil, new(Part))
		for _, s := range p.Parts {
			if s.Part == nil {
				continue
			}
			list := top.New()
			for range 30_000 {
				n := random.Uint32N(random.Uint32N(3000) + 1)
				if random.Uint32N(10) == 0 {
					n = 70_000
				}
				source := counter.SourceOf(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 32, 64)
				list.Hit(source)
				exact[source.String()]++
			}
			s.Part.Tops = map[string]top.List{"requests": list.List(listed)}
		}
		merged := p.Top("requests", 1<<20)
		if merged[0].Source != "10.1.17.112" || len(merged[0].Edges) != 3 || merged[0].Edges["edge3"] == 0 {
			t.Errorf("%d listed: the first is %+v", listed, merged[0])
		}
		for _, h := range merged {
			if n := exact[h.Source]; h.Count < n || h.Count-h.Error > n {
				t.Fatalf("%d listed: %s: %d, of which %d in doubt; it had %d", listed, h.Source, h.Count, h.Error, n)
			}
		}
		if got := p.Top("requests", 2); len(got) != 2 || got[0].Count < got[1].Count {
			t.Errorf("the first two: %+v", got)
		}
	}
	if got := parts(new(Part)).Top("key/requests", 5); len(got) != 0 {
		t.Errorf("of a list that nobody has: %+v", got)
	}
}

func block(source string, age time.Duration, by string) control.Mitigation {
	return control.Mitigation{Rule: "login", Source: source, Start: at.Add(-age), Learned: at.Add(-age), End: at.Add(time.Minute), By: by, Mode: "enforce"}
}

func extract(list ...control.Mitigation) control.Extract {
	return control.Extract{InForce: len(list), Matching: len(list), List: list}
}

// Blocks that all edges have are told once; one that another has alone, or has not, is told as that, once it has had time to travel.
func TestBlocks(t *testing.T) {
	everywhere, here, there := block("192.0.2.1", time.Minute, "edge"), block("192.0.2.2", time.Minute, "edge"), block("192.0.2.3", time.Minute, "pop")
	fresh, theirs := block("192.0.2.4", time.Second, "edge"), block("192.0.2.5", time.Second, "edge")
	over := block("192.0.2.6", time.Hour, "edge")
	over.End = at
	said := block("192.0.2.7", time.Hour, "admin")
	own := []control.Mitigation{everywhere, here, fresh, said}
	cut := extract(everywhere, said)
	cut.InForce = 900 // so it says nothing of who is not listed
	p := parts(new(Part), &Part{Blocked: extract(everywhere, there, theirs, over, said)}, &Part{Blocked: cut}, nil)
	describe := func(list []Block) (lines []string) {
		for _, b := range list {
			lines = append(lines, strings.TrimSpace(fmt.Sprint(b.Source, " on ", strings.Join(b.On, ","), " not ", strings.Join(b.NotOn, ","))))
		}
		return lines
	}
	for _, test := range []struct {
		name  string
		match func(*control.Mitigation) bool
		n     int
		want  []string
	}{
		{"all", nil, 100, []string{"192.0.2.7 on edge0,edge1,edge2 not", "192.0.2.4 on edge0 not", "192.0.2.1 on edge0,edge1,edge2 not",
			"192.0.2.2 on edge0 not edge1", "192.0.2.3 on edge1 not edge0"}},
		{"the first", nil, 1, []string{"192.0.2.7 on edge0,edge1,edge2 not"}},
		{"by pop", func(m *control.Mitigation) bool { return m.By == "pop" }, 100, []string{"192.0.2.3 on edge1 not edge0"}},
	} {
		shown := own
		if test.match != nil {
			shown = slices.DeleteFunc(slices.Clone(own), func(m control.Mitigation) bool { return !test.match(&m) })
		}
		if got := describe(p.Blocks(shown, slices.Values(own), test.match, test.n, at)); !slices.Equal(got, test.want) {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

// A block that several edges hear of is one event, that of the edge whose verdict it was; what one edge alone is about stays its own.
func TestHappened(t *testing.T) {
	event := func(after time.Duration, kind events.Kind, source, text string) events.Event {
		return events.Event{Number: 1, Time: at.Add(after), Kind: kind, Rule: "login", Source: source, Text: text}
	}
	verdict := event(20*time.Millisecond, events.Block, "192.0.2.1", "blocked by this edge")
	verdict.Estimate = 6
	p := parts(
		&Part{Events: []events.Event{event(time.Minute, events.Reload, "", "read again"), event(10*time.Millisecond, events.Block, "192.0.2.1", "blocked by the PoP")}},
		&Part{Events: []events.Event{event(time.Minute, events.Reload, "", "read again"), event(30*time.Second, events.Block, "192.0.2.1", "blocked again"), verdict}},
		&Part{Events: []events.Event{event(30*time.Millisecond, events.Block, "192.0.2.1", "blocked by the PoP"), event(-time.Hour, events.Process, "", "started")}},
	)
	var got []string
	for _, e := range p.Happened(at.Add(-time.Minute)) {
		got = append(got, e.Text+" on "+strings.Join(e.Edges, ","))
	}
	want := []string{"read again on edge0", "read again on edge1", "blocked again on edge1", "blocked by this edge on edge1,edge0,edge2"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Requests that no rule has refused, but the list deny or maintenance, are told apart.
func TestLoadWithoutRule(t *testing.T) {
	counts := func(verdict string, n float64) *dto.Metric {
		return &dto.Metric{Label: []*dto.LabelPair{{Name: new("rule"), Value: new("")}, {Name: new("verdict"), Value: &verdict}}, Counter: &dto.Counter{Value: &n}}
	}
	families := []*dto.MetricFamily{{Name: new("sluice_requests_total"), Metric: []*dto.Metric{counts("denied", 3), counts("maintenance", 5), counts("other", 7)}}}
	if l := NewLoad(families); l.Denied != 3 || l.Maintained != 5 {
		t.Errorf("%v denied, %v maintained", l.Denied, l.Maintained)
	}
}

// Loads are added up, but what cannot be: of a rule's blocks each edge knows all.
func TestSum(t *testing.T) {
	load := func(n float64) Load {
		return Load{Started: n, Version: fmt.Sprint("v", n), Received: n, Denied: n, Maintained: 2 * n, Answers: map[string]float64{"limit": n}, Seconds: [][2]float64{{1, n}, {-1, 2 * n}},
			Rules: map[string]*RuleLoad{"login": {Verdicts: map[string]float64{"limited": n, "pass": 1}, Active: n, Blocks: n,
				Nearest: &control.SourceState{Source: fmt.Sprint(n), Estimate: n, Limit: 10}}, "broken": nil},
			Origins: []*OriginLoad{{Name: "http://o", Up: n > 1, Active: n, Answers: map[string]float64{"200": n}}, nil}}
	}
	sum := Sum(load(1), load(3))
	got, _ := json.Marshal(sum)
	want := `{"started":1,"version":"v1","received":4,"connections":0,"denied":4,"maintained":8,"seconds":[[1,4],[-1,8]],"answers":{"limit":4},"rules":{"login":{"verdicts":{"limited":4,"pass":2},"active":3,` +
		`"nearest":{"rule":"","source":"3","mode":"","estimate":3,"limit":10,"remaining":0,"mitigated_until":null},"blocks":4}},"origins":[{"name":"http://o","up":true,"active":4,"answers":{"200":4}}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if r := sum.Rule("login").Refused(); r != 4 {
		t.Errorf("refused %v", r)
	}
	if other := Sum(Load{Seconds: [][2]float64{{1, 1}, {-1, 1}}}, Load{Seconds: [][2]float64{{2, 5}, {-1, 5}}}); other.Seconds[0][1] != 1 {
		t.Errorf("of other bounds: %v", other.Seconds)
	}
}

// A part travels whole where it fits; one that is too long has shorter lists, and says so of who is heavy. What is no part is refused.
func TestPack(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	p := &Part{Edge: 7, Name: "a", At: at, Tops: map[string]top.List{"requests": {}}, Blocked: extract(block("192.0.2.1", 0, "edge"))}
	p.Answer("source 192.0.2.1", json.RawMessage(`{"source":"192.0.2.1"}`))
	for n := range 30_000 {
		l := p.Tops["requests"]
		l.Heavy = append(l.Heavy, top.Heavy{Source: fmt.Sprintf("2001:db8:%x:%x::/64", random.Uint32N(1<<16), random.Uint32N(1<<16)), Count: uint64(100_000 - n), Error: random.Uint64N(1000)})
		p.Tops["requests"] = l
	}
	b, err := p.Pack()
	if err != nil || len(b) > MaxSize {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	got, err := Unpack(b)
	if err != nil {
		t.Fatal(err)
	}
	l := got.Tops["requests"]
	if n := len(l.Heavy); n == 0 || n == 30_000 || l.Rest != uint64(100_000-n) || got.Edge != 7 || !got.At.Equal(at) || string(got.Answers["source 192.0.2.1"]) != `{"source":"192.0.2.1"}` {
		t.Errorf("%d listed, the rest has %d: %+v", len(l.Heavy), l.Rest, got.Answers)
	}
	bomb, _ := (&Part{Name: strings.Repeat("x", maxOpen-1000)}).Pack()
	for name, b := range map[string][]byte{"none": nil, "noise": []byte("noise"), "half": b[:len(b)/2], "long": make([]byte, MaxSize+1), "unpacked too long": append(slices.Clone(bomb), bomb...)} {
		if p, err := Unpack(b); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if _, err := (&Part{Name: strings.Repeat("x", maxOpen)}).Pack(); err == nil {
		t.Error("what is too long by other than its lists is packed")
	}
}
