package message

import "strings"

// Names is a set of header names: by what they are in small letters, as they are written. It has
// its own copies. One look-up costs the length of the name, however many there are: nothing that a
// stranger lists is compared with all that he sends.
type Names map[string]string

func (n *Names) Add(name []byte) {
	if *n == nil {
		*n = make(Names)
	}
	text := string(name)
	(*n)[strings.ToLower(text)] = text
}

func (n Names) Has(name []byte) bool {
	_, found := n.Get(name)
	return found
}

func (n Names) Get(name []byte) (written string, found bool) {
	if len(n) == 0 {
		return "", false
	}
	var buf [64]byte
	lower := buf[:0]
	for _, c := range name {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		lower = append(lower, c)
	}
	written, found = n[string(lower)]
	return written, found
}
