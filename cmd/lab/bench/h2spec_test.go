package bench

import (
	"slices"
	"testing"
)

func TestH2SpecCases(t *testing.T) {
	got := h2specCases(`Generic tests for HTTP/2 server
  2. Streams and Multiplexing
    1: Sends a PRIORITY frame on idle stream

Hypertext Transfer Protocol Version 2 (HTTP/2)
  5. Streams and Multiplexing
    5.1. Stream States
      1: idle: Sends a DATA frame
      5.1.1. Stream Identifiers
        2: Sends stream identifier that is numerically smaller than previous

HPACK: Header Compression for HTTP/2
    2.3. Indexing Tables
      2.3.3. Index Address Space
          1: Sends a header field representation with invalid index
`)
	want := []h2specCase{
		{"generic/2/1", "Sends a PRIORITY frame on idle stream"},
		{"http2/5.1/1", "idle: Sends a DATA frame"},
		{"http2/5.1.1/2", "Sends stream identifier that is numerically smaller than previous"},
		{"hpack/2.3.3/1", "Sends a header field representation with invalid index"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
