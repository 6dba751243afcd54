package importer

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// predefined are the conditions that HAProxy has a name for.
var predefined = map[string][]string{
	"METH_CONNECT": {"method", "CONNECT"}, "METH_DELETE": {"method", "DELETE"},
	"METH_GET": {"method", "GET", "HEAD"}, "METH_HEAD": {"method", "HEAD"},
	"METH_OPTIONS": {"method", "OPTIONS"}, "METH_POST": {"method", "POST"},
	"METH_PUT": {"method", "PUT"}, "METH_TRACE": {"method", "TRACE"},
	"LOCALHOST": {"src", "127.0.0.0/8", "::1"},
}

// oneTest is what several conditions of one name say, one of which is enough, as one test; nil:
// they are about different things.
func oneTest(tests [][]string) (one []string) {
	for _, test := range tests {
		values := len(test)
		for i := 1; i < len(test); i++ {
			if test[i] == "-m" {
				i++
			} else if !strings.HasPrefix(test[i], "-") {
				values = i
				break
			}
		}
		switch {
		case one == nil:
			one = slices.Clone(test)
		case len(one) <= values || !slices.Equal(one[:values], test[:values]) ||
			strings.HasPrefix(one[values], "-") || values == len(test):
			return nil
		case slices.Contains(test, "gt") || slices.Contains(test, "ge"):
			return nil // numbers: the least of them
		default:
			one = append(one, test[values:]...)
		}
	}
	return one
}

// A sample is a test of a condition: what it looks at, and how it compares that with values.
type sample struct {
	name, arg string
	field     string // of a match, if it is a header, cookie or parameter
	method    string // "": it is one of the values
	fold      bool   // case does not matter
	values    []string
}

// sampleOf reads a test. It is none that is known if it has flags that are not.
func sampleOf(test []string) (s sample, known bool) {
	if len(test) < 2 {
		return s, false
	}
	s.name, s.arg, _ = strings.Cut(strings.TrimSuffix(test[0], ")"), "(")
	rest := test[1:]
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
		switch {
		case rest[0] == "-m" && len(rest) > 1:
			s.method, rest = rest[1], rest[1:]
		case rest[0] == "-i":
			s.fold = true
		case rest[0] != "--":
			return s, false
		}
		rest = rest[1:]
	}
	s.values = rest
	base, as, _ := strings.Cut(s.name, "_")
	if _, is := sampleKeys[base]; is && as != "" && s.method == "" { // as hdr_beg
		s.name, s.method = base, as
	} else if s.method == "str" {
		s.method = ""
	}
	s.field, _ = fieldOf(sampleKeys[s.name])
	return s, true
}

// haproxy adds a test to a condition, or what is not understood of it.
func (c *condition) haproxy(not bool, test []string) {
	s, known := sampleOf(test)
	if !known || !c.sample(not, s, strings.Join(test, " ")) {
		c.unknown = append(c.unknown, strings.Join(test, " "))
	}
}

// sample reports whether a match can say what a sample does.
func (c *condition) sample(not bool, s sample, written string) bool {
	to := &c.match
	if not {
		to = &c.not
	}
	isHost := s.field == "headers" && strings.EqualFold(s.arg, "host")
	switch {
	case strings.Contains(s.arg, ","): // one of several of the name
		return false
	case s.field != "" && s.method == "found" && len(s.values) == 0 && !isHost:
		c.put(to, s.field, named(s.arg, "*"), written)
	case len(s.values) == 0:
		return false
	case s.name == "path":
		path, is := s.path()
		if !is {
			return false
		}
		c.put(to, "path", path, written)
	case s.name == "method" && s.method == "":
		c.put(to, "methods", s.values, written)
	case s.name == "src" && s.method == "":
		good, bad := prefixes(s.values)
		switch {
		case len(bad) > 0:
			return false
		case not:
			c.notSources(good)
		default:
			c.put(to, "sources", good, written)
		}
	case isHost && s.method == "":
		c.put(to, "hosts", s.values, written)
	case s.field != "" && !isHost:
		v, is := s.value(not)
		if !is {
			return false
		}
		c.put(to, s.field, named(s.arg, v), written)
	default:
		return false
	}
	return true
}

// expression is what a method of comparing makes of texts.
func (s sample) expression() (e string, is bool) {
	any := slices.Clone(s.values)
	for i, v := range any {
		if s.method != "reg" {
			any[i] = regexp.QuoteMeta(v)
		}
	}
	e = "(?:" + strings.Join(any, "|") + ")"
	if s.method == "reg" && len(any) == 1 {
		e = any[0]
	}
	switch s.method {
	case "":
		e = "^" + e + "$"
	case "beg":
		e = "^" + e
	case "end":
		e += "$"
	case "sub", "reg":
	default:
		return "", false
	}
	if s.fold {
		e = "(?i)" + e
	}
	return "~" + e, isExpression(e)
}

// path is the path as it is where a rule can say it so, or an expression.
func (s sample) path() (path string, is bool) {
	if !s.fold && len(s.values) == 1 && s.method == "" {
		return s.values[0], true
	}
	if !s.fold && len(s.values) == 1 && s.method == "beg" {
		return s.values[0] + "*", true
	}
	return s.expression()
}

// value is what a header, cookie or parameter has to be. A match compares without case, and a not
// byte for byte; where HAProxy compares otherwise, an expression does.
func (s sample) value(not bool) (v any, is bool) {
	term := map[string]string{"": "one_of", "beg": "prefix", "end": "suffix",
		"sub": "contains"}[s.method]
	if term == "" || s.fold == not {
		return s.expression()
	}
	if len(s.values) == 1 && term != "one_of" {
		return named(term, s.values[0]), true
	}
	return named(term, s.values), len(s.values) <= 64
}

// except leaves out the requests that a condition is about.
func (c *condition) except(s *frontend, cond []string) {
	if list := terms(cond); len(list) == 1 {
		test := list[0].test
		if test == nil {
			test = oneTest(s.acls[list[0].acl])
		}
		if test != nil {
			c.haproxy(!list[0].not, test)
			return
		}
	}
	c.unknown = append(c.unknown, "that those pass who are "+strings.Join(cond, " "))
}

// requests are the fields that tell requests of one client apart.
func (c *condition) requests() (fields []string) {
	for _, item := range slices.Concat(c.match, c.not) {
		if item.Key != "sources" {
			fields = append(fields, fmt.Sprint(item.Key, item.Value))
		}
	}
	return fields
}

// notSources leaves out further addresses.
func (c *condition) notSources(list []string) {
	for i, item := range c.not {
		if item.Key == "sources" {
			c.not[i].Value = unique(slices.Concat(item.Value.([]string), list))
			return
		}
	}
	c.not = append(c.not, yaml.MapItem{Key: "sources", Value: list})
}
