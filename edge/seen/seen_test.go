package seen

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unsafe"

	"sluice/counter"
	"sluice/edge/rules/key"
)

func digest(n uint64) counter.Source {
	var b [16]byte
	random := rand.New(rand.NewPCG(n, 1))
	binary.LittleEndian.PutUint64(b[:], random.Uint64())
	binary.LittleEndian.PutUint64(b[8:], n)
	return counter.SourceOfDigest(b)
}

func address(n byte) counter.Source {
	return counter.SourceOf(netip.AddrFrom4([4]byte{192, 0, 2, n}), 32, 64)
}

// The heaviest keys are found among many more than there is room for, with the error that they state; two that are the same but of other
// things are two; and what is halved keeps its order.
func TestHeaviest(t *testing.T) {
	k, exact, now := New(), make(map[counter.Source]uint64), time.Unix(1e9, 0)
	random := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		n := random.Uint64N(50_000)
		if random.Uint32N(4) == 0 {
			n = 1_000_000 + min(random.Uint64N(10), random.Uint64N(10))
		}
		k.Request(&key.Counted{By: "header:A", Digest: digest(n)}, address(1), now)
		exact[digest(n)]++
	}
	heaviest := func(kind Kind, n int, by func(string) bool) []Heavy {
		list, _ := k.List(kind, n, by)
		return list
	}
	all := heaviest(Requests, 1<<20, nil)
	if len(all) > topSets*ways {
		t.Errorf("%d entries", len(all))
	}
	for _, h := range all {
		if n := exact[h.Digest]; h.Count < n || h.Count-h.Error > n {
			t.Errorf("%v: %d, of which %d in doubt; it had %d", h.Digest, h.Count, h.Error, n)
		}
	}
	first := heaviest(Requests, 1, nil)[0]
	if first.Digest != digest(1_000_000) {
		t.Errorf("the heaviest is %v", first)
	}
	k.Fade()
	if again := heaviest(Requests, 1, nil)[0]; again.Counted != first.Counted || again.Count != first.Count/2 {
		t.Errorf("%+v became %+v", first, again)
	}
	k.Hit(Refused, &key.Counted{By: "header:B", Digest: digest(7), Start: key.StartOf([]byte("k-4711"), 3)})
	k.Hit(Refused, &key.Counted{By: "header:A", Digest: digest(7)})
	if b := heaviest(Refused, 9, func(by string) bool { return by == "header:B" }); len(b) != 1 || b[0].Start.String() != "k-4" || b[0].Count != 1 {
		t.Errorf("by one key: %+v", b)
	}
	if of := k.Start("header:B", digest(7)); of.String() != "k-4" || k.Start("header:A", digest(7)) != (key.Start{}) {
		t.Errorf("shown of it: %v", of)
	}
}

// An address's latest keys are known, however many others come; and one that sends many has its latest.
func TestFrom(t *testing.T) {
	k, at := New(), time.Unix(1e9, 0)
	of := func(n uint64) *key.Counted { return &key.Counted{By: "jwt:sub", Digest: digest(n)} }
	k.Request(of(1), address(1), at)
	k.Request(of(2), address(1), at.Add(2*time.Second))
	k.Request(of(1), address(2), at.Add(3*time.Second))
	k.Request(of(1), address(1), at.Add(4*time.Second))
	list := k.From(address(1))
	if len(list) != 2 || list[0].Digest != digest(1) || !list[0].Last.Equal(at.Add(4*time.Second)) || list[1].Digest != digest(2) {
		t.Errorf("%+v", list)
	}
	for n := range uint64(1000) {
		k.Request(of(n), address(3), at.Add(time.Duration(n)*time.Minute))
	}
	if list := k.From(address(3)); len(list) != ways || list[0].Digest != digest(999) || list[ways-1].Digest != digest(1000-ways) {
		t.Errorf("%+v", list)
	}
	if list := k.From(address(9)); len(list) != 0 {
		t.Errorf("one that was never seen: %+v", list)
	}
}

// What is remembered has the size that the package says, and a request allocates nothing.
func TestBounds(t *testing.T) {
	k := New()
	if size := unsafe.Sizeof(*k); size > 800_000 {
		t.Errorf("%d bytes", size)
	}
	one := &key.Counted{By: "header:A", Digest: digest(1), Start: key.StartOf([]byte(strings.Repeat("x", 100)), 16)}
	if n := testing.AllocsPerRun(100, func() { k.Request(one, address(1), time.Unix(1e9, 0)) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRequest(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			k, now := New(), time.Now()
			list := make([]key.Counted, n)
			for i := range list {
				list[i] = key.Counted{By: "header:X-Api-Key", Digest: digest(uint64(i))}
			}
			for i := 0; b.Loop(); i++ {
				k.Request(&list[i%n], address(byte(i%n)), now)
			}
		})
	}
}
