package pop

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

var wordsBegan = time.Unix(1_700_000_000, 0)

func sourceOf(n int) counter.Source {
	return counter.SourceOf(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(n)))), 32, 64)
}

func blocking(n int, end time.Duration) Word {
	return Word{Rule: "login", Source: sourceOf(n), Kind: Block, Start: wordsBegan, End: wordsBegan.Add(end), Reason: "because"}
}

func lifting(n int) Word {
	return Word{Rule: "login", Source: sourceOf(n), Kind: Lift, Start: wordsBegan}
}

// of is the entries of a list, as they travel.
func (w *words) of(t testing.TB, now time.Time) []entry {
	t.Helper()
	list, _, err := decodeWords(secret.Of([]byte("test")), w.encode(secret.Of([]byte("test")), now))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestMergeIsAJoin: lists that say the same things in different orders, through different hands and any number of times become one.
func TestMergeIsAJoin(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var lists [4]words
		now := wordsBegan
		for range 200 {
			now = now.Add(time.Millisecond)
			i := rng.IntN(len(lists))
			switch rng.IntN(4) {
			case 0:
				lists[i].merge(lists[rng.IntN(len(lists))].of(t, now), now)
			case 1:
				_, _ = lists[i].add(lifting(rng.IntN(10)), uint64(i), time.Hour, now)
			default:
				_, _ = lists[i].add(blocking(rng.IntN(10), time.Duration(1+rng.IntN(3600))*time.Second), uint64(i), time.Hour, now)
			}
		}
		for range 2 { // once more, for what the last ones only heard late
			for i := range lists {
				for _, j := range rng.Perm(len(lists)) {
					lists[i].merge(lists[j].of(t, now), now)
				}
			}
		}
		want := lists[0].encode(secret.Secret{}, now)
		for i := range lists {
			if !bytes.Equal(lists[i].encode(secret.Secret{}, now), want) {
				t.Fatalf("seed %d: list %d differs", seed, i)
			}
			if changed, lacks := lists[i].merge(lists[0].of(t, now), now); len(changed) > 0 || lacks {
				t.Fatalf("seed %d: merged with itself: %d changes, lacks %v", seed, len(changed), lacks)
			}
			size := 0
			for _, e := range lists[i].entries {
				size += e.size()
			}
			if size != lists[i].bytes || size != len(want)-len(wordsMagic)-4-secret.MACSize {
				t.Fatalf("seed %d: %d bytes, counted %d, encoded %d", seed, size, lists[i].bytes, len(want))
			}
		}
	}
}

// TestNewestWordStands, whichever list it is in.
func TestNewestWordStands(t *testing.T) {
	var a, b words
	now := wordsBegan
	at := func(w *words, n int) *entry { return w.entries[wordName{"login", sourceOf(n)}] }
	_, _ = a.add(blocking(1, time.Hour), 1, time.Hour, now)
	b.merge(a.of(t, now), now)
	_, _ = b.add(lifting(1), 2, 24*time.Hour, now)
	epoch := at(&b, 1).epoch
	_, _ = b.add(blocking(1, time.Minute), 2, 24*time.Hour, now) // a block after a lift does not bring back what was lifted
	if at(&b, 1).epoch != epoch || epoch == 0 {
		t.Errorf("epoch %d, want %d", at(&b, 1).epoch, epoch)
	}
	// Somebody who has not heard of the lift says something with a clock that is ahead.
	_, _ = a.add(blocking(1, 2*time.Hour), 1, time.Hour, now.Add(time.Hour))
	a.merge(b.of(t, now), now)
	if e := at(&a, 1); e.epoch != epoch || e.End.Sub(now) != 2*time.Hour {
		t.Errorf("epoch %d, want %d; end %v, want that of the newer block", e.epoch, epoch, e.End.Sub(now))
	}
	// A short block takes the place of a long one, and must outlive it, or an edge that was away would bring that back.
	var away, here words
	_, _ = away.add(blocking(2, time.Hour), 1, time.Hour, now)
	here.merge(away.of(t, now), now)
	_, _ = here.add(blocking(2, time.Second), 2, time.Hour, now)
	later := now.Add(time.Minute)
	here.merge(away.of(t, later), later)
	away.merge(here.of(t, later), later)
	for _, w := range []*words{&away, &here} {
		if e := at(w, 2); e == nil || e.End.After(later) {
			t.Errorf("the longer block is back: %+v", e)
		}
	}
	if here.purge(now.Add(time.Hour)); at(&here, 2) != nil {
		t.Error("kept for longer than what it replaced")
	}
}

func TestFullList(t *testing.T) {
	var w words
	now := wordsBegan
	for n := range MaxWords {
		if _, err := w.add(blocking(n, time.Hour), 1, time.Hour, now); err != nil {
			t.Fatalf("word %d: %v", n, err)
		}
	}
	if _, err := w.add(blocking(MaxWords, time.Hour), 1, time.Hour, now); !errors.Is(err, ErrListFull) {
		t.Errorf("one too many: %v", err)
	}
	if _, err := w.add(blocking(7, 2*time.Hour), 1, time.Hour, now); err != nil {
		t.Errorf("a word that takes the place of another: %v", err)
	}
	if text := w.encode(secret.Secret{}, now); len(text) > maxWordBytes+1000 {
		t.Errorf("%d bytes", len(text))
	}
	if _, err := w.add(blocking(MaxWords, 3*time.Hour), 1, time.Hour, now.Add(time.Hour)); err != nil {
		t.Errorf("after others have ended: %v", err)
	}
	// Long reasons fill it earlier.
	var long words
	for n := range MaxWords {
		word := blocking(n, time.Hour)
		word.Reason = strings.Repeat("x", 2*MaxReason)
		if _, err := long.add(word, 1, time.Hour, now); err != nil {
			if !errors.Is(err, ErrListFull) || n < 2000 {
				t.Errorf("word %d: %v", n, err)
			}
			break
		}
	}
	if text := long.encode(secret.Secret{}, now); len(text) > maxWordBytes+1000 {
		t.Errorf("%d bytes of long reasons", len(text))
	}
	// Two full lists that meet keep the newest words, both the same.
	var a, b words
	for n := range MaxWords {
		_, _ = a.add(blocking(n, time.Hour), 1, time.Hour, now)
		_, _ = b.add(blocking(MaxWords+n, time.Hour), 2, time.Hour, now)
	}
	listA, listB := a.of(t, now), b.of(t, now)
	a.merge(listB, now)
	b.merge(listA, now)
	if len(a.entries) > MaxWords || len(a.entries) < MaxWords*9/10 || !bytes.Equal(a.encode(secret.Secret{}, now), b.encode(secret.Secret{}, now)) {
		t.Errorf("%d words, and %d of the other", len(a.entries), len(b.entries))
	}
}

// TestEndsAreBounded: a clock that is wrong does not make a block for ever.
func TestEndsAreBounded(t *testing.T) {
	var w, theirs words
	word := blocking(1, 10*365*24*time.Hour)
	_, _ = theirs.add(word, 1, time.Hour, wordsBegan)
	w.merge(theirs.of(t, wordsBegan), wordsBegan)
	e := w.entries[wordName{"login", sourceOf(1)}]
	if e.End.Sub(wordsBegan) > mitigation.MaxTimeout+clockSkew || e.kept.Sub(wordsBegan) > longestKept+clockSkew {
		t.Errorf("ends after %v, kept for %v", e.End.Sub(wordsBegan), e.kept.Sub(wordsBegan))
	}
	theirs.merge(w.of(t, wordsBegan), wordsBegan)
	if e := theirs.entries[wordName{"login", sourceOf(1)}]; e.End.Sub(wordsBegan) > mitigation.MaxTimeout+clockSkew {
		t.Errorf("the earlier end did not come back: %v", e.End.Sub(wordsBegan))
	}
}

// TestForgedLists: whatever is not exactly what an edge of the PoP wrote is no list.
func TestForgedLists(t *testing.T) {
	shared := secret.Of([]byte("test"))
	var w words
	for n := range 20 {
		_, _ = w.add(blocking(n, time.Hour), 1, time.Hour, wordsBegan)
	}
	good := w.encode(shared, wordsBegan)
	if list, _, err := decodeWords(shared, good); err != nil || len(list) != 20 || list[3].Reason != "because" {
		t.Fatalf("%d entries, %v", len(list), err)
	}
	for n := range good {
		if _, _, err := decodeWords(shared, good[:n]); !errors.Is(err, ErrWords) {
			t.Fatalf("cut after %d bytes: %v", n, err)
		}
		bad := bytes.Clone(good)
		bad[n] ^= 0x10
		if _, _, err := decodeWords(shared, bad); !errors.Is(err, ErrWords) {
			t.Fatalf("byte %d changed: %v", n, err)
		}
	}
	if _, _, err := decodeWords(secret.Of([]byte("guess")), good); !errors.Is(err, ErrWords) {
		t.Errorf("under another secret: %v", err)
	}
	// Ours by its MAC, but not of the form.
	for _, body := range []string{"", wordsMagic, wordsMagic + "\xff\xff\xff\xff", wordsMagic + "\x00\x00\x00\x01short", string(good[:len(good)-secret.MACSize]) + "x"} {
		if _, _, err := decodeWords(shared, shared.Seal(secret.Words, []byte(body))); !errors.Is(err, ErrWords) {
			t.Errorf("%q: %v", body, err)
		}
	}
	head := sealHead(shared, tag{1, 2})
	if id, ok := openHead(shared, head); !ok || id != (tag{1, 2}) {
		t.Error("a head of ours is none")
	}
	if _, ok := openHead(shared, append(head[:secret.MACSize:secret.MACSize], head[:secret.MACSize]...)); ok {
		t.Error("a forged head is one")
	}
}

// TestEpochCostsNothing while nobody was lifted.
func TestEpochCostsNothing(t *testing.T) {
	m := loginMachine(t)
	rule, source := m.rules.Load().byName["login"][0].Counter, sourceOf(1)
	if n := testing.AllocsPerRun(100, func() {
		if m.epoch(rule, source) != 0 {
			t.Error("an epoch of nothing")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func loginMachine(t testing.TB) *Machine {
	t.Helper()
	rule, err := counter.NewRule("login source enforce", 5, time.Minute, 12, counter.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMachine(Config{Nodes: []string{"node:11211"}, Secret: secret.Of([]byte("test")), ID: 1,
		Counters: counter.New(counter.Options{Counters: 1000, Tier: true}), Bits: mitigation.New(1000, nil)}, wordsBegan)
	if err != nil {
		t.Fatal(err)
	}
	m.SetRules([]Rule{{Name: "login", Counter: rule, Timeout: time.Minute}})
	return m
}

// TestRestoredListIsInForce at once, and lifts in it do not lift what was handed over with it.
func TestRestoredListIsInForce(t *testing.T) {
	m := loginMachine(t)
	for n, word := range []Word{blocking(1, time.Hour), lifting(2)} {
		if _, err := m.Say(word, wordsBegan); err != nil {
			t.Fatal(n, err)
		}
	}
	kept, changed := m.Words(wordsBegan)
	select {
	case <-changed:
		t.Error("changed, and nobody said anything")
	default:
	}
	next := loginMachine(t)
	if err := next.Restore(kept, wordsBegan); err != nil {
		t.Fatal(err)
	}
	rule := next.rules.Load().byName["login"][0].Counter
	after := mitigation.Key{Rule: rule.ID, Source: sourceOf(2)} // mitigated after it was lifted
	next.bits.Start(after, mitigation.Bit{Start: wordsBegan, End: wordsBegan.Add(time.Hour), By: mitigation.ByPoP}, wordsBegan)
	next.Step(wordsBegan, Event{})
	if next.epoch(rule, sourceOf(2)) == 0 {
		t.Error("no epoch")
	}
	if next.bits.Until(after, wordsBegan).IsZero() {
		t.Error("a mitigation was lifted that had begun after the lift")
	}
	bit, _ := next.bits.Get(mitigation.Key{Rule: rule.ID, Source: sourceOf(1)}, wordsBegan)
	if bit.By != mitigation.ByAdmin || !bit.End.Equal(wordsBegan.Add(time.Hour)) || bit.Reason != "because" {
		t.Errorf("%+v", bit)
	}
	if err := next.Restore(kept[:len(kept)-1], wordsBegan); !errors.Is(err, ErrWords) {
		t.Errorf("a list that is cut: %v", err)
	}
	if _, err := m.Say(blocking(3, time.Hour), wordsBegan); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("a word was said, and nobody is told")
	}
}

func FuzzWords(f *testing.F) {
	shared := secret.Of([]byte("test"))
	var w words
	for n := range 3 {
		_, _ = w.add(blocking(n, time.Hour), 1, time.Hour, wordsBegan)
	}
	good := w.encode(shared, wordsBegan)
	f.Add(good[:len(good)-secret.MACSize])
	f.Add([]byte(wordsMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, _, err := decodeWords(shared, b); err == nil && !bytes.HasPrefix(b, []byte(wordsMagic)) {
			t.Error("a list without its magic")
		}
		list, _, err := decodeWords(shared, shared.Seal(secret.Words, b)) // whatever is in it
		if err != nil {
			return
		}
		var w words
		w.merge(list, wordsBegan)
		if again := w.of(t, wordsBegan); len(again) > len(list) {
			t.Error(fmt.Sprint(len(again), " of ", len(list)))
		}
	})
}

// TestBadWord: what would make the list unreadable does not get into it.
func TestBadWord(t *testing.T) {
	var w words
	for _, word := range []Word{
		{Source: sourceOf(1), Kind: Block}, {Rule: strings.Repeat("x", 65), Source: sourceOf(1), Kind: Block},
		{Rule: "login", Kind: Block}, {Rule: "login", Source: sourceOf(1)}, {Rule: "login", Source: sourceOf(1), Kind: Lift + 1},
	} {
		if _, err := w.add(word, 1, time.Hour, wordsBegan); !errors.Is(err, ErrWord) {
			t.Errorf("%+v: %v", word, err)
		}
	}
	word := blocking(1, time.Hour)
	word.Reason = strings.Repeat("é", MaxReason)
	if _, err := w.add(word, 1, time.Hour, wordsBegan); err != nil || len(w.of(t, wordsBegan)) != 1 {
		t.Error(err)
	}
}
