package compose

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// include adds to a file's fields those of the files that it includes. Fields that begin with x- are left out: they are
// there to be the place of an anchor.
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

// files are those that a path or a pattern names, in the order of their names. As in a shell, * leaves out names that
// begin with a dot: editors keep their copies there.
func (c *composer) files(n ast.Node, pattern string) []string {
	path := c.beside(pattern)
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
		c.fail(n, "include: %s: the folder %s: %v: make it, or correct the path, which begins in the folder of %s", pattern, folder, reason(err), c.file)
		return nil
	}
	c.tree.Notes = append(c.tree.Notes, "include: "+pattern+" matches no file")
	return nil
}

func matching(pattern string) ([]string, error) {
	list, err := filepath.Glob(pattern)
	return slices.DeleteFunc(list, func(path string) bool {
		return strings.HasPrefix(filepath.Base(path), ".") && !strings.HasPrefix(filepath.Base(pattern), ".")
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
	if i := slices.Index(c.reading, real); i >= 0 {
		names := append(slices.Clone(c.reading[i:]), real)
		for i := range names {
			names[i] = filepath.Base(names[i])
		}
		c.fail(n, "include: %s includes itself: %s", file, strings.Join(names, " → "))
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
		c.fail(n, "include: %s: %v: give the path of a readable file, which begins in the folder of %s", file, err, c.file)
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
	return c.merge(to, from, "")
}

// merge adds the fields of one mapping to those of another: lists one after the other, fields within fields one by one.
// Everything else can be said once. Neither mapping is changed, because aliases may stand for them as well.
func (c *composer) merge(to, from *ast.MappingNode, within string) *ast.MappingNode {
	m := *to
	m.Values = slices.Clone(to.Values)
	at := make(map[string]int, len(m.Values))
	for i, v := range m.Values {
		at[keyOf(v)] = i
	}
	for _, v := range from.Values {
		name := keyOf(v)
		i, there := at[name]
		if !there {
			m.Values = append(m.Values, v)
			continue
		}
		was := *m.Values[i]
		oldFields, a := was.Value.(*ast.MappingNode)
		newFields, b := v.Value.(*ast.MappingNode)
		oldList, e := was.Value.(*ast.SequenceNode)
		newList, d := v.Value.(*ast.SequenceNode)
		switch {
		case a && b:
			was.Value = c.merge(oldFields, newFields, within+name+".")
		case e && d:
			list := *oldList
			list.Values = slices.Concat(oldList.Values, newList.Values)
			was.Value = &list
		default:
			c.fail(v.Key, "%s%s is set at %s as well: keep one of them", within, name, c.tree.Place(was.Key))
		}
		m.Values[i] = &was
	}
	return &m
}
