package client

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/mitigation"
)

// An overloaded rule in virtual time, decided by the limiter of an edge: clients that share it want three times its limit. Each sends a
// request, waits for its answer, and begins the next in its time or, if it is late, at once. It prints what docs/http/clients.md shows.
func TestOverloadedRule(t *testing.T) {
	const (
		clients, each = 50, 12
		limit, window = 100, 10 * time.Second
		wants         = clients * each * window / limit / 3 // so that together they want three times as much
		trip          = 20 * time.Millisecond
	)
	retry := func(wait time.Duration) func(http.RoundTripper, int) http.RoundTripper {
		return func(base http.RoundTripper, _ int) http.RoundTripper {
			return roundTrip(func(q *http.Request) (*http.Response, error) {
				for {
					resp, err := base.RoundTrip(q)
					if err != nil || resp.StatusCode == http.StatusOK {
						return resp, err
					}
					time.Sleep(wait)
				}
			})
		}
	}
	ratio := make(map[string]float64)
	for _, kind := range []struct {
		name string
		of   func(base http.RoundTripper, seed int) http.RoundTripper
	}{
		{"at-once", retry(0)},
		{"after-1s", retry(time.Second)},
		{"this-client", func(base http.RoundTripper, seed int) http.RoundTripper {
			n := uint64(seed)
			return &Transport{Base: base, Tries: 1000, Random: func() float64 { // the same in each run
				n = n*6364136223846793005 + 1442695040888963407
				return float64(n>>11) / (1 << 53)
			}}
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			spec, err := algorithm.NewSliding("shared", limit, window, 12, algorithm.Nearest)
			if err != nil {
				t.Fatal(err)
			}
			rule := &limiter.Rule{Rule: mitigation.Rule{Name: "shared", Counter: spec}}
			l := &limiter.Limiter{Counters: counter.New(counter.Options{Counters: 1 << 10}), Blocks: mitigation.New(16, nil)}
			source := counter.SourceOf(netip.MustParseAddr("192.0.2.1"), 32, 64)
			var mu sync.Mutex
			sent, admitted := 0, 0
			base := roundTrip(func(*http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				var d limiter.Decision
				now := time.Now()
				d.Add(rule, source)
				l.Decide(&d, now)
				sent++
				seconds := func(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }
				r, policy := d.Reported, fmt.Sprintf(`RateLimit-Policy: "shared";q=%d;w=%d`, limit, seconds(window))
				if d.Refused() {
					wait := seconds(r.Wait)
					return answer(429, policy, fmt.Sprintf(`RateLimit: "shared";r=0;t=%d`, wait), fmt.Sprintf("Retry-After: %d", wait)), nil
				}
				admitted++
				return answer(200, policy, fmt.Sprintf(`RateLimit: "shared";r=%d;t=%d`, r.Reservation.Remaining, seconds(spec.Reset(now)))), nil
			})
			start := time.Now()
			done, half := make([]time.Duration, clients), make([]int, clients)
			var wg sync.WaitGroup
			for i := range clients {
				wg.Go(func() {
					c := kind.of(roundTrip(func(q *http.Request) (*http.Response, error) {
						time.Sleep(trip + time.Duration(i)*10_007) // no two at the same instant, whose order would be open
						return base(q)
					}), i+1)
					time.Sleep(time.Duration(i) * wants / each / clients)
					for n := range each {
						time.Sleep(max(0, time.Until(start.Add(time.Duration(n)*wants/each))))
						if resp, err := c.RoundTrip(get(t, t.Context(), "GET", nil)); err != nil || resp.StatusCode != 200 {
							t.Errorf("%s: %v, %v", kind.name, resp, err)
							return
						}
						if time.Since(start) <= 3*wants/2 { // half of the least time that all need
							half[i]++
						}
					}
					done[i] = time.Since(start)
				})
			}
			wg.Wait()
			if admitted != clients*each {
				t.Errorf("%s: %d admitted, want %d", kind.name, admitted, clients*each)
			}
			ratio[kind.name] = float64(sent) / float64(admitted)
			fmt.Printf("clients %s: %d sent, %d refused, %.2f sent for each admitted, first done %.1fs, all done %.1fs, had by half time %d to %d, Jain %.3f\n",
				kind.name, sent, sent-admitted, ratio[kind.name], slices.Min(done).Seconds(), slices.Max(done).Seconds(), slices.Min(half), slices.Max(half), jain(half))
		})
	}
	if ratio["this-client"] > ratio["after-1s"]/2 || ratio["after-1s"] > ratio["at-once"]/2 {
		t.Errorf("sent for each that was admitted: %v", ratio)
	}
}

// jain is the index of fairness: 1 if all have the same (Jain, Chiu, Hawe: "A quantitative measure of fairness", 1984).
func jain(list []int) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range list {
		sum, squares = sum+float64(x), squares+float64(x*x)
	}
	return sum * sum / (float64(len(list)) * squares)
}
