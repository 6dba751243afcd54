package control

import (
	"fmt"
	"net/netip"
	"testing"

	"sluice/counter"
	"sluice/edge/rules/key"
	"sluice/edge/seen"
	"sluice/edge/top"
)

// The heaviest go to another process whole, and then what came since: what is said there of each source and key is true of
// both together.
func TestHandHeavy(t *testing.T) {
	f := func() *Admin {
		return New(Options{Requests: top.New(), Refusals: top.New(), NotEnforced: top.New(), Keys: seen.New()})
	}
	source := func(i int) counter.Source {
		return counter.SourceOf(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32, 64)
	}
	a := key.Counted{By: "header:X-Api-Key", Digest: counter.SourceOfDigest([16]byte{1}), Start: key.StartOf([]byte("sk_live_123456"), 7)}
	old, young := f(), f()
	exact := make(map[string]uint64)
	hit := func(p *Admin, s counter.Source, n int) {
		for range n {
			p.with.Requests.Hit(s)
		}
		exact[s.String()] += uint64(n)
	}
	for i := range 1500 {
		hit(old, source(i), i%7+1)
	}
	hit(old, source(4), 5000)
	for range 9 {
		old.with.Refusals.Hit(source(4))
		old.with.Keys.Hit(seen.NotEnforced, &a)
	}
	take := func(before HeavySent) (HeavySent, int) {
		list, sent := old.HandHeavy(before)
		for i := range list {
			young.AdoptHeavy(&list[i])
		}
		return sent, len(list)
	}
	sent, n := take(nil)
	if n > 6*1024 {
		t.Errorf("%d are handed over", n)
	}
	hit(young, source(4), 100)
	hit(old, source(4), 30)
	hit(old, source(5), 30)
	if _, n := take(sent); n < 1 || n > 2 {
		t.Errorf("%d are handed over at the end, want those of which something came", n)
	}
	for _, h := range young.TopRequests(1 << 20) {
		if is := exact[h.Source]; h.Count < is || h.Count-h.Error > is {
			t.Errorf("%+v, it had %d", h, is)
		}
	}
	if h := young.TopRequests(1)[0]; h.Source != "10.0.0.4" || h.Count-h.Error < 5000 {
		t.Errorf("the heaviest is %+v", h)
	}
	if h := young.TopRefused(9); len(h) != 1 || h[0].Count != 9 {
		t.Errorf("refused: %+v", h)
	}
	if list, _ := young.with.Keys.List(seen.NotEnforced, 9, nil); len(list) != 1 || list[0].Counted != a || list[0].Count != 9 {
		t.Errorf("keys: %+v", list)
	}
	for _, wrong := range []HeavyHanded{{In: 9, Source: "10.0.0.1", Count: 1}, {Source: "nobody", Count: 1}, {Source: "10.9.9.9"}} {
		young.AdoptHeavy(&wrong)
	}
	if fmt.Sprint(young.TopShadow(9)) != "[]" {
		t.Errorf("%+v", young.TopShadow(9))
	}
}
