package importer

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// A tree is YAML as Envoy's ratelimit reads it: scalars as they are written, because a descriptor's
// value is text whatever it looks like; aliases and merges in place. Of nil all is empty.
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

// field returns nil if there is none of the name.
func (t *tree) field(key string) *tree {
	if t != nil {
		for _, f := range t.fields {
			if f.key == key {
				return f.value
			}
		}
	}
	return nil
}

// words is the text of a field; "": there is none.
func (t *tree) words(key string) string {
	if f := t.field(key); f != nil {
		return f.text
	}
	return ""
}

// isTrue reads a boolean as ratelimit's YAML does.
func (t *tree) isTrue(key string) bool {
	switch strings.ToLower(t.words(key)) {
	case "true", "yes", "on", "y":
		return true
	}
	return false
}

// list is the sequence of a field.
func (t *tree) list(key string) []*tree {
	if f := t.field(key); f != nil {
		return f.items
	}
	return nil
}

// lines are where the lines of a text stand in its file: behind one of it, or all in that one.
type lines struct {
	before int
	one    bool
}

func (l lines) of(n ast.Node) int {
	if l.one {
		return l.before
	}
	return l.before + n.GetToken().Position.Line
}

// treeReader reads documents.
type treeReader struct {
	anchors map[string]*tree
	lines   lines
	nodes   int
}

// maxNodes bounds what aliases of aliases grow to.
const maxNodes = 200_000

// readTrees reads the documents of a text.
func readTrees(text string, in lines) (docs []*tree, err error) {
	parsed, err := parser.ParseBytes([]byte(text), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, errors.New(strings.SplitN(err.Error(), "\n", 2)[0])
	}
	for _, doc := range parsed.Docs {
		r := &treeReader{anchors: make(map[string]*tree), lines: in}
		t, err := r.read(doc.Body, 0)
		if err != nil {
			return nil, err
		}
		docs = append(docs, t)
	}
	return docs, nil
}

func (r *treeReader) read(n ast.Node, depth int) (t *tree, err error) {
	if n == nil {
		return &tree{}, nil
	}
	t = &tree{line: r.lines.of(n)}
	if r.nodes++; r.nodes > maxNodes || depth > 100 {
		return nil, fmt.Errorf("line %d: it is nested too deep, or too long", t.line)
	}
	switch n := n.(type) {
	case *ast.AnchorNode:
		before := r.nodes
		if t, err = r.read(n.Value, depth+1); err == nil {
			t.nodes = r.nodes - before
			r.anchors[n.Name.String()] = t
		}
	case *ast.AliasNode:
		line := t.line
		if t = r.anchors[n.Value.String()]; t == nil {
			return nil, fmt.Errorf("line %d: there is no anchor &%v above it", line, n.Value)
		}
		r.nodes += t.nodes
	case *ast.TagNode:
		return r.read(n.Value, depth+1)
	case *ast.SequenceNode:
		for _, v := range n.Values {
			item, err := r.read(v, depth+1)
			if err != nil {
				return nil, err
			}
			t.items = append(t.items, item)
		}
	case *ast.MappingNode:
		return t, r.mapping(t, n.Values, depth+1)
	case *ast.MappingValueNode:
		return t, r.mapping(t, []*ast.MappingValueNode{n}, depth+1)
	case *ast.NullNode:
	case *ast.LiteralNode:
		t.text, t.block = n.Value.Value, true
	case *ast.StringNode:
		t.text = n.Value
	default:
		t.text = strings.TrimSpace(n.GetToken().Value)
	}
	return t, err
}

// mapping reads the fields of a mapping, and then what merges bring, of which its own take the
// place.
func (r *treeReader) mapping(t *tree, values []*ast.MappingValueNode, depth int) error {
	var merged []*tree
	for i, v := range values {
		value, err := r.read(v.Value, depth)
		if err != nil {
			return err
		}
		if v.Key.IsMergeKey() {
			merged = append(append(merged, value), value.items...)
			continue
		}
		key, err := r.read(v.Key, depth)
		switch {
		case err != nil:
			return err
		case t.field(key.text) != nil:
			return fmt.Errorf("line %d: %s is there twice", key.line, key.text)
		case i == 0:
			t.line = key.line
		}
		t.fields = append(t.fields, field{key.text, value})
	}
	for _, m := range merged {
		for _, f := range m.fields {
			if t.field(f.key) == nil {
				t.fields = append(t.fields, f)
			}
		}
	}
	return nil
}
