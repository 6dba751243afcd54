package match

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/gaissmai/bart"

	"sluice/edge/address"
	"sluice/edge/message"
	"sluice/edge/rules/key"
)

// Conditions are what a rule asks of a request beside host, path and method. A client can write one
// thing in several ways, of which origins take some for the same and others not. A rule is about a
// request if it is about any reading of it: so what must be there is compared laxly, without case
// and in the form that keys have, and what must not be there byte for byte.
type Conditions struct {
	sources, notSources *bart.Lite
	values              []condition
	facts               []fact
}

// A condition is about the value of a header, cookie or parameter of the query.
type condition struct {
	key.Part
	how   test
	wants []want // one of them is enough
	re    *regexp.Regexp
	not   bool
}

// A want is one text that a value is compared with.
type want struct {
	text  string // in small letters and in its form, or, under not, as it is
	bytes []byte // the same
	token string // of credentials: the one that is required; "": only a scheme is
}

// NewConditions returns those of m beside host, path and method; nil: there are none.
func NewConditions(m *Config, facts []*key.Fact) (*Conditions, error) {
	c := &Conditions{sources: address.NewPrefixes(m.Sources)}
	err := c.add(m, false)
	if m.Not != nil {
		c.notSources = address.NewPrefixes(m.Not.Sources)
		err = cmp.Or(err, c.add(m.Not, true))
	}
	if err == nil {
		c.facts, err = newFacts(m, facts)
	}
	if err != nil || len(c.values)+len(c.facts) == 0 && c.sources == nil &&
		c.notSources == nil {
		return nil, err
	}
	return c, nil
}

func (c *Conditions) add(m *Config, not bool) error {
	for _, of := range []struct {
		kind   key.Kind
		values map[string]Value
	}{{key.Header, m.Headers}, {key.Query, m.Query}, {key.Cookie, m.Cookies}} {
		for _, name := range slices.Sorted(maps.Keys(of.values)) {
			v, err := newCondition(of.kind, name, of.values[name], not)
			if err != nil {
				return err
			}
			c.values = append(c.values, v)
		}
	}
	return nil
}

// CheckHeader, CheckQuery and CheckCookie say what is wrong with a name and its value.
func CheckHeader(name string, v Value) error { return checkValue(key.Header, name, v) }
func CheckQuery(name string, v Value) error  { return checkValue(key.Query, name, v) }
func CheckCookie(name string, v Value) error { return checkValue(key.Cookie, name, v) }

func checkValue(kind key.Kind, name string, v Value) error {
	_, err := newCondition(kind, name, v, false)
	return err
}

func newCondition(kind key.Kind, name string, v Value, not bool) (condition, error) {
	c := condition{Part: key.Part{Kind: kind, Name: []byte(name)}, not: not}
	if kind == key.Header {
		c.Name = bytes.ToLower(c.Name)
		switch message.KindOf(c.Name) {
		case message.Other, message.Cookie, message.ForwardedProto, message.ForwardedHost,
			message.ForwardedOther, message.Via:
		case message.Host:
			return c, errors.New("host: say it under hosts")
		default:
			return c,
				fmt.Errorf("%s: rules do not see this header: it ends at the edge, or is about the connection or the client", name)
		}
	}
	if kind == key.Header && !message.IsToken(c.Name) || kind != key.Header &&
		!message.IsName(c.Name) {
		return c, fmt.Errorf("%q is not a name", name)
	}
	how, texts, re, err := v.compiled()
	if err != nil {
		return c, err
	}
	if c.how, c.re = how, re; c.IsCredentials() && how != exact && how != prefix {
		return c, fmt.Errorf("%s: of credentials only the whole and the beginning are compared: want the value itself, or its beginning with * behind it", name)
	}
	for _, text := range texts {
		w, err := c.want(text)
		if err != nil {
			return c, err
		}
		c.wants = append(c.wants, w)
	}
	return c, nil
}

// want is a text in the form in which values are compared.
func (c *condition) want(text string) (w want, err error) {
	odd := map[key.Kind]string{key.Query: "%+&#;", key.Cookie: `%+",;\`}[c.Kind]
	inner := c.how == prefix || c.how == suffix || c.how == contains
	begins, ends := c.how == exact || c.how == prefix, c.how == exact || c.how == suffix
	canonical, token, ok := c.Form(nil, []byte(text))
	if c.how == prefix && c.IsCredentials() { // what is to be the beginning of some may be none
		canonical, token, ok = beginningOf(text)
	}
	blank := func(at int) bool { return text != "" && (text[at] == ' ' || text[at] == '\t') }
	switch {
	case !message.IsText([]byte(text)) || c.Kind == key.Header && (begins && blank(0) ||
		ends && blank(max(0, len(text)-1))):
		return w, fmt.Errorf("%q is never the value of a header", text)
	case c.Kind != key.Header && strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(odd, r)
	}):
		return w,
			fmt.Errorf("%q has what clients can write in several ways: want visible ASCII without any of %s", text, odd)
	case !ok && c.IsCredentials():
		return w, fmt.Errorf("%q is malformed: want credentials as they are sent, SCHEME TOKEN",
			text)
	case !ok && !inner:
		return w,
			fmt.Errorf("%q is not what clients send, or what servers read alike: want visible ASCII", text)
	case !ok:
		return w, fmt.Errorf("%q is not what servers read alike: want visible ASCII", text)
	}
	if w.text = text; !c.not {
		if c.how != exact && c.how != prefix { // blanks at its ends are of the value
			canonical = []byte(text)
		}
		w.text = strings.ToLower(string(canonical))
		if c.IsCredentials() && token != message.NoClient {
			w.token = w.text[token:]
		}
	}
	w.bytes = []byte(w.text)
	return w, nil
}

// beginningOf is what credentials begin with, in the form that they have.
func beginningOf(want string) (canonical []byte, token int, ok bool) {
	scheme, rest, several := strings.Cut(strings.ReplaceAll(want, "\t", " "), " ")
	if !several {
		canonical, ok = message.AppendValue(nil, []byte(scheme))
		return canonical, 0, ok
	}
	canonical, ok = message.AppendValue(nil, []byte(strings.TrimLeft(rest, " ")))
	return append([]byte(scheme+" "), canonical...), len(scheme) + 1, ok
}

// AddNames adds the names of what is looked at of what clients send; AddHeaders those of headers
// alone. Nil looks at nothing.
func (c *Conditions) AddNames(names *key.Names) {
	if c == nil {
		return
	}
	for i := range c.values {
		names.Add(&c.values[i].Part)
	}
}

func (c *Conditions) AddHeaders(names *message.Names) {
	if c == nil {
		return
	}
	for i := range c.values {
		if v := &c.values[i]; v.Kind == key.Header {
			names.Add(v.Name)
		}
	}
}

// Hold reports whether the rule is about a request, and returns the part that is there several
// times with different values, or in a form that origins may not read alike; nil: there is none.
func (c *Conditions) Hold(v *key.View, client netip.Addr,
	buf []byte) (hold bool, _ []byte, bad *key.Part) {
	if c.sources != nil && !address.IsIn(c.sources, client) || address.IsIn(c.notSources, client) {
		return false, buf, nil
	}
	for i := range c.facts {
		if !c.facts[i].holds(v) {
			return false, buf, nil
		}
	}
	for i := range c.values {
		var ok bool
		if hold, buf, ok = c.values[i].holds(v, buf); !ok {
			return false, buf, &c.values[i].Part
		}
		if !hold {
			return false, buf, nil
		}
	}
	return true, buf, nil
}

// holds tries each way of splitting a query until one fits: under not, until one lacks the value.
func (c *condition) holds(v *key.View, buf []byte) (hold bool, _ []byte, ok bool) {
	for at := range message.Splits {
		if at != message.Ampersands && (c.Kind != key.Query || !v.Differs(at)) {
			continue
		}
		var is bool
		if is, buf, ok = c.is(v, at, buf); !ok || is != c.not {
			return is != c.not, buf, ok
		}
	}
	return false, buf, true
}

// is reports whether a request fulfils the condition.
func (c *condition) is(v *key.View, at message.Split, buf []byte) (bool, []byte, bool) {
	value, once, ok := v.Find(&c.Part, at)
	switch {
	case !ok:
		return false, buf, false
	case value == nil || c.not && !once:
		return false, buf, true
	case c.not:
		return c.found(value), buf, true
	case c.how == prefix && c.wants[0].text == "":
		return true, buf, true
	}
	form, token, buf, ok := v.Form(buf, &c.Part, at, value)
	switch {
	case !ok:
		return false, buf, false
	case c.how == search:
		return len(form) > MaxSearchedValue || c.re.Match(form), buf, true
	case c.how == contains:
		n := len(buf) // form may be in it
		buf = appendLower(buf, form)
		return c.found(buf[n:]), buf[:n], true
	}
	for i := range c.wants {
		w := &c.wants[i]
		if c.fits(form, w.text) ||
			w.token != "" && token != message.NoClient && c.fits(form[token:], w.token) {
			return true, buf, true
		}
	}
	return false, buf, true
}

// fits reports whether a value is what is wanted, begins or ends with it, whatever its case.
func (c *condition) fits(value []byte, want string) bool {
	switch {
	case len(value) < len(want):
		return false
	case c.how == prefix:
		value = value[:len(want)]
	case c.how == suffix:
		value = value[len(value)-len(want):]
	}
	return message.EqualFold(value, want)
}

// found reports whether a value is what is wanted, byte for byte.
func (c *condition) found(value []byte) bool {
	if c.how == search {
		return len(value) <= MaxSearchedValue && c.re.Match(value)
	}
	for i := range c.wants {
		want := c.wants[i].bytes
		if c.how == exact && bytes.Equal(value, want) ||
			c.how == prefix && bytes.HasPrefix(value, want) ||
			c.how == suffix && bytes.HasSuffix(value, want) ||
			c.how == contains && bytes.Contains(value, want) {
			return true
		}
	}
	return false
}

func appendLower(buf, text []byte) []byte {
	for _, c := range text {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		buf = append(buf, c)
	}
	return buf
}
