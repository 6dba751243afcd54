// Package key is by what rules tell sources apart: parts of a request, each in one form for all that origins take for the same, and a digest of
// them under a secret. What origins may read in several ways has no digest.
package key

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

// A Part is one of the things that a rule tells sources apart by.
type Part struct {
	Kind  Kind
	Name  []byte // of the header, cookie, parameter or claim
	Depth int    // of a path: how many segments; 0: all

	names *Names // those to which it was added, for which a View looks at the same time
	place int    // among them
}

// A Kind says what of a request a Part is.
type Kind uint8

const (
	Source Kind = iota // not of the request: who asks
	Header
	Cookie
	Query
	Host
	Path
	Global
	Claim
	Descriptor // all entries of one; no part of a request has it

	shareOf = 0xff // begins what is hashed of a rule and a source, and no key
	apart   = 0xfe // begins what is hashed of a part's name and a source, and no key
)

// Forms are what a part of a key can be.
const Forms = "source, header:NAME, cookie:NAME, query:NAME, host, path, path:SEGMENTS, jwt:CLAIM or global"

// Parse reads one of Forms.
func Parse(text string) (Part, error) {
	kind, name, named := strings.Cut(text, ":")
	switch {
	case text == "source":
		return Part{Kind: Source}, nil
	case text == "host":
		return Part{Kind: Host}, nil
	case text == "path":
		return Part{Kind: Path}, nil
	case text == "global":
		return Part{Kind: Global}, nil
	case named && kind == "path":
		if n, err := strconv.Atoi(name); err == nil && n >= 1 && n <= 16 && strconv.Itoa(n) == name {
			return Part{Kind: Path, Depth: n}, nil
		}
	case named && kind == "query" && message.IsToken([]byte(name)) && !strings.ContainsAny(name, "%+&#"):
		return Part{Kind: Query, Name: []byte(name)}, nil
	case named && kind == "header" && message.IsToken([]byte(name)):
		return Part{Kind: Header, Name: []byte(strings.ToLower(name))}, nil
	case named && kind == "cookie" && message.IsToken([]byte(name)):
		return Part{Kind: Cookie, Name: []byte(name)}, nil
	case named && kind == "jwt" && isClaim(name):
		return Part{Kind: Claim, Name: []byte(name)}, nil
	}
	return Part{}, fmt.Errorf("%q is not possible: want "+Forms, text)
}

// String is the part as Parse reads it, each in one form.
func (p Part) String() string {
	kind := [...]string{Source: "source", Header: "header", Cookie: "cookie", Query: "query", Host: "host", Path: "path", Global: "global", Claim: "jwt", Descriptor: "descriptor"}[p.Kind]
	switch {
	case p.Depth > 0:
		return kind + ":" + strconv.Itoa(p.Depth)
	case len(p.Name) > 0:
		return kind + ":" + string(p.Name)
	}
	return kind
}

// Has reports whether a key has a part.
func Has(key []string, part string) bool {
	want, err := Parse(part)
	return err == nil && slices.ContainsFunc(key, func(text string) bool {
		p, err := Parse(text)
		return err == nil && p.Kind == want.Kind && bytes.Equal(p.Name, want.Name)
	})
}

// isClaim reports whether a key may be made of a claim of that name. It is the whole name, of a claim at the top: names have dots themselves
// (https://example.com/plan), so a dotted path could mean two claims.
func isClaim(name string) bool {
	return name != "" && len(name) <= 128 && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ',' || r == '"' })
}

// A Secret keys the digests of what clients send, so that nobody can make two values that count as one, or guess another's.
type Secret struct{ k0, k1 uint64 }

// NewSecret makes the one of a PoP.
func NewSecret(b [16]byte) Secret {
	return Secret{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// Digest is the source that a rule counts a request for when its key is more than the source. Every part goes in with its
// kind and length, so that no two lists of values run together. A header, cookie, parameter or host that is missing, or does not go to
// the origin, and a claim that nobody believed has made, names nobody: then the request counts for its source, in a bucket apart from every value that anybody could send. One that
// is there and empty is a value like others.
//
// It reports false for one that is there several times with different values, of which origins take one or another, or in a form
// that they may not read alike: so a path whose readings differ in what the key has of it.
func (k Secret) Digest(parts []Part, v *View, claims *token.Claims, source counter.Source, buf []byte) (counter.Source, []byte, bool) {
	buf = buf[:0]
	for _, p := range parts {
		from := len(buf)
		buf = append(buf, byte(p.Kind), 0, 0, 0, 0)
		value := len(buf)
		var there, ok bool
		if p.Kind == Claim {
			said := claims.Of(p.Name)
			buf, there, ok = append(buf, said...), said != nil, true
		} else {
			buf, there, ok = p.append(buf, v)
		}
		if !ok {
			return counter.Source{}, buf, false
		}
		if there {
			binary.LittleEndian.PutUint32(buf[from+1:], uint32(len(buf)-value))
			continue
		}
		buf = append(buf[:from], byte(Source))
		buf = source.AppendBinary(buf)
	}
	return k.Sum(buf), buf, true
}

// Sum is the digest of all that a key has of a request.
func (k Secret) Sum(buf []byte) counter.Source {
	var d [16]byte
	a, b := siphash.Hash128(k.k0, k.k1, buf)
	binary.LittleEndian.PutUint64(d[:8], a)
	binary.LittleEndian.PutUint64(d[8:], b)
	return counter.SourceOfDigest(d)
}

// DigestOf is the digest of a key of one part with this value.
func (k Secret) DigestOf(kind Kind, value []byte) counter.Source {
	return k.Sum(append(binary.LittleEndian.AppendUint32([]byte{byte(kind)}, uint32(len(value))), value...))
}

// Apart is a source that is told from the same value of other parts by the name of its own.
func (k Secret) Apart(part string, source counter.Source) counter.Source {
	var room [96]byte
	return k.Sum(source.AppendBinary(append(append(room[:0], apart), part...)))
}

// IsWithin reports whether a source is among so many percent of those that a rule of this name counts.
func (k Secret) IsWithin(percent uint64, rule string, source counter.Source) bool {
	var room [96]byte
	text := append(room[:0], shareOf)
	text = append(text, rule...)
	return siphash.Hash(k.k0, k.k1, source.AppendBinary(text))%100 < percent
}

// append appends what a request has of a part, in one form for all that origins take for the same, and reports whether it has it.
func (p *Part) append(buf []byte, v *View) (_ []byte, there, ok bool) {
	switch p.Kind {
	case Source:
		return buf, false, true
	case Global:
		return buf, true, true
	case Host:
		return append(buf, v.Request.Host...), len(v.Request.Host) > 0, true
	case Path:
		buf, ok = p.appendPath(buf, v.Request)
		return buf, true, ok
	}
	value, _, ok := v.Find(p, message.Ampersands)
	if ok && p.Kind == Query && v.HasSemicolon() {
		var other []byte
		other, _, ok = v.Find(p, message.Semicolons)
		ok = ok && (value == nil) == (other == nil) && bytes.Equal(value, other)
	}
	if !ok || value == nil {
		return buf, false, ok
	}
	buf, ok = v.AppendForm(buf, p, message.Ampersands, value)
	return buf, true, ok
}

// appendPath appends the first segments of the path, and reports whether they are the same in every reading.
func (p *Part) appendPath(buf []byte, q *message.Request) ([]byte, bool) {
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

func (p *Part) segments(path []byte) []byte {
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

// Form appends a value in one form for all that origins take for the same. It reports false for one that they may not read alike.
func (p *Part) Form(buf, value []byte) ([]byte, bool) {
	switch p.Kind {
	case Cookie:
		return message.AppendCookie(buf, value)
	case Query:
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
