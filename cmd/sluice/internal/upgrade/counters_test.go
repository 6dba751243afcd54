package upgrade

import (
	"bufio"
	"bytes"
	"encoding/gob"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
)

func counted(t *testing.T, name string) *algorithm.Spec {
	t.Helper()
	r, err := algorithm.NewSliding(name, 100, time.Hour, 12, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestInheritance(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	gone, kept, added := counted(t, "gone"), counted(t, "kept"), counted(t, "added")
	source := func(i byte) counter.Source { return counter.SourceOf(netip.AddrFrom4([4]byte{10, 0, 0, i}), 32, 64) }
	old := counter.New(counter.Options{Counters: 1000})
	for i := range byte(10) {
		old.Reserve([]counter.Reservation{{Rule: gone, Source: source(i), Hits: 1}, {Rule: kept, Source: source(i), Hits: uint32(i) + 1}}, now)
	}
	var w bytes.Buffer
	if n, err := writeCounters(&w, old, []*algorithm.Spec{gone, kept}, now); n != 20 || err != nil {
		t.Fatal(n, err)
	}
	read := func(text []byte, most int) (*counter.Table, int, error) {
		young := counter.New(counter.Options{Counters: 1000})
		n, err := readCounters(bufio.NewReader(bytes.NewReader(text)), young, []*algorithm.Spec{added, kept}, most, now)
		if got := young.Stats().Counters; got != n {
			t.Errorf("%d counters in the table, %d taken (%v)", got, n, err)
		}
		return young, n, err
	}
	young, n, err := read(w.Bytes(), 1000)
	if n != 10 || err != nil {
		t.Fatal(n, err)
	}
	for i := range byte(10) {
		if v, _ := young.Peek(kept, source(i), now); v.Estimate != float64(i)+1 {
			t.Errorf("source %d: %v", i, v.Estimate)
		}
	}
	if _, n, err := read(w.Bytes(), 3); n != 3 || err != nil {
		t.Errorf("a small table took %d: %v", n, err)
	}
	// Of what breaks off nothing at all is learned.
	for i := range w.Len() {
		if _, n, err := read(w.Bytes()[:i], 1000); n != 0 || err == nil {
			t.Fatalf("the first %d bytes: %d counters, %v", i, n, err)
		}
	}
	var other bytes.Buffer
	if err := gob.NewEncoder(&other).Encode(countersHead{Form: countersForm + 1}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := read(other.Bytes(), 1000); err == nil || !strings.Contains(err.Error(), "the form 3") {
		t.Errorf("another form: %v", err)
	}
}
