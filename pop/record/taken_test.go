package record

import (
	"testing"
)

// TestTakenTimes: times of a sub-window are taken in once, in whatever order they come, and old ones not at all.
func TestTakenTimes(t *testing.T) {
	var taken Taken
	for _, step := range []struct {
		subWindow uint32
		take      bool
	}{
		{100, true}, {100, false}, {103, true}, {101, true}, {101, false}, {100, false}, {103, false},
		{90, true}, {90, false}, {87, false}, {110, true}, {103, false}, {104, true}, {94, false}, {200, true}, {110, false}, {199, true},
	} {
		if got := taken.Take(step.subWindow); got != step.take {
			t.Errorf("sub-window %d: taken %v, want %v", step.subWindow, got, step.take)
		}
	}
}
