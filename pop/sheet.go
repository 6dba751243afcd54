package pop

import "strings"

// sheet is what keys and values of reports are written on, because a thousand small pieces of memory cost more than a large one. It
// is free when the last of them is.
type sheet struct {
	text   strings.Builder
	values []byte
}

const sheetSize = 4096

// write returns what it is given, as a string.
func (s *sheet) write(text []byte) string {
	if s.text.Cap()-s.text.Len() < len(text) {
		s.text.Reset()
		s.text.Grow(sheetSize)
	}
	from := s.text.Len()
	s.text.Write(text)
	return s.text.String()[from:]
}

// number is a value of 20 digits.
func (s *sheet) number(n uint64) []byte {
	const digits = 20
	if cap(s.values)-len(s.values) < digits {
		s.values = make([]byte, 0, sheetSize)
	}
	from := len(s.values)
	s.values = s.values[:from+digits]
	value := s.values[from : from+digits : from+digits]
	for i := len(value) - 1; i >= 0; i-- {
		value[i] = byte('0' + n%10)
		n /= 10
	}
	return value
}
