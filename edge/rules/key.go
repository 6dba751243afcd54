package rules

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/dchest/siphash"

	"sluice/counter"
	"sluice/edge/message"
)

// A KeyPart is one of the things that a rule tells sources apart by.
type KeyPart struct {
	Kind keyKind
	Name []byte // of the header or cookie
}

type keyKind uint8

const (
	keySource keyKind = iota
	keyHeader
	keyCookie
	keyQuery

	shareOf = 0xff // begins what is hashed of a rule and a source, and no key
)

// ParseKeyPart reads source, header:NAME or cookie:NAME.
func ParseKeyPart(text string) (KeyPart, error) {
	kind, name, named := strings.Cut(text, ":")
	switch {
	case text == "source":
		return KeyPart{Kind: keySource}, nil
	case named && kind == "header" && message.IsToken([]byte(name)):
		return KeyPart{Kind: keyHeader, Name: []byte(strings.ToLower(name))}, nil
	case named && kind == "cookie" && message.IsToken([]byte(name)):
		return KeyPart{Kind: keyCookie, Name: []byte(name)}, nil
	}
	return KeyPart{}, fmt.Errorf("%q is not possible: want source, header:NAME or cookie:NAME", text)
}

// A Secret keys the digests of what clients send, so that nobody can make two values that count as one, or guess another's.
type Secret struct{ k0, k1 uint64 }

func NewSecret(b [16]byte) Secret {
	return Secret{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// digest is the source that a rule counts a request for when its key is more than the source. Every part goes in with its
// kind and length, so that no two lists of values run together. A header or cookie that is missing or empty, or does not go to the
// origin, names nobody: then the request counts for its source, in a bucket apart from every value that anybody could send.
//
// It reports false for one that is there several times with different values, of which origins take one or another, or in a form
// that they may not read alike.
func (k Secret) digest(parts []KeyPart, q *message.Request, source counter.Source, buf []byte) (counter.Source, []byte, bool) {
	buf = buf[:0]
	for _, p := range parts {
		from := len(buf)
		buf = append(buf, byte(p.Kind), 0, 0, 0, 0)
		value := len(buf)
		var ok bool
		if buf, ok = p.append(buf, q); !ok {
			return counter.Source{}, buf, false
		}
		if len(buf) > value {
			binary.LittleEndian.PutUint32(buf[from+1:], uint32(len(buf)-value))
			continue
		}
		buf = append(buf[:from], byte(keySource))
		buf = source.AppendBinary(buf)
	}
	var d [16]byte
	a, b := siphash.Hash128(k.k0, k.k1, buf)
	binary.LittleEndian.PutUint64(d[:8], a)
	binary.LittleEndian.PutUint64(d[8:], b)
	return counter.SourceOfDigest(d), buf, true
}

// append appends what a request has of a header or cookie, in one form for all that origins take for the same.
func (p *KeyPart) append(buf []byte, q *message.Request) ([]byte, bool) {
	if p.Kind == keySource {
		return buf, true
	}
	value, _, ok := p.find(q, message.Ampersands)
	if !ok || len(value) == 0 {
		return buf, ok
	}
	return p.form(buf, value)
}

// find is the one value that a request has; nil: none. It reports false if there are several.
func (p *KeyPart) find(q *message.Request, at message.Split) (value []byte, once, ok bool) {
	switch p.Kind {
	case keyCookie:
		return q.Head.Cookie(p.Name)
	case keyQuery:
		query := message.Query(q.Target)
		if message.IsOddQuery(query) {
			return nil, false, false
		}
		return message.Parameter(query, p.Name, at)
	}
	return q.Head.Header(p.Name)
}

// form appends a value in one form for all that origins take for the same. It reports false for one that they may not read alike.
func (p *KeyPart) form(buf, value []byte) ([]byte, bool) {
	switch p.Kind {
	case keyCookie:
		return appendCookie(buf, value)
	case keyQuery:
		return appendParameter(buf, value)
	}
	switch string(p.Name) {
	case "authorization":
		return appendCredentials(buf, value)
	case "host":
		return message.AppendHost(buf, value)
	}
	return append(buf, value...), true
}

var strictBase64 = base64.StdEncoding.Strict()

// appendCredentials appends a value of Authorization (RFC 9110, 11.4): the scheme, which has no case, one space, and the rest. Basic
// credentials are what they encode (RFC 7617), because many servers pass over what is no base64. One word alone is no scheme
// but a key of the site's own.
func appendCredentials(buf, value []byte) ([]byte, bool) {
	i := bytes.IndexAny(value, " \t")
	if i < 0 {
		return append(buf, value...), true
	}
	from := len(buf)
	for _, c := range value[:i] {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		buf = append(buf, c)
	}
	basic := string(buf[from:]) == "basic"
	buf, value = append(buf, ' '), message.TrimSpace(value[i:])
	if !basic {
		return append(buf, value...), true
	}
	n := len(buf)
	buf = slices.Grow(buf, base64.StdEncoding.DecodedLen(len(value)))
	m, err := strictBase64.Decode(buf[n:cap(buf)], value)
	return buf[:n+m], err == nil
}

// appendCookie appends the value of a cookie as it is after whatever servers do to one: some take quotes around it away, some decode
// %61, some take a plus for a space. What they read further apart, browsers do not send of their own accord: other quotes,
// backslashes (Python takes "\141" for a), commas (which once were separators), other white space and letters beyond ASCII (RFC 6265, 4.1.1).
func appendCookie(buf, value []byte) ([]byte, bool) {
	if n := len(value); n > 1 && value[0] == '"' && value[n-1] == '"' {
		value = value[1 : n-1]
	}
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case c == '"' || c == '\\' || c == ',' || c == '\t' || c >= 0x7f:
			return buf, false
		case c == '%':
			if b, ok := message.Escaped(value[i:]); ok {
				c = b
				i += 2
			}
		}
		if c == '+' {
			c = ' '
		}
		buf = append(buf, c)
	}
	return buf, true
}

// appendParameter appends the value of a parameter, decoded. A null byte ends it for some.
func appendParameter(buf, value []byte) ([]byte, bool) {
	for i := 0; i < len(value); i++ {
		c := value[i]
		if b, ok := message.Escaped(value[i:]); ok {
			c = b
			i += 2
		}
		switch c {
		case 0:
			return buf, false
		case '+':
			c = ' '
		}
		buf = append(buf, c)
	}
	return buf, true
}
