package key

import (
	"bytes"
	"net/netip"
	"time"

	"sluice/edge/message"
)

// Names are the names of the headers, parameters and cookies that the rules of a set read. Add them
// all before the first request; from then on it is safe for concurrent use. The zero Names has
// none.
type Names struct {
	headers, parameters, cookies message.Lookup
}

// Add makes p a part that a View can find.
func (n *Names) Add(p *Part) {
	switch p.names = n; p.Kind {
	case Header:
		p.place = n.headers.AddHeader(p.Name)
	case Query:
		p.place = n.parameters.Add(p.Name)
	case Cookie:
		p.place = n.cookies.Add(p.Name)
	}
}

// A View is a request as the rules of one set see it. Its header, its query and its cookies are
// read once however many rules use them, and a value that is long to bring into its form is brought
// into it once. So the work is bounded by the length of the request. Reset it before the next one.
//
// It keeps 12 bytes at most for each of the names, and room for as many values as a request had.
type View struct {
	Request *message.Request
	Client  netip.Addr // for facts
	At      time.Time  // when the request is judged, for facts that end
	Spared  bool       // facts that are slow are not asked for, and so not known
	Unclear bool       // see Fact.From

	names      *Names // for which there is room
	headers    values
	parameters [message.Splits]values
	cookies    values
	buf        []byte // of forms
	facts      []byte // values of those that are found
	found      []found

	queried bool // a parameter is needed
	// The query has what only some servers decode, or is in an odd character set
	odd     bool
	differs [message.Splits]bool // from the first
}

// values are those that a request has of the names of a Lookup.
type values struct {
	read    bool
	entries []entry
	at      []int32 // by position: where the entry is, counted from 1; 0: there is none
}

// entry is what a request has by one name.
type entry struct {
	place       int
	name, value []byte // as they came
	// It is there several times, with one value and with others; or only some servers see it
	more, differ bool
	formed, ok   bool // form is there, and what Form reported
	form         []byte
	token        int
}

// short is the length of values that are brought into their form for each rule anew.
const short = 64

// Reset forgets the request.
func (v *View) Reset() {
	v.Request, v.Spared = nil, false
	v.facts, v.found = v.facts[:0], v.found[:0]
	if v.queried {
		for at := range v.parameters {
			v.parameters[at].reset()
		}
		v.queried = false
	}
	if v.cookies.read {
		v.cookies.reset()
	}
	if v.headers.read {
		v.headers.reset()
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

func (v *values) add(f message.Found) {
	i := v.at[f.Position]
	if i == 0 {
		v.entries = append(v.entries, entry{place: f.Position, name: f.Name, value: f.Value,
			differ: f.Odd})
		v.at[f.Position] = int32(len(v.entries))
		return
	}
	if e := &v.entries[i-1]; !f.Odd && bytes.Equal(e.value, f.Value) {
		e.more = true
	} else {
		e.differ = true
	}
}

// Find is the one value that the request has of a header, cookie or parameter; nil: none. It
// reports false if there are several. Once reports that there is one, of this very name.
func (v *View) Find(p *Part, at message.Split) (value []byte, once, ok bool) {
	if v.names != p.names {
		v.make(p.names)
	}
	if p.Kind == Query {
		if v.look(); v.odd {
			return nil, false, false
		}
	}
	switch e := v.entry(p, at); {
	case e == nil:
		return nil, false, true
	case e.differ:
		return nil, false, false
	case p.Kind == Header: // their names have no case
		return e.value, !e.more && bytes.EqualFold(e.name, p.Name), true
	default:
		return e.value, !e.more && bytes.Equal(e.name, p.Name), true
	}
}

// make makes room for other names: the rules have changed.
func (v *View) make(names *Names) {
	v.names = names
	v.headers.at = make([]int32, names.headers.Len())
	for at := range v.parameters {
		v.parameters[at].at = make([]int32, names.parameters.Len())
	}
	v.cookies.at = make([]int32, names.cookies.Len())
}

// look looks at the query as a whole.
func (v *View) look() {
	if v.queried {
		return
	}
	target := v.Request.Target
	v.queried, v.odd = true, message.IsOddQuery(message.Query(target)) ||
		bytes.ContainsAny(target, "?;") && v.Request.Head.HasOddCharset()
	for at := range message.Splits {
		v.differs[at] = at.Differs(v.Request.Target)
	}
}

// Differs reports whether servers that split a query so have other parameters than those that split
// it at ampersands.
func (v *View) Differs(at message.Split) bool {
	v.look()
	return v.differs[at]
}

// entry is what the request has of a part; nil: nothing.
func (v *View) entry(p *Part, at message.Split) *entry {
	var from *values
	switch p.Kind {
	case Cookie:
		if from = &v.cookies; !from.read {
			v.names.cookies.Cookies(&v.Request.Head, from.add)
		}
	case Header:
		if from = &v.headers; !from.read {
			v.names.headers.Headers(&v.Request.Head, from.add)
		}
	default:
		if from = &v.parameters[at]; !from.read {
			v.names.parameters.Parameters(at.Query(v.Request.Target), at, from.add)
		}
	}
	from.read = true
	if i := from.at[p.place]; i > 0 {
		return &from.entries[i-1]
	}
	return nil
}

// Form is Form of a value that Find has found. It is valid until buf is used again, which is
// returned for that.
func (v *View) Form(buf []byte, p *Part, at message.Split,
	value []byte) (form []byte, token int, _ []byte, ok bool) {
	if len(value) <= short {
		buf, token, ok = p.Form(buf[:0], value)
		return buf, token, buf, ok
	}
	e := v.entry(p, at)
	if !e.formed {
		from := len(v.buf)
		v.buf, e.token, e.ok = p.Form(v.buf, value)
		e.form, e.formed = v.buf[from:], true
	}
	return e.form, e.token, buf, e.ok
}

// AppendForm appends it.
func (v *View) AppendForm(buf []byte, p *Part, at message.Split,
	value []byte) (_ []byte, token int, ok bool) {
	if len(value) <= short {
		return p.Form(buf, value)
	}
	form, token, _, ok := v.Form(nil, p, at, value)
	return append(buf, form...), token, ok
}
