package presence

import (
	"testing"
	"time"

	"sluice/pop/secret"
)

// TestKeptPresence: what somebody has kept of a living edge, or copied, and put into another slot makes nobody's own slot a free one.
func TestKeptPresence(t *testing.T) {
	shared, now := secret.Of([]byte("test")), time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		name       string
		own, other int
		copied     bool // what is in the other slot is as new
	}{
		{"kept, before", 5, 2, false},
		{"kept, behind", 2, 5, false},
		{"copied, before", 5, 2, true},
		{"copied, behind", 2, 5, true},
	} {
		speaker, reader := New(shared, 7), New(shared, 8)
		values := make([][]byte, slots)
		at := now
		values[c.own] = speaker.Encode(at, Edge{})
		reader.Read(values, at, at)
		for i := range 10 {
			before := values[c.own]
			at = at.Add(time.Second)
			values[c.own] = speaker.Encode(at, Edge{})
			reader.Read(values, at, at)
			if values[c.other] = before; c.copied {
				values[c.other] = values[c.own]
			}
			reader.Read(values, at, at)
			free := make(map[int]bool)
			for _, slot := range reader.free {
				free[slot] = true
			}
			if free[c.own] || !free[c.other] || len(free) != slots-1 {
				t.Errorf("%s, second %d: its slot is free: %v, the other: %v", c.name, i, free[c.own], free[c.other])
			}
		}
		// What somebody has kept of ours keeps nobody's slot filled, ours neither.
		own := New(shared, 7)
		own.Take(c.own)
		own.Read(values, at, at)
		if len(own.free) != slots-1 || own.slot != c.own {
			t.Errorf("%s: %d slots are free, ours is %d", c.name, len(own.free), own.slot)
		}
	}
}

// TestBehind: an edge that begins goes to the time that was told and no further; later it goes on what covers its age as well, or not at all.
func TestBehind(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, c := range []struct{ ahead, first, later time.Duration }{
		{-time.Second, 0, 0},
		{0, 0, 0},
		{time.Second, time.Second, 0},
		{3 * time.Second, 3 * time.Second, 3500 * time.Millisecond},
	} {
		other, p := New(secret.Of([]byte("test")), 1), New(secret.Of([]byte("test")), 2)
		other.Wall = func(now time.Time) time.Time { return now.Add(c.ahead) }
		values := make([][]byte, slots)
		for i, want := range []time.Duration{c.first, c.later} {
			at := now.Add(time.Duration(i) * time.Second)
			values[3] = other.Encode(at, Edge{Name: "other"})
			if p.Read(values, at, at); p.Behind() != want {
				t.Errorf("another is %v ahead, read %d: behind by %v, want %v", c.ahead, i, p.Behind(), want)
			}
		}
	}
}
