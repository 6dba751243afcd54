package record

import "encoding/binary"

// An item of the log is some sealed records, each behind its length in two bytes.

// Append adds a sealed record to an item.
func Append(item, sealed []byte) []byte {
	return append(binary.BigEndian.AppendUint16(item, uint16(len(sealed))), sealed...)
}

// Cut cuts the first record off an item. It is nil if there is no whole one.
func Cut(item []byte) (sealed, rest []byte) {
	if len(item) < 2 {
		return nil, item
	}
	n := 2 + int(binary.BigEndian.Uint16(item))
	if n > len(item) {
		return nil, item
	}
	return item[2:n:n], item[n:]
}

// Count is how many whole records an item has.
func Count(item []byte) (n int) {
	for sealed, rest := Cut(item); sealed != nil; sealed, rest = Cut(rest) {
		n++
	}
	return n
}
