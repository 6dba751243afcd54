package lab

import (
	"net/netip"
	"strings"
	"testing"

	"sluice/loadgen/judge"
	"sluice/loadgen/origin"
	"sluice/loadgen/replay"
	"sluice/loadgen/scrape"
)

// soundCounts is a run in which everything is as it should be: of 10 requests of two sources, 6 passed, 3 were limited and one
// was malformed.
func soundCounts() counts {
	a, b := netip.MustParseAddr("127.1.1.1"), netip.MustParseAddr("127.2.2.2")
	out := &replay.Outcome{Addresses: []netip.Addr{a, b}, Sent: 10, Answered: 10,
		Statuses: map[int]int{200: 6, 429: 3, 400: 1}, Errors: map[string]int{}}
	for i, v := range []judge.Verdict{judge.Admitted, judge.Admitted, judge.Admitted, judge.Limited, judge.Mitigated, judge.Mitigated, judge.Admitted, judge.Admitted, judge.Admitted, judge.Failed} {
		out.Decisions = append(out.Decisions, judge.Decision{Source: int32(i / 6), Verdict: v})
	}
	m := scrape.Metrics{
		"sluice_received_total": 10, "sluice_aborted_total": 0, `sluice_origin_requests_total{code="200"}`: 6,
		`sluice_answers_total{code="200",from="origin"}`: 6, `sluice_answers_total{code="429",from="limit"}`: 3, `sluice_answers_total{code="400",from="edge"}`: 1,
		`sluice_requests_total{rule="r",verdict="pass"}`: 6, `sluice_requests_total{rule="r",verdict="limited"}`: 1, `sluice_requests_total{rule="r",verdict="mitigated"}`: 2,
	}
	return counts{out: out, edges: m, origin: origin.Stats{Received: 6, BySource: map[string]int{a.String(): 3, b.String(): 3}}}
}

func TestBalance(t *testing.T) {
	f := func(name string, change func(*counts), want ...string) {
		t.Helper()
		b := soundCounts()
		change(&b)
		balance := b.balance()
		err := balance.Err()
		if len(want) == 0 {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return
		}
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %v, want one with %q", name, err, w)
			}
		}
	}
	f("as it should be", func(*counts) {})
	f("a request lost in an edge", func(b *counts) { b.edges["sluice_received_total"]++ }, "11 IS NOT 10")
	f("an answer lost on the way", func(b *counts) { b.out.Answered-- }, "answers by edges, got: 10 IS NOT 9")
	f("the origin got one more", func(b *counts) { b.origin.Received++ },
		"answers of the origin: 7 IS NOT 6", "admitted: 7 IS NOT 6")
	f("counted for another source", func(b *counts) {
		b.origin.BySource["127.1.1.1"]--
		b.origin.BySource["127.2.2.2"]++
	}, "2 IS NOT 0")
	f("a refusal that no rule made", func(b *counts) { b.out.Decisions[9].Verdict = judge.Limited }, "judged as such: 3 IS NOT 4")
	f("a refusal that nobody judged", func(b *counts) { b.out.Decisions[3].Verdict = judge.Failed }, "judged as such: 3 IS NOT 2")
	f("counted for a stranger", func(b *counts) {
		b.origin.BySource["127.2.2.2"] = 0
		b.origin.BySource["192.0.2.1"] = 3
	}, "2 IS NOT 0")

	guests := func(b *counts) { // two more requests of one who is not in the trace, one of them answered
		b.guests = true
		b.edges["sluice_received_total"] += 2
		b.edges["sluice_aborted_total"]++
		b.edges[`sluice_answers_total{code="200",from="origin"}`]++
		b.origin.Received++
		b.origin.BySource["127.255.0.1"] = 1
	}
	f("guests", guests)
	f("guests, and a request lost in an edge", func(b *counts) { guests(b); b.edges["sluice_received_total"]++ }, "13 IS NOT 12")
	f("guests, one of them counted for a source", func(b *counts) { guests(b); b.origin.BySource["127.1.1.1"]++ }, "1 IS NOT 0")

	f("a repeat that came twice", func(b *counts) {
		b.out.Retried = 1
		b.edges["sluice_received_total"]++
		b.edges["sluice_aborted_total"]++
	})
	f("a repeat does not excuse fewer", func(b *counts) {
		b.out.Retried = 1
		b.origin.Received--
	}, "admitted: 5 IS NOT 6")
	reset := func(b *counts) { // two of those admitted: one of them reached the origin, which answered nobody
		b.out.Resets, b.out.Logged = 2, 2
		b.out.Answered, b.out.Statuses[200], b.origin.Received = 8, 4, 5
		b.edges["sluice_aborted_total"] = 2
		b.edges[`sluice_answers_total{code="200",from="origin"}`] = 4
		b.edges[`sluice_origin_requests_total{code="200"}`] = 4
	}
	f("requests were reset", reset)
	f("of them more reached the origin than were admitted", func(b *counts) {
		reset(b)
		b.origin.Received = 7
	}, "requests admitted, received by the origin: 6 IS NOT 7")
	f("of them one was not counted", func(b *counts) {
		reset(b)
		b.edges["sluice_received_total"]--
		b.edges["sluice_aborted_total"]--
	}, "requests received by edges, sent: 9 IS NOT 10")
	f("of one nobody knows what was decided", func(b *counts) {
		reset(b)
		b.out.Logged, b.out.Unknown = 1, 1
		b.out.Decisions[0].Verdict = judge.Failed
	})
	f("an edge ended a connection, and charged its source", func(b *counts) {
		b.out.Ended = map[string]int{"ENHANCE_YOUR_CALM": 1}
		b.edges["sluice_received_total"]++
		b.edges["sluice_aborted_total"]++
	})
	f("an edge was killed", func(b *counts) {
		b.noEdges, b.harmed = true, []string{"edge/1"}
		b.edges = nil
		b.origin.Received++
	})
	f("the origin was killed", func(b *counts) {
		b.noOrig, b.harmed = true, []string{"origin/0"}
		b.origin = origin.Stats{}
	})
}

func TestBalanceRowString(t *testing.T) {
	f := func(r BalanceRow, want string) {
		t.Helper()
		if got := r.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f(BalanceRow{"a, b", 3, 3, false}, "a, b: 3 = 3")
	f(BalanceRow{"a, b", 4, 3, false}, "a, b: 4 IS NOT 3")
	f(BalanceRow{"a, b", 4, 3, true}, "a, b: 4 >= 3")
	f(BalanceRow{"a, b", 2, 3, true}, "a, b: 2 IS NOT 3")
}
