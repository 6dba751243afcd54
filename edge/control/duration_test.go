package control

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{"10m": 10 * time.Minute, "1d": day, "1.5d": 36 * time.Hour, "2d12h": 60 * time.Hour, "-1d": -day, "-1d1h": -25 * time.Hour, "0d": 0} {
		if d, err := ParseDuration(text); d != want || err != nil {
			t.Errorf("%s: %v, %v; want %v", text, d, err, want)
		}
	}
	for _, text := range []string{"", "d", "1", "1dd", "1d2", "1d-2h", "1h1d", "1day", "1e9d", "infd", "0x1d", "200000d", "99999d200000h"} {
		if d, err := ParseDuration(text); err == nil {
			t.Errorf("%q is read as %v", text, d)
		}
	}
}
