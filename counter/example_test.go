package counter_test

import (
	"fmt"
	"net/netip"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
)

// The example of Cloudflare's article on rate limiting: 42 requests in the last minute, 18 in this one, of which 15
// seconds have passed. Two plain counters give 42 * (60-15)/60 + 18 = 49.5.
func Example() {
	rule, err := algorithm.NewSliding("api", 50, time.Minute, 1, algorithm.Unrounded)
	if err != nil {
		fmt.Println(err)
		return
	}
	table := counter.New(counter.Options{Counters: 1000})
	source := counter.SourceOf(netip.MustParseAddr("192.0.2.1"), 32, 64)
	minute := time.Unix(0, 0)

	ask := []counter.Reservation{{Rule: rule, Source: source, Hits: 42}}
	table.Reserve(ask, minute.Add(10*time.Second))
	ask[0].Hits = 18
	table.Reserve(ask, minute.Add(75*time.Second))
	fmt.Println("estimate:", ask[0].Estimate)

	ask[0].Hits = 1
	fmt.Println("one more:", table.Reserve(ask, minute.Add(75*time.Second)))
	fmt.Println("admitted in:", ask[0].RetryAfter.Round(time.Millisecond))
	// Output:
	// estimate: 49.5
	// one more: false
	// admitted in: 714ms
}
