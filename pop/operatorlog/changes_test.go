package operatorlog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/pop/secret"
)

func changing(rule, text string) Order {
	return Order{Rule: rule, Kind: Change, Start: began, Text: text}
}

// newest is what stands for each rule.
func newest(l *List) map[string]string {
	all := make(map[string]string)
	for _, e := range l.Changes() {
		if _, there := all[e.Rule]; !there {
			all[e.Rule] = e.Text
		}
	}
	return all
}

// TestChangesAreAJoin: edges that change the same rules at the same time, and hear of each other in any order, end the same, with the
// same past.
func TestChangesAreAJoin(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var lists [4]List
		now := began
		for n := range 200 {
			now = now.Add(time.Duration(rng.IntN(2)) * time.Millisecond) // some in the same one
			i := rng.IntN(len(lists))
			switch rng.IntN(4) {
			case 0:
				lists[i].Merge(lists[rng.IntN(len(lists))].of(t, now), now)
			case 1:
				_, _ = lists[i].Add(blocking(rng.IntN(10), time.Hour), uint64(i), time.Hour, now)
			default:
				if _, err := lists[i].Add(changing(fmt.Sprint("rule", rng.IntN(3)), fmt.Sprint(n)), uint64(i), time.Hour, now); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 2 {
			for i := range lists {
				for j := range lists {
					lists[i].Merge(lists[j].of(t, now), now)
				}
			}
		}
		want := lists[0].Encode(secret.Secret{}, now)
		for i := range lists {
			if got := lists[i].Encode(secret.Secret{}, now); !bytes.Equal(got, want) {
				t.Fatalf("seed %d: list %d differs from the first", seed, i)
			}
			if names, lacks := lists[i].Merge(lists[0].of(t, now), now); len(names) > 0 || lacks {
				t.Fatalf("seed %d: the same list changed %v, lacks %v", seed, names, lacks)
			}
			if n := len(lists[i].Changes()); n != 3*MaxVersions {
				t.Errorf("seed %d: %d changes are kept of three rules, want %d of each", seed, n, MaxVersions)
			}
		}
	}
}

// TestNewestChangeStands: whoever was said last stands, however late it is heard of; nothing ends by itself.
func TestNewestChangeStands(t *testing.T) {
	var a, b List
	for n := range MaxVersions + 3 {
		_, _ = a.Add(changing("login", fmt.Sprint("a", n)), 1, 0, began.Add(time.Duration(n)*time.Second))
	}
	_, _ = b.Add(changing("login", "b"), 2, 0, began.Add(time.Hour))
	before := b.of(t, began)
	later := began.Add(365 * 24 * time.Hour)
	b.Merge(a.of(t, later), later)
	a.Merge(before, later)
	if newest(&a)["login"] != "b" || newest(&b)["login"] != "b" || len(a.Changes()) != MaxVersions || a.Changes()[1].Text != fmt.Sprint("a", MaxVersions+2) {
		t.Errorf("%v, %v, %d changes", newest(&a), newest(&b), len(a.Changes()))
	}
}

// TestChangeThatEnds: when a change that says nothing any more is over, what it has replaced does not come back, whosever clock is behind.
func TestChangeThatEnds(t *testing.T) {
	var a, b List
	_, _ = a.Add(changing("login", "old"), 1, 0, began)
	_, _ = a.Add(changing("api", "stays"), 1, 0, began)
	end := changing("login", "as the file says")
	end.End = began.Add(LongestAway)
	_, _ = a.Add(end, 1, 0, began)
	b.Merge(a.of(t, began), began)
	if got := newest(&b); got["login"] != "as the file says" || got["api"] != "stays" {
		t.Fatalf("%v", got)
	}
	behind, after := end.End.Add(-time.Second), end.End.Add(time.Second)
	for range 2 {
		theirs := b.of(t, behind)
		if names, lacks := a.Merge(theirs, after); len(names) > 0 || lacks {
			t.Errorf("changed %v, lacks %v", names, lacks)
		}
		if _, lacks := b.Merge(slices.DeleteFunc(theirs, func(e Entry) bool { return e.Rule == "login" }), after); lacks {
			t.Error("a list is to be told of what is over")
		}
		a.purge(after)
		if got := newest(&a); len(got) != 1 || got["api"] != "stays" {
			t.Fatalf("%v", got)
		}
	}
}

// TestFullOfChanges: what has been replaced makes room, rules in force never do.
func TestFullOfChanges(t *testing.T) {
	var w List
	now := began
	text := strings.Repeat("x", 1000)
	for n := range 400 { // one rule in force is worth more than a past
		if _, err := w.Add(changing(fmt.Sprint("rule", n%40), text), 1, 0, now); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 500 {
		if _, err := w.Add(changing(fmt.Sprint("other", n), text), 1, 0, now); err != nil {
			t.Fatalf("rule %d: %v", n, err)
		}
	}
	if got := newest(&w); len(got) != 540 || len(w.Changes()) <= 540 {
		t.Errorf("%d rules, %d changes", len(got), len(w.Changes()))
	}
	n := 0
	for ; n < 1000; n++ {
		if _, err := w.Add(changing(fmt.Sprint("more", n), text), 1, 0, now); err != nil {
			if !errors.Is(err, ErrFull) {
				t.Error(err)
			}
			break
		}
	}
	if got := newest(&w); len(got) != 540+n || len(w.Changes()) != len(got) || n < 200 {
		t.Errorf("%d rules and %d changes after %d more", len(got), len(w.Changes()), n)
	}
	if b := w.Encode(secret.Secret{}, now); len(b) > maxBytes+1000 {
		t.Errorf("%d bytes", len(b))
	}
	// Another full list makes this one drop blocks before it drops rules.
	var blocks List
	for n := range MaxEntries {
		_, _ = blocks.Add(blocking(n, time.Hour), 2, time.Hour, now.Add(time.Minute))
	}
	rules := len(newest(&w))
	w.Merge(blocks.of(t, now), now)
	if got := len(newest(&w)); got != rules {
		t.Errorf("%d of %d rules are left", got, rules)
	}
	for _, order := range []Order{
		changing("", "x"), changing("login", strings.Repeat("x", MaxText+1)), {Rule: "login", Kind: Change, Source: sourceOf(1)},
		{Rule: "login", Kind: Block, Source: sourceOf(1), Text: "x"}, {Rule: "login", Kind: Change, Reason: "x"},
	} {
		var empty List
		if _, err := empty.Add(order, 1, 0, now); !errors.Is(err, ErrOrder) && !errors.Is(err, ErrLong) {
			t.Errorf("%.40v: %v", order, err)
		}
	}
}
