package key

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"sluice/counter"
	"sluice/edge/message"
)

// A Value is a part of a key with the value that an operator names, in the form that requests which
// have it are counted by.
type Value struct {
	Part Part
	form []byte
}

// maxNamed is how long a value may be that an operator names: as long as a line of a request's
// head.
const maxNamed = 32 << 10

// errUnread says that no request with such a value is counted by it. It does not repeat the value,
// which may be a secret.
var errUnread = errors.New("an edge refuses requests that have the value so, because servers read it differently: want what the client sends")

// ParseValue reads the value of a part as clients send it; of Source it is an address, told apart
// from others as sources does it. Errors say nothing of the value.
func ParseValue(p Part, text string, sources func(netip.Addr) counter.Source) (v Value, err error) {
	v.Part = p
	switch {
	case p.Kind == Global && text != "":
		return v, errors.New("global is the same of all requests: it has no value")
	case p.Kind == Global:
		return v, nil
	case text == "":
		return v, fmt.Errorf("the value of %s is empty", p)
	case len(text) > maxNamed:
		return v, fmt.Errorf("the value of %s is longer than %d bytes", p, maxNamed)
	case strings.ContainsAny(text, "\r\n\x00"):
		return v, fmt.Errorf("the value of %s has a line break in it, which no request can have", p)
	}
	ok := true
	switch p.Kind {
	case Source:
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return v, errors.New("the value of source is no address")
		}
		v.form = sources(counter.Plain(addr)).AppendBinary(nil)
	case Host:
		v.form, ok = message.AppendHost(nil, []byte(text))
	case Path:
		if text[0] != '/' {
			return v, fmt.Errorf("the value of %s is no path: want one that begins with a slash", p)
		}
		q := message.Request{Target: []byte(text)}
		q.Path, q.Readings = message.AppendPath(nil, message.RawPath(q.Target))
		v.form, ok = p.appendPath(nil, &q)
	case Known:
		value, err := p.fact.read(text)
		if err != nil {
			return v, fmt.Errorf("the value of %s: %w", p, err)
		}
		v.form = p.fact.appendForm(nil, []byte(value))
	default:
		var token int
		v.form, token, ok = p.Form(nil, []byte(text))
		if ok && token == message.NoClient {
			return v,
				fmt.Errorf("the value of %s tells nobody: such credentials are made anew for each request", p)
		}
		if ok {
			v.form = v.form[token:]
		}
	}
	if !ok {
		return v, fmt.Errorf("the value of %s: %w", p, errUnread)
	}
	return v, nil
}

// IsPart reports whether two parts are of the same things.
func (p Part) IsPart(o Part) bool {
	return p.Kind == o.Kind && p.Depth == o.Depth && string(p.Name) == string(o.Name)
}

// DigestOfValues is what Digest says of requests with these values, in any order. It reports false
// unless there is one for each of the parts, and none beside.
func (k Secret) DigestOfValues(parts []Part, values []Value) (counter.Source, bool) {
	buf, ok := AppendValues(nil, parts, values)
	return k.Sum(buf), ok
}

// AppendValues appends what Digest hashes of requests with these values. It reports false unless
// there is one for each of the parts, and none beside.
func AppendValues(buf []byte, parts []Part, values []Value) (_ []byte, ok bool) {
	for i := range parts {
		v := valueOf(values, parts[i])
		if v == nil {
			return buf, false
		}
		buf = append(buf, v.Part.code())
		if v.Part.Kind != Source {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(len(v.form)))
		}
		buf = append(buf, v.form...)
	}
	return buf, len(parts) == len(values)
}

// DigestOfValue is the digest of a key of this part alone; false: it is not among the values.
func (k Secret) DigestOfValue(part Part, values []Value) (counter.Source, bool) {
	v := valueOf(values, part)
	if v == nil {
		return counter.Source{}, false
	}
	return k.DigestOf(Kind(v.Part.code()), v.form), true
}

func valueOf(values []Value, part Part) *Value {
	for i := range values {
		if values[i].Part.IsPart(part) {
			return &values[i]
		}
	}
	return nil
}
