package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/config/compose"
	"sluice/edge/rules"
)

// A reader walks the syntax tree of a configuration file and collects everything that is wrong with
// it, each with its position. It does not decode as libraries do, because an error should name the
// position and the remedy, and nothing may be accepted and ignored.
type reader struct {
	tree    *compose.Tree
	errs    []error
	nodes   func(names []string) error // Parser.Nodes
	planned []ast.Node                 // where rules speak of plans, or begin
	missing map[string]string          // Parser.Missing
	modules []Module                   // Parser.Modules
	others  bool                       // Parser.Others
	absent  []string                   // settings of modules that the program was built without
	asked   []asked                    // where facts are spoken of
	named   map[string]ast.Node        // settings of modules that have one name each
}

// A field is what a mapping may contain: how to read each key's value.
type fields map[string]func(ast.Node)

func (r *reader) fail(n ast.Node, format string, args ...any) {
	r.errs = append(r.errs, r.tree.Fail(n, format, args...))
}

// entries are those of a mapping, in their order.
func (r *reader) entries(n ast.Node, what string) (_ []*ast.MappingValueNode, ok bool) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, true
	case nil:
	default:
		r.fail(n, "%s: want fields (name: value), not %s", what, kind(m))
	}
	return nil, false
}

// gone are fields of earlier versions, by where they stood, and what is there in their place.
var gone = map[string]string{
	"configuration.audit_one_in": "sluice-loadgen replay and lab judge what edges decide: remove it",
	"rule.candidate":             "try the change with sluice try, or in a second rule with mode: shadow",
}

// mapping reads the keys of a mapping, each at most once, and returns where each stands.
func (r *reader) mapping(n ast.Node, what string, f fields) map[string]ast.Node {
	values, ok := r.entries(n, what)
	if !ok {
		return nil
	}
	seen := make(map[string]ast.Node, len(values))
	for _, v := range values {
		name := scalar(v.Key)
		read, known := f[name]
		switch {
		case seen[name] != nil:
			r.fail(v.Key, "%s: %s is there twice: remove one", what, name)
		case !known && gone[what+"."+name] != "":
			r.fail(v.Key, "%s: %s is gone: %s", what, name, gone[what+"."+name])
		case !known:
			r.fail(v.Key, "%s: unknown field %s%s: want %s", what, name,
				DidYouMean(name, slices.Sorted(maps.Keys(f))), names(f))
		default:
			seen[name] = v.Key
			read(v.Value)
		}
	}
	return seen
}

// pairs reads a mapping whose names are not ours, each at most once, of single values.
func (r *reader) pairs(what string, each func(name, n ast.Node, text string)) func(ast.Node) {
	return func(n ast.Node) {
		values, _ := r.entries(n, what)
		for _, v := range values {
			r.text(what+": "+scalar(v.Key), func(n ast.Node, text string) {
				each(v.Key, n, text)
			})(v.Value)
		}
	}
}

func names(f fields) string {
	list := slices.Sorted(maps.Keys(f))
	if len(list) == 1 {
		return list[0]
	}
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}

// list reads every entry of a sequence.
func (r *reader) list(n ast.Node, what string, each func(ast.Node)) {
	switch s := n.(type) {
	case *ast.SequenceNode:
		for _, v := range s.Values {
			each(v)
		}
	case nil:
	default:
		r.fail(n, "%s: want a list, not %s", what, kind(s))
	}
}

// each is list for a field.
func (r *reader) each(what string, entry func(ast.Node)) func(ast.Node) {
	return func(n ast.Node) { r.list(n, what, entry) }
}

// text reads a scalar as it is written.
func (r *reader) text(what string, set func(n ast.Node, text string)) func(ast.Node) {
	return func(n ast.Node) {
		switch v := n.(type) {
		case nil:
		case *ast.StringNode, *ast.LiteralNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode,
			*ast.InfinityNode, *ast.NanNode:
			set(n, scalar(v))
		case *ast.MappingNode, *ast.MappingValueNode: // perhaps what the library makes of [a:b]
			r.fail(n,
				"%s: want a value, not %s: within braces and brackets one with a colon stands in quotes", what, kind(v))
		default:
			r.fail(n, "%s: want a value, not %s", what, kind(v))
		}
	}
}

func (r *reader) texts(what string, each func(n ast.Node, text string)) func(ast.Node) {
	return r.each(what, r.text(what, each))
}

// kept reads a text that none stands for, or that a check lets pass. One that it does not is kept as
// well, so that nothing says it were missing.
func (r *reader) kept(what string, check func(string) error, to *string) func(ast.Node) {
	return r.text(what, func(n ast.Node, text string) {
		if text == "none" {
			return
		}
		if err := check(text); err != nil {
			r.fail(n, "%s: %v", what, err)
		}
		*to = text
	})
}

func (r *reader) boolean(what string, to *bool) func(ast.Node) {
	return func(n ast.Node) {
		if b, ok := n.(*ast.BoolNode); ok {
			*to = b.Value
		} else {
			r.fail(n, "%s: want true or false", what)
		}
	}
}

// integer reads a whole number in low..high.
func integer[T int | uint32](r *reader, what string, low, high int64, to *T) func(ast.Node) {
	return func(n ast.Node) {
		v := n
		i, ok := v.(*ast.IntegerNode)
		number, err := int64(0), error(nil)
		if ok {
			number, err = strconv.ParseInt(strings.ReplaceAll(i.Token.Value, "_", ""), 0, 64)
		}
		switch {
		case v == nil:
		case !ok:
			r.fail(n, "%s: %s is not a whole number: want %d to %d", what, scalar(v), low, high)
		case err != nil || number < low || number > high:
			r.fail(n, "%s: %s is out of range: want %d to %d", what, i.Token.Value, low, high)
		default:
			*to = T(number)
		}
	}
}

// duration reads a time with a unit in low..high; 0 as well if it may be.
func (r *reader) duration(what string, low, high time.Duration, zero bool,
	to *time.Duration) func(ast.Node) {
	bounds := fmt.Sprintf("want %v to %v", rules.Duration(low), rules.Duration(high))
	if zero {
		bounds = "want 0, or " + strings.TrimPrefix(bounds, "want ")
	}
	return r.text(what, func(n ast.Node, text string) {
		d, err := time.ParseDuration(text)
		switch {
		case err != nil:
			r.fail(n, "%s: %q is not a time with a unit, such as 30s or 5m: %s", what, text, bounds)
		case d == 0 && zero:
			*to = 0
		case d < low || d > high:
			r.fail(n, "%s: %s is out of range: %s", what, text, bounds)
		default:
			*to = d
		}
	})
}

// size reads a number of bytes, plain or with KiB, MiB or GiB.
func (r *reader) size(what string, low, high int, zero bool, to *int) func(ast.Node) {
	return r.text(what, func(n ast.Node, text string) {
		switch v, err := sizeOf(text); {
		case err != nil:
			r.fail(n, "%s: %v", what, err)
		case v == 0 && zero:
			*to = 0
		case v < low || v > high:
			r.fail(n, "%s: %s is out of range: want %d to %d bytes", what, text, low, high)
		default:
			*to = v
		}
	})
}

func sizeOf(text string) (int, error) {
	number, unit := text, 1
	for suffix, u := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if digits, ok := strings.CutSuffix(text, suffix); ok {
			number, unit = strings.TrimSpace(digits), u
		}
	}
	v, err := strconv.Atoi(number)
	if err != nil || v < 0 || v > math.MaxInt/unit {
		return 0, fmt.Errorf("%q is not a size: want a number of bytes, or one with KiB, MiB or GiB",
			text)
	}
	return v * unit, nil
}

// parsed reads what a parser makes of a text.
func parsed[T any](r *reader, what string, parse func(string) (T, error), to *T) func(ast.Node) {
	return r.text(what, func(n ast.Node, text string) {
		v, err := parse(text)
		if err != nil {
			r.fail(n, "%s: %v", what, err)
			return
		}
		*to = v
	})
}

// oneOf reads one of some words.
func oneOf[T ~string](r *reader, what string, to *T, words ...T) func(ast.Node) {
	return r.text(what, func(n ast.Node, text string) {
		if !slices.Contains(words, T(text)) {
			var list []string
			for _, w := range words {
				list = append(list, string(w))
			}
			r.fail(n, "%s: %q is not possible: want %s", what, text, strings.Join(list, " or "))
			return
		}
		*to = T(text)
	})
}

func scalar(n ast.Node) string {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value
	case *ast.LiteralNode:
		return v.Value.Value
	case *ast.NullNode:
		return "nothing"
	}
	if t := n.GetToken(); t != nil {
		return t.Value
	}
	return n.String()
}

func kind(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "fields"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "nothing"
	case *ast.TagNode:
		return "a tag"
	}
	return "a single value"
}

// lineOf says where a value stands for one who reads another: at a line, or in which other file.
func (r *reader) lineOf(reads, n ast.Node) string {
	file, _, _ := r.tree.Position(reads)
	other, line, _ := r.tree.Position(n)
	if other == file {
		return fmt.Sprintf("line %d", line)
	}
	return fmt.Sprintf("%s:%d", other, line)
}
