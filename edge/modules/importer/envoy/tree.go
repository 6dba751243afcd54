package envoy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// A tree is YAML as Envoy's ratelimit reads it: scalars as they are written, because a descriptor's
// value is text whatever it looks like; aliases and merges in place.
type tree struct {
	line   int
	text   string  // of a scalar; "" of null
	block  bool    // its lines are lines of the file
	fields []field // of a mapping
	items  []*tree // of a sequence
	nodes  int     // in it
}

// A field is one of a mapping.
type field struct {
	key   string
	value *tree
}

// none is the value of a field that is not there.
var none = &tree{}

// field is the value of a field of a mapping.
func (t *tree) field(key string) *tree {
	for _, f := range t.fields {
		if f.key == key {
			return f.value
		}
	}
	return none
}

// isTrue reads a boolean as ratelimit's YAML does.
func (t *tree) isTrue(key string) bool {
	return slices.Contains([]string{"true", "yes", "on", "y"}, strings.ToLower(t.field(key).text))
}

// A treeReader reads a document, up to its first error.
type treeReader struct {
	anchors map[string]*tree
	at      func(line int) int // where a line of the text stands in its file
	nodes   int
	err     error
}

func (r *treeReader) fail(line int, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("line %d: %s", line, fmt.Sprintf(format, args...))
	}
}

// maxNodes bounds what aliases of aliases grow to.
const maxNodes = 200_000

// readTrees reads the documents of a text.
func readTrees(text string, at func(line int) int) (docs []*tree, err error) {
	parsed, err := parser.ParseBytes([]byte(text), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, errors.New(strings.SplitN(err.Error(), "\n", 2)[0])
	}
	for _, doc := range parsed.Docs {
		r := &treeReader{anchors: make(map[string]*tree), at: at}
		if docs = append(docs, r.read(doc.Body, 0)); r.err != nil {
			return nil, r.err
		}
	}
	return docs, nil
}

func (r *treeReader) read(n ast.Node, depth int) *tree {
	if n == nil {
		return &tree{}
	}
	t := &tree{line: r.at(n.GetToken().Position.Line)}
	if r.nodes++; r.nodes > maxNodes || depth > 100 {
		r.fail(t.line, "it is nested too deep, or too long")
		return t
	}
	switch n := n.(type) {
	case *ast.AnchorNode:
		before := r.nodes
		t = r.read(n.Value, depth+1)
		t.nodes = r.nodes - before
		r.anchors[n.Name.String()] = t
	case *ast.AliasNode:
		target := r.anchors[n.Value.String()]
		if target == nil {
			r.fail(t.line, "there is no anchor &%v above it", n.Value)
			return t
		}
		r.nodes += target.nodes
		return target
	case *ast.TagNode:
		return r.read(n.Value, depth+1)
	case *ast.SequenceNode:
		for _, v := range n.Values {
			t.items = append(t.items, r.read(v, depth+1))
		}
	case *ast.MappingNode:
		r.mapping(t, n.Values, depth+1)
	case *ast.MappingValueNode:
		r.mapping(t, []*ast.MappingValueNode{n}, depth+1)
	case *ast.NullNode:
	case *ast.LiteralNode:
		t.text, t.block = n.Value.Value, true
	case *ast.StringNode:
		t.text = n.Value
	default:
		t.text = strings.TrimSpace(n.GetToken().Value)
	}
	return t
}

// mapping reads the fields of a mapping, and then what merges bring, of which its own take the
// place.
func (r *treeReader) mapping(t *tree, values []*ast.MappingValueNode, depth int) {
	var merged []field
	for i, v := range values {
		value := r.read(v.Value, depth)
		if v.Key.IsMergeKey() {
			merged = append(merged, value.fields...)
			for _, item := range value.items {
				merged = append(merged, item.fields...)
			}
			continue
		}
		key := r.read(v.Key, depth)
		if t.field(key.text) != none {
			r.fail(key.line, "%s is there twice", key.text)
		}
		if i == 0 {
			t.line = key.line
		}
		t.fields = append(t.fields, field{key.text, value})
	}
	for _, f := range merged {
		if t.field(f.key) == none {
			t.fields = append(t.fields, f)
		}
	}
}
