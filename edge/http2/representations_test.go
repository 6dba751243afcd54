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
