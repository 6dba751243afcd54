package operator

import (
	"fmt"
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
		if got := certificate(now.Add(left), now); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %q, want %q…", left, got, want)
		}
	}
}

// One that has expired, and may be forgotten, does not hide another that soon will.
func TestCertificatesOfAListener(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	sample := func(listener, file string, left time.Duration) string {
		return fmt.Sprintf("sluice_certificate_expiry_timestamp_seconds{name=%q,listener=%q} %d\n", file, listener, now.Add(left).Unix())
	}
	const day = 24 * time.Hour
	for _, c := range []struct{ metrics, want string }{
		{sample("l", "a", 40*day) + sample("l", "b", 30*day) + sample("other", "c", -day), "l: b valid until 2026-02-01 03:04:05Z, 30 days"},
		{sample("l", "a", 40*day) + sample("l", "b", 3*day) + sample("l", "c", -day),
			"l: c EXPIRED on 2026-01-01 03:04:05Z|l: b EXPIRES SOON, in 3 days, on 2026-01-05 03:04:05Z"},
		{strings.Repeat(sample("l", "a", -day), 7), strings.Repeat("l: a EXPIRED on 2026-01-01 03:04:05Z|", 5) + "l: and more; sluice check FILE tells of each"},
		{sample("other", "c", -day), ""},
	} {
		if got := strings.Join(metrics(c.metrics).certificates("l", now), "|"); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
