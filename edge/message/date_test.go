package message

import (
	"strings"
	"testing"
	"time"
)

// A date is made once a second, not once a request.
func TestDate(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, step := range []struct {
		at   time.Duration
		want string
	}{
		{0, "05"}, {999 * time.Millisecond, "05"}, {time.Second, "06"}, {time.Minute, "05"},
		{0, "05"}, {-time.Hour, "05"}, // the clock has been set back
	} {
		want := at.Add(step.at).Format("Mon, 02 Jan 2006 15:04:05 GMT")
		if got := string(Date(at.Add(step.at))); got != want || !strings.Contains(got, step.want+" GMT") {
			t.Errorf("after %v: %q, want %q", step.at, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { Date(at) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
