package key

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"sluice/counter"
	"sluice/edge/message"
)

// claim is a fact with an argument: a request has NAME=VALUE, in a header.
var claim = &Fact{Name: "jwt", Argument: "CLAIM", Who: "a token's claim", Kind: 7, Slow: true, From: &Part{Kind: Header, Name: []byte("x-token")}, Find: func(buf []byte, v *View) []byte {
	value, _, ok := v.Request.Head.Header([]byte("x-token"))
	v.Unclear = !ok
	return append(buf, value...)
}, Of: func(value, argument []byte) []byte {
	name, of, is := bytes.Cut(value, []byte("="))
	if !is || !bytes.Equal(name, argument) {
		return nil
	}
	return of
}}

func partsOf(t *testing.T, list ...string) (parts []Part, names *Names) {
	t.Helper()
	names = new(Names)
	for _, text := range list {
		p, err := Parse(text, claim)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, p)
	}
	for i := range parts {
		names.Add(&parts[i])
	}
	return parts, names
}

// named reads PART=VALUE as operators name them.
func named(text string) (Value, error) {
	part, value, _ := strings.Cut(text, "=")
	p, err := Parse(part, claim)
	if err != nil {
		return Value{}, err
	}
	return ParseValue(p, value, func(a netip.Addr) counter.Source { return counter.SourceOf(a, 32, 64) })
}

// Who is named by values is who sends them, in whatever order they are named.
func TestDigestOfValues(t *testing.T) {
	secret, source := NewSecret([16]byte{7}), ip("192.0.2.1")
	for _, test := range []struct {
		key   string   // its parts
		named []string // PART=VALUE
		lines []string // of a request
	}{
		{"header:X-Api-Key", []string{"header:x-api-key=k-1"}, []string{"X-API-KEY:  k-1 "}},
		{"header:X-Api-Key", []string{"header:X-Api-Key=a=b=="}, []string{"X-Api-Key: a=b=="}},
		{"header:Authorization", []string{"header:Authorization=Bearer abc"}, []string{"Authorization: bearer abc"}},
		{"header:Authorization", []string{"header:Authorization=abc"}, []string{"Authorization: Token abc"}},
		{"cookie:sid", []string{"cookie:sid=1"}, []string{`Cookie: a=b; sid="1"`}},
		{"query:token", []string{"query:token=a%20b"}, nil},
		{"header:A header:B", []string{"header:B=2", "header:A=1"}, []string{"A: 1", "B: 2"}},
		{"source header:A", []string{"header:A=1", "source=192.0.2.1"}, []string{"A: 1"}},
		{"host path:1", []string{"path:1=/a/other", "host=EXAMPLE.com."}, nil},
		{"global", []string{"global="}, nil},
		{"jwt:sub", []string{"jwt:sub=anna"}, []string{"X-Token: sub=anna"}},
		{"jwt:Sub host", []string{"host=example.com", "jwt:Sub=anna"}, []string{"X-Token: Sub=anna"}},
	} {
		parts, _ := partsOf(t, strings.Fields(test.key)...)
		target := []byte("/a/b?token=a+b")
		q := &message.Request{Head: *headOf(t, test.lines...), Target: target, Host: []byte("example.com")}
		q.Path, q.Readings = message.AppendPath(nil, message.RawPath(target))
		want, _, bad := secret.Digest(parts, &View{Request: q}, source, nil)
		if bad != nil {
			t.Fatalf("%s: the request has no key", test.key)
		}
		var values []Value
		for _, text := range test.named {
			v, err := named(text)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			values = append(values, v)
		}
		if got, ok := secret.DigestOfValues(parts, values); !ok || got != want {
			t.Errorf("%s: %v, want %v of %v", test.key, got, want, test.named)
		}
		if _, ok := secret.DigestOfValues(parts, values[1:]); ok {
			t.Errorf("%s: a digest without %s", test.key, test.named[0])
		}
		if _, ok := secret.DigestOfValues(append(parts, Part{Kind: Known, Name: []byte("jwt:sub")}), values); ok {
			t.Errorf("%s: a digest without a claim", test.key)
		}
	}
}

// What no request can be counted by is told, without the value.
func TestParseValueRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"header:A=":                                 "is empty",
		"cookie:a=":                                 "is empty",
		"header:A=SECRET\nmore":                     "line break",
		"header:A=SECRET-\u00e4":                    "servers read it differently",
		"header:Authorization=Bearer SECRET x":      "servers read it differently",
		"header:Authorization=Digest a=b, r=SECRET": "tells nobody",
		"header:A=" + strings.Repeat("S", 40<<10):   "longer than",
		"source=SECRET":                             "no address",
		"path=SECRET":                               "no path",
		"host=SECRET:x":                             "servers read it differently",
		"global=SECRET":                             "no value",
	} {
		_, err := named(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	if v, err := named("jwt:sub=\u00e4 b"); err != nil || string(v.form) != "\u00e4 b" {
		t.Errorf("a claim may have any text: %v", err)
	}
}
