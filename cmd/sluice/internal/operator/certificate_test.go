package operator

import (
	"strings"
	"testing"
	"time"
)

func TestCertificateSoon(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for left, want := range map[time.Duration]string{
		5 * time.Hour:  "EXPIRES SOON, in less than a day, on ",
		30 * time.Hour: "EXPIRES SOON, in 1 day, on ",
		50 * time.Hour: "EXPIRES SOON, in 2 days, on ",
	} {
		if got := certificate(now.Add(left), 0, now); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %q, want %q…", left, got, want)
		}
	}
}
