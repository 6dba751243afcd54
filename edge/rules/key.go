package rules

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dchest/siphash"

	"sluice/counter"
	"sluice/edge/message"
	"sluice/edge/token"
)

// A KeyPart is one of the things that a rule tells sources apart by.
type KeyPart struct {
	Kind  keyKind
	Name  []byte // of the header, cookie, parameter or claim
	Depth int    // of a path: how many segments; 0: all
}

type keyKind uint8

const (
	keySource keyKind = iota
	keyHeader
	keyCookie
	keyQuery
	keyHost
	keyPath
	keyGlobal
	keyClaim
	keyDescriptor

	shareOf = 0xff // begins what is hashed of a rule and a source, and no key
)

// KeyForms are what a part of a key can be.
const KeyForms = "source, header:NAME, cookie:NAME, query:NAME, host, path, path:SEGMENTS, jwt:CLAIM or global"

// ParseKeyPart reads one of KeyForms.
func ParseKeyPart(text string) (KeyPart, error) {
	kind, name, named := strings.Cut(text, ":")
	switch {
	case text == "source":
		return KeyPart{Kind: keySource}, nil
	case text == "host":
		return KeyPart{Kind: keyHost}, nil
	case text == "path":
		return KeyPart{Kind: keyPath}, nil
	case text == "global":
		return KeyPart{Kind: keyGlobal}, nil
	case named && kind == "path":
		if n, err := strconv.Atoi(name); err == nil && n >= 1 && n <= 16 && strconv.Itoa(n) == name {
			return KeyPart{Kind: keyPath, Depth: n}, nil
		}
	case named && kind == "query" && message.IsToken([]byte(name)) && !strings.ContainsAny(name, "%+&#"):
		return KeyPart{Kind: keyQuery, Name: []byte(name)}, nil
	case named && kind == "header" && message.IsToken([]byte(name)):
		return KeyPart{Kind: keyHeader, Name: []byte(strings.ToLower(name))}, nil
	case named && kind == "cookie" && message.IsToken([]byte(name)):
		return KeyPart{Kind: keyCookie, Name: []byte(name)}, nil
	case named && kind == "jwt" && isClaim(name):
		return KeyPart{Kind: keyClaim, Name: []byte(name)}, nil
	}
	return KeyPart{}, fmt.Errorf("%q is not possible: want "+KeyForms, text)
}

// isClaim reports whether a key may be made of a claim of that name. It is the whole name, of a claim at the top: names have dots themselves
// (https://example.com/plan), so a dotted path could mean two claims.
func isClaim(name string) bool {
	return name != "" && len(name) <= 128 && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ',' || r == '"' })
}

// A Secret keys the digests of what clients send, so that nobody can make two values that count as one, or guess another's.
type Secret struct{ k0, k1 uint64 }

func NewSecret(b [16]byte) Secret {
	return Secret{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// digest is the source that a rule counts a request for when its key is more than the source. Every part goes in with its
// kind and length, so that no two lists of values run together. A header, cookie, parameter or host that is missing, or does not go to
// the origin, and a claim that nobody believed has made, names nobody: then the request counts for its source, in a bucket apart from every value that anybody could send. One that
// is there and empty is a value like others.
//
// It reports false for one that is there several times with different values, of which origins take one or another, or in a form
// that they may not read alike: so a path whose readings differ in what the key has of it.
func (k Secret) digest(parts []KeyPart, q *message.Request, claims *token.Claims, source counter.Source, buf []byte) (counter.Source, []byte, bool) {
	buf = buf[:0]
	for _, p := range parts {
		from := len(buf)
		buf = append(buf, byte(p.Kind), 0, 0, 0, 0)
		value := len(buf)
		var there, ok bool
		if p.Kind == keyClaim {
			said := claims.Of(p.Name)
			buf, there, ok = append(buf, said...), said != nil, true
		} else {
			buf, there, ok = p.append(buf, q)
		}
		if !ok {
			return counter.Source{}, buf, false
		}
		if there {
			binary.LittleEndian.PutUint32(buf[from+1:], uint32(len(buf)-value))
			continue
		}
		buf = append(buf[:from], byte(keySource))
		buf = source.AppendBinary(buf)
	}
	return k.sum(buf), buf, true
}

// sum is the digest of all that a key has of a request.
func (k Secret) sum(buf []byte) counter.Source {
	var d [16]byte
	a, b := siphash.Hash128(k.k0, k.k1, buf)
	binary.LittleEndian.PutUint64(d[:8], a)
	binary.LittleEndian.PutUint64(d[8:], b)
	return counter.SourceOfDigest(d)
}

// digestOf is the digest of a key of one part with this value.
func (k Secret) digestOf(kind keyKind, value []byte) counter.Source {
	return k.sum(append(binary.LittleEndian.AppendUint32([]byte{byte(kind)}, uint32(len(value))), value...))
}

// append appends what a request has of a part, in one form for all that origins take for the same, and reports whether it has it.
func (p *KeyPart) append(buf []byte, q *message.Request) (_ []byte, there, ok bool) {
	switch p.Kind {
	case keySource:
		return buf, false, true
	case keyGlobal:
		return buf, true, true
	case keyHost:
		return append(buf, q.Host...), len(q.Host) > 0, true
	case keyPath:
		buf, ok = p.appendPath(buf, q)
		return buf, true, ok
	}
	value, _, ok := p.find(q, message.Ampersands)
	if ok && p.Kind == keyQuery && bytes.IndexByte(message.Query(q.Target), ';') >= 0 {
		var other []byte
		other, _, ok = p.find(q, message.Semicolons)
		ok = ok && (value == nil) == (other == nil) && bytes.Equal(value, other)
	}
	if !ok || value == nil {
		return buf, false, ok
	}
	buf, ok = p.form(buf, value)
	return buf, true, ok
}

// appendPath appends the first segments of the path, and reports whether they are the same in every reading.
func (p *KeyPart) appendPath(buf []byte, q *message.Request) ([]byte, bool) {
	from := len(buf)
	buf = append(buf, p.segments(q.Path)...)
	group := buf[from:]
	for as := message.Reading(1); as <= q.Readings; as++ {
		if as&^q.Readings != 0 {
			continue
		}
		end := len(buf)
		buf, _ = message.Canonicalize(buf, message.RawPath(q.Target), as)
		same := bytes.Equal(group, p.segments(buf[end:]))
		if buf = buf[:end]; !same {
			return buf, false
		}
	}
	return buf, true
}

func (p *KeyPart) segments(path []byte) []byte {
	if p.Depth == 0 {
		return path
	}
	slashes := 0
	for i, c := range path {
		if c == '/' {
			if slashes++; slashes > p.Depth {
				return path[:i]
			}
		}
	}
	return path
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
