package log

import (
	"slices"
	"testing"
	"time"
)

// TestMissingNumber: a number that is missing holds up nothing, is asked for again, and is given up after a while.
func TestMissingNumber(t *testing.T) {
	var r Reader
	now := time.Unix(1_700_000_000, 0)
	if r.Next(now, 0) != nil {
		t.Error("numbers of a log of which nothing is known")
	}
	r.NotThere()
	if r.Head(5*Behind + 2) {
		t.Error("a log that has just begun was missed")
	}
	read := func(there ...uint64) (asked []uint64, missed bool) {
		t.Helper()
		asked = slices.Clone(r.Next(now, 0))
		values := make([][]byte, len(asked))
		for i, number := range asked {
			if slices.Contains(there, number) {
				values[i] = []byte{}
			}
		}
		return asked, r.Read(values, now)
	}
	const first = 5 * Behind
	if asked, missed := read(first, first+2); len(asked) != 4 || asked[0] != first || missed {
		t.Errorf("asked for %v, missed %v: want four from %d on", asked, missed, uint64(first))
	}
	if r.Next(now, time.Second) != nil && len(r.missing) != 1 {
		t.Errorf("%v is missing", r.missing)
	}
	r.Failed()
	now = now.Add(patience - time.Millisecond)
	if asked, missed := read(first + 3); asked[0] != first+1 || asked[1] != first+3 || missed {
		t.Errorf("asked for %v, missed %v: want %d, and what comes after %d", asked, missed, uint64(first+1), uint64(first+2))
	}
	now = now.Add(time.Millisecond)
	if _, missed := read(); !missed {
		t.Error("never given up")
	}
	if asked, _ := read(); asked[0] != first+4 {
		t.Errorf("asked for %v, want what comes next", asked)
	}
	if !r.Head(7 * Behind) {
		t.Error("far behind, and nothing was missed")
	}
}
