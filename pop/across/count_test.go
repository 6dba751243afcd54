package across

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/counter"
)

func count(i int) Count {
	return Count{Rule: "login", Counts: "login source enforce", Source: source(i), Window: time.Minute, Began: noon, Sub: 5 * time.Second, Hits: []uint32{1, 0, 60}}
}

// Counts come with blocks or without them, and one that no version here could have written leaves the others as they are.
func TestCounts(t *testing.T) {
	key := KeyOf([]byte("nobody can guess this"))
	in := NewInbox("ams1", []string{"fra1"})
	good, err := json.Marshal(count(1))
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Appendf(nil, `{"from":"fra1","to":"ams1","edge":"e","at":%q,"blocks":null,"counts":[{"source":"asn:1"},7,{"source":"192.0.2.1","window":1,"sub":2},`+
		`{"source":"192.0.2.1","window":1,"sub":0},{"source":"192.0.2.1","window":9,"sub":1,"hits":[-1]},%s]}`, noon.Format(time.RFC3339Nano), good)
	m, over, err := in.Take([]Key{key}, body, hex.EncodeToString(key.mac(body)), noon)
	if err != nil || over != (Over{}) || len(m.Blocks) != 0 {
		t.Fatal(m, over, err)
	}
	want := append(make([]Count, 5), count(1))
	if d := cmp.Diff(want, m.Counts, cmp.Comparer(func(a, b counter.Source) bool { return a == b })); d != "" {
		t.Error(d)
	}
}

// Counts have a bound of their own: however many come, blocks do.
func TestCountsTakeNoRoomOfBlocks(t *testing.T) {
	key := KeyOf([]byte("nobody can guess this"))
	in := NewInbox("ams1", []string{"fra1"})
	for i := range 5 {
		at := noon.Add(time.Duration(i))
		m := Message{From: "fra1", To: "ams1", Edge: "e", At: at, Blocks: blocks(10)}
		for n := range MaxCounts {
			m.Counts = append(m.Counts, count(n))
		}
		body, mac := key.Seal(&m)
		if len(body) > MaxBytes {
			t.Errorf("a message of %d bytes", len(body))
		}
		got, over, err := in.Take([]Key{key}, body, mac, at)
		want := MaxCounts
		if i*MaxCounts >= Burst {
			want = 0
		}
		if err != nil || len(got.Counts) != want || over != (Over{Counts: MaxCounts - want}) || len(got.Blocks) != 10 {
			t.Errorf("message %d: %d counts, %d blocks, %v over, %v", i, len(got.Counts), len(got.Blocks), over, err)
		}
	}
}

// Of one source the latest count waits, and no more than there is room for.
func TestOutboxKeepsTheLatestCount(t *testing.T) {
	o := NewOutbox()
	first, latest := count(1), count(1)
	latest.Hits = []uint32{70}
	o.AddCount(first)
	o.AddCount(latest)
	if got := o.TakeCounts(noon); len(got) != 1 || got[0].Hits[0] != 70 || len(o.TakeCounts(noon)) != 0 {
		t.Error(got)
	}
	for i := range Waiting + 10 {
		o.AddCount(count(i))
	}
	if len(o.counts) != Waiting {
		t.Errorf("%d wait", len(o.counts))
	}
	if got := o.TakeCounts(noon.Add(66 * time.Second)); len(got) != 0 {
		t.Errorf("%d that no window sees", len(got))
	}
}
