package sim

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop/secret"
)

// A behaviour is what each source of a crowd does again and again, each request on the next edge.
type behaviour struct {
	edges           int
	limit           uint32
	window, timeout time.Duration // timeout 0: the rule throttles
	fresh           bool          // after its requests comes a source that nobody has seen, in its place
	requests        int
	gap             time.Duration // between two of them; 0: all at the same instant
	pause           time.Duration // after them
}

// A suspect is one of the crowd.
type suspect struct {
	id                         counter.Source
	edge, done                 int
	first, last, next, blocked time.Time
	lives                      int // blocks
}

// full is over how many requests a budget is held, in at most ten seconds.
const full = 1000

// spent is what a behaviour cost.
type spent struct {
	Cost
	requests int
	lives    int // blocks of a source, or windows in which it made requests where that is more
	lasted   time.Duration
}

func per(cost uint64, n int) float64 { return float64(cost) / float64(max(n, 1)) }

// run has a crowd behave so, as large as it must be for a hundred requests a second.
func (b behaviour) run(t *testing.T) (s spent) {
	t.Helper()
	c, err := algorithm.NewSliding("worst", b.limit, b.window, 12, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	rule := limiter.Rule{Rule: mitigation.Rule{Counter: c, Timeout: b.timeout}}
	w, err := New(Config{Edges: b.edges, Nodes: 1, RTT: time.Millisecond, Wait: 5 * time.Millisecond, Counters: 4096, Secret: secret.Of([]byte("worst"))},
		[]limiter.Rule{rule}, began)
	if err != nil {
		t.Fatal(err)
	}
	suspects := make(map[counter.Source]*suspect)
	for _, e := range w.Edges {
		e.Blocks.Observe = func(k mitigation.Key, bit mitigation.Bit) {
			if x := suspects[k.Source]; x != nil && bit.Start.After(x.blocked) {
				x.lives, x.blocked = x.lives+1, bit.End
			}
		}
	}
	const settle = 200 * time.Millisecond
	w.after(settle) // edges have found each other's log
	before, start := w.Cost, w.Now()
	length := time.Duration(b.requests-1)*b.gap + b.pause
	crowd := make([]*suspect, min(1+int(110*length.Seconds()/float64(b.requests)), 400))
	appear := func(at time.Time) *suspect {
		n := len(suspects) + 1
		var ip [4]byte
		binary.BigEndian.PutUint32(ip[:], uint32(n))
		x := &suspect{id: counter.SourceOf(netip.AddrFrom4(ip), 32, 64), edge: 7 * n % b.edges, first: at, next: at}
		suspects[x.id] = x
		return x
	}
	for i := range crowd {
		crowd[i] = appear(start.Add(length * time.Duration(i) / time.Duration(len(crowd))))
	}
	for s.requests < full {
		first := slices.MinFunc(crowd, func(x, y *suspect) int { return x.next.Compare(y.next) })
		if w.Run(first.next); w.Now().Sub(start) > 10*time.Second {
			break
		}
		n := 1
		if b.gap == 0 {
			n = b.requests
		}
		for range n {
			w.Edges[first.edge].Request(&rule, first.id)
			first.edge = (first.edge + 1) % b.edges
		}
		s.requests += n
		first.done, first.last, first.next = first.done+n, w.Now(), w.Now().Add(b.gap)
		if first.done < b.requests {
			continue
		}
		first.done, first.edge, first.next = 0, (first.edge+1)%b.edges, w.Now().Add(b.pause)
		if b.fresh {
			crowd[slices.Index(crowd, first)] = appear(first.next)
		}
	}
	s.lasted = w.Now().Sub(start)
	w.after(settle)
	for _, x := range suspects {
		if !x.last.IsZero() {
			s.lives += max(x.lives, 1+int(x.last.Sub(x.first)/b.window))
		}
	}
	s.Cost = w.Cost.Minus(before)
	if s.requests < full {
		t.Errorf("%d requests, want %d, by %+v", s.requests, full, b)
	}
	return s
}

// TestSuspects: what a source can make the tier do at worst. Each behaviour is one that looks expensive to who knows the code, or that a search
// over thousands of them has found.
func TestSuspects(t *testing.T) {
	t.Parallel()
	const second = time.Second
	f := func(edges int, limit uint32, timeout time.Duration, fresh bool, atOnce int, pause time.Duration) {
		t.Helper()
		b := behaviour{edges: edges, limit: limit, window: second, timeout: timeout, fresh: fresh, requests: atOnce, pause: pause}
		s := b.run(t)
		t.Logf("%.3g commands for each of %d requests by %+v", per(s.Commands, s.requests), s.requests, b)
		written, read := float64(s.LogWritten)/s.lasted.Seconds(), float64(s.LogRead)/float64(edges)/s.lasted.Seconds()
		for _, o := range []struct {
			name        string
			got, budget float64
		}{
			{"commands per request", per(s.Commands, s.requests), 3},
			{"bytes per request", per(s.Bytes, s.requests), 1024},
			{"log records per request", per(s.LogRecords, s.requests), 1},
			{"log records per source and block or window", per(s.LogRecords, s.lives), float64(edges + 8)},
			{"log bytes read, per edge and second", read, 2*written + 8192},
		} {
			if o.got > o.budget {
				t.Errorf("%s: %.3g, the budget is %.3g, by %+v", o.name, o.got, o.budget, b)
			}
		}
	}
	for _, timeout := range []time.Duration{0, 10 * second} {
		// Who is over the limit: a block costs commands of its own.
		f(2, 1, timeout, true, 2, second/10)
		f(2, 2, timeout, true, 3, second/10)
		f(8, 4, timeout, true, 5, second/10)
		f(8, 16, timeout, true, 64, second)
		// Who is at it: a block changes nothing, or ends what costs.
		f(2, 2, timeout, true, 2, second/10)
		f(2, 8, timeout, false, 2, second/3)
		f(8, 11, timeout, true, 11, second)
		f(8, 4, timeout, false, 4, second)
		f(8, 16, timeout, false, 16, second)
	}
	if raceEnabled { // one goroutine's arithmetic
		return
	}
	f(64, 4, 10*second, true, 5, second/10)
	f(64, 256, 0, false, 64, second/3)
	f(64, 11, 0, true, 11, second)
	f(64, 64, 0, false, 64, second)
}
