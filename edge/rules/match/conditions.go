package match

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
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
	lists, notLists     []*address.List
	values              []condition
	places              *places // nil: none
}

// A condition is about the value of a header, cookie or parameter of the query.
type condition struct {
	key.Part
	want   string // in small letters and in its form, or, under not, as it is
	token  string // of credentials: the one that is required; "": only a scheme is
	prefix bool   // the value begins with it
	not    bool
}

// NewConditions returns those of m beside host, path and method; nil: there are none. Named are the
// lists that there are.
func NewConditions(m *Config, named map[string]*address.List,
	geo *address.Geo) (*Conditions, error) {
	c := &Conditions{sources: address.NewPrefixes(m.Sources)}
	err := c.add(m, false)
	c.lists, err = findLists(m.Lists, named, err)
	if m.Not != nil {
		c.notSources = address.NewPrefixes(m.Not.Sources)
		c.notLists, err = findLists(m.Not.Lists, named, err)
		err = cmp.Or(err, c.add(m.Not, true))
	}
	if err == nil {
		c.places, err = newPlaces(m, geo)
	}
	if err != nil || len(c.values)+len(c.lists)+len(c.notLists) == 0 && c.sources == nil &&
		c.notSources == nil && c.places == nil {
		return nil, err
	}
	return c, nil
}

// findLists returns lists by their names, or the error, if there is one.
func findLists(names []string, named map[string]*address.List,
	err error) (found []*address.List, _ error) {
	for _, name := range names {
		l := named[name]
		if l == nil {
			return nil, cmp.Or(err, NoList(name, slices.Collect(maps.Keys(named))))
		}
		found = append(found, l)
	}
	return found, err
}

// NoList is what is wrong with the name of a list that is none of those there are.
func NoList(name string, are []string) error {
	if len(are) == 0 {
		return fmt.Errorf("lists: there is no list %q: name it under lists, with its file or url",
			name)
	}
	slices.Sort(are)
	return fmt.Errorf("lists: there is no list %q: want %s", name, strings.Join(are, " or "))
}

func (c *Conditions) add(m *Config, not bool) error {
	for _, of := range []struct {
		kind   key.Kind
		values map[string]string
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

// CheckHeader, CheckQuery and CheckCookie say what is wrong with a name and the pattern of its
// value: an exact value, a prefix that ends in *, or * for any.
func CheckHeader(name, pattern string) error { return checkValue(key.Header, name, pattern) }
func CheckQuery(name, pattern string) error  { return checkValue(key.Query, name, pattern) }
func CheckCookie(name, pattern string) error { return checkValue(key.Cookie, name, pattern) }

func checkValue(kind key.Kind, name, pattern string) error {
	_, err := newCondition(kind, name, pattern, false)
	return err
}

func newCondition(kind key.Kind, name, pattern string, not bool) (condition, error) {
	c := condition{Part: key.Part{Kind: kind, Name: []byte(name)}, not: not}
	want, prefix := strings.CutSuffix(pattern, "*")
	c.want, c.prefix = want, prefix
	odd := ""
	switch kind {
	case key.Header:
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
	case key.Query:
		odd = "%+&#;"
	case key.Cookie:
		odd = `%+",;\`
	}
	canonical, token, ok := c.Form(nil, []byte(want))
	if prefix && c.IsCredentials() { // what is to be the beginning of some may be none
		canonical, token, ok = beginningOf(want)
	}
	switch {
	case kind == key.Header && !message.IsToken(c.Name) || kind != key.Header &&
		!message.IsName(c.Name):
		return c, fmt.Errorf("%q is not a name", name)
	case strings.Contains(want, "*"):
		return c,
			fmt.Errorf("%q has a * before its end: want an exact value, a prefix that ends in *, or * for any", pattern)
	case !message.IsText([]byte(want)) || kind == key.Header && strings.Trim(want, " \t") != want &&
		(!prefix || want[0] == ' ' || want[0] == '\t'):
		return c, fmt.Errorf("%q is never the value of a header", pattern)
	case kind != key.Header && strings.ContainsFunc(want, func(r rune) bool {
		return r <= ' ' ||
			r >= 0x7f || strings.ContainsRune(odd, r)
	}):
		return c,
			fmt.Errorf("%q has what clients can write in several ways: want visible ASCII without any of %s", pattern, odd)
	case !ok && c.IsCredentials():
		return c, fmt.Errorf("%q is malformed: want credentials as they are sent, SCHEME TOKEN",
			pattern)
	case !ok:
		return c,
			fmt.Errorf("%q is not what clients send, or what servers read alike: want visible ASCII", pattern)
	}
	if !not {
		c.want = strings.ToLower(string(canonical))
		if c.IsCredentials() && token != message.NoClient {
			c.token = c.want[token:]
		}
	}
	return c, nil
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
	if c.lists != nil && !address.InAny(c.lists, client) || address.InAny(c.notLists, client) {
		return false, buf, nil
	}
	if c.places != nil && !c.places.hold(v) {
		return false, buf, nil
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
		if c.prefix && len(value) >= len(c.want) {
			value = value[:len(c.want)]
		}
		return string(value) == c.want, buf, true
	case c.prefix && c.want == "":
		return true, buf, true
	}
	form, token, buf, ok := v.Form(buf, &c.Part, at, value)
	if !ok {
		return false, buf, false
	}
	is := c.begins(form, c.want)
	if !is && c.token != "" && token != message.NoClient {
		is = c.begins(form[token:], c.token)
	}
	return is, buf, true
}

// begins reports whether a value is what is wanted, or begins with it.
func (c *condition) begins(value []byte, want string) bool {
	if c.prefix && len(value) >= len(want) {
		value = value[:len(want)]
	}
	return message.EqualFold(value, want)
}
