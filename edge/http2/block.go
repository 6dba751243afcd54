package http2

import (
	"sluice/edge/message"
)

// Blocks of header fields are written without the table that both sides could keep (RFC 7541): a
// block says the same on every connection, so it can be made before, and no client makes the edge
// keep or search anything.

// appendStatus begins the block of an answer.
func appendStatus(b []byte, status int) []byte {
	switch status {
	case 200:
		return append(b, 0x88)
	case 204:
		return append(b, 0x89)
	case 206:
		return append(b, 0x8a)
	case 304:
		return append(b, 0x8b)
	case 400:
		return append(b, 0x8c)
	case 404:
		return append(b, 0x8d)
	case 500:
		return append(b, 0x8e)
	}
	return append(b, 0x08, 3, byte('0'+status/100%10), byte('0'+status/10%10), byte('0'+status%10))
}

// appendField appends a field. Names are in small letters in HTTP/2.
func appendField[T string | []byte](b []byte, name T, value []byte) []byte {
	b = appendLength(append(b, 0), len(name))
	for i := range len(name) {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		b = append(b, c)
	}
	return append(appendLength(b, len(value)), value...)
}

// appendLength appends the length of a string that is not compressed.
func appendLength(b []byte, n int) []byte {
	if n < 0x7f {
		return append(b, byte(n))
	}
	b = append(b, 0x7f)
	for n -= 0x7f; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// Block is fields as they stand in the block of any answer.
func Block(fields []message.Field) []byte { return appendFields(nil, fields) }

func appendFields(b []byte, fields []message.Field) []byte {
	for i := range fields {
		b = appendField(b, fields[i].Name, fields[i].Value)
	}
	return b
}

// appendAnswer appends the head of an origin's answer as a client may get it: without what ends at
// this hop, and without lines whose names are not for the origin to say. One that switches
// protocols is a success in HTTP/2, and says nothing of the edge's own key.
func appendAnswer(b []byte, a *message.Answer, ours func(status int, name []byte) bool) []byte {
	status := a.Status
	if a.Protocol != nil {
		status = 200
	}
	b = appendStatus(b, status)
	for i := range a.Head.Lines {
		l := &a.Head.Lines[i]
		if l.Drop || ours(status, l.Name) || l.Kind == message.ContentLength && (a.Status < 200 ||
			a.Status == 204) ||
			a.Protocol != nil && message.EqualFold(l.Name, "sec-websocket-accept") {
			continue
		}
		b = appendField(b, l.Name, l.Value)
	}
	return b
}
