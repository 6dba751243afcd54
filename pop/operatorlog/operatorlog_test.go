package operatorlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/mitigation"
	"sluice/pop/secret"
)

var began = time.Unix(1_700_000_000, 0)

func sourceOf(n int) counter.Source {
	return counter.SourceOf(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(n)))), 32, 64)
}

func blocking(n int, end time.Duration) Order {
	return Order{Rule: "login", Source: sourceOf(n), Kind: Block, Start: began, End: began.Add(end), Reason: "because"}
}

func lifting(n int) Order {
	return Order{Rule: "login", Source: sourceOf(n), Kind: Lift, Start: began}
}

// of is the entries of a list, as they travel.
func (l *List) of(t testing.TB, now time.Time) []Entry {
	t.Helper()
	list, _, err := Decode(secret.Of([]byte("test")), l.Encode(secret.Of([]byte("test")), now))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestMergeIsAJoin: lists that say the same things in different orders, through different hands and any number of times become one.
func TestMergeIsAJoin(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var lists [4]List
		now := began
		for range 200 {
			now = now.Add(time.Millisecond)
			i := rng.IntN(len(lists))
			switch rng.IntN(4) {
			case 0:
				lists[i].Merge(lists[rng.IntN(len(lists))].of(t, now), now)
			case 1:
				_, _ = lists[i].Add(lifting(rng.IntN(10)), uint64(i), time.Hour, now)
			default:
				_, _ = lists[i].Add(blocking(rng.IntN(10), time.Duration(1+rng.IntN(3600))*time.Second), uint64(i), time.Hour, now)
			}
		}
		for range 2 { // once more, for what the last ones only heard late
			for i := range lists {
				for _, j := range rng.Perm(len(lists)) {
					lists[i].Merge(lists[j].of(t, now), now)
				}
			}
		}
		want := lists[0].Encode(secret.Secret{}, now)
		for i := range lists {
			if !bytes.Equal(lists[i].Encode(secret.Secret{}, now), want) {
				t.Fatalf("seed %d: list %d differs", seed, i)
			}
			if changed, lacks := lists[i].Merge(lists[0].of(t, now), now); len(changed) > 0 || lacks {
				t.Fatalf("seed %d: merged with itself: %d changes, lacks %v", seed, len(changed), lacks)
			}
			size := 0
			for _, e := range lists[i].entries {
				size += e.size()
			}
			if size != lists[i].bytes || size != len(want)-len(magic)-4-secret.MACSize {
				t.Fatalf("seed %d: %d bytes, counted %d, encoded %d", seed, size, lists[i].bytes, len(want))
			}
		}
	}
}

// TestNewestWordStands, whichever list it is in.
func TestNewestWordStands(t *testing.T) {
	var a, b List
	now := began
	at := func(w *List, n int) *Entry { return w.entries[Name{Rule: "login", Source: sourceOf(n)}] }
	_, _ = a.Add(blocking(1, time.Hour), 1, time.Hour, now)
	b.Merge(a.of(t, now), now)
	_, _ = b.Add(lifting(1), 2, 24*time.Hour, now)
	epoch := at(&b, 1).Epoch
	_, _ = b.Add(blocking(1, time.Minute), 2, 24*time.Hour, now) // a block after a lift does not bring back what was lifted
	if at(&b, 1).Epoch != epoch || epoch == 0 {
		t.Errorf("epoch %d, want %d", at(&b, 1).Epoch, epoch)
	}
	// Somebody who has not heard of the lift says something with a clock that is ahead.
	_, _ = a.Add(blocking(1, 2*time.Hour), 1, time.Hour, now.Add(time.Hour))
	a.Merge(b.of(t, now), now)
	if e := at(&a, 1); e.Epoch != epoch || e.End.Sub(now) != 2*time.Hour {
		t.Errorf("epoch %d, want %d; end %v, want that of the newer block", e.Epoch, epoch, e.End.Sub(now))
	}
	// A short block takes the place of a long one, and must outlive it, or an edge that was away would bring that back.
	var away, here List
	_, _ = away.Add(blocking(2, time.Hour), 1, time.Hour, now)
	here.Merge(away.of(t, now), now)
	_, _ = here.Add(blocking(2, time.Second), 2, time.Hour, now)
	later := now.Add(time.Minute)
	here.Merge(away.of(t, later), later)
	away.Merge(here.of(t, later), later)
	for _, w := range []*List{&away, &here} {
		if e := at(w, 2); e == nil || e.End.After(later) {
			t.Errorf("the longer block is back: %+v", e)
		}
	}
	if here.purge(now.Add(time.Hour)); at(&here, 2) != nil {
		t.Error("kept for longer than what it replaced")
	}
}

func TestFullList(t *testing.T) {
	var w List
	now := began
	for n := range MaxEntries {
		if _, err := w.Add(blocking(n, time.Hour), 1, time.Hour, now); err != nil {
			t.Fatalf("word %d: %v", n, err)
		}
	}
	if _, err := w.Add(blocking(MaxEntries, time.Hour), 1, time.Hour, now); !errors.Is(err, ErrFull) {
		t.Errorf("one too many: %v", err)
	}
	if _, err := w.Add(blocking(7, 2*time.Hour), 1, time.Hour, now); err != nil {
		t.Errorf("a word that takes the place of another: %v", err)
	}
	if text := w.Encode(secret.Secret{}, now); len(text) > maxBytes+1000 {
		t.Errorf("%d bytes", len(text))
	}
	if _, err := w.Add(blocking(MaxEntries, 3*time.Hour), 1, time.Hour, now.Add(time.Hour)); err != nil {
		t.Errorf("after others have ended: %v", err)
	}
	// Long reasons fill it earlier.
	var long List
	for n := range MaxEntries {
		order := blocking(n, time.Hour)
		order.Reason = strings.Repeat("x", 2*MaxReason)
		if _, err := long.Add(order, 1, time.Hour, now); err != nil {
			if !errors.Is(err, ErrFull) || n < 2000 {
				t.Errorf("word %d: %v", n, err)
			}
			break
		}
	}
	if text := long.Encode(secret.Secret{}, now); len(text) > maxBytes+1000 {
		t.Errorf("%d bytes of long reasons", len(text))
	}
	// Two full lists that meet keep the newest words, both the same.
	var a, b List
	for n := range MaxEntries {
		_, _ = a.Add(blocking(n, time.Hour), 1, time.Hour, now)
		_, _ = b.Add(blocking(MaxEntries+n, time.Hour), 2, time.Hour, now)
	}
	listA, listB := a.of(t, now), b.of(t, now)
	a.Merge(listB, now)
	b.Merge(listA, now)
	if len(a.entries) > MaxEntries || len(a.entries) < MaxEntries*9/10 || !bytes.Equal(a.Encode(secret.Secret{}, now), b.Encode(secret.Secret{}, now)) {
		t.Errorf("%d words, and %d of the other", len(a.entries), len(b.entries))
	}
}

// TestEndsAreBounded: a clock that is wrong does not make a block for ever.
func TestEndsAreBounded(t *testing.T) {
	var w, theirs List
	order := blocking(1, 10*365*24*time.Hour)
	_, _ = theirs.Add(order, 1, time.Hour, began)
	w.Merge(theirs.of(t, began), began)
	e := w.entries[Name{Rule: "login", Source: sourceOf(1)}]
	if e.End.Sub(began) > mitigation.MaxBlock+ClockSkew || e.kept.Sub(began) > longestKept+ClockSkew {
		t.Errorf("ends after %v, kept for %v", e.End.Sub(began), e.kept.Sub(began))
	}
	theirs.Merge(w.of(t, began), began)
	if e := theirs.entries[Name{Rule: "login", Source: sourceOf(1)}]; e.End.Sub(began) > mitigation.MaxBlock+ClockSkew {
		t.Errorf("the earlier end did not come back: %v", e.End.Sub(began))
	}
}

// TestForgedLists: whatever is not exactly what an edge of the PoP wrote is no list.
func TestForgedLists(t *testing.T) {
	shared := secret.Of([]byte("test"))
	var w List
	for n := range 20 {
		_, _ = w.Add(blocking(n, time.Hour), 1, time.Hour, began)
	}
	good := w.Encode(shared, began)
	if list, _, err := Decode(shared, good); err != nil || len(list) != 20 || list[3].Reason != "because" {
		t.Fatalf("%d entries, %v", len(list), err)
	}
	for n := range good {
		if _, _, err := Decode(shared, good[:n]); !errors.Is(err, ErrList) {
			t.Fatalf("cut after %d bytes: %v", n, err)
		}
		bad := bytes.Clone(good)
		bad[n] ^= 0x10
		if _, _, err := Decode(shared, bad); !errors.Is(err, ErrList) {
			t.Fatalf("byte %d changed: %v", n, err)
		}
	}
	if _, _, err := Decode(secret.Of([]byte("guess")), good); !errors.Is(err, ErrList) {
		t.Errorf("under another secret: %v", err)
	}
	// Ours by its MAC, but not of the form.
	for _, body := range []string{"", magic, magic + "\xff\xff\xff\xff", magic + "\x00\x00\x00\x01short", string(good[:len(good)-secret.MACSize]) + "x"} {
		if _, _, err := Decode(shared, shared.Seal(secret.OperatorList, []byte(body))); !errors.Is(err, ErrList) {
			t.Errorf("%q: %v", body, err)
		}
	}
	head := SealHead(shared, Digest{1, 2})
	if id, ok := OpenHead(shared, head); !ok || id != (Digest{1, 2}) {
		t.Error("a head of ours is none")
	}
	if _, ok := OpenHead(shared, append(head[:secret.MACSize:secret.MACSize], head[:secret.MACSize]...)); ok {
		t.Error("a forged head is one")
	}
}

func FuzzWords(f *testing.F) {
	shared := secret.Of([]byte("test"))
	var w List
	for n := range 3 {
		_, _ = w.Add(blocking(n, time.Hour), 1, time.Hour, began)
	}
	good := w.Encode(shared, began)
	f.Add(good[:len(good)-secret.MACSize])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, _, err := Decode(shared, b); err == nil && !bytes.HasPrefix(b, []byte(magic)) {
			t.Error("a list without its magic")
		}
		list, _, err := Decode(shared, shared.Seal(secret.OperatorList, b)) // whatever is in it
		if err != nil {
			return
		}
		var w List
		w.Merge(list, began)
		if again := w.of(t, began); len(again) > len(list) {
			t.Error(fmt.Sprint(len(again), " of ", len(list)))
		}
	})
}

// TestBadWord: what would make the list unreadable does not get into it.
func TestBadWord(t *testing.T) {
	var w List
	for _, order := range []Order{
		{Source: sourceOf(1), Kind: Block}, {Rule: strings.Repeat("x", 65), Source: sourceOf(1), Kind: Block},
		{Rule: "login", Kind: Block}, {Rule: "login", Source: sourceOf(1)}, {Rule: "login", Source: sourceOf(1), Kind: Lift + 1},
	} {
		if _, err := w.Add(order, 1, time.Hour, began); !errors.Is(err, ErrOrder) {
			t.Errorf("%+v: %v", order, err)
		}
	}
	order := blocking(1, time.Hour)
	order.Reason = strings.Repeat("é", MaxReason)
	if _, err := w.Add(order, 1, time.Hour, began); err != nil || len(w.of(t, began)) != 1 {
		t.Error(err)
	}
}

// Who said a word, and where from, travels with it, as far as there is room.
func TestWhoSaidIt(t *testing.T) {
	var w List
	order := blocking(1, time.Hour)
	order.Who, order.From = "ada", "192.0.2.1:5 at web1"
	long := lifting(2)
	long.Who, long.From = strings.Repeat("é", MaxWho), strings.Repeat("x", 1000)
	for _, order := range []Order{order, long} {
		if _, err := w.Add(order, 1, time.Hour, began); err != nil {
			t.Fatal(err)
		}
	}
	list := w.of(t, began)
	if len(list) != 2 || list[0].Who != "ada" || list[0].From != order.From || list[0].Reason != "because" {
		t.Errorf("%+v", list)
	}
	if e := list[1]; e.Who != strings.Repeat("é", MaxWho/2) || e.From != strings.Repeat("x", MaxFrom) {
		t.Errorf("%+v", e)
	}
}
