package importer

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// A tree is YAML as Envoy's ratelimit reads it: scalars as they are written, because a descriptor's
// value is text whatever it looks like; aliases and merges in place.
type tree struct {
	line    int
	text    string  // of a scalar; "" of null
	block   bool    // its lines are lines of the file
	fields  []field // of a mapping
	items   []*tree // of a sequence
	mapping bool
}

// A field is one of a mapping.
type field struct {
	key   string
	value *tree
	// Another << brought it, so that one of the mapping itself takes its place
	merged bool
}

// field returns nil if there is none of the name.
func (t *tree) field(key string) *tree {
	if t == nil {
		return nil
	}
	for i := range t.fields {
		if t.fields[i].key == key {
			return t.fields[i].value
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
		if t, err = r.read(n.Value, depth+1); err == nil {
			r.anchors[n.Name.String()] = t
		}
		return t, err
	case *ast.AliasNode:
		if t := r.anchors[n.Value.String()]; t != nil {
			return t, nil
		}
		return nil, fmt.Errorf("line %d: there is no anchor &%s above it", t.line, n.Value.String())
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
		t.mapping = true
		for _, v := range n.Values {
			if err := r.put(t, v, depth); err != nil {
				return nil, err
			}
		}
		if len(n.Values) > 0 {
			t.line = r.lines.of(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		t.mapping = true
		return t, r.put(t, n, depth)
	case *ast.NullNode:
	case *ast.LiteralNode:
		t.text, t.block = n.Value.Value, true
	case *ast.StringNode:
		t.text = n.Value
	default:
		t.text = strings.TrimSpace(n.GetToken().Value)
	}
	return t, nil
}

// put adds a field. One that the mapping itself says takes the place of one that a merge brought.
func (r *treeReader) put(t *tree, v *ast.MappingValueNode, depth int) error {
	value, err := r.read(v.Value, depth+1)
	if err != nil {
		return err
	}
	if _, merge := v.Key.(*ast.MergeKeyNode); merge {
		from := value.items
		if value.mapping {
			from = []*tree{value}
		}
		for _, m := range from {
			for _, f := range m.fields {
				if t.field(f.key) == nil {
					t.fields = append(t.fields, field{f.key, f.value, true})
				}
			}
		}
		return nil
	}
	key, err := r.read(v.Key, depth+1)
	if err != nil {
		return err
	}
	for i := range t.fields {
		f := &t.fields[i]
		switch {
		case f.key != key.text:
		case f.merged:
			f.value, f.merged = value, false
			return nil
		default:
			return fmt.Errorf("line %d: %s is there twice", key.line, key.text)
		}
	}
	t.fields = append(t.fields, field{key: key.text, value: value})
	return nil
}
