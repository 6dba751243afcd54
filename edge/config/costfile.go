package config

import (
	"cmp"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/edge/message"
	"sluice/edge/rules"
)

// cost reads how much of a limit a request uses: a number, or what it is of.
func (r *reader) cost(n ast.Node, c *rules.Cost) {
	if _, mapping := r.resolve(n).(ast.MapNode); !mapping {
		integer(r, "cost", 1, algorithm.MaxCost, &c.Units)(n)
		return
	}
	seen := r.mapping(n, "cost", fields{
		"bytes": r.size("cost.bytes", 1, 1<<40, false, &c.Bytes),
		"header": r.text("cost.header", func(n ast.Node, text string) {
			if !message.IsToken([]byte(text)) || message.KindOf([]byte(text)) != message.Other {
				r.fail(n, "cost.header: %q cannot say what a request costs: want a header of the origin's own, such as X-Request-Cost, which clients do not get to see", text)
				return
			}
			c.Header = text
		}),
	})
	if seen != nil && (seen["bytes"] == nil) == (seen["header"] == nil) {
		r.fail(n, "cost: want a number, or one of {bytes: 10KiB} and {header: NAME}")
	}
}

// tag reads what origins are told of requests that are over a limit.
func (r *reader) tag(n ast.Node, t *rules.TagHeader) {
	r.mapping(n, "tag", fields{
		"header": r.checked("tag.header", rules.CheckTag, &t.Header),
		"value": r.text("tag.value", func(n ast.Node, text string) {
			if text == "" || len(text) > 256 || !message.IsText([]byte(text)) || strings.TrimSpace(text) != text {
				r.fail(n, "tag.value: %q is not the value of a header: want 1 to 256 bytes of text", text)
				return
			}
			t.Value = text
		}),
	})
}

// tags says what makes no sense together with, or without, action: tag.
func (r *reader) tags(n ast.Node, seen map[string]ast.Node, rule *rules.Config) {
	standard := rules.Default("", 0)
	at := func(field string) ast.Node { return cmp.Or(seen[field], n) }
	switch {
	case rule.Action != rules.Tag:
		if rule.Tag != standard.Tag {
			r.fail(at("tag"), "tag: only action: tag tells origins anything: add it, or remove tag")
		}
	case !reflect.DeepEqual(rule.Response, standard.Response):
		r.fail(at("response"), "response: action: tag refuses nobody, so nobody gets it: remove it, or choose another action")
	case rule.OnStoreFailure == limiter.Closed:
		r.fail(at("on_store_failure"), "on_store_failure: closed refuses, and action: tag refuses nobody: want local or open, or another action")
	}
}
