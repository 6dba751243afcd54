package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// hide notes which settings have the content of a file in them, which operators are shown as they
// are written. Rules are shown whole, and travel to other edges, so such a content may only be what
// clients get to read anyway. It comes before anything is read, so that no error about a rule
// quotes a part of one.
func (r *reader) hide(n ast.Node, path []string, c *Config) {
	if len(r.tree.FromFile) == 0 {
		return
	}
	if as, from := r.tree.FromFile[n]; from {
		switch {
		case path[0] != "rules":
			c.Composed.Hidden = joined(c.Composed.Hidden,
				map[string]string{strings.Join(path, "."): as})
		// A header may have that name
		case path[len(path)-1] != "body" || !slices.Contains(path, "response"):
			r.fail(n,
				"%s: ${file:…} would show operators and other edges what the file says, as they are shown every rule: "+
					"only the body of a response may have it", path[len(path)-1])
		}
	}
	switch v := n.(type) {
	case *ast.MappingNode:
		for _, of := range v.Values {
			r.hide(of.Value, append(path, scalar(of.Key)), c)
		}
	case *ast.SequenceNode:
		for i, of := range v.Values {
			r.hide(of, append(path, strconv.Itoa(i)), c)
		}
	}
}

// joined is both of two maps, neither of which is changed.
func joined(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// hidden is a setting as operators are shown it: within it, what is from a file stands as it is
// written.
func hidden(v any, path string, written map[string]string) any {
	if as, from := written[path]; from {
		return as
	}
	within := func(name string) string { return strings.TrimPrefix(path+"."+name, ".") }
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Collect(maps.Keys(v)) {
			v[name] = hidden(v[name], within(name), written)
		}
	case []any:
		for i := range v {
			v[i] = hidden(v[i], within(strconv.Itoa(i)), written)
		}
	}
	return v
}
