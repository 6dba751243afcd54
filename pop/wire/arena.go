package wire

import "strings"

// Arena is where keys and values of reports are written, because a thousand small pieces of memory
// cost more than a large one. It is free when the last of them is.
type Arena struct {
	text   strings.Builder
	values []byte
}

const arenaSize = 4096

// Write returns what it is given, as a string.
func (a *Arena) Write(text []byte) string {
	if a.text.Cap()-a.text.Len() < len(text) {
		a.text.Reset()
		a.text.Grow(arenaSize)
	}
	from := a.text.Len()
	a.text.Write(text)
	return a.text.String()[from:]
}

// Number is a value of 20 digits.
func (a *Arena) Number(n uint64) []byte {
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

// ParseNumber reads a number as memcached keeps it: digits, with spaces behind where a longer
// number stood.
func ParseNumber(v []byte) (n uint64, ok bool) {
	for len(v) > 0 && v[len(v)-1] == ' ' {
		v = v[:len(v)-1]
	}
	if len(v) == 0 || len(v) > 20 {
		return 0, false
	}
	for _, d := range v {
		if d < '0' || d > '9' || n > (1<<63)/10 {
			return 0, false
		}
		n = n*10 + uint64(d-'0')
	}
	return n, true
}
