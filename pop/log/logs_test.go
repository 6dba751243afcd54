package log

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/pop/poptest"
	"sluice/pop/record"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

var began = time.Unix(1_700_000_000, 0)

func aRecord(n byte) *record.Record {
	return &record.Record{Kind: record.Block, Source: counter.SourceOf(netip.AddrFrom4([4]byte{192, 0, 2, n}), 32, 64), Start: began, End: began.Add(time.Minute)}
}

func newLogs(name string) *Logs {
	l := New(secret.Of([]byte(name)))
	l.Grow(1)
	return l
}

// write has an edge write what has gathered, and returns how many commands that took.
func write(t *testing.T, l *Logs, node *poptest.Node, now time.Time) (commands int) {
	t.Helper()
	c, b, due := l.Write(0, now)
	for ; due; commands++ {
		r := node.Do(now, c)
		c, due = l.Written(b, &r, true, now, now)
	}
	return commands
}

// read has an edge read a node's log, and returns the sources that it has.
func read(t *testing.T, l *Logs, node *poptest.Node, now time.Time) (sources []counter.Source) {
	t.Helper()
	head := node.Do(now, l.Head(0))
	l.HeadRead(0, head.Values[0], now, now)
	for range 3 {
		c, due := l.Look(0, now)
		if !due {
			break
		}
		r := node.Do(now, c)
		records, _ := l.Looked(&r, now)
		for _, rec := range records {
			sources = append(sources, rec.Source)
		}
	}
	return sources
}

// TestWhatOneWritesAnotherReads, once: the first begins the log by the clock, all after that go on from there.
func TestWhatOneWritesAnotherReads(t *testing.T) {
	node := poptest.New(0)
	writes, reads := newLogs("test"), newLogs("test")
	read(t, reads, node, began)
	for i, commands := range []int{3, 2, 2} { // incr, add, set; then incr, set
		now := began.Add(time.Duration(i+1) * time.Second)
		writes.Append(0, aRecord(byte(i)), false)
		writes.Append(0, aRecord(byte(i+100)), false)
		if got := write(t, writes, node, now); got != commands {
			t.Errorf("item %d took %d commands, want %d", i, got, commands)
		}
		want := []counter.Source{aRecord(byte(i)).Source, aRecord(byte(i + 100)).Source}
		if got := read(t, reads, node, now); !slices.Equal(got, want) {
			t.Errorf("read %v of %v", got, want)
		}
	}
	if written, lost, forged := writes.Stats(); written != 6 || lost != 0 || forged != 0 || writes.Waiting() {
		t.Errorf("%d written, %d lost, %d forged", written, lost, forged)
	}
}

// TestBatches is what follows the answer to each command of a batch.
func TestBatches(t *testing.T) {
	const number = uint64(1_699_999_999_000_000)
	for _, test := range []struct {
		name    string
		answers []wire.Result // to one command after the other
		up      bool
		ops     string        // of the commands
		rests   time.Duration // until it is written again; 0: it is not
		lost    uint64
		forged  uint64
	}{
		{"stored", []wire.Result{{Number: number}, {}}, true, "incr set", 0, 0, 0},
		{"there is no log", []wire.Result{{Status: wire.NotThere}, {}, {}}, true, "incr add set", 0, 0, 0},
		{"another edge begins it first", []wire.Result{{Status: wire.NotThere}, {Status: wire.NotThere}, {Number: number}, {}}, true, "incr add incr set", 0, 0, 0},
		{"the node forgets it again and again", slices.Repeat([]wire.Result{{Status: wire.NotThere}}, 5), true, "incr add incr add incr", PerItem, 0, 0},
		{"a number ahead of all clocks", []wire.Result{{Number: 1 << 62}, {}}, true, "incr delete", PerItem, 0, 1},
		{"a number that is none", []wire.Result{{Number: 1}, {}}, true, "incr delete", PerItem, 0, 1},
		{"no number", []wire.Result{{Status: wire.Unsent, Err: wire.ErrNotNumber}, {}}, true, "incr delete", PerItem, 0, 1},
		{"no connection", []wire.Result{{Status: wire.Unsent}}, true, "incr", again, 0, 0},
		{"no connection for the item", []wire.Result{{Number: number}, {Status: wire.Unsent}}, true, "incr set", again, 0, 0},
		{"nobody knows", []wire.Result{{Number: number}, {Status: wire.Unknown}}, true, "incr set", PerItem, 0, 0},
		{"no memory", []wire.Result{{Number: number}, {Status: wire.Unsent, Err: wire.ErrFull}}, true, "incr set", againFull, 0, 0},
		{"the node is down", []wire.Result{{Status: wire.Unsent}}, false, "incr", 0, 2, 0},
	} {
		l := newLogs("test")
		l.Append(0, aRecord(1), true)
		l.Append(0, aRecord(2), false)
		c, b, due := l.Write(0, began)
		if !due || !b.Paid {
			t.Fatalf("%s: due %v, %+v", test.name, due, b)
		}
		var ops []string
		for i := 0; due; i++ {
			ops = append(ops, c.Op.String())
			if c.Op == wire.Delete {
				break // whose answer is not used
			}
			if _, _, again := l.Write(0, began.Add(time.Hour)); again {
				t.Errorf("%s: two batches are under way", test.name)
			}
			r := test.answers[i]
			r.Command = c
			c, due = l.Written(b, &r, test.up, began, began)
		}
		if got := strings.Join(ops, " "); got != test.ops {
			t.Errorf("%s: %s, want %s", test.name, got, test.ops)
		}
		if l.Waiting() != (test.rests > 0) {
			t.Errorf("%s: waiting %v", test.name, l.Waiting())
		}
		if test.rests > 0 {
			if in := min(l.nodes[0].writer.in(l.pause, began), time.Hour); in != test.rests {
				t.Errorf("%s: it is written again after %v, want %v", test.name, in, test.rests)
			}
			if _, b, due := l.Write(0, began.Add(test.rests)); !due || !b.Paid || record.Count(b.text) != 2 {
				t.Errorf("%s: it is not written again: %+v", test.name, b)
			}
		}
		if _, lost, forged := l.Stats(); lost != test.lost || forged != test.forged {
			t.Errorf("%s: %d lost, %d forged", test.name, lost, forged)
		}
	}
}

// TestEdgesTakeTurns: the more share the tier, the longer each waits between two batches; what gathers meanwhile goes together, but for more than
// an item holds.
func TestEdgesTakeTurns(t *testing.T) {
	l := newLogs("test")
	l.SetEdges(40)
	l.Append(0, aRecord(1), false)
	node := poptest.New(0)
	write(t, l, node, began)
	for range 1000 {
		l.Append(0, aRecord(2), true)
	}
	if in := l.In(time.Second, began); in != 40*PerItem {
		t.Errorf("the next is written in %v", in)
	}
	if write(t, l, node, began.Add(40*PerItem-1)) != 0 || write(t, l, node, began.Add(40*PerItem)) != 2 || !l.Waiting() {
		t.Error("no turn was taken, or more than an item holds")
	}
	waiting := len(l.nodes[0].writer.records)
	for range 401 {
		l.Append(0, aRecord(3), true)
	}
	if l.Append(0, aRecord(3), false); len(l.nodes[0].writer.records) != waiting+401*(len(aRecord(3).Seal(l.secret))+2) {
		t.Error("what nobody has paid for is not left out behind an item that waits")
	}
	for range 40_000 {
		l.Append(0, aRecord(3), true)
	}
	if _, lost, _ := l.Stats(); lost == 0 {
		t.Error("more has gathered than a slow node can take")
	}
}

// TestForgedItems: what no edge of the PoP wrote is counted, and not returned.
func TestForgedItems(t *testing.T) {
	node := poptest.New(0)
	other, reads := newLogs("other"), newLogs("test")
	sealed := aRecord(1).Seal(other.secret)
	own := aRecord(2).Seal(reads.secret)
	read(t, reads, node, began)
	node.Do(began, wire.Command{Op: wire.Set, Key: reads.headKey, Value: []byte("1699999999995904")})
	number := uint64(1_699_999_999_995_904)
	item := record.Append(record.Append(nil, sealed), own)
	node.Do(began, wire.Command{Op: wire.Set, Key: reads.secret.LogItemKey(number), Value: append(item, 0, 200, 1)})
	if got := read(t, reads, node, began.Add(time.Second)); len(got) != 1 || got[0] != aRecord(2).Source {
		t.Errorf("read %v", got)
	}
	if _, _, forged := reads.Stats(); forged != 2 {
		t.Errorf("%d forged, want a record and an end", forged)
	}
	for _, head := range []string{"x", "0", "4611686018427387904"} {
		if reads.HeadRead(0, []byte(head), began, began) || reads.HeadIsCurrent(0, []byte(head), began) {
			t.Errorf("a head of %s", head)
		}
	}
	if _, _, forged := reads.Stats(); forged != 5 {
		t.Errorf("%d forged", forged)
	}
}
