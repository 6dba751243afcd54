package live

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sluice/cmd/internal/cli"
	"sluice/loadgen/anycast"
	"sluice/loadgen/judge"
	"sluice/loadgen/replay"
	"sluice/loadgen/report"
	"sluice/loadgen/trace"
)

// TestLiveJudge judges a recorded run over two edges: what counts as disturbed, and the floor for the same requests on the same edges.
func TestLiveJudge(t *testing.T) {
	f := &cli.RuleFlags{Limits: []uint{2}, Window: time.Second, Timeout: time.Second, SubWindows: 12, Estimates: []string{"nearest"}, Mode: "deployed"}
	mode, rules, err := f.Rules()
	must(t, err)
	affinity, err := anycast.New(1, nil)
	must(t, err)
	ms := time.Millisecond
	addr := netip.MustParseAddr("127.1.2.3")
	run := func(late, roundTrip time.Duration, edges int) (*report.Report, string) {
		out := &replay.Outcome{
			Start: time.Unix(1_700_000_000, 0), Addresses: []netip.Addr{addr}, Statuses: map[int]int{},
			SendError: hdrhistogram.New(100, int64(time.Minute), 3), Latency: hdrhistogram.New(1000, int64(time.Minute), 3),
			Decided: hdrhistogram.New(1000, int64(time.Minute), 3),
		}
		tr := &trace.Trace{Name: "made", Sources: []trace.Source{{Name: "a", Addr: addr}}}
		for i, at := range []time.Duration{0, 10 * ms, 15 * ms, 16 * ms, 30 * ms} { // the third is over, which its edge knows if it hears of the second within 5 ms
			d := judge.Decision{At: at, Edge: int16(i % edges), Estimate: float64(i + 1)}
			if i == 4 {
				d.Verdict, d.Until = judge.Limited, at+time.Second
			}
			out.Decisions = append(out.Decisions, d)
			tr.Requests = append(tr.Requests, trace.Request{At: at})
			out.SendError.RecordValue(int64(late))
		}
		l := &Run{
			Command: "lab", Mode: mode, Rule: rules[0], Send: &Send{Speed: 1, PerConnection: 1}, Trace: tr, Edges: []int{edges}, Nodes: 1,
			RoundTrip: roundTrip, Affinity: affinity,
		}
		r := l.Judge(out, nil, nil)
		var b bytes.Buffer
		must(t, report.WriteJSON(&b, r))
		return r, b.String()
	}
	for _, c := range []struct {
		late time.Duration
		want bool
	}{{19 * ms, false}, {21 * ms, true}} {
		r, text := run(c.late, 0, 2)
		if r.Run.Disturbed != c.want || bytes.Contains([]byte(text), []byte(`"disturbed": true`)) != c.want || r.Floor != nil {
			t.Errorf("sent %v late in a window of 1 s: disturbed %t, want %t; floor %+v", c.late, r.Run.Disturbed, c.want, r.Floor)
		}
	}
	for _, c := range []struct {
		roundTrip time.Duration
		edges     int
		floor     string // wrong of how many requests
	}{{ms, 2, `{"wrong":0,"requests":5}`}, {12 * ms, 2, `{"wrong":1,"requests":5}`}, {ms, 1, "null"}} {
		r, _ := run(0, c.roundTrip, c.edges)
		got := "null"
		if r.Floor != nil {
			b, _ := json.Marshal(struct {
				Wrong    uint64 `json:"wrong"`
				Requests uint64 `json:"requests"`
			}{r.Floor.Wrong, r.Floor.Requests})
			got = string(b)
		}
		if got != c.floor || time.Duration(r.Run.RoundTrip) != c.roundTrip || r.Figures.Wrong != 2 {
			t.Errorf("round trip %v, %d edges: floor %s, want %s; the run says %v, and has %d wrong", c.roundTrip, c.edges, got, c.floor, r.Run.RoundTrip, r.Figures.Wrong)
		}
	}
}

// must ends a test that cannot go on.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
