package secret

import (
	"encoding/binary"
	"time"
)

// Reader reads what was sealed: numbers in big endian, and pieces. Beyond the end it gives zeros,
// and is bad.
type Reader struct {
	rest []byte
	bad  bool
}

// Whole reports whether all was read, and nothing that was not there.
func (r *Reader) Whole() bool { return !r.bad && len(r.rest) == 0 }

// Bad reports whether more was read than there is.
func (r *Reader) Bad() bool { return r.bad }

// Next is the next n bytes.
func (r *Reader) Next(n int) []byte {
	if n > len(r.rest) {
		r.rest, r.bad = nil, true
		return make([]byte, n)
	}
	piece := r.rest[:n]
	r.rest = r.rest[n:]
	return piece
}

// Rest is all that has not been read yet.
func (r *Reader) Rest() []byte { return r.Next(len(r.rest)) }

// Number is that of the next size bytes.
func (r *Reader) Number(size int) (n uint64) {
	for _, b := range r.Next(size) {
		n = n<<8 | uint64(b)
	}
	return n
}

// Uvarint is a number as binary.AppendUvarint writes it.
func (r *Reader) Uvarint() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.rest, r.bad = nil, true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// Time reads what AppendTime wrote.
func (r *Reader) Time() time.Time {
	if n := int64(r.Number(8)); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

// AppendTime writes nanoseconds since 1970, 0 for no time.
func AppendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return binary.BigEndian.AppendUint64(b, 0)
	}
	return binary.BigEndian.AppendUint64(b, uint64(t.UnixNano()))
}
