package page

import "testing"

func TestNumbers(t *testing.T) {
	f := func(write func(float64) string, v float64, want string) {
		t.Helper()
		if got := write(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
	f(Significant, 0, "0")
	f(Significant, 1234567.8, "1,234,568")
	f(Significant, -1234, "-1,234")
	f(Significant, 99.96, "100")
	f(Significant, 12.34, "12.3")
	f(Significant, 0.0012345, "0.00123")
	f(Significant, 0.5, "0.5")
	f(Significant, 120, "120")
	f(Percent, 0.00003, "0.003 %")
	f(Percent, 0.0000025, "0.00025 %")
	f(Percent, 0.06, "6 %")
	f(Percent, 1, "100 %")
	f(Duration, 0.0000012, "1.2 µs")
	f(Duration, 0.0123, "12.3 ms")
	f(Duration, 61, "61 s")
	f(Duration, 0, "0")
}
