package compose

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// include adds to a file's fields those of the files that it includes. Fields that begin with x-
// are left out: they are there to be the place of an anchor.
func (c *composer) include(root ast.Node) ast.Node {
	m, is := root.(*ast.MappingNode)
	if !is {
		return root
	}
	var patterns []ast.Node
	own := m.Values[:0]
	for _, v := range m.Values {
		switch name := keyOf(v); {
		case strings.HasPrefix(name, "x-"):
		case name != "include":
			own = append(own, v)
		case c.file != c.tree.main:
			c.fail(v.Key, "include: an included file includes no other: name that in %s",
				c.tree.main)
		default:
			if list, several := v.Value.(*ast.SequenceNode); several {
				patterns = append(patterns, list.Values...)
			} else {
				patterns = append(patterns, v.Value)
			}
		}
	}
	m.Values = own
	if len(own) == 0 {
		m = nil
	}
	for _, n := range patterns {
		s, is := n.(*ast.StringNode)
		if !is || s.Value == "" {
			c.fail(n, "include: want the paths of files, such as [conf.d/*.yaml]")
			continue
		}
		for _, file := range c.files(n, s.Value) {
			m = c.add(m, n, file)
		}
	}
	if m == nil {
		return nil
	}
	return m
}

// files are those that a path or a pattern names, in the order of their names. As in a shell, *
// leaves out names that begin with a dot: editors keep their copies there.
func (c *composer) files(n ast.Node, pattern string) []string {
	path := beside(c.file, pattern)
	if !strings.ContainsAny(pattern, "*?[") {
		return []string{path}
	}
	list, err := matching(path)
	c.options.Files.addPattern(path, list)
	if err != nil {
		c.fail(n, "include: %s is not a pattern: close its brackets", pattern)
		return nil
	}
	if len(list) > 0 {
		return list
	}
	folder := filepath.Dir(path)
	for strings.ContainsAny(folder, "*?[") {
		folder = filepath.Dir(folder)
	}
	if _, err := os.Stat(folder); err != nil {
		c.fail(n,
			"include: %s: the folder %s: %v: make it, or correct the path, which begins in the folder of %s", pattern, folder, reason(err), c.file)
		return nil
	}
	c.tree.Notes = append(c.tree.Notes, "include: "+pattern+" matches no file")
	return nil
}

func matching(pattern string) ([]string, error) {
	list, err := filepath.Glob(pattern)
	return slices.DeleteFunc(list, func(path string) bool {
		return strings.HasPrefix(filepath.Base(path), ".") &&
			!strings.HasPrefix(filepath.Base(pattern), ".")
	}), err
}

// followed is a path with its symbolic links followed, by which a file is known again.
func followed(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if whole, err := filepath.Abs(path); err == nil {
		path = whole
	}
	return path
}

// add reads an included file, and adds its fields to those that are there; nil: none yet.
func (c *composer) add(to *ast.MappingNode, n ast.Node, file string) *ast.MappingNode {
	real := followed(file)
	if real == followed(c.tree.main) {
		c.fail(n, "include: %s includes itself", file)
		return to
	}
	if first := c.included[real]; first != nil {
		c.fail(n, "include: %s is included at %s already: name it once", file, c.tree.Place(first))
		return to
	}
	c.included[real] = n
	text, err := readFile(file, maxFile)
	c.options.Files.add(file, maxFile, text, err)
	if err != nil {
		c.fail(n,
			"include: %s: %v: give the path of a readable file, which begins in the folder of %s",
			file, err, c.file)
		return to
	}
	root := c.read(file, text)
	from, is := root.(*ast.MappingNode)
	switch {
	case root == nil:
		return to
	case !is:
		c.fail(root, "an included file: want fields (name: value), as in the file that includes it")
		return to
	case to == nil:
		return from
	}
	return c.merge(to, from)
}

// merge adds the fields of an included file: lists come one after the other, and everything else
// can be said once. Neither a field nor a list is changed, because aliases may stand for them as
// well.
func (c *composer) merge(to, from *ast.MappingNode) *ast.MappingNode {
	for _, v := range from.Values {
		name := keyOf(v)
		i := slices.IndexFunc(to.Values,
			func(o *ast.MappingValueNode) bool { return keyOf(o) == name })
		if i < 0 {
			to.Values = append(to.Values, v)
			continue
		}
		was := *to.Values[i]
		before, is := was.Value.(*ast.SequenceNode)
		more, too := v.Value.(*ast.SequenceNode)
		if !is || !too {
			remedy := "keep one of them"
			if _, fields := v.Value.(*ast.MappingNode); fields {
				remedy = "put its fields into one file"
			}
			c.fail(v.Key, "%s is set at %s as well: %s", name, c.tree.Place(was.Key), remedy)
			continue
		}
		list := *before
		list.Values = slices.Concat(before.Values, more.Values)
		was.Value = &list
		to.Values[i] = &was
	}
	return to
}
