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
	header := name == "hdr" || name == "req.hdr" || name == "req.fhdr"
	switch base, as, _ := strings.Cut(name, "_"); {
	case base == "path" && as != "" && method == "":
		name, method = base, as
	case method == "str":
		method = ""
	}
	put := func(field string, v any) { c.put(to, field, v, written) }
	switch {
	case header && method == "found" && len(values) == 0 && !strings.EqualFold(arg, "host"):
		put("headers", yaml.MapSlice{{Key: arg, Value: "*"}})
	case len(values) == 0:
		unknown()
	case name == "path" && len(values) == 1 && !fold && method == "":
		put("path", values[0])
	case name == "path" && len(values) == 1 && !fold && method == "beg":
		put("path", values[0]+"*")
	case name == "path" && !not && (method == "" || method == "beg" || method == "end" ||
		method == "reg"):
		var any []string
		for _, v := range values {
			if method != "reg" {
				v = regexp.QuoteMeta(v)
			}
			any = append(any, v)
		}
		e := "(?:" + strings.Join(any, "|") + ")"
		if method == "reg" && len(any) == 1 {
			e = any[0]
		}
		if method == "" || method == "beg" {
			e = "^" + e
		}
		if method == "" || method == "end" {
			e += "$"
		}
		if fold {
			e = "(?i)" + e
		}
		put("path", "~"+e)
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
	case header && strings.EqualFold(arg, "host") && method == "":
		put("hosts", values)
	case header && len(values) == 1 && method == "":
		put("headers", yaml.MapSlice{{Key: arg, Value: values[0]}})
	case header && len(values) == 1 && method == "beg":
		put("headers", yaml.MapSlice{{Key: arg, Value: values[0] + "*"}})
	default:
		unknown()
	}
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
