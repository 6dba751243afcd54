package placement_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/member"
	"sluice/pop/placement"
	"sluice/pop/secret"
)

var began = time.Unix(1_700_000_000, 0)

func newNodes(t *testing.T, list ...string) *placement.Nodes {
	t.Helper()
	n, err := placement.New(list, secret.Of([]byte("test")), began)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func sources() (list []counter.Source) {
	for i := range 200 {
		list = append(list, counter.SourceOf(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 32, 64))
	}
	return list
}

func TestBadLists(t *testing.T) {
	n := newNodes(t, "node0:11211")
	for _, list := range [][]string{{}, {""}, {"node0"}, {"node0:11211", "NODE0:011211"}} {
		if n.Set(list) == nil {
			t.Errorf("%q was accepted", list)
		}
		if _, err := placement.New(list, secret.Of([]byte("test")), began); err == nil {
			t.Errorf("%q was accepted at first", list)
		}
	}
}

// answer has all nodes but some answer probes until a time.
func answer(n *placement.Nodes, from, until time.Time, silent ...int) (lost []int) {
	for now := from; now.Before(until); now = now.Add(20 * time.Millisecond) {
		n.Advance(now)
		for i := range n.Len() {
			due, gone := n.Probe(i, true, now)
			if due && !slices.Contains(silent, i) && n.Probed(i, true, 0, now) {
				gone = true
			}
			if gone {
				lost = append(lost, i)
			}
		}
	}
	return lost
}

// TestLostNodeMovesItsOwnSources, no others, and they return when it has answered everything for a second.
func TestLostNodeMovesItsOwnSources(t *testing.T) {
	n := newNodes(t, "node0:11211", "node1:11211", "node2:11211")
	before := make(map[counter.Source]int)
	var on [3]int
	for _, s := range sources() {
		before[s] = n.NodeOf(s)
		on[before[s]]++
	}
	if slices.Min(on[:]) < 40 {
		t.Errorf("sources are spread as %v", on)
	}
	at := began.Add(2 * time.Second)
	if lost := answer(n, began, at); len(lost) > 0 || !n.Up() {
		t.Fatalf("nodes that answer are lost: %v", lost)
	}
	n.Moved()
	if lost := answer(n, at, at.Add(time.Second), 1); !slices.Equal(lost, []int{1}) || n.IsUp(1) || !slices.Equal(n.Health(), []bool{true, false, true}) {
		t.Fatalf("lost %v, health %v", lost, n.Health())
	}
	if !n.Moved() || n.Moved() {
		t.Error("a lost node moves its sources, once")
	}
	for s, was := range before {
		if now := n.NodeOf(s); was != 1 && now != was || now == 1 {
			t.Fatalf("%v moved from %d to %d", s, was, now)
		}
	}
	at = at.Add(time.Second)
	if answer(n, at, at.Add(900*time.Millisecond)); n.IsUp(1) {
		t.Error("a node is up again before a second of answers")
	}
	at = at.Add(900 * time.Millisecond)
	answer(n, at, at.Add(time.Second))
	for s, was := range before {
		if now := n.NodeOf(s); now != was {
			t.Fatalf("%v is at %d, and was at %d", s, now, was)
		}
	}
}

// TestProbes: a table of what a node answers, and when it is held for lost.
func TestProbes(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name    string
		stepped time.Duration // between two steps
		ok      func(since time.Duration) bool
		down    time.Duration // 0: it is never held for lost
	}{
		{"answers", 20 * ms, func(time.Duration) bool { return true }, 0},
		{"refuses from the start", 20 * ms, func(time.Duration) bool { return false }, 360 * ms},
		{"misses some", 20 * ms, func(d time.Duration) bool { return d/ms%300 > 200 }, 0},
		{"refuses an edge that is held up again and again", 200 * ms, func(time.Duration) bool { return false }, 800 * ms},
		{"refuses an edge that is held up for long", 5 * time.Second, func(d time.Duration) bool { return d >= 5*time.Second }, 0},
	} {
		n := newNodes(t, "node0:11211")
		down := time.Duration(0)
		for d := time.Duration(0); d < max(2*time.Second, 4*test.stepped) && down == 0; d += test.stepped {
			n.Advance(began.Add(d))
			if due, lost := n.Probe(0, true, began.Add(d)); lost || due && n.Probed(0, test.ok(d), 0, began.Add(d)) {
				down = d
			}
		}
		if down != test.down {
			t.Errorf("%s: lost after %v, want %v", test.name, down, test.down)
		}
	}
}

// TestTransition: while it lasts, a source whose place changes has both; afterwards the new one alone, and a node of the old list is left.
func TestTransition(t *testing.T) {
	n := newNodes(t, "node0:11211", "node1:11211")
	was := make(map[counter.Source]int)
	for _, s := range sources() {
		was[s] = n.NodeOf(s)
	}
	if err := n.Set([]string{"NODE1:11211", "node2:11211"}); err != nil {
		t.Fatal(err)
	}
	if left := n.Advance(began); left != nil || n.Len() != 3 {
		t.Fatalf("left %v of %d", left, n.Len())
	}
	want := []member.Node{{Address: "node0:11211", Up: true, Leaving: true}, {Address: "node1:11211", Up: true}, {Address: "node2:11211", Up: true, Joining: true}}
	if got := n.Members(); !slices.Equal(got, want) {
		t.Errorf("members %+v, want %+v", got, want)
	}
	next := make(map[counter.Source]int)
	for s, first := range was {
		places := n.NodesOf(s)
		if places[0] != first {
			t.Fatalf("%v is at %v, and was at %d", s, places, first)
		}
		if next[s] = places[len(places)-1]; next[s] == 0 {
			t.Fatalf("%v goes to %v, of the old list", s, places)
		}
	}
	if left := n.Advance(began.Add(placement.Transition - 1)); left != nil {
		t.Errorf("left %v before the end", left)
	}
	if left := n.Advance(began.Add(placement.Transition)); !slices.Equal(left, []int{0}) || n.InUse(0) || n.IsUp(0) {
		t.Errorf("left %v at the end", left)
	}
	for s, node := range next {
		if got := n.NodesOf(s); !slices.Equal(got, []int{node}) {
			t.Fatalf("%v is at %v, want %d", s, got, node)
		}
	}
}

// TestSameListIsNoTransition, in whatever order and spelling.
func TestSameListIsNoTransition(t *testing.T) {
	n := newNodes(t, "node0:11211", "node1:11211")
	if err := n.Set([]string{"Node1.:11211", "node0:011211"}); err != nil {
		t.Fatal(err)
	}
	if left := n.Advance(began); left != nil {
		t.Errorf("left %v", left)
	}
	if got := fmt.Sprint(n.Members()); got != "[{node0:11211 true false false} {node1:11211 true false false}]" {
		t.Error(got)
	}
}

// TestFull: an edge that finds the PoP full counts alone, and knows since when.
func TestFull(t *testing.T) {
	n := newNodes(t, "node0:11211")
	s := sources()[0]
	n.SetFull(true)
	n.NoteAlone(began.Add(time.Second))
	n.NoteAlone(began.Add(2 * time.Second))
	if n.NodeOf(s) != -1 || n.Bucket(7) != -1 || n.Up() || !n.Alone().Equal(began.Add(time.Second)) || !n.Moved() {
		t.Errorf("place %d, bucket %d, up %v, alone since %v", n.NodeOf(s), n.Bucket(7), n.Up(), n.Alone())
	}
	if n.Fixed() != 0 {
		t.Error("it is to find the node where edges meet all the same")
	}
	n.SetFull(false)
	n.NoteAlone(began.Add(3 * time.Second))
	if n.NodeOf(s) != 0 || !n.Alone().IsZero() {
		t.Errorf("place %d, alone since %v", n.NodeOf(s), n.Alone())
	}
}

// TestBucketsStay where they are while their node is down.
func TestBucketsStay(t *testing.T) {
	n := newNodes(t, "node0:11211", "node1:11211")
	var before []int
	for b := range uint32(64) {
		before = append(before, n.Bucket(b))
	}
	if answer(n, began, began.Add(time.Second), 0); n.IsUp(0) {
		t.Fatal("node 0 is up")
	}
	for b, was := range before {
		if got := n.Bucket(uint32(b)); got != was {
			t.Errorf("bucket %d moved from %d to %d", b, was, got)
		}
	}
}

// TestSlowNode: a node that answers late is down while another does better, and is not where all are late.
func TestSlowNode(t *testing.T) {
	late := func(n *placement.Nodes, from time.Time, by ...time.Duration) (up []bool) {
		sent := make([]time.Time, len(by))
		for now := from; now.Before(from.Add(5 * time.Second)); now = now.Add(10 * time.Millisecond) {
			n.Advance(now)
			for i, d := range by {
				if !sent[i].IsZero() && now.Sub(sent[i]) >= d {
					sent[i] = time.Time{}
					n.Probed(i, true, 0, now)
				}
				if due, _ := n.Probe(i, true, now); due {
					sent[i] = now
				}
			}
		}
		return slices.Clone(n.Health())
	}
	for _, c := range []struct {
		by   []time.Duration
		want []bool
	}{
		{[]time.Duration{time.Millisecond, 200 * time.Millisecond}, []bool{true, false}},
		{[]time.Duration{200 * time.Millisecond, 200 * time.Millisecond}, []bool{true, true}},
		{[]time.Duration{100 * time.Millisecond, 100 * time.Millisecond}, []bool{true, true}},
	} {
		n := newNodes(t, "node0:11211", "node1:11211")
		if up := late(n, began, c.by...); !slices.Equal(up, c.want) {
			t.Errorf("answers after %v: up %v, want %v", c.by, up, c.want)
		}
		if up := late(n, began.Add(time.Minute), time.Millisecond, time.Millisecond); !up[0] || !up[1] {
			t.Errorf("answers after %v, then at once: up %v", c.by, up)
		}
	}
}

// TestAllNodesBack: after all were down, each is up with its first answer.
func TestAllNodesBack(t *testing.T) {
	n := newNodes(t, "node0:11211", "node1:11211")
	if lost := answer(n, began, began.Add(time.Second), 0, 1); len(lost) != 2 {
		t.Fatalf("lost %v", lost)
	}
	back := began.Add(3 * time.Second)
	answer(n, began.Add(time.Second), back, 0, 1)
	answer(n, back, back.Add(100*time.Millisecond))
	if up := n.Health(); !up[0] || !up[1] {
		t.Errorf("100 ms after all are back, up are %v", up)
	}
}

// TestSilentSince: a node owes an answer since the first probe that had none, however many failed since, unless it has carried something out.
func TestSilentSince(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name    string
		carried time.Duration // when it last did
		down    time.Duration
	}{
		{"silent", 0, 360 * ms},
		{"carried something out", 200 * ms, 560 * ms},
	} {
		n := newNodes(t, "node0:11211")
		down, sent := time.Duration(0), time.Duration(-1)
		for d := time.Duration(0); d < 2*time.Second && down == 0; d += 20 * ms {
			n.Advance(began.Add(d))
			if c.carried > 0 && d == c.carried {
				n.Carried(0)
			}
			if sent >= 0 && d-sent >= 260*ms { // its time-out
				if sent = -1; n.Probed(0, false, 0, began.Add(d)) {
					down = d
				}
			}
			due, lost := n.Probe(0, true, began.Add(d))
			if due {
				sent = d
			}
			if lost {
				down = d
			}
		}
		if down != c.down {
			t.Errorf("%s: lost after %v, want %v", c.name, down, c.down)
		}
	}
}
