package message

import (
	"bytes"
	"strings"
)

// Query is what follows the first question mark of a target.
func Query(target []byte) []byte {
	_, query, _ := bytes.Cut(target, []byte{'?'})
	return query
}

// A Split is a way in which servers take the query off a target, and apart into parameters.
type Split uint8

const (
	Ampersands Split = iota // what follows the first question mark, at ampersands
	// At semicolons as well, as HTML 4 advised; older Python, Perl and Java do
	Semicolons
	// What follows the first semicolon of the path, at ampersands (find-my-way, and so Fastify)
	AfterSemicolon

	Splits // how many there are
)

// Query is what is split of a target.
func (at Split) Query(target []byte) []byte {
	if at == AfterSemicolon {
		path, _, _ := bytes.Cut(target, []byte{'?'})
		if i := bytes.IndexByte(path, ';'); i >= 0 {
			return target[i+1:]
		}
		return nil
	}
	return Query(target)
}

// Differs reports whether a target has other parameters for a split than for Ampersands.
func (at Split) Differs(target []byte) bool {
	switch at {
	case Semicolons:
		return bytes.IndexByte(Query(target), ';') >= 0
	case AfterSemicolon:
		return len(at.Query(target)) > 0
	}
	return false
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
	return bytes.IndexByte(query, '%') >= 0 && (bytes.Contains(query, []byte("%u00")) ||
		bytes.Contains(query, []byte("%U00")))
}

// HasOddCharset reports whether Content-Type names a character set in which ASCII has other
// spellings (UTF-7, ISO-2022-JP, HZ, and those of Python like unicode_escape), or names it in an
// odd way. Django and ASP.NET decode the query by it, of whatever method.
func (h *Head) HasOddCharset() bool {
	for i := range h.Lines {
		l := &h.Lines[i]
		if l.Drop || !isSpelling(l.Name, contentType, foldHeader) {
			continue
		}
		for rest := bytes.ToLower(l.Value); ; {
			_, after, found := bytes.Cut(rest, []byte("charset"))
			if !found {
				break
			}
			sent, _, _ := bytes.Cut(after, []byte{';'})
			name, assigned := bytes.CutPrefix(TrimSpace(sent), []byte{'='})
			if name = TrimSpace(name); len(name) > 1 && name[0] == '"' && name[len(name)-1] == '"' {
				name = name[1 : len(name)-1]
			}
			if !assigned || !isPlainCharset(string(name)) {
				return true
			}
			rest = after
		}
	}
	return false
}

var contentType = []byte("content-type")

// isPlainCharset reports whether every byte of ASCII, and nothing else, is its own character of
// ASCII in a character set.
func isPlainCharset(name string) bool {
	switch name {
	case "", "utf-8", "utf8", "us-ascii", "ascii":
		return true
	}
	for _, family := range [...]string{"iso-8859-", "windows-125"} {
		if n, ok := strings.CutPrefix(name, family); ok && len(n) > 0 && len(n) <= 2 {
			return strings.Trim(n, "0123456789") == ""
		}
	}
	return false
}
