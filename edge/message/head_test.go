package message_test

import (
	"bytes"
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

func TestConnectionCannotNameWhatMatters(t *testing.T) {
	h := headOf(t, "Connection: Host, content-length, X-Forwarded-For, via, X-Original-URL, cookie, x-own", "Host: a", "Content-Length: 1", "X-Forwarded-For: 1.1.1.1",
		"Via: 1.1 a", "X-Original-URL: /", "Cookie: a=b", "X-Own: 1")
	for i, dropped := range []bool{true, false, false, false, false, false, true, true} {
		if h.Lines[i].Drop != dropped {
			t.Errorf("%s: dropped %t, want %t", h.Lines[i].Name, h.Lines[i].Drop, dropped)
		}
	}
}
