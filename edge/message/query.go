package message

import "bytes"

// Query is what follows the first question mark of a target.
func Query(target []byte) []byte {
	_, query, _ := bytes.Cut(target, []byte{'?'})
	return query
}

// A Split says at which bytes servers split a query into parameters.
type Split string

const (
	Ampersands Split = "&"
	Semicolons Split = "&;" // as HTML 4 advised; older Python, Perl and Java do
)

// Parameter returns the value, as it came, of the query's parameters of this name, as the laxest of common servers take names (foldCookie;
// PHP also leaves out spaces before one, ends it at a null byte, and has a[] for an array a). It is nil if there are none, and ok is
// false if they differ. Once reports that there is one, of this very name.
func Parameter(query, name []byte, at Split) (value []byte, once, ok bool) {
	for len(query) > 0 {
		var pair []byte
		if i := indexSplit(query, at); i >= 0 {
			pair, query = query[:i], query[i+1:]
		} else {
			pair, query = query, nil
		}
		if len(pair) < len(name) {
			continue
		}
		key, v, assigned := bytes.Cut(pair, []byte{'='})
		if !isParameter(key, name) {
			continue
		}
		if !assigned {
			v = pair[len(pair):]
		}
		if value != nil && !bytes.Equal(value, v) {
			return nil, false, false
		}
		once = value == nil && bytes.Equal(key, name)
		value = v
	}
	return value, once, true
}

func indexSplit(query []byte, at Split) int {
	if at == Ampersands {
		return bytes.IndexByte(query, '&')
	}
	return bytes.IndexAny(query, string(at))
}

// isParameter compares a name as it came with one that is not encoded and does not begin with a space.
func isParameter(key, name []byte) bool {
	n := 0
	for i := 0; i < len(key); i++ {
		c := key[i]
		if c == '+' {
			c = ' '
		} else if b, ok := Escaped(key[i:]); ok {
			c = b
			i += 2
		}
		switch {
		case c == ' ' && n == 0:
		case n == len(name):
			return c == 0 || c == '['
		case foldCookie(c) != foldCookie(name[n]):
			return false
		default:
			n++
		}
	}
	return n == len(name)
}

// Escaped returns the byte that text begins with as %61.
func Escaped(text []byte) (byte, bool) {
	if len(text) < 3 || text[0] != '%' {
		return 0, false
	}
	high, low := Unhex(text[1]), Unhex(text[2])
	return byte(high<<4 | low), high >= 0 && low >= 0
}

// IsOddQuery reports whether a query has what only some servers decode: %u0061.
func IsOddQuery(query []byte) bool {
	return bytes.Contains(query, []byte("%u00")) || bytes.Contains(query, []byte("%U00"))
}
