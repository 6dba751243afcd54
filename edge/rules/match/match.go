// Package match finds out whether a rule is about a request. A Config is what an operator writes.
// An Index finds what is about a request's host, path and method, which it gets in canonical form;
// Conditions are what is asked beside: what else the client sent, its address, and where that is.
package match

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sluice/edge/message"
	"sluice/edge/rules/descriptors"
	"sluice/edge/rules/key"
)

// Config is which requests a rule is about. Empty fields match everything.
type Config struct {
	Hosts []string `json:"hosts,omitempty" want:"host"` // exact, "*", or "*.example.com"
	// Exact, "/prefix/*", or "~regexp", of the canonical path
	Path    string           `json:"path,omitempty"`
	Methods []string         `json:"methods,omitempty" want:"method"` // in capitals
	Sources []netip.Prefix   `json:"sources,omitempty"`               // of clients
	Headers map[string]Value `json:"headers,omitempty"`
	Query   map[string]Value `json:"query,omitempty"` // its parameters
	Cookies map[string]Value `json:"cookies,omitempty"`
	// What any of its entries is about is left out; it has no Not
	Not    *Config        `json:"not,omitempty"`
	regexp *regexp.Regexp // of a Path that begins with ~
	// Of a Not: several in place of Path
	Paths   []string         `json:"-"`
	regexps []*regexp.Regexp // of each of Paths; nil: it is none
	Plans   []string         `json:"plans,omitempty"` // of clients

	// Facts are values of facts (key.Fact) by the names of their fields: one of each
	Facts map[string]Values `json:"-"`

	// Descriptors come in calls of other proxies; a rule about them is about no request of HTTP;
	// nil: it is about requests.
	Descriptors *descriptors.Pattern `json:"descriptors,omitempty"`
}

// Joined is an object in JSON with further fields, after its own and in the order of their names.
func Joined[T any](object []byte, fields map[string]T) ([]byte, error) {
	object = bytes.TrimSuffix(object, []byte("}"))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value, err := json.Marshal(fields[name])
		if err != nil {
			return nil, err
		}
		if len(object) > len("{") {
			object = append(object, ',')
		}
		object = append(append(strconv.AppendQuote(object, name), ':'), value...)
	}
	return append(object, '}'), nil
}

// SetPath reads a path pattern: exact, a prefix that ends in *, or a regular expression after ~.
func (m *Config) SetPath(text string) error {
	m.Path, m.regexp = text, nil
	switch {
	case text == "~":
		return errors.New("~ is the regular expression of any path: want * for any")
	case strings.HasPrefix(text, "~"):
		re, err := regexp.Compile(text[1:])
		if err != nil {
			return fmt.Errorf("%q is not a regular expression: %v", text[1:], err)
		}
		m.regexp = re
	case !strings.HasPrefix(text, "/") && text != "*":
		return fmt.Errorf("%q is not a path: want /exact, /prefix/* or ~regexp", text)
	case strings.Contains(strings.TrimSuffix(text, "*"), "*"):
		return fmt.Errorf("%q has a * before its end: use a regular expression, which begins with ~", text)
	default:
		exact := strings.TrimSuffix(text, "*")
		if c, _ := message.AppendPath(nil, []byte(exact)); exact != "" && string(c) != exact {
			return fmt.Errorf("%q is never the path of a request as rules see it: write %s", text,
				string(c)+text[len(exact):])
		}
	}
	return nil
}

// AddPath adds a further path to a Not.
func (m *Config) AddPath(text string) error {
	var one Config
	if err := one.SetPath(text); err != nil {
		return err
	}
	m.Paths, m.regexps = append(m.Paths, text), append(m.regexps, one.regexp)
	return nil
}

// Compile reads Path and Paths, where those are regular expressions that nobody has read.
func (m *Config) Compile() error {
	if m.Not != nil && !m.Not.isCompiled() {
		not := *m.Not // others may read it meanwhile
		if err := not.Compile(); err != nil {
			return err
		}
		m.Not = &not
	}
	if len(m.regexps) != len(m.Paths) {
		paths := m.Paths
		m.Paths, m.regexps = nil, nil
		for _, text := range paths {
			if err := m.AddPath(text); err != nil {
				return err
			}
		}
	}
	if m.Path == "" || m.Path[0] != '~' || m.regexp != nil {
		return nil
	}
	return m.SetPath(m.Path)
}

func (m *Config) isCompiled() bool {
	return len(m.regexps) == len(m.Paths) && (m.regexp != nil || !strings.HasPrefix(m.Path, "~"))
}

// MarshalJSON shows Paths as a file has them, as a list under path, and facts as fields like
// others: behind sources and in the order of their names, the last first. Versions that knew them as
// fields of their own had them so, and counters of a rule are found by the digest of this.
func (m Config) MarshalJSON() ([]byte, error) {
	type plain Config
	first := plain{Hosts: m.Hosts, Path: m.Path, Methods: m.Methods, Sources: m.Sources}
	rest := plain(m)
	rest.Hosts, rest.Path, rest.Methods, rest.Sources = nil, "", nil, nil
	fields := []any{first}
	if len(m.Paths) > 0 {
		fields[0] = struct {
			Path []string `json:"path"`
			plain
		}{m.Paths, first}
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(m.Facts))) {
		fields = append(fields, map[string]Values{name: m.Facts[name]})
	}
	all := []byte("{")
	for _, part := range append(fields, rest) {
		text, err := json.Marshal(part)
		if err != nil {
			return nil, err
		}
		if len(all) > len("{") && len(text) > len("{}") {
			all = append(all, ',')
		}
		all = append(all, text[1:len(text)-1]...)
	}
	return append(all, '}'), nil
}

// UnmarshalJSON reads what MarshalJSON writes, for who shows rules. Nothing is checked, and fields
// that it does not know are facts.
func (m *Config) UnmarshalJSON(text []byte) error {
	type plain Config
	read := struct {
		Path json.RawMessage `json:"path"`
		*plain
	}{plain: (*plain)(m)}
	var facts map[string]json.RawMessage
	if err := cmp.Or(json.Unmarshal(text, &read), json.Unmarshal(text, &facts)); err != nil {
		return err
	}
	if len(read.Path) > 0 && json.Unmarshal(read.Path, &m.Path) != nil {
		if err := json.Unmarshal(read.Path, &m.Paths); err != nil {
			return err
		}
	}
	for f := range reflect.TypeFor[Config]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		delete(facts, name)
	}
	m.Facts = nil
	for name, text := range facts {
		var values Values
		if json.Unmarshal(text, &values) != nil {
			continue // another kind of field, of a newer edge
		}
		if m.Facts == nil {
			m.Facts = make(map[string]Values)
		}
		m.Facts[name] = values
	}
	return nil
}

// IsSearched reports whether Path is a regular expression.
func (m *Config) IsSearched() bool { return m.regexp != nil }

// Plainly is m in canonical form: with its lists in one order, and without what matches everything.
func (m Config) Plainly() Config {
	if slices.Contains(m.Hosts, "*") {
		m.Hosts = nil
	}
	if m.Path == "*" || m.Path == "/*" {
		m.Path = ""
	}
	m.Hosts, m.Methods, m.Plans = slices.Sorted(slices.Values(m.Hosts)),
		slices.Sorted(slices.Values(m.Methods)), slices.Sorted(slices.Values(m.Plans))
	m.Paths = slices.Sorted(slices.Values(m.Paths))
	m.Sources = slices.SortedFunc(slices.Values(m.Sources), netip.Prefix.Compare)
	if m.Facts != nil {
		m.Facts = maps.Clone(m.Facts)
		for name, values := range m.Facts {
			m.Facts[name] = values.sorted()
		}
	}
	if m.Not != nil {
		not := m.Not.Plainly()
		m.Not = &not
	}
	return m
}

// Everything reports whether the rule is about all requests.
func (m *Config) Everything() bool {
	return (len(m.Hosts) == 0 || slices.Contains(m.Hosts, "*")) && (m.Path == "" || m.Path == "*" ||
		m.Path == "/*") && len(m.Methods)+len(m.Paths) == 0 && m.Plain()
}

// About reports whether m is about a path, at whatever host and by whatever method. It is for
// configurations; requests are looked up in an Index.
func (m *Config) About(path string) bool {
	var p paths[Config]
	p.add(entry[Config]{m: &Config{Path: m.Path, regexp: m.regexp}})
	return len(p.find(nil, []byte(path), nil, false)) > 0
}

// method reports whether the rule is about requests with this method. What is about GET is about
// HEAD, which origins answer as they answer GET, at the same cost.
func (m *Config) method(method []byte) bool {
	if len(m.Methods) == 0 {
		return true
	}
	for _, want := range m.Methods {
		if string(method) == want || want == http.MethodGet && string(method) == http.MethodHead {
			return true
		}
	}
	return false
}

// excludes reports whether the rule is not about requests of this host, path or method. No
// expression takes a path that is long.
func (m *Config) excludes(host, path, method []byte, long bool) bool {
	not := m.Not
	switch {
	case not == nil:
		return false
	case len(not.Methods) > 0 && not.method(method):
		return true
	case slices.ContainsFunc(not.Hosts, func(pattern string) bool {
		suffix, wild := strings.CutPrefix(pattern, "*")
		return wild && len(host) > len(suffix) && string(host[len(host)-len(suffix):]) == suffix ||
			string(host) == pattern
	}):
		return true
	}
	if not.Path != "" && isPath(not.Path, not.regexp, path, long) {
		return true
	}
	for i, pattern := range not.Paths {
		if isPath(pattern, not.regexps[i], path, long) {
			return true
		}
	}
	return false
}

func isPath(pattern string, re *regexp.Regexp, path []byte, long bool) bool {
	if pattern[0] == '~' {
		return !long && re.Match(path)
	}
	prefix, isPrefix := strings.CutSuffix(pattern, "*")
	return isPrefix && len(path) >= len(prefix) && string(path[:len(prefix)]) == prefix ||
		!isPrefix && string(path) == pattern
}

// Plain reports whether m is about hosts, paths and methods alone.
func (m *Config) Plain() bool {
	return len(m.Sources)+len(m.Headers)+len(m.Query)+len(m.Cookies)+len(m.Plans)+len(m.Facts) == 0 && m.Not == nil && m.Descriptors == nil
}

// Others describes what else than hosts, path and methods m is about. Facts are those that may be
// known.
func (m *Config) Others(facts ...*key.Fact) (list []string) {
	if len(m.Sources) > 0 {
		list = append(list, "from "+strings.Trim(fmt.Sprint(m.Sources), "[]"))
	}
	others := maps.Clone(m.Facts)
	for _, f := range facts {
		if values, asked := m.Facts[f.Match]; asked && f.Noun != "" {
			list = append(list, "on "+f.Noun+" "+strings.Join(values.Texts, " or "))
			delete(others, f.Match)
		}
	}
	for _, of := range []struct {
		kind   string
		values map[string]Value
	}{{"header", m.Headers}, {"query", m.Query}, {"cookie", m.Cookies}} {
		for _, name := range slices.Sorted(maps.Keys(of.values)) {
			list = append(list, of.kind+" "+name+"="+of.values[name].String())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		list = append(list, name+" "+strings.Join(m.Facts[name].Texts, " or "))
	}
	if len(m.Plans) > 0 {
		list = append(list, "on plan "+strings.Join(m.Plans, " or "))
	}
	if m.Descriptors != nil {
		list = append(list, m.Descriptors.String())
	}
	if not := m.Not; not != nil {
		parts := append(slices.Clone(not.Methods), not.Hosts...)
		if not.Path != "" {
			parts = append(parts, not.Path)
		}
		parts = append(parts, not.Paths...)
		list = append(list, "not "+strings.Join(append(parts, not.Others(facts...)...), " or "))
	}
	return list
}

// Evadable names what a client can add to a request so that the rule is not about it; "": nothing.
func (m *Config) Evadable() string {
	if m.Not == nil {
		return ""
	}
	for _, of := range []struct {
		what   string
		values map[string]Value
	}{{"the header", m.Not.Headers}, {"the parameter", m.Not.Query}, {"the cookie",
		m.Not.Cookies}} {
		for _, name := range slices.Sorted(maps.Keys(of.values)) {
			return of.what + " " + name
		}
	}
	if len(m.Not.Hosts) > 0 {
		return "the host " + m.Not.Hosts[0]
	}
	return ""
}
