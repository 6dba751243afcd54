// Package compose makes one tree of a configuration file and the files that it includes.
//
// It puts variables and the contents of files in the place of ${NAME} and ${file:PATH}, and what an
// anchor stands for in the place of its aliases and merge keys, so that whoever reads the tree
// meets values alone. Each value keeps the file, line and column where it was written.
package compose

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxAliased bounds how many values aliases may add to those that are written, because a few lines
// of aliases of aliases can stand for billions.
const maxAliased = 100_000

// Options are what composing needs beside the file. The zero Options have no variables.
type Options struct {
	Env func(name string) (value string, set bool) // nil: none is set
	// Is told everything that is read; nil: nobody wants it
	Files *Files
}

// A Tree is what a configuration says.
type Tree struct {
	Root ast.Node // nil: nothing
	// The values that have the content of a file in them, as they are written
	FromFile map[ast.Node]string
	Notes    []string // what is possible but probably not meant, a sentence each
	Secrets  []Secret // what those files say

	main  string
	files map[*token.Position]string // of what does not stand in main
	read  *Files
}

// A Secret is the content of a file, and the reference in whose place it stands.
type Secret struct{ Value, Written string }

// Position is where a value begins. A mapping's own token is its first colon, so its first key
// stands for it.
func (t *Tree) Position(n ast.Node) (file string, line, column int) {
	switch m := n.(type) {
	case *ast.MappingNode:
		if len(m.Values) > 0 && !m.IsFlowStyle {
			return t.Position(m.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return t.Position(m.Key)
	}
	if tk := n.GetToken(); tk != nil && tk.Position != nil {
		file = t.main
		if other, included := t.files[tk.Position]; included {
			file = other
		}
		return file, tk.Position.Line, tk.Position.Column
	}
	return t.main, 1, 1
}

// Place is Position in one word.
func (t *Tree) Place(n ast.Node) string {
	file, line, column := t.Position(n)
	return fmt.Sprintf("%s:%d:%d", file, line, column)
}

// Fail is an error about a value, with its place. What is from a file is named and not shown.
func (t *Tree) Fail(n ast.Node, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	for _, s := range t.Secrets {
		if s.Value != "" {
			quoted := fmt.Sprintf("%q", s.Value)
			text = strings.NewReplacer(quoted[1:len(quoted)-1], s.Written, s.Value, s.Written).
				Replace(text)
		}
	}
	return fmt.Errorf("%s: %s", t.Place(n), text)
}

// Content reads a file of at most so many bytes that a value names. Its path begins in the folder
// of the file in which the value stands. The file is one of those that are read, as an included one
// is.
func (t *Tree) Content(n ast.Node, path string, most int64) ([]byte, error) {
	file, _, _ := t.Position(n)
	path = beside(file, path)
	text, err := readFile(path, most)
	if t.read.add(path, most, text, err); err != nil {
		return nil,
			fmt.Errorf("%s: %w: give the path of a readable file; it begins in the folder of %s",
				path, err, file)
	}
	return text, nil
}

// Plain is the tree of one file as it is written: nothing is put into it. The errors are a line
// each.
func Plain(file string, text []byte) (*Tree, []error) {
	t := &Tree{main: file}
	root, err := t.parse(file, text)
	t.Root = root
	return t, err
}

// Read is the tree of a file, which says text, and of those that it includes. The errors are a line
// each.
func Read(file string, text []byte, o Options) (*Tree, []error) {
	c := &composer{tree: &Tree{main: file, read: o.Files}, options: o,
		included: make(map[string]ast.Node)}
	o.Files.add(file, main, text, nil)
	c.tree.Root = c.read(file, text)
	return c.tree, c.errs
}

// A composer makes a tree.
type composer struct {
	tree     *Tree
	options  Options
	errs     []error
	file     string              // that is being read
	included map[string]ast.Node // where each file was included, with symbolic links followed
	anchors  map[string]anchor   // of the file
	values   int                 // that the file stands for so far
	aliased  int                 // values that aliases added, of all files
	contents int                 // bytes that ${file:…} stood for, of all files
}

// An anchor is what aliases stand for.
type anchor struct {
	value  ast.Node
	values int // in it
}

func (c *composer) fail(n ast.Node, format string, args ...any) {
	c.errs = append(c.errs, c.tree.Fail(n, format, args...))
}

func (c *composer) read(file string, text []byte) ast.Node {
	outer := *c
	c.file, c.anchors = file, make(map[string]anchor)
	defer func() { c.file, c.anchors = outer.file, outer.anchors }()
	if strings.TrimSpace(string(text)) == "" {
		return nil
	}
	root, errs := c.tree.parse(file, text)
	if c.errs = append(c.errs, errs...); root == nil {
		return nil
	}
	return c.include(c.walk(root))
}

func (t *Tree) parse(file string, text []byte) (body ast.Node, errs []error) {
	parsed, err := parser.ParseBytes(text, 0)
	if err != nil {
		var syntax yaml.Error
		if !errors.As(err, &syntax) || syntax.GetToken() == nil {
			first, _, _ := strings.Cut(err.Error(), "\n")
			return nil, []error{fmt.Errorf("%s:1:1: %s", file, first)}
		}
		at, hint := syntax.GetToken().Position, ""
		if lines := strings.Split(string(text), "\n"); at.Line <= len(lines) &&
			strings.Contains(lines[at.Line-1], "${") {
			hint = ": within braces and brackets, and with a colon and a space in it, ${…} stands in quotes"
		}
		return nil, []error{fmt.Errorf("%s:%d:%d: %s%s", file, at.Line, at.Column,
			syntax.GetMessage(), hint)}
	}
	for _, doc := range parsed.Docs {
		switch {
		case doc.Body == nil:
		case body != nil:
			errs = append(errs, t.Fail(doc.Body, "a second document: put everything into one"))
		default:
			body = doc.Body
		}
	}
	return body, errs
}

// walk returns what a node stands for. It changes the nodes of the file, each of which it meets
// once.
func (c *composer) walk(n ast.Node) ast.Node {
	c.values++
	c.mark(n)
	switch v := n.(type) {
	case *ast.AnchorNode:
		before, name := c.values, v.Name.String()
		value := c.walk(v.Value)
		c.anchors[name] = anchor{value, c.values - before} // not before: an anchor cannot stand within itself
		return value
	case *ast.AliasNode:
		return c.alias(v)
	case *ast.MappingValueNode:
		return c.mapping(&ast.MappingNode{BaseNode: &ast.BaseNode{}, Start: v.Start,
			Values: []*ast.MappingValueNode{v}})
	case *ast.MappingNode:
		return c.mapping(v)
	case *ast.SequenceNode:
		for i := range v.Values {
			v.Values[i] = c.walk(v.Values[i])
		}
	case *ast.StringNode:
		return c.text(v)
	case *ast.LiteralNode:
		if text, written := c.expand(v, v.Value.Value); written {
			s := *v.Value
			s.Value = text
			v.Value = &s
		}
	}
	return n
}

// mark remembers the file of what is included.
func (c *composer) mark(n ast.Node) {
	if c.file == c.tree.main {
		return
	}
	if c.tree.files == nil {
		c.tree.files = make(map[*token.Position]string)
	}
	if tk := n.GetToken(); tk != nil && tk.Position != nil {
		c.tree.files[tk.Position] = c.file
	}
}

func (c *composer) alias(v *ast.AliasNode) ast.Node {
	name := v.Value.String()
	target, known := c.anchors[name]
	if !known {
		c.fail(v, "alias *%s: there is no anchor &%s above it", name, name)
		return v
	}
	before := c.aliased
	c.values += target.values
	if c.aliased += target.values; c.aliased > maxAliased && before <= maxAliased {
		c.fail(v, "alias *%s: aliases stand for more than %d values: write out what is meant", name,
			maxAliased)
	}
	return target.value
}

// mapping puts what merge keys stand for behind the fields that a mapping has of its own.
func (c *composer) mapping(m *ast.MappingNode) ast.Node {
	var merged []ast.Node
	own := make([]*ast.MappingValueNode, 0, len(m.Values))
	for _, v := range m.Values {
		c.mark(v.Key)
		v.Value = c.walk(v.Value)
		if _, merge := v.Key.(*ast.MergeKeyNode); !merge {
			own = append(own, v)
		} else if list, several := v.Value.(*ast.SequenceNode); several {
			merged = append(merged, list.Values...)
		} else {
			merged = append(merged, v.Value)
		}
	}
	if merged == nil {
		return m
	}
	there := make(map[string]bool, len(own))
	for _, v := range own {
		there[keyOf(v)] = true
	}
	for _, n := range merged {
		from, is := n.(*ast.MappingNode)
		if !is {
			c.fail(n, "<<: want the alias of fields, such as <<: *base, or a list of them")
			continue
		}
		for _, v := range from.Values {
			if !there[keyOf(v)] {
				there[keyOf(v)], own = true, append(own, v)
			}
		}
	}
	m.Values = own
	return m
}

func keyOf(v *ast.MappingValueNode) string {
	if s, ok := v.Key.(*ast.StringNode); ok {
		return s.Value
	}
	return v.Key.GetToken().Value
}
