package page

import (
	"math"
	"strconv"
	"strings"
)

// Thousands writes 1234567 as 1,234,567.
func Thousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Significant writes three significant digits, but all those before the point.
func Significant(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case math.IsNaN(v) || math.IsInf(v, 0):
		return ""
	case a >= 100:
		s := Thousands(uint64(math.Round(a)))
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

// Percent writes a fraction as so many of a hundred.
func Percent(v float64) string { return Significant(100*v) + " %" }

// Duration writes seconds in the unit that suits them.
func Duration(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a < 1e-3:
		return Significant(v*1e6) + " µs"
	case a < 1:
		return Significant(v*1e3) + " ms"
	}
	return Significant(v) + " s"
}

// Plural writes a number of things.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Thousands(uint64(n)) + " " + what + "s"
}
