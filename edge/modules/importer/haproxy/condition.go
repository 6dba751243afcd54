package haproxy

import (
	"regexp"
	"slices"
	"strings"

	"sluice/edge/modules/importer/limit"
)

// predefined are the conditions that HAProxy has a name for.
var predefined = map[string][][]string{
	"METH_CONNECT": {{"method", "CONNECT"}}, "METH_DELETE": {{"method", "DELETE"}},
	"METH_GET": {{"method", "GET", "HEAD"}}, "METH_HEAD": {{"method", "HEAD"}},
	"METH_OPTIONS": {{"method", "OPTIONS"}}, "METH_POST": {{"method", "POST"}},
	"METH_PUT": {{"method", "PUT"}}, "METH_TRACE": {{"method", "TRACE"}},
	"LOCALHOST": {{"src", "127.0.0.0/8", "::1"}},
}

// tests are what a term stands for, one of which is enough; none: it is not known.
func (s *frontend) tests(t term) [][]string {
	if t.test != nil {
		return [][]string{t.test}
	}
	if tests := s.acls[t.acl]; tests != nil {
		return tests
	}
	return predefined[t.acl]
}

// joined adds a test to those of an acl, one of which is enough. Where one is about the same, it
// has the values of both.
func joined(tests [][]string, test []string) [][]string {
	about := func(test []string) []string { return test[:len(test)-len(sampleOf(test).values)] }
	n := len(about(test))
	isNumber := slices.Contains(test, "gt") || slices.Contains(test, "ge") // the least of them
	for i, other := range tests {
		if !isNumber && len(test) > n && len(other) > n && slices.Equal(about(other), test[:n]) {
			tests[i] = slices.Concat(other, test[n:])
			return tests
		}
	}
	return append(tests, test)
}

// understand adds what terms ask to a condition. Their first test of a counter goes there instead,
// if counter is not nil.
func (s *frontend) understand(c *limit.Condition, terms clause, counter *[]string) {
	for _, t := range terms {
		tests := s.tests(t)
		if len(tests) == 0 || len(tests) > 1 && !t.not {
			c.Unknown = append(c.Unknown, t.String())
			continue
		}
		for _, test := range tests { // of several that are not, none is
			if counter != nil && *counter == nil && !t.not &&
				counterTest.MatchString(word(test, 0)) {
				*counter = test
			} else {
				ask(c, t.not, test)
			}
		}
	}
}

// except leaves out the requests that a condition is about.
func (s *frontend) except(c *limit.Condition, terms clause) {
	if len(terms) == 1 {
		if tests := s.tests(terms[0]); len(tests) == 1 {
			ask(c, !terms[0].not, tests[0])
			return
		}
	}
	c.Unknown = append(c.Unknown, "that those pass who are "+terms.String())
}

// ask adds a test to a limit.Condition, or what is not understood of it.
func ask(c *limit.Condition, not bool, test []string) {
	written := strings.Join(test, " ")
	if field, v := sampleOf(test).says(not); v != nil {
		c.Put(not, field, v, written)
	} else {
		c.Unknown = append(c.Unknown, written)
	}
}

// sampleKeys are the samples of HAProxy that are a part of a key; behind a colon the name follows.
var sampleKeys = map[string]string{"src": "source", "path": "path", "hdr": "header:",
	"req.hdr": "header:", "req.fhdr": "header:", "cook": "cookie:", "req.cook": "cookie:",
	"url_param": "query:", "urlp": "query:"}

// keyOf is who a sample stands for, as a key; "": it is not known, as of one that goes through
// a converter, or that is one occurrence of several.
func keyOf(text string) string {
	name, arg, _ := strings.Cut(strings.TrimSuffix(text, ")"), "(")
	key := sampleKeys[name]
	switch {
	case strings.ContainsAny(name+arg, ",()") || namedBy(text) != "":
		return ""
	case strings.HasSuffix(key, ":"):
		return key + arg
	}
	return key
}

var ofHeader = regexp.MustCompile(`^[^(]*hdr[^(]*\(([^,)]*)`)

// namedBy is the header in which a proxy names the client, if a sample reads one; "": it reads
// none.
func namedBy(text string) string {
	if m := ofHeader.FindStringSubmatch(text); m != nil && limit.IsClientHeader(m[1]) {
		return m[1]
	}
	return ""
}

// A sample is a test of a condition: what it looks at, and how it compares that with values.
type sample struct {
	name, arg string
	field     string // of a match, if it is a header, cookie or parameter
	method    string // "": it is one of the values
	fold      bool   // case does not matter
	values    []string
}

// sampleOf reads a test. It has no name if it has flags that are not known.
func sampleOf(test []string) (s sample) {
	if len(test) < 2 {
		return s
	}
	for s.values = test[1:]; len(s.values) > 0 && strings.HasPrefix(s.values[0], "-"); {
		switch flag := s.values[0]; {
		case flag == "-m" && len(s.values) > 1:
			s.method, s.values = s.values[1], s.values[1:]
		case flag == "-i":
			s.fold = true
		case flag != "--":
			return s
		}
		s.values = s.values[1:]
	}
	s.name, s.arg, _ = strings.Cut(strings.TrimSuffix(test[0], ")"), "(")
	base, as, _ := strings.Cut(s.name, "_")
	if _, is := sampleKeys[base]; is && as != "" && s.method == "" { // as hdr_beg
		s.name, s.method = base, as
	} else if s.method == "str" {
		s.method = ""
	}
	s.field, _ = limit.FieldOf(sampleKeys[s.name])
	return s
}

// says is the field of a match, or of a not, and its value, that say what a sample does; nil: a
// match cannot say it.
func (s sample) says(not bool) (field string, v any) {
	isHost := s.field == "headers" && strings.EqualFold(s.arg, "host")
	switch {
	case strings.Contains(s.arg, ","): // one of several of the name
	case s.field != "" && s.method == "found" && len(s.values) == 0 && !isHost:
		return s.field, limit.Named(s.arg, "*")
	case len(s.values) == 0:
	case s.name == "path":
		return "path", s.path()
	case s.name == "method" && s.method == "":
		return "methods", s.values
	case s.name == "src" && s.method == "":
		if good, bad := limit.Prefixes(s.values); len(bad) == 0 {
			return "sources", good
		}
	case isHost && s.method == "":
		return "hosts", s.values
	case s.field != "" && !isHost:
		if v = s.value(not); v != nil {
			return s.field, limit.Named(s.arg, v)
		}
	}
	return "", nil
}

// path is the path as it is where a rule can say it so, or an expression.
func (s sample) path() any {
	if !s.fold && len(s.values) == 1 {
		switch s.method {
		case "":
			return s.values[0]
		case "beg":
			return s.values[0] + "*"
		}
	}
	return s.expression()
}

// value is what a header, cookie or parameter has to be. A match compares without case, and a not
// byte for byte; where HAProxy compares otherwise, an expression does.
func (s sample) value(not bool) any {
	term := map[string]string{"": "one_of", "beg": "prefix", "end": "suffix",
		"sub": "contains"}[s.method]
	switch {
	case term == "" || s.fold == not:
		return s.expression()
	case len(s.values) == 1 && term != "one_of":
		return limit.Named(term, s.values[0])
	case len(s.values) > 64:
		return nil
	}
	return limit.Named(term, s.values)
}

// expression is what a method of comparing makes of texts; nil: a rule cannot have it.
func (s sample) expression() any {
	any := slices.Clone(s.values)
	for i, v := range any {
		if s.method != "reg" {
			any[i] = regexp.QuoteMeta(v)
		}
	}
	e := "(?:" + strings.Join(any, "|") + ")"
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
		return nil
	}
	if s.fold {
		e = "(?i)" + e
	}
	if !limit.IsExpression(e) {
		return nil
	}
	return "~" + e
}
