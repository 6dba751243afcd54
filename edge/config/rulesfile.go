package config

import (
	"errors"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/config/compose"
	"sluice/edge/rules"
)

// ParseRules reads rules alone: one, a list, or a list under the name rules, as a configuration has
// it. The error joins everything that is wrong with them, as that of Parse does.
func (p Parser) ParseRules(file string, text []byte) ([]rules.Config, error) {
	tree, errs := compose.Read(file, text, compose.Options{Env: p.Env, Files: p.Files})
	c, r := Default(), &reader{tree: tree, errs: errs, modules: p.Modules}
	names := make(map[string]ast.Node)
	one := func(n ast.Node) { r.rule(n, c, names) }
	if tree.Root != nil && len(errs) == 0 {
		root := tree.Root
		if m, fields := root.(*ast.MappingNode); fields && len(m.Values) == 1 &&
			scalar(m.Values[0].Key) == "rules" {
			root = m.Values[0].Value
		}
		r.hide(root, []string{"rules"}, c)
		if _, fields := root.(*ast.MappingNode); len(r.errs) > 0 {
			// A file's content is where it may not be: nothing of it is quoted.
		} else if fields {
			one(root)
		} else {
			r.list(root, "rules", one)
		}
	}
	switch {
	case len(r.errs) > 0:
		return nil, errors.Join(r.errs...)
	case len(c.Rules) == 0:
		return nil,
			errors.New(file +
				": there is no rule in it: want name: login, limit: 5, and what else a rule has")
	}
	return c.Rules, nil
}
