package match

import (
	"bytes"
	"slices"
	"strings"
)

// An Index finds what is about a request by its host, path and method. It looks hosts and paths up
// instead of trying one after the other; only regular expressions are tried one by one. The zero
// Index is empty.
type Index[V any] struct {
	hosts map[string]*paths[V]
	wild  map[string]*paths[V] // by what follows the *, with its dot
	any   paths[V]
	nots  map[*V]*Config // of what leaves hosts, paths or methods out
}

// An entry is what m is about.
type entry[V any] struct {
	m *Config
	v *V
}

// paths are the entries of one host, by path.
type paths[V any] struct {
	any     []entry[V]
	exact   map[string][]entry[V]
	below   map[string][]entry[V] // prefixes that end in a slash: /api/
	depths  []int                 // the lengths of these, ascending
	begin   []entry[V]            // other prefixes: /api
	regexps []entry[V]
}

// Add adds v, which is about what m is about.
func (x *Index[V]) Add(m *Config, v *V) {
	if not := m.Not; not != nil && (len(not.Hosts)+len(not.Paths)+len(not.Methods) > 0 ||
		not.Path != "") {
		if x.nots == nil {
			x.nots = make(map[*V]*Config)
		}
		x.nots[v] = m
	}
	e := entry[V]{m, v}
	if len(m.Hosts) == 0 || slices.Contains(m.Hosts, "*") {
		x.any.add(e)
		return
	}
	for _, h := range m.Hosts {
		table := &x.hosts
		if suffix, wild := strings.CutPrefix(h, "*"); wild {
			table, h = &x.wild, suffix
		}
		if *table == nil {
			*table = make(map[string]*paths[V])
		}
		if (*table)[h] == nil {
			(*table)[h] = &paths[V]{}
		}
		(*table)[h].add(e)
	}
}

func (p *paths[V]) add(e entry[V]) {
	path := e.m.Path
	prefix, isPrefix := strings.CutSuffix(path, "*")
	switch {
	case path == "" || path == "*" || path == "/*":
		p.any = append(p.any, e)
	case path[0] == '~':
		p.regexps = append(p.regexps, e)
	case isPrefix && strings.HasSuffix(prefix, "/"):
		if p.below == nil {
			p.below = make(map[string][]entry[V])
		}
		p.below[prefix] = append(p.below[prefix], e)
		if i, found := slices.BinarySearch(p.depths, len(prefix)); !found {
			p.depths = slices.Insert(p.depths, i, len(prefix))
		}
	case isPrefix && prefix != "":
		p.begin = append(p.begin, e)
	default:
		if p.exact == nil {
			p.exact = make(map[string][]entry[V])
		}
		p.exact[path] = append(p.exact[path], e)
	}
}

// Find appends to found what is about a request, each once, by host, path and method. Host and path
// are canonical. A path that is long is taken for one that every regular expression finds.
func (x *Index[V]) Find(found []*V, host, path, method []byte, long bool) []*V {
	n := len(found)
	found = x.any.find(found, path, method, long)
	if len(x.hosts) > 0 {
		if p := x.hosts[string(host)]; p != nil {
			found = p.find(found, path, method, long)
		}
	}
	if len(x.wild) > 0 {
		for rest := host; ; {
			i := bytes.IndexByte(rest, '.')
			if i < 0 {
				break
			}
			if p := x.wild[string(rest[i:])]; p != nil {
				found = p.find(found, path, method, long)
			}
			rest = rest[i+1:]
		}
	}
	if len(x.nots) == 0 {
		return found
	}
	kept := found[:n]
	for _, v := range found[n:] {
		if m := x.nots[v]; m == nil || !m.excludes(host, path, method, long) {
			kept = append(kept, v)
		}
	}
	return kept
}

func (p *paths[V]) find(found []*V, path, method []byte, long bool) []*V {
	found = take(found, p.any, method)
	if len(p.exact) > 0 {
		found = take(found, p.exact[string(path)], method)
	}
	for _, n := range p.depths {
		if n > len(path) {
			break
		}
		if path[n-1] == '/' {
			found = take(found, p.below[string(path[:n])], method)
		}
	}
	for i := range p.begin {
		e := &p.begin[i]
		prefix := e.m.Path
		if prefix = prefix[:len(prefix)-1]; len(path) >= len(prefix) &&
			string(path[:len(prefix)]) == prefix {
			found = e.take(found, method)
		}
	}
	for i := range p.regexps {
		if e := &p.regexps[i]; e.m.method(method) && (long || e.m.regexp.Match(path)) {
			found = e.take(found, method)
		}
	}
	return found
}

func take[V any](found []*V, entries []entry[V], method []byte) []*V {
	for i := range entries {
		found = entries[i].take(found, method)
	}
	return found
}

// take leaves out what is there already: what has two patterns for one host is found once.
func (e *entry[V]) take(found []*V, method []byte) []*V {
	if !e.m.method(method) || len(e.m.Hosts) > 1 && slices.Contains(found, e.v) {
		return found
	}
	return append(found, e.v)
}
