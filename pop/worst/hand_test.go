package worst

import (
	"fmt"
	"sluice/counter"
	"testing"
	"time"
)

func TestHand(t *testing.T) {
	ms := time.Millisecond
	f := func(b Behaviour) {
		if b.SubWindows == 0 {
			b.SubWindows = 12
		}
		b.Estimate = counter.Nearest
		s := time.Now()
		r, err := b.run(1, full, 1)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("%.2f cmd/r %.0f B/r %.2f rec/r %.2f rec/life  %d req %v  %v | %v\n", per(r.Commands, r.Requests), per(r.Bytes, r.Requests), per(r.LogRecords, r.Requests), per(r.LogRecords, r.Lives), r.Requests, r.Lasted, time.Since(s).Round(ms), r)
	}
	for _, e := range []int{1, 2, 4, 8, 64} {
		for _, l := range []uint32{1, 2, 3, 12, 64} {
			for _, to := range []time.Duration{0, time.Minute} {
				f(Behaviour{Edges: e, Limit: l, Window: 10 * time.Second, Timeout: to, Fresh: true, Phases: []Phase{{Requests: int(l), AtOnce: 1, Gap: 30 * ms, Way: Next, Pause: 100 * ms}}})
				f(Behaviour{Edges: e, Limit: l, Window: 10 * time.Second, Timeout: to, Fresh: true, Phases: []Phase{{Requests: e, AtOnce: e, Gap: 30 * ms, Way: Next, Pause: 100 * ms}}})
			}
		}
	}
	fmt.Println("hover")
	for _, e := range []int{8, 64} {
		for _, l := range []uint32{4, 16, 64, 128} {
			for _, n := range []int{1, 4, 16, 64} {
				f(Behaviour{Edges: e, Limit: l, Window: time.Second, Phases: []Phase{{Requests: n, AtOnce: n, Gap: ms, Way: Next, Pause: time.Second * time.Duration(n) / time.Duration(l)}}})
			}
		}
	}
}
