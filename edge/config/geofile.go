package config

import (
	"net/netip"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"sluice/edge/address"
	"sluice/edge/geo"
	"sluice/edge/rules/key"
)

// located is where a rule speaks of what a database says.
type located struct {
	node ast.Node
	what string
	kind key.Kind
}

// geo reads which databases there are.
func (r *reader) geo(n ast.Node, c *geo.Config) {
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
	r.mapping(n, "geo", fields{"country": file(geo.Country, &c.Country), "asn": file(geo.ASN, &c.ASN)})
}

// countries reads some.
func (r *reader) countries(what string, to *[]string) func(ast.Node) {
	return r.texts(what, func(n ast.Node, text string) {
		if _, err := address.ParseCountry(text); err != nil {
			r.fail(n, "%s: %v", what, err)
			return
		}
		if slices.Contains(*to, text) {
			r.fail(n, "%s: %s is there twice: remove one", what, text)
			return
		}
		r.located = append(r.located, located{n, what, key.Country})
		*to = append(*to, text)
	})
}

// systems reads numbers of autonomous systems.
func (r *reader) systems(what string, to *[]uint32) func(ast.Node) {
	return r.texts(what, func(n ast.Node, text string) {
		number, err := address.ParseASN(text)
		if err != nil {
			r.fail(n, "%s: %v", what, err)
			return
		}
		if slices.Contains(*to, number) {
			r.fail(n, "%s: %d is there twice: remove one", what, number)
			return
		}
		r.located = append(r.located, located{n, what, key.ASN})
		*to = append(*to, number)
	})
}

// findDatabases returns what rules need and no database has.
func (r *reader) findDatabases(c *geo.Config) {
	has := geoOf(c)
	for _, l := range r.located {
		if err := key.CheckGeo(l.kind, &has); err != nil {
			r.fail(l.node, "%s: %v", l.what, err)
		}
	}
}

// geoOf has a function for each database, which knows no address.
func geoOf(c *geo.Config) (g address.Geo) {
	if c.Country != "" {
		g.Country = func(netip.Addr) (none address.Country) { return none }
	}
	if c.ASN != "" {
		g.ASN = func(netip.Addr) uint32 { return 0 }
	}
	return g
}
