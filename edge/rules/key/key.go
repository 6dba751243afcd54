// Package key is the keys by which rules distinguish sources: parts of a request, each in one form
// for all that origins take for the same, and a digest of them under a secret. What origins may
// read in several ways has no digest.
package key

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/dchest/siphash"

	"sluice/counter"
	"sluice/edge/message"
)

// A Part is one part of a request by which a rule distinguishes sources.
type Part struct {
	Kind  Kind
	Name  []byte // of the header, cookie, parameter or fact
	Depth int    // of a path: how many segments; 0: all

	fact  *Fact  // of Known
	names *Names // those to which it was added, for which a View looks at the same time
	place int    // among them
}

// A Kind is the kind of a Part.
type Kind uint8

const (
	Source Kind = iota // not of the request's content: its source
	Header
	Cookie
	Query
	Host
	Path
	Global
	_          // of a fact that has one of its own (Fact.Kind)
	Descriptor // all entries of one; no part of a request has it
	_          // of facts as well
	_
	Known // a Fact, by its name

	shareOf = 0xff // begins what is hashed of a rule and a source, and no key
	tagOf   = 0xfd // begins what is hashed of a try's name and a source, and no key
	apart   = 0xfe // begins what is hashed of a part's name and a source, and no key
)

func (k Kind) String() string {
	return [...]string{Source: "source", Header: "header", Cookie: "cookie", Query: "query",
		Host: "host", Path: "path", Global: "global", Descriptor: "descriptor", Known: "fact"}[k]
}

// Forms are what a part of a key can be, beside facts.
const Forms = forms + " or global"

const forms = "source, header:NAME, cookie:NAME, query:NAME, host, path, path:SEGMENTS"

// Parse reads one of Forms, or the name of one of the facts.
func Parse(text string, facts ...*Fact) (Part, error) {
	kind, name, named := strings.Cut(text, ":")
	if i := slices.IndexFunc(facts, func(f *Fact) bool { return f.IsKey(text) }); i >= 0 {
		return Part{Kind: Known, Name: []byte(text), fact: facts[i]}, nil
	}
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
		if n, err := strconv.Atoi(name); err == nil && n >= 1 && n <= 16 &&
			strconv.Itoa(n) == name {
			return Part{Kind: Path, Depth: n}, nil
		}
	case named && kind == "query" && message.IsName([]byte(name)):
		return Part{Kind: Query, Name: []byte(name)}, nil
	case named && kind == "header" && message.IsToken([]byte(name)):
		return Part{Kind: Header, Name: []byte(strings.ToLower(name))}, nil
	case named && kind == "cookie" && message.IsName([]byte(name)):
		return Part{Kind: Cookie, Name: []byte(name)}, nil
	}
	return Part{}, fmt.Errorf("%q is not possible: want "+FormsWith(facts), text)
}

// FormsWith are Forms, and facts.
func FormsWith(facts []*Fact) string {
	list := forms
	for _, f := range facts {
		switch {
		case f.Argument != "":
			list += ", " + f.Name + ":" + f.Argument
		case f.IsKey(f.Name):
			list += ", " + f.Name
		}
	}
	return list + " or global"
}

// String is the part as Parse reads it, each in one form.
func (p Part) String() string {
	kind := p.Kind.String()
	switch {
	case p.Kind == Known:
		return string(p.Name)
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

// Fold is a part in the form that is the same of all that mean the same: in small letters, but for
// an argument of a fact.
func Fold(text string) string {
	switch kind, _, named := strings.Cut(text, ":"); kind {
	case Header.String(), Cookie.String(), Query.String(), Path.String():
	default:
		if named {
			return text
		}
	}
	return strings.ToLower(text)
}

// A Secret keys the digests of what clients send, so that no client can make two values that count
// as one, or guess another's.
type Secret struct{ k0, k1 uint64 }

// NewSecret makes the one of a PoP.
func NewSecret(b [16]byte) Secret {
	return Secret{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}
}

// Digest is the source that a rule counts a request for when its key is more than the source. Every
// part goes in with its kind and length, so that no two lists of values run together. A header,
// cookie, parameter or host that is missing, or does not go to the origin, and a fact that is not
// known, names no client: then the request counts for its source, apart from every value that a
// client could send. One that is there and empty is a value like others.
//
// It returns the part that is there several times with different values, of which origins take one
// or another, or in a form that they may not read alike: so a path whose readings differ in what
// the key has of it. nil: there is none.
func (k Secret) Digest(parts []Part, v *View, source counter.Source,
	buf []byte) (counter.Source, []byte, *Part) {
	buf = buf[:0]
	for i := range parts {
		p := &parts[i]
		from := len(buf)
		buf = append(buf, p.code(), 0, 0, 0, 0)
		value := len(buf)
		var there, ok bool
		if buf, there, ok = p.append(buf, v); !ok {
			return counter.Source{}, buf, p
		}
		if there {
			binary.LittleEndian.PutUint32(buf[from+1:], uint32(len(buf)-value))
			continue
		}
		buf = append(buf[:from], byte(Source))
		buf = source.AppendBinary(buf)
	}
	return k.Sum(buf), buf, nil
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
	return k.Sum(append(binary.LittleEndian.AppendUint32([]byte{byte(kind)}, uint32(len(value))),
		value...))
}

// Apart is a source whose name keeps it apart from the same value of other parts.
func (k Secret) Apart(part string, source counter.Source) counter.Source {
	var room [96]byte
	return k.Sum(source.AppendBinary(append(append(room[:0], apart), part...)))
}

// IsWithin reports whether a source is among so many percent of those that a rule of this name
// counts.
func (k Secret) IsWithin(percent uint64, rule string, source counter.Source) bool {
	var room [96]byte
	text := append(room[:0], shareOf)
	text = append(text, rule...)
	return siphash.Hash(k.k0, k.k1, source.AppendBinary(text))%100 < percent
}

// Tag is a number that a source has under a name, the same at every edge, as if by chance.
func (k Secret) Tag(name string, source counter.Source) uint64 {
	var room [96]byte
	return siphash.Hash(k.k0, k.k1, source.AppendBinary(append(append(room[:0], tagOf), name...)))
}

// append appends what a request has of a part, in one form for all that origins take for the same,
// and reports whether it has it.
func (p *Part) append(buf []byte, v *View) (_ []byte, there, ok bool) {
	before := len(buf)
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
	case Known:
		value, clear := v.find(p.fact)
		if p.fact.Of != nil {
			value = p.fact.Of(value, p.argument())
		}
		return p.fact.appendForm(buf, value), value != nil, clear
	}
	for at := range message.Splits {
		if at != message.Ampersands && (p.Kind != Query || !v.Differs(at)) {
			continue
		}
		value, _, ok := v.Find(p, at)
		if !ok {
			return buf, false, false
		}
		if value == nil {
			continue
		}
		from := len(buf)
		var token int
		if buf, token, ok = v.AppendForm(buf, p, at, value); !ok {
			return buf, false, false
		}
		switch {
		case token == message.NoClient:
			buf = buf[:from]
		case !there:
			buf, there = append(buf[:from], buf[from+token:]...), true
		case !bytes.Equal(buf[before:from], buf[from:]): // servers do not agree on it
			return buf, false, false
		default:
			buf = buf[:from]
		}
	}
	return buf, there, true
}

// appendPath appends the first segments of the path, and reports whether they are the same in every
// reading.
func (p *Part) appendPath(buf []byte, q *message.Request) ([]byte, bool) {
	from := len(buf)
	buf = append(buf, p.segments(q.Path)...)
	group := buf[from:]
	for as := message.Interpretation(1); as <= q.Readings; as++ {
		if !q.Readings.Has(as) {
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

// Form appends a value in one form for all that origins take for the same; token is where in it the
// part begins that distinguishes clients, or message.NoClient. It reports false for one that they
// may not read alike.
func (p *Part) Form(buf, value []byte) (_ []byte, token int, ok bool) {
	switch {
	case p.Kind == Cookie:
		buf, ok = message.AppendCookie(buf, value)
	case p.Kind == Query:
		buf, ok = message.AppendParameter(buf, value)
	case p.IsCredentials():
		return message.AppendCredentials(buf, value)
	case string(p.Name) == "host":
		buf, ok = message.AppendHost(buf, value)
	default:
		buf, ok = message.AppendValue(buf, value)
	}
	return buf, 0, ok
}

// IsCredentials reports whether p is the header Authorization.
func (p *Part) IsCredentials() bool { return p.Kind == Header && string(p.Name) == "authorization" }

// Refusal is the answer to a request that has a part in a way that origins may not read alike.
func (p *Part) Refusal() *message.Refusal {
	if p.fact != nil && p.fact.From != nil {
		return p.fact.From.Refusal()
	}
	code, what := p.Kind.String(), "The "+p.Kind.String()+" "+string(p.Name)
	switch p.Kind {
	case Header:
		code = strings.Map(func(r rune) rune {
			if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
				return r
			}
			return '_'
		}, string(p.Name))
	case Query:
		what = "The parameter " + string(p.Name)
	case Path:
		what = "The path"
	}
	return message.Refuse(http.StatusBadRequest, "bad_"+code,
		what+" is there several times, or in a form that servers read differently.")
}

// Fact is the one that the part is; nil: it is none.
func (p *Part) Fact() *Fact { return p.fact }

// Argument is what the part says behind the name of its fact; "": nothing.
func (p *Part) Argument() string { return string(p.argument()) }

func (p *Part) argument() []byte {
	if p.fact == nil || p.fact.Argument == "" {
		return nil
	}
	return p.Name[len(p.fact.Name)+1:]
}

// code is what begins what a key hashes of the part.
func (p *Part) code() byte {
	if p.fact != nil {
		return p.fact.code()
	}
	return byte(p.Kind)
}

// Check returns why no request can have the part.
func (p *Part) Check() error {
	if p.fact == nil {
		return nil
	}
	return p.fact.Check(p.Argument())
}
