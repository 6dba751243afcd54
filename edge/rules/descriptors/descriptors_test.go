package descriptors

import (
	"net/netip"
	"strings"
	"testing"
)

// patternOf reads "domain key=value key".
func patternOf(text string) *Pattern {
	words := strings.Fields(text)
	d := &Pattern{Domain: words[0]}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		d.Entries = append(d.Entries, Entry{key, value})
	}
	return d
}

// To each descriptor the pattern that says most exactly what it is, entry by entry.
func TestTree(t *testing.T) {
	var tree Tree[string]
	for _, text := range []string{"d user", "d user=vip", "d user=v*", "d user=vi*", "d user=vip path=/a", "d user path", "d plan=gold user", "other user", "d path=/x user=*"} {
		if other := tree.Add(patternOf(text), &text); other != nil {
			t.Fatalf("%s is about the same as %s", text, *other)
		}
	}
	if other := tree.Add(patternOf("d user=*"), new(string)); other == nil || *other != "d user" {
		t.Error("two are about the same")
	}
	f := func(asked, want string) {
		t.Helper()
		d, got := patternOf(asked), ""
		if v := tree.Find(d.Domain, d.Entries); v != nil {
			got = *v
		}
		if got != want {
			t.Errorf("%s: under %q, want %q", asked, got, want)
		}
	}
	f("d user=bob", "d user")
	f("d user", "d user") // no value is a value as well
	f("d user=vip", "d user=vip")
	f("d user=vips", "d user=vi*")
	f("d user=va", "d user=v*")
	f("d user=vip path=/a", "d user=vip path=/a")
	f("d user=vip path=/b", "d user path") // an exact value that leads nowhere hides nothing
	f("d user=bob path=/a", "d user path")
	f("d plan=gold user=bob", "d plan=gold user")
	f("d plan=lead user=bob", "")
	f("d plan=gold", "") // there are more entries in the pattern
	f("d user=bob path=/a x=y", "")
	f("d path=/a user=bob", "")
	f("d path=/x user=bob", "d path=/x user=*")
	f("other user=vip", "other user")
	f("nobody user=vip", "")
	f("d", "")
}

func TestAddressOfDescriptor(t *testing.T) {
	d := Descriptor{Entries: []Entry{{"user", "192.0.2.1"}, {"remote_address", "::ffff:192.0.2.7"}}}
	if got := d.Address(); got != netip.MustParseAddr("192.0.2.7") {
		t.Error(got)
	}
}

// Whether the one value that a pattern leaves open is an address.
func TestAddressOfPattern(t *testing.T) {
	for text, want := range map[string]int{"d remote_address": 0, "d masked_remote_address": 0, "d plan=gold remote_address=10.*": 1, "d remote_address user": -1, "d remote_address masked_remote_address": -1,
		"d user remote_address": -1, "d user": -1, "d remote_address=192.0.2.7": -1} {
		if got := patternOf(text).AddressAt(); got != want {
			t.Errorf("%s: entry %d, want %d", text, got, want)
		}
	}
}
