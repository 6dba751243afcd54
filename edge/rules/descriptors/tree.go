package descriptors

import (
	"cmp"
	"slices"
	"strings"
)

// A Tree finds the pattern that a descriptor falls under, and what belongs to it: by domain, and
// then by key and value. It looks at each pattern of the domain once at most. The zero Tree is
// empty.
type Tree[V any] struct {
	domains map[string]*node[V]
}

// Add adds a pattern with what belongs to it. If there is another about the same descriptors, it
// returns what belongs to that, and nothing has changed: two would leave open which one a
// descriptor falls under.
func (t *Tree[V]) Add(p *Pattern, v *V) (other *V) {
	if t.domains == nil {
		t.domains = make(map[string]*node[V])
	}
	n := t.domains[p.Domain]
	if n == nil {
		n = new(node[V])
		t.domains[p.Domain] = n
	}
	for _, e := range p.Entries {
		n = n.child(e)
	}
	if n.value != nil {
		return n.value
	}
	n.value = v
	return nil
}

// Find returns what belongs to the pattern of a descriptor; nil: there is none. Entry by entry an
// exact value goes before a prefix, a longer prefix before a shorter one, and that before any
// value.
func (t *Tree[V]) Find(domain string, entries []Entry) *V {
	if n := t.domains[domain]; n != nil {
		return n.find(entries)
	}
	return nil
}

// A node holds all patterns whose first entries are the same.
type node[V any] struct {
	value *V // of descriptors that end here; nil: there is none
	keys  map[string]*values[V]
}

// values are those of a key.
type values[V any] struct {
	exact    map[string]*node[V]
	prefixes []prefix[V] // the longest first; "" is any value
}

type prefix[V any] struct {
	text string
	node *node[V]
}

// child finds or makes the node of an entry.
func (n *node[V]) child(e Entry) *node[V] {
	if n.keys == nil {
		n.keys = make(map[string]*values[V])
	}
	k := n.keys[e.Key]
	if k == nil {
		k = &values[V]{exact: make(map[string]*node[V])}
		n.keys[e.Key] = k
	}
	if !e.open() {
		if k.exact[e.Value] == nil {
			k.exact[e.Value] = new(node[V])
		}
		return k.exact[e.Value]
	}
	text := strings.TrimSuffix(e.Value, "*")
	i, there := slices.BinarySearchFunc(k.prefixes, text, func(p prefix[V], text string) int {
		return cmp.Or(cmp.Compare(len(text), len(p.text)), strings.Compare(p.text, text))
	})
	if !there {
		k.prefixes = slices.Insert(k.prefixes, i, prefix[V]{text, new(node[V])})
	}
	return k.prefixes[i].node
}

func (n *node[V]) find(entries []Entry) *V {
	if len(entries) == 0 {
		return n.value
	}
	k := n.keys[entries[0].Key]
	if k == nil {
		return nil
	}
	value, rest := entries[0].Value, entries[1:]
	if next := k.exact[value]; next != nil {
		if v := next.find(rest); v != nil {
			return v
		}
	}
	for i := range k.prefixes {
		if p := &k.prefixes[i]; strings.HasPrefix(value, p.text) {
			if v := p.node.find(rest); v != nil {
				return v
			}
		}
	}
	return nil
}
