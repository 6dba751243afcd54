package key

import (
	"strings"
	"testing"

	"sluice/edge/message"
)

// Never more than half of a key is shown, nor half a character.
func TestStartOf(t *testing.T) {
	for _, test := range []struct {
		value string
		n     int
		want  string
	}{
		{"k-4711-secret", 4, "k-47"}, {"k-4711-secret", 0, ""}, {"12345678", 4, "1234"}, {"1234567", 4, "123"}, {"12", 4, "1"}, {"1", 4, ""}, {"", 4, ""},
		{"äöüß", 4, "äö"}, {"€€€€€€€€€€€€", 6, "€€€€€"}, {"abcdefghijklmnopqrstuvwxyzabcdefghijkl", 16, "abcdefghijklmnop"},
		{strings.Repeat("€", 10_000), 16, "€€€€€"}, {strings.Repeat("😀", 40), 3, "😀😀😀"}, {strings.Repeat("\xff", 40), 16, strings.Repeat("\xff", 16)},
	} {
		if got := StartOf([]byte(test.value), test.n).String(); got != test.want {
			t.Errorf("%d of %q: %q, want %q", test.n, test.value, got, test.want)
		}
	}
}

// What is shown is of the first part that clients choose, and who has none of these is named by no key.
func TestLook(t *testing.T) {
	for _, test := range []struct {
		key   []string
		lines []string
		start string
		named bool
	}{
		{[]string{"header:A"}, []string{"A: k-4711-secret"}, "k-47", true},
		{[]string{"header:A"}, nil, "", false},
		{[]string{"path", "header:A"}, []string{"A: k-4711-secret"}, "k-47", true},
		{[]string{"source", "header:A", "cookie:b"}, []string{"Cookie: b=b-4711-secret"}, "b-47", true},
		{[]string{"source", "header:A"}, nil, "", false},
		{[]string{"host", "path"}, nil, "", true},
		{[]string{"global"}, nil, "", true},
		{[]string{"source", "jwt:sub"}, []string{"X-Token: sub=k-4711-secret"}, "k-47", true},
		{[]string{"jwt:sub"}, []string{"X-Token: name=anna"}, "", false},
		{[]string{"header:Authorization"}, []string{"Authorization: Bearer k-4711-secret"}, "k-47", true},
	} {
		parts, _ := partsOf(t, test.key...)
		q := &message.Request{Head: *headOf(t, test.lines...), Target: []byte("/a"), Path: []byte("/a")}
		_, hashed, _ := NewSecret([16]byte{7}).Digest(parts, &View{Request: q}, ip("192.0.2.1"), nil)
		if start, named := Look(parts, hashed, 4); start.String() != test.start || named != test.named {
			t.Errorf("%v of %v: %q and %t", test.key, test.lines, start, named)
		}
	}
}
