package bench

import (
	"strings"
	"testing"
)

// What is printed: medians, and of the ratios those within a round.
func TestWriteRateLimit(t *testing.T) {
	f := RateLimitFigures{Work: "admit",
		rounds: [allAsked][]callCost{
			overGRPC: {{cpu: 10e-6, tier: 1e-6, rate: 100}, {cpu: 40e-6, tier: 2e-6, rate: 50}, {cpu: 20e-6, tier: 3e-6, rate: 80, wrong: 0.5}},
			overHTTP: {{cpu: 50e-6, tier: 1e-6, rate: 90}, {cpu: 50e-6, tier: 1e-6, rate: 90}, {cpu: 50e-6, tier: 1e-6, rate: 90}},
			peer:     {{cpu: 100e-6, tier: 5e-6, rate: 10}, {cpu: 100e-6, tier: 6e-6, rate: 20}, {cpu: 400e-6, tier: 7e-6, rate: 30}},
		},
	}.settled()
	var b strings.Builder
	if err := WriteRateLimit(&b, []RateLimitFigures{f}); err != nil {
		t.Fatal(err)
	}
	const want = "   work  sluice gRPC µs  of it memcached  calls/s  sluice HTTP µs  of it memcached  calls/s  envoyproxy/ratelimit µs  of it memcached  calls/s  ratio gRPC  ratio HTTP  wrong\n" +
		"  admit            20.0              2.0       80            50.0              1.0       90                    100.0              6.0       20       0.100       0.500    0.5\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
