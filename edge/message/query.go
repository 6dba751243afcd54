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
	return bytes.IndexByte(query, '%') >= 0 && (bytes.Contains(query, []byte("%u00")) || bytes.Contains(query, []byte("%U00")))
}
