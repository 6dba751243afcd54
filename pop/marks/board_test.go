package marks

import (
	"testing"
	"time"

	"sluice/pop/poptest"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// TestLook is what an edge sends a node: a read every two seconds, then its own mark; at its end it takes that off. An edge without the name of a PoP
// leaves none.
func TestLook(t *testing.T) {
	node := poptest.New(0)
	b := New("fra1", secret.Of([]byte("test")), 1, began)
	b.Grow(1)
	jitter := func(d time.Duration) time.Duration { return d - time.Millisecond }
	if _, due := b.Withdraw(0); due {
		t.Error("a mark that was never left")
	}
	for d := time.Duration(0); d < 10*time.Second; d += 100 * time.Millisecond {
		now := began.Add(d)
		c, due := b.Look(0, jitter, now)
		if due != (d%Every == 0) {
			t.Fatalf("at %v: due %v", d, due)
		}
		if !due {
			continue
		}
		r := node.Do(now, c)
		c, follows := b.Looked(&r, "a", "192.0.2.1:80", now, now)
		if !follows || c.Op != wire.Set {
			t.Fatalf("at %v: %+v", d, c)
		}
		node.Do(now, c)
		if node.Items() != 1 {
			t.Errorf("at %v: %d marks", d, node.Items())
		}
	}
	if _, follows := b.Looked(&wire.Result{Status: wire.Unsent}, "a", "", began, began); follows {
		t.Error("a node that did not answer gets a mark")
	}
	if c, due := b.Withdraw(0); !due || node.Do(began, c).Status != wire.Done || node.Items() != 0 {
		t.Error("the mark stays")
	}
	if _, due := b.Withdraw(0); due {
		t.Error("the mark is taken off twice")
	}
	none := New("", secret.Of([]byte("test")), 1, began)
	none.Grow(1)
	if _, due := none.Look(0, jitter, began); due || len(none.Secrets().Digests) != 1 {
		t.Error("an edge without a PoP looks for marks, or does not know its secret")
	}
}

// TestNote: edges that count under another secret is shown once it is noted, and the trial is told of it.
func TestNote(t *testing.T) {
	now := began
	b := New("fra1", secret.Of([]byte("test")), 1, now)
	values := make([][]byte, slots)
	for i := range 2 {
		values[i] = New("fra1", secret.Of([]byte("other")), uint64(i+2), now).Own(now, []string{"b", "c"}[i], "")
	}
	b.Read(values, now, now)
	if len(b.Secrets().Apart) != 0 {
		t.Error("shown before it is noted")
	}
	if b.Note(0, now); !b.Secrets().Held || len(b.Secrets().Apart) == 0 {
		t.Errorf("%+v", b.Secrets())
	}
	if b.Note(1, now); b.Secrets().Held {
		t.Error("an edge that has met another under its secret is held back")
	}
}

// TestMarksThatEmpty: once few slots are read, an edge whose mark goes with a restart of the node is known by the next that it leaves, wherever that is.
func TestMarksThatEmpty(t *testing.T) {
	node, now := poptest.New(0), began
	var edges []*Detector
	for i, id := range []uint64{3, 27, 50} {
		b := New("fra1", secret.Of([]byte{byte(i)}), id, now)
		b.Grow(1)
		edges = append(edges, b)
	}
	pass := func(rounds int) {
		for range rounds {
			for i, b := range edges {
				c, due := b.Look(0, func(d time.Duration) time.Duration { return d }, now)
				if !due {
					t.Fatal("no look is due")
				}
				r := node.Do(now, c)
				c, _ = b.Looked(&r, string(rune('a'+i)), "", now, now)
				node.Do(now, c)
			}
			now = now.Add(Every)
		}
	}
	pass(60)
	if c, _ := edges[0].Look(0, func(d time.Duration) time.Duration { return d }, now); len(c.Keys()) > 3+inTurn {
		t.Errorf("%d marks are read", len(c.Keys()))
	}
	now = now.Add(Every)
	node.Kill()
	if err := node.Restart(); err != nil {
		t.Fatal(err)
	}
	for range slots / inTurn {
		pass(1)
		if got := edges[0].Apart(now); len(got) != 2 {
			t.Errorf("%d edges are known to count apart at %v, want 2", len(got), now)
		}
	}
}
