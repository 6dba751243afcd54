package main

import "testing"

// A file that changes is read once it has been left alone for a look, or at the latest at the fourth; and not if it says again what was read.
func TestContentWatch(t *testing.T) {
	var w contentWatch
	read := "a"
	for i, step := range []struct {
		now  string
		want bool
	}{
		{"a", false}, {"ab", false}, {"ab", true}, // left alone
		{"ab", false}, {"abc", false}, {"abcd", false}, {"abcde", false}, {"abcdef", true}, // it goes on for too long
		{"abcdef", false}, {"", false}, {"abcdef", false}, {"", false}, {"", true},
	} {
		got := w.look(step.now, read)
		if got != step.want {
			t.Errorf("step %d, %q: %v", i, step.now, got)
		}
		if got {
			read = step.now
		}
	}
}
