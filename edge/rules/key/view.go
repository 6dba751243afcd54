package key

import (
	"bytes"

	"sluice/edge/message"
)

// Names are the names of the parameters and cookies that the rules of a set ask for. Add them all before the first request; from then on it
// is safe for concurrent use. The zero Names has none.
type Names struct {
	parameters, cookies message.Lookup
}

// Add makes p a part that a View can find.
func (n *Names) Add(p *Part) {
	switch p.names = n; p.Kind {
	case Query:
		p.place = n.parameters.Add(p.Name)
	case Cookie:
		p.place = n.cookies.Add(p.Name)
	}
}

// A View is a request as the rules of one set see it. Its query and its cookies are read once however many rules ask, and a value that is long
// to bring into its form is brought into it once. So the work is bounded by the length of the request. Reset it before the next one.
//
// It keeps 12 bytes for each of the names, and room for as many values as a request had.
type View struct {
	Request *message.Request

	names         *Names    // for which there is room
	parameters    [2]values // split at ampersands, and at semicolons too
	cookies       values
	authorization entry  // of which only the form is kept
	buf           []byte // of forms

	queried   bool // a parameter was asked for
	odd       bool // the query has what only some servers decode
	semicolon bool
}

// values are those that a request has of the names of a Lookup.
type values struct {
	read    bool
	entries []entry
	at      []int32 // by place: where the entry is, counted from 1; 0: there is none
}

// entry is what a request has by one name.
type entry struct {
	place        int
	name, value  []byte // as they came
	more, differ bool   // it is there several times, with one value and with others
	formed, ok   bool   // form is there, and what Form reported
	form         []byte
}

// short is the length of values that are brought into their form as often as rules ask.
const short = 64

// Reset forgets the request.
func (v *View) Reset() {
	v.Request = nil
	if v.queried {
		v.parameters[0].reset()
		v.parameters[1].reset()
		v.queried = false
	}
	if v.cookies.read {
		v.cookies.reset()
	}
	if v.authorization.formed {
		v.authorization = entry{}
	}
	v.buf = v.buf[:0]
}

func (v *values) reset() {
	for i := range v.entries {
		v.at[v.entries[i].place] = 0
	}
	clear(v.entries)
	v.read, v.entries = false, v.entries[:0]
}

func (v *values) add(place int, name, value []byte) {
	i := v.at[place]
	if i == 0 {
		v.entries = append(v.entries, entry{place: place, name: name, value: value})
		v.at[place] = int32(len(v.entries))
		return
	}
	if e := &v.entries[i-1]; bytes.Equal(e.value, value) {
		e.more = true
	} else {
		e.differ = true
	}
}

// Find is the one value that the request has of a header, cookie or parameter; nil: none. It reports false if there are several. Once
// reports that there is one, of this very name.
func (v *View) Find(p *Part, at message.Split) (value []byte, once, ok bool) {
	if p.Kind == Header {
		return v.Request.Head.Header(p.Name)
	}
	if v.names != p.names {
		v.make(p.names)
	}
	if p.Kind == Query && v.isOdd() {
		return nil, false, false
	}
	switch e := v.entry(p, at); {
	case e == nil:
		return nil, false, true
	case e.differ:
		return nil, false, false
	default:
		return e.value, !e.more && bytes.Equal(e.name, p.Name), true
	}
}

// make makes room for what is asked by other names: the rules have changed.
func (v *View) make(names *Names) {
	v.names = names
	v.parameters[0].at = make([]int32, names.parameters.Len())
	v.parameters[1].at = make([]int32, names.parameters.Len())
	v.cookies.at = make([]int32, names.cookies.Len())
}

// isOdd reports whether servers decode the query in several ways.
func (v *View) isOdd() bool {
	if !v.queried {
		query := message.Query(v.Request.Target)
		v.queried, v.odd, v.semicolon = true, message.IsOddQuery(query), bytes.IndexByte(query, ';') >= 0
	}
	return v.odd
}

// HasSemicolon reports whether there is one in the query, of which Find has found a parameter.
func (v *View) HasSemicolon() bool { return v.semicolon }

// entry is what the request has of a part; nil: nothing, or it is not kept.
func (v *View) entry(p *Part, at message.Split) *entry {
	var from *values
	switch {
	case p.Kind == Cookie:
		if from = &v.cookies; !from.read {
			v.names.cookies.Cookies(&v.Request.Head, from.add)
		}
	case p.Kind == Query:
		if from = &v.parameters[0]; at == message.Semicolons {
			from = &v.parameters[1]
		}
		if !from.read {
			v.names.parameters.Parameters(message.Query(v.Request.Target), at, from.add)
		}
	case string(p.Name) == "authorization":
		return &v.authorization
	default:
		return nil
	}
	from.read = true
	if i := from.at[p.place]; i > 0 {
		return &from.entries[i-1]
	}
	return nil
}

// AppendForm appends Form of a value that Find has found.
func (v *View) AppendForm(buf []byte, p *Part, at message.Split, value []byte) ([]byte, bool) {
	if len(value) <= short {
		return p.Form(buf, value)
	}
	e := v.entry(p, at)
	if e == nil { // a header, whose form is a copy
		return p.Form(buf, value)
	}
	if !e.formed {
		from := len(v.buf)
		v.buf, e.ok = p.Form(v.buf, value)
		e.form, e.formed = v.buf[from:], true
	}
	return append(buf, e.form...), e.ok
}
