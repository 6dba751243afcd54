package message_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"sluice/edge/http1"
	"sluice/edge/message"
)

func headOf(t *testing.T, lines ...string) *message.Head {
	h := &message.Head{}
	if _, err := http1.ScanHead(h, []byte(strings.Join(append(lines, "", ""), "\r\n")), message.MaxLines); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestControlBytes(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			text := bytes.Repeat([]byte{'a'}, 20)
			text[at] = byte(c)
			if got, want := message.IsText(text), c == '\t' || c >= ' ' && c != 0x7f; got != want {
				t.Fatalf("%q: %t", text, got)
			}
		}
	}
}

// A cookie is found as if every pair were taken apart.
func TestCookieLookup(t *testing.T) {
	byHand := func(lines []string, name string) (value string, ok bool) {
		seen := false
		for _, l := range lines {
			for pair := range strings.SplitSeq(l, ";") {
				key, v, found := strings.Cut(pair, "=")
				if !found || strings.Trim(key, " \t") != name {
					continue
				}
				if v = strings.Trim(v, " \t"); seen && v != value {
					return "", false
				}
				value, seen = v, true
			}
		}
		return value, true
	}
	pieces := []string{"id", "i", "d", "=", "=", ";", ";", " ", "\t", "id=", "x"}
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 20_000 {
		var values, heads []string
		for range 1 + r.IntN(2) {
			var b strings.Builder
			for range r.IntN(12) {
				b.WriteString(pieces[r.IntN(len(pieces))])
			}
			values = append(values, strings.Trim(b.String(), " \t"))
			heads = append(heads, "Cookie: "+b.String())
		}
		got, _, ok := headOf(t, heads...).Cookie([]byte("id"))
		want, there := byHand(values, "id")
		if ok != there || ok && string(got) != want {
			t.Fatalf("%q: %q %t, want %q %t", heads, got, ok, want, there)
		}
		if ok && want != "" {
			found++
		}
	}
	if found < 1000 {
		t.Errorf("only %d were there", found)
	}
}

func TestConnectionCannotNameWhatMatters(t *testing.T) {
	h := headOf(t, "Connection: Host, content-length, X-Forwarded-For, via, X-Original-URL, cookie, x-own", "Host: a", "Content-Length: 1", "X-Forwarded-For: 1.1.1.1",
		"Via: 1.1 a", "X-Original-URL: /", "Cookie: a=b", "X-Own: 1")
	for i, dropped := range []bool{true, false, false, false, false, false, true, true} {
		if h.Lines[i].Drop != dropped {
			t.Errorf("%s: dropped %t, want %t", h.Lines[i].Name, h.Lines[i].Drop, dropped)
		}
	}
}
