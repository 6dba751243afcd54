package listen

import (
	"strings"
	"testing"
	"time"
)

func TestExpirySays(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for left, want := range map[time.Duration]string{
		-time.Second:       " has expired, on 2026-01-02 03:04Z:",
		5 * time.Hour:      ", in less than a day: put",
		30 * time.Hour:     ", in 1 day: put",
		50 * time.Hour:     ", in 2 days: put",
		Soon + time.Second: "",
	} {
		if got := (Expiry{File: "a.crt", At: now.Add(left)}).Says(now); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%v: %q, want %q", left, got, want)
		}
	}
}
