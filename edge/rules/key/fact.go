package key

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"sluice/counter"
	"sluice/edge/address"
)

// A Fact is something known of a request or its client that a module finds out, at most once a
// request: whoever asks gets it, be it a rule's key, a condition under match, or a log.
type Fact struct {
	Name  string // as a rule's key has it, and a line of the log
	Match string // the field under match that has its values; "": rules cannot ask for it
	// Mark begins its values among the prefixes of deny and allow; "": these cannot have it. A fact
	// with a mark is known of the client's address alone.
	Mark string
	// Numbers reports that its values are numbers, in files and in JSON. Before is what stands
	// before one for people.
	Numbers bool
	Before  string
	// Parse reads a value as operators write it; nil: it is any text.
	Parse func(text string) (string, error)
	// Find appends the value; nothing: it is not known. It must not keep v. nil: no configuration
	// is in force in which it could be found.
	Find func(buf []byte, v *View) []byte
	// In returns the addresses that have one of some values. Of a fact with a mark it is there in a
	// configuration that is in force.
	In func(values []string) *address.Group
	// Noun is what a value is the name of, such as list. One address may have several of such values:
	// so it has no Find, but In, and keys and logs have no line of it. "": it is no such fact.
	Noun string
	// Lacks says why no request can have a value, or, of "", any; nil: each can be there.
	Lacks func(value string) error
	// Argument is what stands behind the name in a key, after a colon, such as CLAIM; "": nothing. Of
	// returns what of a value it names; nil: nothing. What is empty is a value.
	Argument string
	Of       func(value, argument []byte) []byte
	// Who is what the fact is, such as "a token's claim", if it tells one client from others and no
	// client can make it up; "": it does not, or can be.
	Who string
	// Slow reports that Find may take long: a source that is blocked whatever it finds is spared it,
	// and a connection of HTTP/2 goes on with other requests meanwhile. It is of keys alone.
	Slow bool
	// From is the header or cookie that it follows from. Where a request has that in a way that
	// origins may not read alike, Find sets View.Unclear; a rule that asks refuses the request then.
	// nil: it follows from something else.
	From *Part
	// Kind is that of keys which had the fact before it was one, and Form appends what they hash of
	// a value; nil: the value. So versions side by side count alike. 0: keys hash its name as well,
	// so that no two facts have one digest.
	Kind Kind
	Form func(buf, value []byte) []byte
}

// IsKey reports whether a text is the part of a key that the fact is.
func (f *Fact) IsKey(text string) bool {
	if f.Argument == "" {
		return f.Name == text && f.Noun == ""
	}
	name, argument, _ := strings.Cut(text, ":")
	return f.Name == name && isArgument(argument)
}

// isArgument reports whether a key may have that behind the name of a fact. It is one whole: claims
// have dots in their names (https://example.com/plan), so a dotted path could mean two.
func isArgument(text string) bool {
	return text != "" && len(text) <= 128 && !strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || r == ',' || r == '"'
	})
}

// code is what begins what a key hashes of the fact.
func (f *Fact) code() byte {
	if f.Kind != 0 {
		return byte(f.Kind)
	}
	return byte(Known)
}

// appendForm appends the rest.
func (f *Fact) appendForm(buf, value []byte) []byte {
	switch {
	case f.Form != nil:
		return f.Form(buf, value)
	case f.Kind != 0:
		return append(buf, value...)
	}
	return append(append(append(buf, f.Name...), 0), value...)
}

// Check returns why no request can have a value, or, of "", any.
func (f *Fact) Check(value string) error {
	if f.Lacks == nil {
		return nil
	}
	return f.Lacks(value)
}

// OfAddress is the fact's value of an address, as a plain one; "": it is not known, or follows from
// more than that.
func (f *Fact) OfAddress(addr netip.Addr) string {
	if f.Mark == "" || f.Find == nil {
		return ""
	}
	return string(f.Find(nil, &View{Client: addr}))
}

// Marked are the addresses that have one of the values of facts which are among others, each behind
// its mark.
func Marked(facts []*Fact, texts []string) (in []*address.Group) {
	for _, f := range facts {
		var values []string
		for _, text := range texts {
			if value, is := strings.CutPrefix(text, f.Mark); is && f.Mark != "" {
				values = append(values, value)
			}
		}
		if len(values) > 0 && f.In != nil {
			in = append(in, f.In(values))
		}
	}
	return in
}

// read reads a value as operators write it.
func (f *Fact) read(text string) (string, error) {
	if f.Parse == nil {
		return text, nil
	}
	return f.Parse(text)
}

// Values reads values as operators write them.
func (f *Fact) Values(texts []string) (list []string, err error) {
	for _, text := range texts {
		value, err := f.read(text)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	return list, nil
}

// A found fact is what a View knows of one.
type found struct {
	fact     *Fact
	from, to int // in View.facts
	unclear  bool
}

// Fact is a fact's value of the request; nil: it is not known. It is valid until Reset.
func (v *View) Fact(f *Fact) []byte {
	value, _ := v.find(f)
	return value
}

// find is Fact, and reports whether it is clear what the request has.
func (v *View) find(f *Fact) (value []byte, clear bool) {
	for i := range v.found {
		if k := &v.found[i]; k.fact == f {
			return v.value(k), !k.unclear
		}
	}
	if f.Slow && v.Spared {
		return nil, true
	}
	v.Unclear = false
	from := len(v.facts)
	v.facts = f.Find(v.facts, v)
	v.found = append(v.found, found{f, from, len(v.facts), v.Unclear})
	return v.value(&v.found[len(v.found)-1]), !v.Unclear
}

func (v *View) value(k *found) []byte {
	if k.from == k.to {
		return nil
	}
	return v.facts[k.from:k.to:k.to]
}

// Found is the i-th of the facts that were asked for, as a log has it; nil: there are no more. Its
// value is empty where it is not known, or where operators do not write it.
func (v *View) Found(i int) (f *Fact, value []byte) {
	if i >= len(v.found) {
		return nil, nil
	}
	k := &v.found[i]
	if k.fact.Match != "" {
		value = v.value(k)
	}
	return k.fact, value
}

// DigestOfFact is the digest of a key of a fact alone with this value.
func (k Secret) DigestOfFact(f *Fact, value []byte) counter.Source {
	var room [128]byte
	b := f.appendForm(append(room[:0], f.code(), 0, 0, 0, 0), value)
	binary.LittleEndian.PutUint32(b[1:], uint32(len(b)-5))
	return k.Sum(b)
}
