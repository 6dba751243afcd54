package mitigation

import (
	"testing"
	"time"
)

// Who comes back within the memory of a bit is mitigated for the next timeout, and later for the first one again.
func TestRepeat(t *testing.T) {
	repeat := Repeat{Timeouts: []time.Duration{10 * time.Minute, time.Hour}, Within: 30 * time.Minute}
	type step struct{ after, want time.Duration } // the end of the one before, and for how long it is then
	f := func(name string, r Repeat, timeout time.Duration, steps ...step) {
		t.Helper()
		table, now := New(100, nil), start
		for i, s := range steps {
			now = now.Add(s.after)
			table.Sweep(now)
			got := table.Timeout(key(1), timeout, r, now)
			if got != s.want {
				t.Errorf("%s, step %d: %v, want %v", name, i, got, s.want)
			}
			if got == 0 {
				return
			}
			table.Start(key(1), Bit{Start: now, End: now.Add(got), By: ByEdge, Memory: r.Memory()}, now)
			now = now.Add(got)
		}
		if other := table.Timeout(key(2), timeout, r, now); other != timeout {
			t.Errorf("%s: another source: %v, want %v", name, other, timeout)
		}
	}
	const m = time.Minute
	f("one after the other", repeat, m, step{0, m}, step{0, 10 * m}, step{0, 60 * m}, step{0, 60 * m})
	f("just remembered", repeat, m, step{0, m}, step{30*m - 1, 10 * m}, step{30*m - 1, 60 * m})
	f("forgotten", repeat, m, step{0, m}, step{30 * m, m}, step{0, 10 * m}, step{30 * m, m})
	f("no repeat", Repeat{Within: 30 * m}, m, step{0, m}, step{0, m})
	f("a throttle", repeat, 0, step{0, 0})
	f("the wait for the window is longer than the first of them", repeat, 20*m, step{0, 20 * m}, step{0, 60 * m})
}

// What has ended refuses nobody, is no mitigation in force, and goes first; nothing of it is asked of requests while nobody is mitigated.
func TestRememberedIsNotInForce(t *testing.T) {
	table, now := New(64, nil), start.Add(time.Minute)
	table.Start(key(1), Bit{Start: start, End: now, Memory: time.Hour}, start)
	table.Sweep(now)
	if _, in := table.Get(key(1), now); in || !table.Until(key(1), now).IsZero() {
		t.Error("in force after its end")
	}
	for k := range table.All(now) {
		t.Errorf("%v is among those in force", k)
	}
	if n := table.some.Load(); n != 0 {
		t.Errorf("requests look into %d shards though nobody is mitigated", n)
	}
	if _, known := table.Last(key(1), now); !known {
		t.Error("not remembered")
	}
	if table.Lift(key(1), now); table.Timeout(key(1), time.Minute, Repeat{[]time.Duration{time.Hour}, time.Hour}, now) != time.Minute {
		t.Error("remembered after a lift")
	}
	table.Start(key(2), Bit{Start: start, End: now, Memory: time.Hour}, now) // another process knew of it
	if _, known := table.Last(key(2), now); !known {
		t.Error("what others remember is not taken in")
	}
	table.Sweep(now.Add(time.Hour))
	if _, known := table.Last(key(2), now); known {
		t.Error("not swept when it was to be forgotten")
	}
}

// A full table drops what is remembered before what is in force, and is not made to drop anything by what is only remembered.
func TestRememberedMakesRoom(t *testing.T) {
	table, now := New(64, nil), start.Add(time.Minute) // one to a shard
	a, b := twoOfAShard(table)
	table.Start(a, Bit{Start: start, End: now, Memory: time.Hour}, start)
	table.Start(b, Bit{Start: now, End: now.Add(time.Minute), Memory: time.Hour}, now)
	if table.Until(b, now).IsZero() || table.Evicted() != 0 {
		t.Errorf("%d were dropped before their end", table.Evicted())
	}
	if _, known := table.Last(a, now); known {
		t.Error("more than there is room for")
	}
	table.Start(a, Bit{Start: start, End: now, Memory: time.Hour}, now)
	if table.Until(b, now).IsZero() {
		t.Error("what is remembered has pushed out what is in force")
	}
}

// twoOfAShard are two keys that stand in one shard.
func twoOfAShard(t *Table) (Key, Key) {
	first, _ := t.place(key(0))
	for i := uint32(1); ; i++ {
		if s, _ := t.place(key(i)); s == first {
			return key(0), key(i)
		}
	}
}
