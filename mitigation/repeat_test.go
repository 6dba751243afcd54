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

// For how long a source is mitigated, by how long its last mitigation was and how long ago that ended.
func TestAfter(t *testing.T) {
	const m = time.Minute
	repeat := Repeat{Timeouts: []time.Duration{10 * m, 60 * m}, Within: 30 * m}
	f := func(name string, r Repeat, timeout, was, ago, want, longest time.Duration) {
		t.Helper()
		if got := r.After(start.Add(-ago-was), start.Add(-ago), timeout, start); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if got := r.Longest(timeout); got != longest {
			t.Errorf("%s: the longest is %v, want %v", name, got, longest)
		}
	}
	f("the first that is longer", repeat, m, m, 0, 10*m, 60*m)
	f("as long as the first", repeat, m, 10*m, 0, 60*m, 60*m)
	f("a little shorter", repeat, m, 10*m-1, 0, 10*m, 60*m)
	f("longer than all", repeat, m, 90*m, 0, 60*m, 60*m)
	f("just remembered", repeat, m, m, 30*m-1, 10*m, 60*m)
	f("forgotten", repeat, m, m, 30*m, m, 60*m)
	f("not ended", repeat, m, m, -1, m, 60*m)
	f("a throttle", repeat, 0, m, 0, 0, 0)
	f("a timeout longer than the first", repeat, 20*m, m, 0, 20*m, 60*m)
	f("a timeout longer than all", repeat, 90*m, 60*m, 0, 90*m, 90*m)
	f("no repeat", Repeat{}, m, m, 0, m, m)
	f("no repeat, but a memory", Repeat{Within: 30 * m}, m, m, 0, m, m)
	if got := (Repeat{Within: 30 * m}).Memory(); got != 0 {
		t.Errorf("who repeats nothing remembers for %v", got)
	}
}

// What an operator has said makes no mitigation longer, and what is to be forgotten none either, swept or not.
func TestWhatDoesNotRepeat(t *testing.T) {
	repeat := Repeat{Timeouts: []time.Duration{time.Hour}, Within: time.Hour}
	for _, test := range []struct {
		name        string
		bit         Bit
		at, timeout time.Duration
		known       bool
	}{
		{"a verdict", Bit{Start: start, End: start.Add(time.Minute), Memory: time.Hour}, 2 * time.Minute, time.Hour, true},
		{"an operator's word", Bit{Start: start, End: start.Add(time.Minute), Memory: time.Hour, By: ByAdmin}, 2 * time.Minute, time.Minute, true},
		{"a verdict that is to be forgotten", Bit{Start: start, End: start.Add(time.Minute), Memory: time.Minute}, 2 * time.Minute, time.Minute, false},
		{"nothing", Bit{}, 2 * time.Minute, time.Minute, false},
	} {
		table, now := New(0, nil), start.Add(test.at)
		table.Start(key(1), test.bit, start)
		if got := table.Timeout(key(1), time.Minute, repeat, now); got != test.timeout {
			t.Errorf("%s: %v, want %v", test.name, got, test.timeout)
		}
		_, known := table.Last(key(1), now)
		n := 0
		for range table.Remembered(now) {
			n++
		}
		if known != test.known || n > 1 || (n == 1) != test.known {
			t.Errorf("%s: known %v, %d remembered", test.name, known, n)
		}
		table.Start(key(2), test.bit, now) // as others announce it
		if b, known := table.Last(key(2), now); known != test.known || known && !b.Learned.Equal(now) {
			t.Errorf("%s: of others known %v, learned %v", test.name, known, b.Learned)
		}
	}
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

// What is remembered comes to a shard in which somebody is mitigated, who stays so.
func TestRememberedBesideABlock(t *testing.T) {
	table, now := New(0, nil), start.Add(time.Minute)
	a, b := twoOfAShard(table)
	table.Start(a, Bit{Start: now, End: now.Add(time.Minute), By: ByPoP}, now)
	table.Start(b, Bit{Start: start, End: now, By: ByPoP, Memory: time.Hour}, now)
	if _, known := table.Last(b, now); !known || table.Until(a, now).IsZero() {
		t.Errorf("blocked until %v; remembered %v", table.Until(a, now), known)
	}
}

// Of what others remember of a source, the latest stays, in whatever order it comes.
func TestLatestIsRemembered(t *testing.T) {
	ended := func(ago time.Duration) Bit {
		return Bit{Start: start.Add(-ago - time.Minute), End: start.Add(-ago), By: ByPoP, Memory: time.Hour}
	}
	for _, order := range [][]time.Duration{{2 * time.Minute, time.Minute}, {time.Minute, 2 * time.Minute}} {
		table := New(0, nil)
		for _, ago := range order {
			if table.Start(key(1), ended(ago), start) {
				t.Error("what has ended changes something")
			}
		}
		if b, _ := table.Last(key(1), start); !b.End.Equal(start.Add(-time.Minute)) {
			t.Errorf("ended %v ago, of those %v ago", start.Sub(b.End), order)
		}
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
	first, _ := t.shardOf(key(0))
	for i := uint32(1); ; i++ {
		if s, _ := t.shardOf(key(i)); s == first {
			return key(0), key(i)
		}
	}
}
