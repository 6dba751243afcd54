package importer

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// A condition is what a rule is about, and what it leaves out.
type condition struct {
	match, not yaml.MapSlice
	unknown    []string // what is not understood
}

func (c *condition) clone() condition {
	return condition{slices.Clone(c.match), slices.Clone(c.not), slices.Clone(c.unknown)}
}

// put sets a field, unless it has another value: then both are meant, which a match cannot say of
// one.
func (c *condition) put(to *yaml.MapSlice, field string, v any, written string) {
	for _, item := range *to {
		if item.Key == field {
			if fmt.Sprint(item.Value) != fmt.Sprint(v) {
				c.unknown = append(c.unknown, written)
			}
			return
		}
	}
	*to = append(*to, yaml.MapItem{Key: field, Value: v})
}

// and adds what another condition asks.
func (c *condition) and(other condition, written string) {
	for _, item := range other.match {
		c.put(&c.match, item.Key.(string), item.Value, written)
	}
	for _, item := range other.not {
		c.put(&c.not, item.Key.(string), item.Value, written)
	}
}

// whole is the match of a rule; nil: it is about everything.
func (c *condition) whole() yaml.MapSlice {
	m := slices.Clone(c.match)
	if len(c.not) > 0 {
		m = append(m, yaml.MapItem{Key: "not", Value: c.not})
	}
	return m
}

// named is one header, cookie or parameter, with what it has to be.
func named(name string, v any) yaml.MapSlice { return yaml.MapSlice{{Key: name, Value: v}} }

// fieldOf is the field of a match that is about what a part of a key is, and the name there of that
// header, cookie or parameter; "": it is none of these.
func fieldOf(part string) (field, name string) {
	kind, name, _ := strings.Cut(part, ":")
	return map[string]string{"header": "headers", "cookie": "cookies", "query": "query"}[kind], name
}

// counted leaves out requests without that by which a key counts, which others do not count.
func (c *condition) counted(part, written string) {
	field, name := fieldOf(part)
	is := func(item yaml.MapItem) bool { return strings.EqualFold(item.Key.(string), name) }
	if field == "" || slices.ContainsFunc(c.match, func(item yaml.MapItem) bool {
		values, named := item.Value.(yaml.MapSlice)
		return named && item.Key == field && slices.ContainsFunc(values, is)
	}) {
		return
	}
	c.put(&c.match, field, named(name, "*"), written)
}

// maxExpression bounds a regular expression that is made of several.
const maxExpression = 1000

// isExpression reports whether a rule can have a regular expression. PCRE says more.
func isExpression(e string) bool {
	_, err := regexp.Compile(e)
	return err == nil && len(e) <= maxExpression
}
