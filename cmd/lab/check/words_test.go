package check

import (
	"errors"
	"testing"
	"time"
)

// A word that was late, or of which it is not known that it is in force, breaks the promise.
func TestInTime(t *testing.T) {
	f := func(want string, kept bool, words ...*word) {
		t.Helper()
		if line, ok := inTime(words); line != want || ok != kept {
			t.Errorf("it says %q, %v; want %q, %v", line, ok, want, kept)
		}
	}
	ms := func(n int) *word { return &word{about: "192.0.2.1", took: time.Duration(n) * time.Millisecond} }
	f("3 of 3 in force on every edge within 2s: p50 400ms, p99 2s, slowest 2s", true, ms(300), ms(2000), ms(400))
	f("2 of 3 in force on every edge within 2s: p50 400ms, p99 2.001s, slowest 2.001s", false, ms(300), ms(2001), ms(400))
	f("1 of 2 in force on every edge within 2s: p50 300ms, p99 300ms, slowest 300ms; 192.0.2.1: edge/1 is gone", false,
		ms(300), &word{about: "192.0.2.1", took: time.Millisecond, err: errors.New("edge/1 is gone")})
	f("0 of 1 in force on every edge within 2s: p50 0s, p99 0s, slowest 0s; 192.0.2.1: no", false, &word{about: "192.0.2.1", err: errors.New("no")})
}
