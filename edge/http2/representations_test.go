package http2

import (
	"bytes"
	"testing"

	"golang.org/x/net/http2/hpack"
	"pgregory.net/rapid"
)

// The table's size changes before the first field or not at all, in whatever pieces a block comes.
func TestSizeChangesComeFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var block bytes.Buffer
		e := hpack.NewEncoder(&block)
		for range rapid.IntRange(0, 2).Draw(t, "changes") {
			e.SetMaxDynamicTableSize(rapid.Uint32Range(0, 4096).Draw(t, "size"))
		}
		fields := rapid.IntRange(1, 6).Draw(t, "fields")
		for range fields {
			f := hpack.HeaderField{
				Name:      rapid.SampledFrom([]string{":method", ":path", "a", "accept", "x-long"}).Draw(t, "name"),
				Value:     string(bytes.Repeat([]byte{'<'}, rapid.SampledFrom([]int{0, 1, 126, 127, 128, 300, 20_000}).Draw(t, "length"))),
				Sensitive: rapid.Bool().Draw(t, "sensitive"),
			}
			if err := e.WriteField(f); err != nil {
				t.Fatal(err)
			}
		}
		scan := func(b []byte) bool {
			var r representations
			for len(b) > 0 {
				n := rapid.IntRange(1, len(b)).Draw(t, "piece")
				if !r.scan(b[:n]) {
					return false
				}
				b = b[n:]
			}
			return true
		}
		if !scan(block.Bytes()) {
			t.Errorf("%x is refused", block.Bytes())
		}
		block.WriteByte(0x20) // the size becomes 0
		if scan(block.Bytes()) {
			t.Errorf("%x is taken", block.Bytes())
		}
	})
}

// A length that is written with more bytes than it needs is that length, here and to the decoder.
func TestSizeChangesAfterPaddedLengths(t *testing.T) {
	block := []byte{0, 1, 'x', 0x7f, 130 - 0x7f | 0x80, 0x80, 0x80, 0x80, 0x80, 0}
	block = append(block, bytes.Repeat([]byte{'0'}, 130)...)
	got := 0
	d := hpack.NewDecoder(4096, func(f hpack.HeaderField) { got = len(f.Value) })
	if _, err := d.Write(block); err != nil || got != 130 {
		t.Fatalf("decoded: %d bytes, %v", got, err)
	}
	var r representations
	if !r.scan(block) {
		t.Error("a padded length is refused")
	}
	if r.scan([]byte{0x20}) {
		t.Error("a change of the size after it is taken")
	}
}
