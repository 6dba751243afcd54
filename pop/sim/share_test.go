package sim

import (
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop/secret"
)

// TestShareOfALimit: three edges whose only node dies admit a flood about one limit in a window, where each would admit it a limit with the
// posture local; a source that keeps to nine tenths of its limit, over all edges alike, is refused at no time; and nobody is blocked for
// being over a part. When the node is back, all count together again.
func TestShareOfALimit(t *testing.T) {
	t.Parallel()
	const limit, edges, window = 90, 3, time.Minute
	for posture, want := range map[limiter.FailurePolicy][2]int{limiter.Local: {edges * limit * 9 / 10, edges * limit * 11 / 10}, limiter.Share: {limit * 9 / 10, limit * 11 / 10}} {
		r, err := algorithm.NewSliding("r", limit, window, 12, algorithm.Nearest)
		must(t, err)
		rule := limiter.Rule{Rule: mitigation.Rule{Counter: r}, OnStoreFailure: posture}
		w, err := New(Config{Edges: edges, Nodes: 1, RTT: time.Millisecond, Secret: secret.Of([]byte("test"))}, []limiter.Rule{rule}, began)
		must(t, err)
		const step = 100 * time.Millisecond
		var flood [2]int // admitted, in the window before the node dies, and in the second after that
		steady := 0
		for n := range 4 * int(window/step) {
			if n == int(window/step) {
				w.Kill(0)
			}
			if !w.Edges[n%edges].Request(&rule, ip("192.0.2.1")).Refused() {
				switch at := time.Duration(n) * step; {
				case at < window:
					flood[0]++
				case at >= 3*window:
					flood[1]++
				}
			}
			if n%8 == 0 { // 75 in a window
				if d := w.Edges[n/8%edges].Request(&rule, ip("192.0.2.2")); d.Refused() {
					steady++
				}
			}
			w.Run(w.Now().Add(step))
		}
		if got := flood[0]; got < limit*9/10 || got > limit*11/10 {
			t.Errorf("%s: %d of the flood were admitted before, want about %d", posture, got, limit)
		}
		if got := flood[1]; got < want[0] || got > want[1] {
			t.Errorf("%s: %d of the flood were admitted in a window, want %d to %d", posture, got, want[0], want[1])
		}
		if steady > 0 {
			t.Errorf("%s: %d requests of a source within its limit were refused", posture, steady)
		}
		must(t, w.Restart(0))
		w.Run(w.Now().Add(2 * window))
		admitted := 0
		for n := range 3 * limit {
			if !w.Edges[n%edges].Request(&rule, ip("192.0.2.1")).Refused() {
				admitted++
			}
			w.Run(w.Now().Add(10 * time.Millisecond))
		}
		if admitted < limit || admitted > limit+edges {
			t.Errorf("%s: %d were admitted with the node back, want about %d", posture, admitted, limit)
		}
	}
}

// TestNobodyIsBlockedForAPart: over a part of the limit a source waits, and is not blocked for the timeout, here or by
// what is reported to the PoP later.
func TestNobodyIsBlockedForAPart(t *testing.T) {
	t.Parallel()
	r, err := algorithm.NewSliding("r", 30, time.Minute, 12, algorithm.Nearest)
	must(t, err)
	rule := limiter.Rule{Rule: mitigation.Rule{Counter: r, Timeout: time.Hour}, OnStoreFailure: limiter.Share}
	w, err := New(Config{Edges: 3, Nodes: 1, RTT: time.Millisecond, Secret: secret.Of([]byte("test"))}, []limiter.Rule{rule}, began)
	must(t, err)
	w.Run(w.Now().Add(time.Second))
	w.Kill(0)
	w.Run(w.Now().Add(2 * time.Minute))
	admitted := 0
	var last *limiter.Decision
	for range 20 {
		if last = w.Edges[0].Request(&rule, ip("192.0.2.1")); !last.Refused() {
			admitted++
		}
	}
	if admitted != 10 || !last.Results[0].Until.IsZero() || last.Reported.Wait <= 0 || last.Reported.Wait > time.Minute+r.Group() {
		t.Errorf("%d were admitted, blocked until %v, wait of %v", admitted, last.Results[0].Until, last.Reported.Wait)
	}
	wait := last.Reported.Wait
	w.Run(w.Now().Add(wait))
	if w.Edges[0].Request(&rule, ip("192.0.2.1")).Refused() {
		t.Error("refused after it waited for its Retry-After")
	}
	must(t, w.Restart(0))
	w.Run(w.Now().Add(5 * time.Second))
	if w.Edges[1].Request(&rule, ip("192.0.2.1")).Refused() {
		t.Error("refused with the node back")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestShareOfNewSources: what the PoP knew of a source when the node died leaves the window little by little, and what is left of the limit
// is divided. So a source that begins during the outage gets its edges' shares and no more, at whatever time, and another as much less as was
// known of it.
func TestShareOfNewSources(t *testing.T) {
	t.Parallel()
	const limit, edges, window = 9, 3, time.Minute
	for _, test := range []struct {
		known, sub int
		begins     time.Duration // after the node died
		most       int           // admitted in a window
	}{
		{0, 12, 0, limit}, {0, 12, 20 * time.Second, limit}, {0, 12, 3 * time.Minute, limit},
		{0, 4, 0, limit}, {0, 4, 20 * time.Second, limit},
		// An edge does not know of the last hits of the others, divides upwards, and knows only roughly when what was known leaves the window.
		{3, 12, 0, limit + edges}, {5, 12, 0, limit + edges}, {6, 12, 0, limit + edges}, {9, 12, 0, limit + edges},
	} {
		r, err := algorithm.NewSliding("r", limit, window, test.sub, algorithm.Nearest)
		must(t, err)
		rule := limiter.Rule{Rule: mitigation.Rule{Counter: r}, OnStoreFailure: limiter.Share}
		w, err := New(Config{Edges: edges, Nodes: 1, RTT: time.Millisecond, Secret: secret.Of([]byte("test"))}, []limiter.Rule{rule}, began)
		must(t, err)
		w.after(time.Second)
		var admitted []time.Time
		own := make([][]time.Time, edges)
		request := func(edge int) {
			if w.Edges[edge].Request(&rule, a).Refused() {
				return
			}
			admitted = append(admitted, w.Now())
		}
		for n := range test.known {
			request(n % edges)
			w.after(20 * time.Millisecond)
		}
		w.after(time.Second)
		w.Kill(0)
		w.after(5*time.Second + test.begins)
		for n := range 2 * int(window/(100*time.Millisecond)) {
			edge, before := n%edges, len(admitted)
			if request(edge); len(admitted) > before {
				own[edge] = append(own[edge], w.Now())
			}
			w.after(100 * time.Millisecond)
		}
		if got := mostWithin(admitted, window); got > test.most || got < limit {
			t.Errorf("%+v: %d were admitted in a window", test, got)
		}
		for edge := range edges {
			if got := mostWithin(own[edge], window); got > limit/edges {
				t.Errorf("%+v: edge %d admitted %d in a window of the outage, want its share at most", test, edge, got)
			}
		}
	}
}

// mostWithin is the most of some instants that lie within a window.
func mostWithin(at []time.Time, window time.Duration) (most int) {
	for i, from := 0, 0; i < len(at); i++ {
		for at[i].Sub(at[from]) >= window {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}
