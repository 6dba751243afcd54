package operator

import (
	"testing"
	"time"
)

// A flag with a time takes days, and help shows its default as before.
func TestDurationFlag(t *testing.T) {
	var d, none time.Duration
	set := NewFlagSet("x")
	DurationFlag(set, &d, "for", 10*time.Minute, "a `TIME`")
	DurationFlag(set, &none, "wait", 0, "a `TIME`")
	if got := set.FlagUsages(); got != "      --for TIME    a TIME (default 10m0s)\n      --wait TIME   a TIME\n" {
		t.Errorf("%q", got)
	}
	if err := Parse(set, []string{"--for", "2d", "--wait", "1d12h"}); err != nil || d != 48*time.Hour || none != 36*time.Hour {
		t.Errorf("%v, %v, %v", d, none, err)
	}
}
