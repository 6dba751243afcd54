package control

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ParseDuration is time.ParseDuration that knows days as well, first in the text: 1d, 1.5d, 2d12h.
// A day is 24 hours.
func ParseDuration(text string) (time.Duration, error) {
	days, rest, is := strings.Cut(text, "d")
	if !is {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseFloat(days, 64)
	if err != nil || strings.ContainsAny(days, "eExXpPiInN_") || math.Abs(n) > 100_000 {
		return 0, fmt.Errorf("edge: %q is not a time with a unit", text)
	}
	d := time.Duration(n * 24 * float64(time.Hour))
	if rest == "" {
		return d, nil
	}
	more, err := time.ParseDuration(rest)
	if err != nil || strings.ContainsAny(rest[:1], "+-") || d.Abs() > math.MaxInt64-more {
		return 0, fmt.Errorf("edge: %q is not a time with a unit", text)
	}
	if n < 0 {
		more = -more
	}
	return d + more, nil
}
