package loadgen

import (
	"math"
	"strconv"
	"strings"
)

// thousands writes 1234567 as 1,234,567.
func thousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// significant writes three significant digits, but all those before the point.
func significant(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case math.IsNaN(v) || math.IsInf(v, 0):
		return ""
	case a >= 100:
		s := thousands(uint64(math.Round(a)))
		if v < 0 {
			s = "-" + s
		}
		return s
	default:
		decimals := 2 - int(math.Floor(math.Log10(a)))
		s := strconv.FormatFloat(v, 'f', decimals, 64)
		if strings.Contains(s, ".") {
			s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
		}
		return s
	}
}

func percentage(v float64) string { return significant(100*v) + " %" }

// duration writes seconds in the unit that suits them.
func duration(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a < 1e-3:
		return significant(v*1e6) + " µs"
	case a < 1:
		return significant(v*1e3) + " ms"
	}
	return significant(v) + " s"
}

// plural writes a number of things.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return thousands(uint64(n)) + " " + what + "s"
}
