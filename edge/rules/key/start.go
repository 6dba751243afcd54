package key

import (
	"encoding/binary"
	"unicode/utf8"

	"sluice/counter"
	"sluice/edge/message"
)

// MaxStart is how much of a key may be shown, in characters.
const MaxStart = 16

// A Start is the first characters of a key, for operators: never the whole key, and at most half of
// it. The zero Start is none.
type Start struct {
	text [MaxStart]byte
	n    uint8
}

// StartOf is the first n characters of a key, and no more than half of those that it has.
func StartOf(value []byte, n int) (s Start) {
	enough := value[:min(len(value), 2*MaxStart*utf8.UTFMax)] // a key may have 32 KiB
	n = min(n, utf8.RuneCount(enough)/2)
	for len(value) > 0 && n > 0 {
		_, size := utf8.DecodeRune(value)
		if int(s.n)+size > MaxStart {
			break
		}
		s.n += uint8(copy(s.text[s.n:], value[:size]))
		value, n = value[size:], n-1
	}
	return s
}

// String is the characters.
func (s Start) String() string { return string(s.text[:s.n]) }

// AreOpen reports whether AppendOpen shows what a key has of a request.
func AreOpen(parts []Part) (open bool) {
	for i := range parts {
		switch parts[i].Kind {
		case Host, Path:
			open = true
		case Source, Global:
		default:
			return false
		}
	}
	return open
}

// AppendOpen appends the host and the path, as far as the parts have them, which are no secrets and
// which the client can know of its next request: the values with a space between two. It reports
// false if there is no room in b for them.
func AppendOpen(b []byte, parts []Part, q *message.Request) (_ []byte, ok bool) {
	from := len(b)
	for i := range parts {
		value := q.Host
		switch p := &parts[i]; p.Kind {
		case Host:
		case Path:
			value = p.segments(q.Path)
		default:
			continue
		}
		if len(b)+1+len(value) > cap(b) {
			return b, false
		}
		if len(b) > from {
			b = append(b, ' ')
		}
		b = append(b, value...)
	}
	return b, true
}

// ReadStart reads what String wrote.
func ReadStart(text string) (s Start) {
	s.n = uint8(copy(s.text[:], text))
	return s
}

// AppendText appends them.
func (s *Start) AppendText(b []byte) []byte { return append(b, s.text[:s.n]...) }

// A Counted is a key that a request was counted by.
type Counted struct {
	By     string         // what it is of, as the rule has it
	Digest counter.Source // of the key
	Start  Start          // its first characters, where a rule shows them
}

// Look looks at what Digest has hashed for a key of these parts: whether that names a client by
// something of theirs, a header, a cookie, a parameter or who they are (Fact.Who), or the key has
// none of these; and the first n characters of the first of them.
func Look(parts []Part, hashed []byte, n int) (start Start, named bool) {
	named = true
	for i := range parts {
		chosen := false
		switch p := &parts[i]; p.Kind {
		case Header, Cookie, Query:
			chosen = true
		case Known:
			chosen = p.fact.Who != ""
		}
		if Kind(hashed[0]) == Source { // it counts for its address
			named = named && !chosen
			hashed = hashed[1+counter.SourceSize:]
			continue
		}
		value, rest := hashed[5:], []byte(nil)
		size := binary.LittleEndian.Uint32(hashed[1:])
		value, rest = value[:size], value[size:]
		if hashed = rest; !chosen {
			continue
		}
		if n > 0 {
			start = StartOf(value, n)
		}
		return start, true
	}
	return start, named
}
