package events

import (
	"slices"
	"testing"
	"time"
)

func TestRing(t *testing.T) {
	at := time.Unix(1000, 0)
	var notified []uint64
	l := New(3, func(e Event) { notified = append(notified, e.Number) })
	if got := l.Since(0); len(got) != 0 {
		t.Errorf("an empty log has %v", got)
	}
	for i := range 5 {
		l.Add(Event{Time: at.Add(time.Duration(i) * time.Second), Kind: Operator})
	}
	numbers := func(list []Event) (n []uint64) {
		for _, e := range list {
			n = append(n, e.Number)
		}
		return n
	}
	for _, c := range []struct {
		since uint64
		want  []uint64
	}{{0, []uint64{5, 4, 3}}, {2, []uint64{5, 4, 3}}, {4, []uint64{5}}, {5, nil}, {99, nil}} {
		if got := numbers(l.Since(c.since)); !equal(got, c.want) {
			t.Errorf("since %d: %v, want %v", c.since, got, c.want)
		}
	}
	if got := numbers(l.After(at.Add(3 * time.Second))); !equal(got, []uint64{5}) {
		t.Errorf("after the fourth: %v", got)
	}
	if !equal(notified, []uint64{1, 2, 3, 4, 5}) {
		t.Errorf("got %v", notified)
	}
}

func equal(a, b []uint64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Clients cannot push out what operators did: of what they cause, Rate are kept in a second, and all are counted.
func TestSampling(t *testing.T) {
	at := time.Unix(1000, 0)
	l := New(100, nil)
	l.Add(Event{Time: at, Kind: Operator, Text: "block"})
	for i := range 10_000 {
		l.Add(Event{Time: at.Add(time.Duration(i) * 100 * time.Microsecond), Kind: Block})
	}
	for range 50 {
		l.Add(Event{Time: at, Kind: Operator})
	}
	if n := l.Count(Block); n != 10_000 {
		t.Errorf("%d blocks counted", n)
	}
	if n := l.Count(Operator); n != 51 {
		t.Errorf("%d words counted", n)
	}
	list := l.Since(0)
	if len(list) != 51+Rate || list[len(list)-1].Text != "block" {
		t.Errorf("%d kept, the oldest is %+v", len(list), list[len(list)-1])
	}
	if l.Wants(Block, at.Add(999*time.Millisecond)) || !l.Wants(Block, at.Add(time.Second)) || !l.Wants(Operator, at) {
		t.Error("what is wanted is not what is kept")
	}
	l.Add(Event{Time: at.Add(time.Second), Kind: Block})
	if e := l.Since(0)[0]; e.Skipped != 10_000-Rate+1 || l.Count(Block) != 10_002 {
		t.Errorf("%d skipped, %d counted", e.Skipped, l.Count(Block))
	}
}

// Without a log nothing happens.
func TestNil(t *testing.T) {
	var l *Log
	l.Add(Event{Kind: Block})
	if l.Wants(Block, time.Time{}) || l.Count(Block) != 0 || len(l.Since(0)) != 0 {
		t.Error("a nil log has events")
	}
}

// An attack that goes on for hours pushes out what it caused itself, and nothing else; all that is kept comes in order.
func TestAttackKeepsTheRest(t *testing.T) {
	at := time.Unix(1000, 0)
	l := New(100, nil)
	l.Add(Event{Time: at, Kind: Operator, Text: "allowed"})
	for i := range 10_000 {
		at = at.Add(time.Second)
		l.Add(Event{Time: at, Kind: Block})
		if i == 9_990 {
			l.Add(Event{Time: at, Kind: Node})
		}
	}
	list := l.Since(0)
	if n := len(list); n != 102 || list[n-1].Text != "allowed" {
		t.Errorf("%d are kept, the oldest is %+v", n, list[n-1])
	}
	for i := range list[1:] {
		if list[i].Number <= list[i+1].Number {
			t.Errorf("number %d before %d", list[i].Number, list[i+1].Number)
		}
	}
	if list[9].Kind != Node {
		t.Errorf("the tenth is %+v", list[9])
	}
	if n := len(l.Since(list[4].Number)); n != 4 {
		t.Errorf("%d after the fifth", n)
	}
}

// What another process kept comes before what this one has, in its own numbers; what comes later is the newest. None of it is
// counted or passed on again, and what this version does not know is left out.
func TestRestore(t *testing.T) {
	at := time.Unix(1000, 0)
	old := New(3, nil)
	for _, text := range []string{"first", "second", "third", "fourth"} {
		old.Add(Event{Time: at, Kind: Operator, Text: text})
	}
	old.Add(Event{Time: at, Kind: Block, Text: "block"})
	notified := 0
	l := New(3, func(Event) { notified++ })
	l.Add(Event{Time: at, Kind: List, Text: "own"})
	f := func(want ...string) {
		t.Helper()
		var texts []string
		last := ^uint64(0)
		for _, e := range l.Since(0) {
			texts = append(texts, e.Text)
			if e.Number >= last {
				t.Errorf("number %d follows %d", e.Number, last)
			}
			last = e.Number
		}
		if !slices.Equal(texts, want) {
			t.Errorf("%q, want %q", texts, want)
		}
	}
	l.Restore(append([]Event{{Number: 6, Time: at, Kind: "of a newer version"}}, old.Since(0)...))
	f("own", "block", "fourth", "third")
	if own := l.Since(5); len(own) != 1 || own[0].Number != 6 {
		t.Errorf("who has read five events of the process before reads on with %+v", own)
	}
	l.Adopt(Event{Number: 6, Time: at, Kind: Process, Text: "draining"})
	l.Adopt(Event{Number: 7, Time: at, Kind: "of a newer version"})
	f("draining", "own", "block", "fourth")
	if notified != 1 || l.Count(Operator) != 0 {
		t.Errorf("%d notified, %d counted", notified, l.Count(Operator))
	}
	l = New(3, nil)
	l.Add(Event{Time: at, Kind: List, Text: "own"})
	l.Restore(nil) // an older version sends none
	f("own")
}
