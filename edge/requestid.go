package edge

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"

	"sluice/edge/message"
)

// maxRequestID bounds the name that a trusted peer has given a request, in bytes.
const maxRequestID = 128

// appendRequestName appends a name for a request, 32 hexadecimal digits by chance: no two edges and
// no two requests share one. It is no secret.
func appendRequestName(b []byte) []byte {
	var random [16]byte
	binary.BigEndian.PutUint64(random[:8], rand.Uint64())
	binary.BigEndian.PutUint64(random[8:], rand.Uint64())
	return hex.AppendEncode(b, random[:])
}

// requestID is what the request is called in its answer, to the origin and in the log: what a
// trusted peer calls it, or a name of the edge's own.
func (x *Exchange) requestID() []byte {
	if x.id != nil {
		return x.id
	}
	if x.trusted {
		for i := range x.Head.Lines {
			if l := &x.Head.Lines[i]; l.Kind == message.RequestID && !l.Drop &&
				isRequestID(l.Value) {
				x.id = append(x.idText[:0], l.Value...)
				return x.id
			}
		}
	}
	x.id = appendRequestName(x.idText[:0])
	return x.id
}

// isRequestID reports whether a name may be passed on: it is of visible characters, and not too
// long.
func isRequestID(name []byte) bool {
	for _, c := range name {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return len(name) > 0 && len(name) <= maxRequestID
}
