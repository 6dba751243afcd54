package importer

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// except leaves out the requests that a condition is about.
func (c *condition) except(s *frontend, cond []string) {
	list := terms(cond)
	if len(list) == 1 {
		not, test := strings.HasPrefix(list[0][0], "!"), list[0][1:]
		if len(list[0]) == 1 {
			test = oneTest(s.acls[strings.TrimPrefix(list[0][0], "!")])
		}
		if test != nil {
			c.haproxy(!not, test)
			return
		}
	}
	c.unknown = append(c.unknown, "that those pass who are "+strings.Join(cond, " "))
}

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
		case slices.ContainsFunc(test, func(w string) bool { return w == "gt" || w == "ge" }):
			return nil // numbers: the least of them
		default:
			one = append(one, test[values:]...)
		}
	}
	return one
}

// haproxy adds a test to a condition.
func (c *condition) haproxy(not bool, test []string) {
	to, written := &c.match, strings.Join(test, " ")
	if not {
		to = &c.not
	}
	unknown := func() { c.unknown = append(c.unknown, written) }
	if len(test) < 2 {
		unknown()
		return
	}
	name, arg, _ := strings.Cut(strings.TrimSuffix(test[0], ")"), "(")
	method, fold := "", false
	var values []string
	for i := 1; i < len(test); i++ {
		switch w := test[i]; {
		case len(values) == 0 && w == "-m" && i+1 < len(test):
			i++
			method = test[i]
		case len(values) == 0 && w == "-i":
			fold = true
		case len(values) == 0 && w == "--":
		case len(values) == 0 && strings.HasPrefix(w, "-"):
			unknown()
			return
		default:
			values = append(values, w)
		}
	}
	field := valued[name]
	switch base, as, _ := strings.Cut(name, "_"); {
	case as != "" && method == "" && (base == "path" || valued[base] != ""):
		name, method, field = base, as, valued[base]
	case method == "str":
		method = ""
	}
	isHost := field == "headers" && strings.EqualFold(arg, "host")
	put := func(field string, v any) { c.put(to, field, v, written) }
	switch {
	case strings.Contains(arg, ","): // one of several of the name
		unknown()
	case field != "" && method == "found" && len(values) == 0 && !isHost:
		put(field, yaml.MapSlice{{Key: arg, Value: "*"}})
	case len(values) == 0:
		unknown()
	case name == "path":
		paths, is := paths(method, fold, values)
		switch {
		case !is:
			unknown()
		case not && len(paths) > 1:
			put("path", paths)
		case len(paths) > 1:
			put("path", anyPath(paths))
		default:
			put("path", paths[0])
		}
	case name == "method" && method == "":
		put("methods", values)
	case name == "src" && method == "":
		good, bad := prefixes(values)
		if len(bad) > 0 {
			unknown()
			return
		}
		if not {
			c.notAny("sources", good)
		} else {
			put("sources", good)
		}
	case isHost && method == "":
		put("hosts", values)
	case field != "" && !isHost:
		v, is := valueOf(method, fold, not, values)
		if !is {
			unknown()
			return
		}
		put(field, yaml.MapSlice{{Key: arg, Value: v}})
	default:
		unknown()
	}
}

// valued are the samples that are a header, cookie or parameter by its name, with the field of a
// match that is about such.
var valued = map[string]string{"hdr": "headers", "req.hdr": "headers", "req.fhdr": "headers",
	"cook": "cookies", "req.cook": "cookies", "url_param": "query", "urlp": "query"}

// expression is what a method of comparing makes of texts.
func expression(method string, fold bool, values []string) (e string, is bool) {
	var any []string
	for _, v := range values {
		if method != "reg" {
			v = regexp.QuoteMeta(v)
		}
		any = append(any, v)
	}
	e = "(?:" + strings.Join(any, "|") + ")"
	if method == "reg" && len(any) == 1 {
		e = any[0]
	}
	switch method {
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
	if fold {
		e = "(?i)" + e
	}
	_, err := regexp.Compile(e) // PCRE says more
	return "~" + e, err == nil && len(e) <= 1000
}

// paths are those of a test: each as it is where a rule can say it so, or one expression.
func paths(method string, fold bool, values []string) (list []string, is bool) {
	if !fold && (method == "" || method == "beg") && len(values) == 1 {
		return []string{values[0] + map[string]string{"beg": "*"}[method]}, true
	}
	e, is := expression(method, fold, values)
	return []string{e}, is
}

// anyPath is one path for several, of which a match can say one.
func anyPath(paths []string) string {
	for i, p := range paths {
		if text, is := strings.CutPrefix(p, "~"); is {
			paths[i] = text
		} else if text, is := strings.CutSuffix(p, "*"); is {
			paths[i] = "^" + regexp.QuoteMeta(text)
		} else {
			paths[i] = "^" + regexp.QuoteMeta(p) + "$"
		}
	}
	return "~(?:" + strings.Join(paths, ")|(?:") + ")"
}

// valueOf is what a header, cookie or parameter has to be. A match compares without case, and a not
// byte for byte; where HAProxy compares otherwise, an expression does.
func valueOf(method string, fold, not bool, values []string) (v any, is bool) {
	term := map[string]string{"": "one_of", "beg": "prefix", "end": "suffix",
		"sub": "contains"}[method]
	if term == "" || fold == not {
		return expression(method, fold, values)
	}
	if len(values) == 1 && term != "one_of" {
		return yaml.MapSlice{{Key: term, Value: values[0]}}, true
	}
	return yaml.MapSlice{{Key: term, Value: values}}, len(values) <= 64
}

// names reports whether a header, cookie or parameter must be there.
func (c *condition) names(field, name string) bool {
	return slices.ContainsFunc(c.match, func(item yaml.MapItem) bool {
		values, is := item.Value.(yaml.MapSlice)
		return is && item.Key == field &&
			slices.ContainsFunc(values,
				func(v yaml.MapItem) bool { return strings.EqualFold(v.Key.(string), name) })
	})
}

// requests are the fields that tell requests of one client apart.
func (c *condition) requests() (fields []string) {
	for _, list := range []yaml.MapSlice{c.match, c.not} {
		for _, item := range list {
			if item.Key != "sources" {
				fields = append(fields, fmt.Sprint(item.Key, item.Value))
			}
		}
	}
	return fields
}

// notAny leaves out further ones of a list.
func (c *condition) notAny(field string, list []string) {
	for i, item := range c.not {
		if item.Key == field {
			c.not[i].Value = unique(append(slices.Clone(item.Value.([]string)), list...))
			return
		}
	}
	c.not = append(c.not, yaml.MapItem{Key: field, Value: list})
}
