package secret

import (
	"encoding/binary"
	"slices"
	"testing"

	"sluice/counter"
)

// TestSecretsAreApart: no two uses share a key, and what a client sends is not hashed under that of a MAC.
func TestSecretsAreApart(t *testing.T) {
	s := Of([]byte("test"))
	seen := make(map[key]bool)
	for _, k := range []key{s.names, s.records, s.operatorList, s.presence, s.clients,
		s.passes} {
		if seen[k] || k == (key{}) {
			t.Errorf("%x twice", k)
		}
		seen[k] = true
	}
	b := s.Bytes()
	if got := (key{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}); got != s.clients {
		t.Error("Bytes is another key than that for clients")
	}
}

// Passes are made under the new secret and read under both, and are those of one PoP.
func TestPasses(t *testing.T) {
	older, newer := Of([]byte("the old one")).At("a"), Of([]byte("the new one")).At("a")
	both := newer.After(older).Passes()
	if len(both) != 2 || both[0] != newer.Passes()[0] || both[1] != older.Passes()[0] {
		t.Errorf("keys %x; want that of the new one, then that of the old one", both)
	}
	if other := Of([]byte("the new one")).At("b").Passes(); other[0] == both[0] {
		t.Error("another PoP has the same key")
	}
}

// PoPs of two names have nothing in common but digests of what clients send, whatever secret they share; nor has a PoP what the bare secret
// has, which versions before 0.2.0 used. What was kept on disk is read all the same.
func TestPoPsAreApart(t *testing.T) {
	both := Of([]byte("the new one")).After(Of([]byte("the old one")))
	all := []Secret{both.At("staging"), both.At("production"), both, Of([]byte("the new one")).At("stagin")}
	for i, a := range all {
		for _, b := range all[:i] {
			for line := range min(len(a.Lines()), len(b.Lines())) {
				a, b := a.Lines()[line], b.Lines()[line]
				if a.names == b.names || a.records == b.records || a.operatorList == b.operatorList || a.presence == b.presence || a.digest == b.digest {
					t.Errorf("%d: line %d is that of another PoP", i, line)
				}
			}
		}
	}
	if all[0].Bytes() != all[1].Bytes() || all[0].Bytes() != both.Bytes() {
		t.Error("digests of what clients send differ between PoPs that may share a store of plans")
	}
	for what, s := range map[string]Secret{"its own": all[0], "before 0.2.0": both, "the old line, before 0.2.0": Of([]byte("the old one"))} {
		if _, ok := all[0].OnDisk().OpenAny(OperatorList, s.Seal(OperatorList, []byte("said"))); !ok {
			t.Errorf("what was kept is not read: %s", what)
		}
	}
	if _, ok := all[0].OpenAny(OperatorList, both.Seal(OperatorList, []byte("said"))); ok {
		t.Error("an older version's list is taken from the tier")
	}
	if _, ok := all[0].OnDisk().OpenAny(OperatorList, all[1].Seal(OperatorList, []byte("said"))); ok {
		t.Error("another PoP's list is taken from the disk")
	}
}

// A secret that takes the place of another has the names of the new one alone, reads what was sealed under both, and leaves clients' digests.
func TestAfter(t *testing.T) {
	older, newer := Of([]byte("the old one")), Of([]byte("the new one"))
	both := newer.After(older)
	if both.SlotKey(1) != newer.SlotKey(1) || both.LogHeadKey() != newer.LogHeadKey() || both.PlacementHash(counter.Source{}) != newer.PlacementHash(counter.Source{}) {
		t.Error("other names or places than the new one has")
	}
	if both.Bytes() != older.Bytes() {
		t.Error("what clients send has other digests than before")
	}
	sealed, now := older.Seal(OperatorList, []byte("said")), both.Seal(OperatorList, []byte("said"))
	for _, test := range []struct {
		what string
		open func(Use, []byte) (Reader, bool)
		text []byte
		ok   bool
	}{
		{"the old one's, by what reads one", both.Open, sealed, false},
		{"the old one's", both.OpenAny, sealed, true},
		{"the new one's", both.OpenAny, now, true},
		{"its own, at an edge that has the new one alone", newer.Open, now, true},
		{"a stranger's", both.OpenAny, Of([]byte("a stranger")).Seal(OperatorList, []byte("said")), false},
	} {
		if _, ok := test.open(OperatorList, test.text); ok != test.ok {
			t.Errorf("%s: %v", test.what, ok)
		}
	}
	if got, want := both.Digests(), []string{newer.Digests()[0], older.Digests()[0]}; !slices.Equal(got, want) || got[0] == got[1] || len(got[0]) != 16 {
		t.Errorf("digests %v, want %v", got, want)
	}
	if lines := both.Lines(); len(lines) != 2 || lines[0] != newer || lines[1] != older {
		t.Errorf("lines %v", lines)
	}
}
