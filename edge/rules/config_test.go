package rules

import (
	"testing"
	"time"
)

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", time.Second: "1s", time.Minute: "1m", time.Hour: "1h", 90 * time.Minute: "1h30m",
		90 * time.Second: "1m30s", 24 * time.Hour: "24h", 5 * time.Millisecond: "5ms", 10 * time.Minute: "10m", 20 * time.Hour: "20h"} {
		if got := Duration(d).String(); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
