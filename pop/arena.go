package pop

import "strings"

// arena is where keys and values of reports are written, because a thousand small pieces of memory cost more than a large one. It
// is free when the last of them is.
type arena struct {
	text   strings.Builder
	values []byte
}

const arenaSize = 4096

// write returns what it is given, as a string.
func (a *arena) write(text []byte) string {
	if a.text.Cap()-a.text.Len() < len(text) {
		a.text.Reset()
		a.text.Grow(arenaSize)
	}
	from := a.text.Len()
	a.text.Write(text)
	return a.text.String()[from:]
}

// number is a value of 20 digits.
func (a *arena) number(n uint64) []byte {
	const digits = 20
	if cap(a.values)-len(a.values) < digits {
		a.values = make([]byte, 0, arenaSize)
	}
	from := len(a.values)
	a.values = a.values[:from+digits]
	value := a.values[from : from+digits : from+digits]
	for i := len(value) - 1; i >= 0; i-- {
		value[i] = byte('0' + n%10)
		n /= 10
	}
	return value
}
