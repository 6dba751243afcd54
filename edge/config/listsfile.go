package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/address"
	"sluice/edge/lists"
	"sluice/edge/rules/match"
)

// listMark begins the name of a list, among prefixes.
const listMark = "list:"

// listed is where a list is spoken of.
type listed struct {
	node       ast.Node
	what, name string
}

// lists reads the named lists.
func (r *reader) lists(to *[]lists.Config) func(ast.Node) {
	return func(n ast.Node) {
		names := make(map[string]ast.Node)
		r.list(n, "lists", func(n ast.Node) {
			l := lists.Config{Refresh: 5 * time.Minute, MaxEntries: 1_000_000, MaxBytes: 32 << 20}
			seen := r.mapping(n, "lists", fields{
				"name": r.text("lists.name", func(n ast.Node, text string) {
					switch other := names[text]; {
					case !plainName(text) || strings.Trim(text, ".") == "":
						r.fail(n,
							"lists.name: %q is not possible: want 1 to 64 letters, digits, dots, dashes or underscores", text)
					case other != nil:
						r.fail(n,
							"lists.name: %s is the name of the list at %s already: choose another",
							text, r.lineOf(n, other))
					default:
						names[text] = n
						l.Name = text
					}
				}),
				"file": r.str("lists.file", &l.File),
				"url":  r.checked("lists.url", checkListURL, &l.URL),
				"refresh": r.duration("lists.refresh", 5*time.Second, 7*24*time.Hour, false,
					&l.Refresh),
				"column": r.text("lists.column", func(n ast.Node, text string) {
					if err := lists.CheckColumn(text); err != nil {
						r.fail(n, "lists.column: %v", err)
					}
					l.Column = text
				}),
				"max_entries": integer(r, "lists.max_entries", 1, 20_000_000, &l.MaxEntries),
				"max_bytes":   r.size("lists.max_bytes", 1<<10, 1<<30, false, &l.MaxBytes),
			})
			switch {
			case seen == nil:
			case seen["name"] == nil:
				r.fail(n, "lists: no name: every list needs a name and a file or a url")
			case (seen["file"] == nil) == (seen["url"] == nil):
				r.fail(n, "lists: %s: want a file or a url, and one of them", scalarOf(n, "name"))
			case seen["file"] != nil && l.File == "":
				r.fail(seen["file"], "lists.file: it is empty: give the path of a file")
			}
			*to = append(*to, l)
		})
	}
}

// scalarOf is a field of a mapping as it is written.
func scalarOf(n ast.Node, name string) string {
	r := reader{}
	values, _ := r.entries(n, "")
	for _, v := range values {
		if scalar(v.Key) == name {
			return scalar(v.Value)
		}
	}
	return ""
}

func checkListURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return fmt.Errorf("%q is no URL of a list: want one such as https://lists.example/partners.txt", text)
	}
	return nil
}

// group reads prefixes, and behind their marks names of lists and values of facts.
func (r *reader) group(what string, prefixes *[]netip.Prefix,
	names, marked *[]string) func(ast.Node) {
	return r.texts(what, func(n ast.Node, text string) {
		if name, is := strings.CutPrefix(text, listMark); is {
			r.listName(n, what, name, names)
			return
		}
		for _, f := range facts(r.modules) {
			if value, is := strings.CutPrefix(text, f.Mark); is && f.Mark != "" {
				r.factValue(n, what, f, f.Mark, value, marked)
				return
			}
		}
		p, err := address.ParsePrefix(text)
		if err != nil {
			r.fail(n, "%s: %v", what, err)
			return
		}
		*prefixes = append(*prefixes, p)
	})
}

// listNames reads names of lists.
func (r *reader) listNames(what string, to *[]string) func(ast.Node) {
	return r.texts(what, func(n ast.Node, text string) {
		r.listName(n, what, text, to)
	})
}

func (r *reader) listName(n ast.Node, what, name string, to *[]string) {
	if slices.Contains(*to, name) {
		r.fail(n, "%s: the list %s is there twice: remove one", what, name)
		return
	}
	r.listed = append(r.listed, listed{n, what, name})
	*to = append(*to, name)
}

// findLists returns what is wrong with names of lists.
func (r *reader) findLists(are []lists.Config) {
	var names []string
	for i := range are {
		if are[i].Name != "" { // else it is wrong, which is said there
			names = append(names, are[i].Name)
		}
	}
	for _, l := range r.listed {
		if !slices.Contains(names, l.name) {
			r.fail(l.node, "%s: %v", l.what, match.NoList(l.name, names))
		}
	}
}

// shownLists are lists for operators.
func shownLists(all []lists.Config) []any {
	list := []any{}
	for i := range all {
		l := &all[i]
		one := map[string]any{"name": l.Name, "refresh": l.Refresh.String(),
			"max_entries": l.MaxEntries, "max_bytes": l.MaxBytes}
		if one["file"] = l.File; l.URL != "" {
			delete(one, "file")
			one["url"] = l.Where()
		}
		if l.Column != "" {
			one["column"] = l.Column
		}
		list = append(list, one)
	}
	return list
}

// shownGroup are prefixes, names of lists and values of facts as a file has them.
func shownGroup(prefixes []netip.Prefix, names, marked []string) []string {
	list := []string{}
	for _, p := range prefixes {
		list = append(list, p.String())
	}
	for _, name := range names {
		list = append(list, listMark+name)
	}
	return append(list, marked...)
}
