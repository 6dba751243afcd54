package presence

import (
	"strings"
	"testing"
	"time"

	"sluice/pop/poptest"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// keep has an edge do at now what Keep says, and returns the commands that this took.
func keep(p *Slots, node *poptest.Node, awaited bool, now time.Time) string {
	var ops []string
	if !p.Due(now) {
		return ""
	}
	for _, c := range p.Keep(0, Edge{Name: "a"}, awaited, now) {
		r := node.Do(now, c)
		ops = append(ops, c.Op.String())
		if c.Op != wire.Get {
			continue
		}
		if c, slot, takes, _ := p.Answered(&r, Edge{Name: "a"}, 7, now, now); takes {
			r := node.Do(now, c)
			ops = append(ops, c.Op.String())
			p.Taken(slot, r.Status == wire.Done, now)
		}
	}
	return strings.Join(ops, " ")
}

// TestKeep is what an edge sends as time passes.
func TestKeep(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	node := poptest.New(0)
	p := New(secret.Of([]byte("test")), 1)
	at := func(d time.Duration) time.Time { return began.Add(d) }
	for _, step := range []struct {
		at      time.Duration
		before  func()
		awaited bool
		want    string
	}{
		{at: 0, want: "get add"},
		{at: 50 * time.Millisecond, want: ""},
		{at: 100 * time.Millisecond, want: "get"}, // it was without a slot when it asked, and has told less than half a second ago
		{at: time.Second, want: ""},
		{at: 1100 * time.Millisecond, want: "get set"},
		{at: 1200 * time.Millisecond, before: func() { p.Changed(at(1200 * time.Millisecond)) }, want: "get set"},
		{at: 2200 * time.Millisecond, awaited: true, want: "get set"},
		{at: 2300 * time.Millisecond, want: "get"}, // somebody waits: sooner
		{at: 3300 * time.Millisecond, want: "get set"},
	} {
		if step.before != nil {
			step.before()
		}
		if got := keep(&p, node, step.awaited, at(step.at)); got != step.want {
			t.Errorf("at %v: %q, want %q", step.at, got, step.want)
		}
	}
	if p.Keep(-1, Edge{}, false, at(4*time.Second)) != nil || p.Due(at(4*time.Second)) {
		t.Error("something is sent to no node, or it is tried again at once")
	}
}

// TestOverdue: the slot of an edge that nobody steps is to be filled a while after it was due, and read again once there is something to report.
func TestOverdue(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	p := New(secret.Of([]byte("test")), 1)
	if p.Overdue(0, began.Add(time.Hour)) {
		t.Error("an edge without a slot has nothing to fill")
	}
	node := poptest.New(0)
	keep(&p, node, false, began)
	if p.Wake(began) {
		t.Error("it is awake")
	}
	const late = 100 * time.Millisecond
	if p.Overdue(late, began.Add(every+late-1)) || !p.Overdue(late, began.Add(every+late)) || p.Overdue(late, began.Add(every+late+1)) {
		t.Error("overdue too soon, too late, or twice")
	}
	now := began.Add(every + 2*late)
	if p.Due(now) {
		t.Error("it reads who is there without need")
	}
	if !p.Wake(now) || !p.Due(now) {
		t.Error("it does not read who is there before it reports")
	}
	if keep(&p, node, false, now); p.Wake(now) {
		t.Error("it has read who is there, and is to again")
	}
}

// TestSlotTakenByAnother: an edge that was not the first at a free slot asks again at once.
func TestSlotTakenByAnother(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	p := New(secret.Of([]byte("test")), 1)
	p.Keep(0, Edge{}, false, began)
	if p.Taken(3, false, began); !p.Due(began) || p.Key() != "" {
		t.Errorf("due %v, key %q", p.Due(began), p.Key())
	}
	if p.Taken(4, true, began); p.Key() != p.keys[4] {
		t.Errorf("key %q", p.Key())
	}
	if p.Taken(5, true, began); p.Key() != p.keys[4] {
		t.Error("it has two")
	}
}

// TestFewSlotsAreRead while no edge comes: one that does is known with the next read all the same, and one that took any slot, as older versions do,
// when the turn has come to that.
func TestFewSlotsAreRead(t *testing.T) {
	s, now := secret.Of([]byte("test")), time.Unix(1_700_000_000, 0)
	node := poptest.New(0)
	edges := []*Slots{}
	read := func() (keys int) {
		c := edges[0].Keep(0, Edge{}, false, now)
		return len(c[0].Keys())
	}
	join := func(id uint64) {
		p := New(s, id)
		edges = append(edges, &p)
	}
	pass := func(seconds int) {
		for range seconds {
			for _, p := range edges {
				keep(p, node, false, now)
			}
			now = now.Add(time.Second)
		}
	}
	join(1)
	join(2)
	join(3)
	pass(5)
	if got := read(); got != slots+1 {
		t.Errorf("%d keys are read while edges come, want all", got)
	}
	pass(10)
	if got, most := read(), 3+near+inTurn+1; got > most {
		t.Errorf("%d keys are read, want %d at most", got, most)
	}
	join(4)
	pass(2)
	if got := edges[0].Met(""); got != 3 {
		t.Errorf("%d others are known after a read, want 3", got)
	}
	pass(15)
	older := New(s, 5)
	older.Take(slots - 2)
	known := 0
	for ; known <= slots/inTurn && edges[0].Met("") < 4; known++ {
		node.Do(now, older.Fill(0, Edge{Name: "a"}, now))
		pass(1)
	}
	if edges[0].Met("") < 4 {
		t.Errorf("an edge in any slot is not known after %d reads", known)
	}
}

// TestSlotsThatEmpty: an edge whose slot is empty for a while, because the node has restarted, another one is where edges meet, or it was held up, is
// found again as soon as it fills its slot, wherever that is.
func TestSlotsThatEmpty(t *testing.T) {
	s := secret.Of([]byte("test"))
	for _, test := range []struct {
		name   string
		paused int // seconds that all edges but the first are held up for
		node   bool
	}{
		{name: "the node restarts", node: true},
		{name: "they are held up", paused: 30},
	} {
		now, node := time.Unix(1_700_000_000, 0), poptest.New(0)
		var edges []*Slots
		for i, slot := range []int{7, 20, 33, 48, 63} {
			p := New(s, uint64(i+1))
			p.Take(slot)
			edges = append(edges, &p)
		}
		pass := func(edges []*Slots, seconds int) {
			for range seconds {
				for _, p := range edges {
					keep(p, node, false, now)
				}
				now = now.Add(time.Second)
			}
		}
		pass(edges, 30)
		if got := edges[0].Met(""); got != 4 {
			t.Fatalf("%s: %d others are known before, want 4", test.name, got)
		}
		if test.node {
			node.Kill()
			if err := node.Restart(); err != nil {
				t.Fatal(err)
			}
		}
		pass(edges[:1], test.paused)
		for range 30 {
			pass(edges, 1)
			if pass(edges[:1], 1); edges[0].Met("") != 4 {
				t.Errorf("%s: %d others are known to the first edge %v later, want 4", test.name, edges[0].Met(""), now)
				break
			}
		}
	}
}

// TestTwoEdgesInOneSlot: an edge takes a slot that looks empty because the node has restarted, before the edge whose slot it is
// has filled it again. Both notice, and have slots of their own soon.
func TestTwoEdgesInOneSlot(t *testing.T) {
	s := secret.Of([]byte("test"))
	for _, apart := range []time.Duration{0, 10 * time.Millisecond, 500 * time.Millisecond, 990 * time.Millisecond} {
		now, node := time.Unix(1_700_000_000, 0), poptest.New(0)
		a, b := New(s, 1), New(s, 2)
		a.Take(3)
		b.Take(3)
		for range 5 {
			keep(&a, node, false, now)
			keep(&b, node, false, now.Add(apart))
			now = now.Add(time.Second)
		}
		if a.Key() == "" || a.Key() == b.Key() || a.Met("") != 1 || b.Met("") != 1 {
			t.Errorf("%v apart: keys %q and %q, the edges know %d and %d others, want 1", apart, a.Key(), b.Key(), a.Met(""), b.Met(""))
		}
	}
}

// TestGarbageInASlot: what no edge has written drives nobody from a slot; the next renewal replaces it.
func TestGarbageInASlot(t *testing.T) {
	now, node := time.Unix(1_700_000_000, 0), poptest.New(0)
	p, other := New(secret.Of([]byte("test")), 1), New(secret.Of([]byte("test")), 2)
	p.Take(3)
	other.Take(4)
	for range 5 {
		node.Do(now, wire.Command{Op: wire.Set, Key: p.keys[3], Value: []byte("garbage")})
		keep(&p, node, false, now)
		keep(&other, node, false, now)
		now = now.Add(time.Second)
	}
	if p.Key() != p.keys[3] || other.Met("") != 1 {
		t.Errorf("key %q, and the other knows %d edges", p.Key(), other.Met(""))
	}
}

// TestLargePoP: edges of a full PoP read a few slots at once, and know each other all the same, one that has ended, and one that was killed.
func TestLargePoP(t *testing.T) {
	s, now, node := secret.Of([]byte("test")), time.Unix(1_700_000_000, 0), poptest.New(0)
	var edges []*Slots
	for i := range slots {
		p := New(s, uint64(i+1))
		p.Take(i)
		edges = append(edges, &p)
	}
	pass := func(seconds int) {
		for range seconds {
			for _, p := range edges {
				keep(p, node, false, now)
			}
			now = now.Add(time.Second)
		}
	}
	know := func(what string, others int) {
		t.Helper()
		for i, p := range edges {
			if got := p.Met(""); got != others {
				t.Errorf("%s: edge %d knows of %d others, want %d", what, i, got, others)
			}
		}
	}
	pass(15)
	for range 60 {
		pass(1)
		know("all are there", slots-1)
	}
	_, before := node.Asked()
	pass(60)
	_, after := node.Asked()
	if each := float64(after-before) / 60 / slots; each > atOnce+2 { // with the view, and the edge's own
		t.Errorf("an edge asks for %.1f keys a second, want %d at most", each, atOnce+2)
	}
	node.Do(now, edges[0].Fill(0, Edge{Ends: true}, now))
	edges = edges[1:]
	pass(7)
	know("one has ended", slots-2)
	for i, p := range edges {
		if !p.Ended(1) {
			t.Errorf("edge %d does not know that one has ended", i)
		}
	}
	edges = edges[1:]
	pass(3)
	know("one was killed three seconds ago", slots-2)
	pass(12)
	know("one was killed", slots-3)
	node.Do(now, wire.Command{Op: wire.Set, Key: edges[0].viewKey, Value: []byte("somebody looks")})
	pass(3)
	edges = edges[1:]
	pass(5)
	know("one was killed while somebody looks", slots-4)
}

// TestAnswersLost: an edge of a large PoP that gets no answer for a while, or asks seldom, takes none that it has not asked about for gone: a share of
// a limit would be too large.
func TestAnswersLost(t *testing.T) {
	const n = 64
	for _, test := range []struct {
		lost   int // reads in sequence
		period time.Duration
	}{{1, time.Second}, {5, time.Second}, {12, time.Second}, {0, 3 * time.Second}} {
		s, now, node := secret.Of([]byte("test")), time.Unix(1_700_000_000, 0), poptest.New(0)
		var others []*Slots
		for i := range n - 1 {
			p := New(s, uint64(i+2))
			p.Take(i + 1)
			others = append(others, &p)
		}
		p := New(s, 1)
		p.Take(0)
		for second := range 50 {
			for _, o := range others {
				node.Do(now, o.Fill(0, Edge{Name: "a"}, now))
			}
			switch since := second - 20; {
			case since >= 0 && since < test.lost:
				node.Do(now, p.Keep(0, Edge{}, false, now)[1])
			case since < 0 || time.Duration(since)*time.Second%test.period == 0:
				keep(&p, node, false, now)
			}
			if met, highest := p.Met(""), p.Highest(); second > 0 && (met != n-1 || highest != n) {
				t.Errorf("%d answers lost, a read in %v: %d others are known after %d s, and %d edges are counted, want %d and %d",
					test.lost, test.period, met, second, highest, n-1, n)
				break
			}
			now = now.Add(time.Second)
		}
	}
}
