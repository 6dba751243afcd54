package key

import (
	"net/netip"
	"strings"
	"testing"

	"sluice/counter"
	"sluice/edge/http1"
	"sluice/edge/message"
)

func ip(s string) counter.Source { return counter.SourceOf(netip.MustParseAddr(s), 32, 64) }

func headOf(t testing.TB, lines ...string) *message.Head {
	h := &message.Head{}
	if _, err := http1.ScanHead(h, []byte(strings.Join(append(lines, "", ""), "\r\n")), message.MaxLines); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestDigest(t *testing.T) {
	parts := func(list ...string) []Part {
		var p []Part
		for _, s := range list {
			part, err := Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			p = append(p, part)
		}
		names := new(Names)
		for i := range p {
			names.Add(&p[i])
		}
		return p
	}
	a, b := ip("192.0.2.1"), ip("192.0.2.2")
	of := func(secretByte byte, source counter.Source, p []Part, lines ...string) counter.Source {
		s, _, bad := NewSecret([16]byte{secretByte}).Digest(p, &View{Request: &message.Request{Head: *headOf(t, lines...)}}, source, nil)
		if bad != nil {
			t.Fatalf("%q: no digest, for %s", lines, bad)
		}
		return s
	}
	key, both := parts("header:X-Key"), parts("header:A", "header:B")
	same := []struct {
		name string
		x, y counter.Source
	}{
		{"a header's name has no case, its value stands for itself", of(1, a, key, "X-Key: 1"), of(1, b, key, "x-kEY:  1 ")},
		{"a missing one is the source's", of(1, a, key), of(1, a, key, "Other: 1")},
		{"an empty one is a value, of whomever", of(1, a, key, "X-Key: "), of(1, b, key, "X-Key:")},
		{"so is one that is named in Connection", of(1, a, key), of(1, a, key, "Connection: x-key", "X-Key: 1")},
		{"one that is there twice alike is there", of(1, a, key, "X-Key: 1"), of(1, b, key, "X-Key: 1", "X-Key: 1")},
		{"cookies", of(1, a, parts("cookie:sid"), "Cookie: a=b; sid=1"), of(1, b, parts("cookie:sid"), "Cookie: sid=1;c=d")},
		{"a cookie that is there twice alike", of(1, a, parts("cookie:sid"), "Cookie: sid=1"), of(1, a, parts("cookie:sid"), "Cookie: sid=1", "Cookie: sid=1")},
		{"cookie names have no case for some", of(1, a, parts("cookie:sid"), "Cookie: SID=1"), of(1, b, parts("cookie:sid"), "Cookie: sid=1")},
	}
	for _, s := range same {
		if s.x != s.y {
			t.Errorf("%s: %v and %v differ", s.name, s.x, s.y)
		}
	}
	different := []struct {
		name string
		x, y counter.Source
	}{
		{"values", of(1, a, key, "X-Key: 1"), of(1, a, key, "X-Key: 2")},
		{"secrets", of(1, a, key, "X-Key: 1"), of(2, a, key, "X-Key: 1")},
		{"missing, by source", of(1, a, key), of(1, b, key)},
		{"where one value ends", of(1, a, both, "A: x", "B: yz"), of(1, a, both, "A: xy", "B: z")},
		{"empty and missing", of(1, a, key), of(1, a, key, "X-Key: ")},
		{"empty and missing cookies", of(1, a, parts("cookie:sid"), "Cookie: sid="), of(1, a, parts("cookie:sid"), "Cookie: a=")},
		{"which one is missing", of(1, a, both, "A: x"), of(1, a, both, "B: x")},
		{"source and header", of(1, a, parts("source", "header:A"), "A: 1"), of(1, b, parts("source", "header:A"), "A: 1")},
		{"a key that is one word has case", of(1, a, parts("header:Authorization"), "Authorization: Abc"), of(1, a, parts("header:Authorization"), "Authorization: abc")},
	}
	for _, s := range different {
		if s.x == s.y {
			t.Errorf("%s: both are %v", s.name, s.x)
		}
	}
}

func TestHas(t *testing.T) {
	key := []string{"source", "header:X-Key", "path:2"}
	for part, want := range map[string]bool{"header:x-key": true, "source": true, "header:x-other": false, "cookie:X-Key": false, "header": false} {
		if Has(key, part) != want {
			t.Errorf("%s: %t, want %t", part, !want, want)
		}
	}
}
