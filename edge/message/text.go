package message

import (
	"bytes"
	"encoding/binary"
)

// EqualFold compares with a string of the same length that is in lower case.
func EqualFold(name []byte, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// IsToken reports whether s is a token of RFC 9110, 5.6.2.
func IsToken(s []byte) bool {
	for _, c := range s {
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' ||
			c == '_':
		case bytes.IndexByte([]byte("!#$%&'*+.^`|~"), c) >= 0:
		default:
			return false
		}
	}
	return len(s) > 0
}

// IsText reports whether a value has no control bytes (RFC 9110, 5.5), eight bytes at a time.
func IsText(s []byte) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for len(s) >= 8 {
		v := binary.LittleEndian.Uint64(s)
		del := v ^ 0x7f*ones
		if ((v-0x20*ones)&^v|(del-ones)&^del)&high != 0 && !isPlainText(s[:8]) {
			return false
		}
		s = s[8:]
	}
	return isPlainText(s)
}

func isPlainText(s []byte) bool {
	for _, c := range s {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// IsMethod reports whether s is a method as all servers take it. HTTP allows small letters and
// distinguishes get from GET (RFC 9110, 9.1), but many an origin does not, and a rule about POST
// must not be dodged by writing post.
func IsMethod(s []byte) bool {
	for _, c := range s {
		if 'a' <= c && c <= 'z' {
			return false
		}
	}
	return IsToken(s)
}

func TrimSpace(s []byte) []byte {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// SplitList splits a header value at its commas.
func SplitList(value []byte) [][]byte {
	if len(value) == 0 {
		return nil
	}
	parts := bytes.Split(value, []byte{','})
	for i := range parts {
		parts[i] = TrimSpace(parts[i])
	}
	return parts
}
