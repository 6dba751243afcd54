package edge

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/dchest/siphash"

	"sluice/counter"
)

// A keyPart is one of the things that a rule tells sources apart by.
type keyPart struct {
	kind keyKind
	name []byte // of the header or cookie
}

type keyKind uint8

const (
	keySource keyKind = iota
	keyHeader
	keyCookie
)

// parseKeyPart reads source, header:NAME or cookie:NAME.
func parseKeyPart(text string) (keyPart, error) {
	kind, name, named := strings.Cut(text, ":")
	switch {
	case text == "source":
		return keyPart{kind: keySource}, nil
	case named && kind == "header" && isToken([]byte(name)):
		return keyPart{kind: keyHeader, name: []byte(strings.ToLower(name))}, nil
	case named && kind == "cookie" && isToken([]byte(name)):
		return keyPart{kind: keyCookie, name: []byte(name)}, nil
	}
	return keyPart{}, fmt.Errorf("%q is not possible: want source, header:NAME or cookie:NAME", text)
}

// A secret keys the digests of what clients send, so that nobody can make two values that count as one, or guess another's.
type secret struct{ k0, k1 uint64 }

func newSecret(b [16]byte) secret {
	return secret{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// digest is the source that a rule counts a request for when its key is more than the source. Every part goes in with its
// kind and length, so that no two lists of values run together. A header or cookie that is missing, empty, or there
// several times names nobody: then the request counts for its source, in a bucket apart from every value that anybody
// could send.
func (k secret) digest(parts []keyPart, h *head, source counter.Source, buf []byte) (counter.Source, []byte) {
	buf = buf[:0]
	for _, p := range parts {
		var value []byte
		ok := false
		switch p.kind {
		case keyHeader:
			value, ok = h.only(p.name)
		case keyCookie:
			value, ok = h.cookie(p.name)
		}
		if !ok {
			buf = append(buf, byte(keySource))
			buf = source.AppendBinary(buf)
			continue
		}
		buf = append(buf, byte(p.kind))
		buf = binary.LittleEndian.AppendUint32(buf, uint32(len(value)))
		buf = append(buf, value...)
	}
	var d [16]byte
	a, b := siphash.Hash128(k.k0, k.k1, buf)
	binary.LittleEndian.PutUint64(d[:8], a)
	binary.LittleEndian.PutUint64(d[8:], b)
	return counter.SourceOfDigest(d), buf
}
