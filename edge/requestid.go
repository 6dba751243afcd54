package edge

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"

	"sluice/edge/message"
)

// maxRequestID bounds the name that a trusted peer has given a request, in bytes.
const maxRequestID = 128

// requestNames make names of requests, 32 hexadecimal digits: half of them are this process's, drawn at its start, the other half the
// request's number, spread over all 64 bits. So no two edges and no two requests share a name, and none tells how busy the edge is at
// first sight. They are no secret.
type requestNames struct {
	prefix [16]byte
	offset uint64
}

func newRequestNames() (n requestNames) {
	var random [16]byte
	rand.Read(random[:])
	hex.Encode(n.prefix[:], random[:8])
	n.offset = binary.BigEndian.Uint64(random[8:])
	return n
}

// append appends the name of a request. The finaliser of SplitMix64 maps no two numbers to one.
func (n *requestNames) append(b []byte, number uint64) []byte {
	x := number + n.offset
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	var digits [8]byte
	binary.BigEndian.PutUint64(digits[:], x)
	return hex.AppendEncode(append(b, n.prefix[:]...), digits[:])
}

// requestID is what the request is called in its answer, to the origin and in the log: what a trusted peer calls it, or a name of the
// edge's own.
func (x *exchange) requestID() []byte {
	if x.id != nil {
		return x.id
	}
	if x.trusted {
		for i := range x.Head.Lines {
			if l := &x.Head.Lines[i]; l.Kind == message.RequestID && !l.Drop && isRequestID(l.Value) {
				x.id = append(x.idText[:0], l.Value...)
				return x.id
			}
		}
	}
	x.id = x.server.names.append(x.idText[:0], x.number)
	return x.id
}

// isRequestID reports whether a name may be passed on: it is of visible characters, and not too long.
func isRequestID(name []byte) bool {
	for _, c := range name {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return len(name) > 0 && len(name) <= maxRequestID
}
