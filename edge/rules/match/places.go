package match

import (
	"slices"

	"sluice/edge/address"
	"sluice/edge/rules/key"
)

// places are a rule's conditions on where the client is. A client of which no database knows that
// is in no country and of no system: no rule about some is about it, and every rule that leaves
// some out is.
type places struct {
	geo                     *address.Geo
	countries, notCountries []address.Country
	asns, notASNs           []uint32
}

// newPlaces returns nil if there are none.
func newPlaces(m *Config, geo *address.Geo) (*places, error) {
	p := &places{geo: geo, asns: m.ASNs}
	countries, err := readCountries(m.Countries)
	p.countries = countries
	if m.Not != nil && err == nil {
		p.notASNs = m.Not.ASNs
		p.notCountries, err = readCountries(m.Not.Countries)
	}
	country, asn := len(p.countries)+len(p.notCountries) > 0, len(p.asns)+len(p.notASNs) > 0
	switch {
	case err != nil:
		return nil, err
	case country && geo.Country == nil:
		return nil, key.CheckGeo(key.Country, geo)
	case asn && geo.ASN == nil:
		return nil, key.CheckGeo(key.ASN, geo)
	case !country && !asn:
		return nil, nil
	}
	return p, nil
}

func readCountries(texts []string) (list []address.Country, err error) {
	for _, text := range texts {
		c, err := address.ParseCountry(text)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// hold reports whether the client is where it must be, and nowhere else.
func (p *places) hold(v *key.View) bool {
	if len(p.countries)+len(p.notCountries) > 0 {
		c := v.Country(p.geo)
		if len(p.countries) > 0 && !slices.Contains(p.countries, c) ||
			slices.Contains(p.notCountries, c) {
			return false
		}
	}
	if len(p.asns)+len(p.notASNs) > 0 {
		n := v.ASN(p.geo)
		if len(p.asns) > 0 && !slices.Contains(p.asns, n) || slices.Contains(p.notASNs, n) {
			return false
		}
	}
	return true
}
