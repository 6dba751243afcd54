package loadgen

import "testing"

func TestNumbers(t *testing.T) {
	f := func(write func(float64) string, v float64, want string) {
		t.Helper()
		if got := write(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
	f(significant, 0, "0")
	f(significant, 1234567.8, "1,234,568")
	f(significant, -1234, "-1,234")
	f(significant, 99.96, "100")
	f(significant, 12.34, "12.3")
	f(significant, 0.0012345, "0.00123")
	f(significant, 0.5, "0.5")
	f(significant, 120, "120")
	f(percentage, 0.00003, "0.003 %")
	f(percentage, 0.0000025, "0.00025 %")
	f(percentage, 0.06, "6 %")
	f(percentage, 1, "100 %")
	f(duration, 0.0000012, "1.2 µs")
	f(duration, 0.0123, "12.3 ms")
	f(duration, 61, "61 s")
	f(duration, 0, "0")
}
