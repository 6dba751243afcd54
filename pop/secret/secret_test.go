package secret

import (
	"encoding/binary"
	"testing"
)

// TestSecretsAreApart: no two uses share a key, and what a client sends is not hashed under that of a MAC.
func TestSecretsAreApart(t *testing.T) {
	s := Of([]byte("test"))
	seen := make(map[key]bool)
	for _, k := range []key{s.names, s.records, s.words, s.presence, s.clients} {
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
