package config

import (
	"net/netip"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/address"
	"sluice/edge/rules/key"
)

// located is where a rule speaks of what a database says.
type located struct {
	node ast.Node
	what string
	kind key.Kind
}

// geo reads which databases there are.
func (r *reader) geo(n ast.Node, c *Geo) {
	file := func(of string, to *string) func(ast.Node) {
		return r.text("geo."+of, func(n ast.Node, text string) {
			if text == "none" {
				return
			}
			if *to = text; text == "" {
				r.fail(n, "geo.%s: it is empty: give the path of a MaxMind database", of)
			} else if r.geoFile != nil {
				if err := r.geoFile(of, text); err != nil {
					r.fail(n, "geo.%s: %v", of, err)
				}
			}
		})
	}
	r.mapping(n, "geo", fields{"country": file("country", &c.Country), "asn": file("asn", &c.ASN)})
}

// countries reads some, as they are written.
func (r *reader) countries(what string, to *[]string) func(ast.Node) {
	written := func(text string) (string, error) {
		_, err := address.ParseCountry(text)
		return text, err
	}
	return r.texts(what, func(n ast.Node, text string) {
		readPlace(r, n, what, text, key.Country,
			written, to)
	})
}

// systems reads numbers of autonomous systems.
func (r *reader) systems(what string, to *[]uint32) func(ast.Node) {
	return r.texts(what, func(n ast.Node, text string) {
		readPlace(r, n, what, text, key.ASN,
			address.ParseASN, to)
	})
}

// readPlace reads a country, or the number of a system, each at most once.
func readPlace[T comparable](r *reader, n ast.Node, what, text string, kind key.Kind,
	parse func(string) (T, error), to *[]T) {
	place, err := parse(text)
	switch {
	case err != nil:
		r.fail(n, "%s: %v", what, err)
	case slices.Contains(*to, place):
		r.fail(n, "%s: %v is there twice: remove one", what, place)
	default:
		r.located = append(r.located, located{n, what, kind})
		*to = append(*to, place)
	}
}

// findDatabases returns what rules need and no database has.
func (r *reader) findDatabases(c *Geo) {
	has := geoOf(c)
	for _, l := range r.located {
		if err := key.CheckGeo(l.kind, &has); err != nil {
			r.fail(l.node, "%s: %v", l.what, err)
		}
	}
}

// geoOf has a function for each database, which knows no address.
func geoOf(c *Geo) (g address.Geo) {
	if c.Country != "" {
		g.Country = func(netip.Addr) (none address.Country) { return none }
	}
	if c.ASN != "" {
		g.ASN = func(netip.Addr) uint32 { return 0 }
	}
	return g
}
