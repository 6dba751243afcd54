package http2

// representations follows a block of fields through its pieces, byte by byte, to see that the size
// of the table changes before the first field, or not at all (RFC 7541, 4.2). The decoder checks
// that only once its table has something in it. The zero value is ready for the next block.
type representations struct {
	next    following
	strings uint8 // of the field that are yet to come
	begun   bool  // a field has come
	shift   uint8 // of the number that is being read
	left    uint32
}

// A following is what the next byte belongs to.
type following uint8

const (
	aField  following = iota
	anIndex           // the rest of a number that is not needed
	aLength           // of a string
	moreLength
	aString
)

// longest bounds the length of a string as a number of bits: what is longer is for the decoder to
// refuse. It takes a short one that is written with more bytes than it needs.
const longest = 28

// scan reads a piece, and reports false for a change that comes too late. What else is wrong is for
// the decoder to find.
func (r *representations) scan(piece []byte) bool {
	for i := 0; i < len(piece); {
		c := piece[i]
		if r.next != aString {
			i++
		}
		switch r.next {
		case aField:
			if !r.field(c) {
				return false
			}
		case anIndex:
			if c&0x80 == 0 {
				r.then()
			}
		case aLength:
			if r.left = uint32(c & 0x7f); r.left == 0x7f {
				r.next, r.shift = moreLength, 0
			} else {
				r.begin()
			}
		case moreLength:
			if r.shift < longest {
				r.left += uint32(c&0x7f) << r.shift
				r.shift += 7
			}
			if c&0x80 == 0 {
				r.begin()
			}
		case aString:
			n := min(int(r.left), len(piece)-i)
			i += n
			if r.left -= uint32(n); r.left == 0 {
				r.strings--
				r.then()
			}
		}
	}
	return true
}

// field reads how a field is written (RFC 7541, 6): how long the number in its first byte is, and
// how many strings follow.
func (r *representations) field(c byte) bool {
	most := byte(0x0f) // not added to the table
	switch {
	case c&0x80 != 0:
		most = 0x7f // all of it is in a table
	case c&0x40 != 0:
		most = 0x3f // added to the table
	case c&0x20 != 0:
		most = 0x1f // a change of the table's size
	}
	number := c & most
	r.strings = 0
	switch {
	case most == 0x1f && r.begun:
		return false
	case most == 0x1f:
	case most == 0x7f:
		r.begun = true
	default:
		if r.begun, r.strings = true, 1; number == 0 {
			r.strings = 2 // the name comes, too
		}
	}
	if r.next = anIndex; number != most {
		r.then()
	}
	return true
}

// begin begins a string.
func (r *representations) begin() {
	if r.next = aString; r.left == 0 {
		r.strings--
		r.then()
	}
}

// then goes on to what follows.
func (r *representations) then() {
	if r.next = aField; r.strings > 0 {
		r.next = aLength
	}
}
