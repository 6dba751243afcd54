package address

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Country is two letters of ISO 3166-1. The zero Country is none.
type Country [2]byte

func (c Country) String() string {
	if c == (Country{}) {
		return ""
	}
	return string(c[:])
}

// Geo finds out where an address, as a plain one, is. Both functions may be called from anywhere.
// Each is nil where no database has what it looks for.
type Geo struct {
	Country func(netip.Addr) Country
	ASN     func(netip.Addr) uint32 // the number of the autonomous system; 0: none
}

// Places are countries and autonomous systems. The zero Places are none.
type Places struct {
	Countries []Country
	ASNs      []uint32
}

// Is reports whether there are some.
func (p *Places) Is() bool { return len(p.Countries)+len(p.ASNs) > 0 }

// has reports whether an address, as a plain one, is in one of them.
func (p *Places) has(geo *Geo, addr netip.Addr) bool {
	return len(p.Countries) > 0 && geo.Country != nil && slices.Contains(p.Countries,
		geo.Country(addr)) ||
		len(p.ASNs) > 0 && geo.ASN != nil && slices.Contains(p.ASNs, geo.ASN(addr))
}

// countries are those of ISO 3166-1, and Kosovo, for which databases have XK.
const countries = "AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ " +
	"CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO FR " +
	"GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP " +
	"KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ " +
	"NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW " +
	"SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ " +
	"UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS XK YE YT ZA ZM ZW"

// ParseCountry reads a country.
func ParseCountry(text string) (c Country, err error) {
	upper := strings.ToUpper(text)
	instead := map[string]string{"UK": "GB", "EL": "GR"}[upper]
	switch {
	case len(text) == 2 && !strings.Contains(text, " ") && strings.Contains(countries, text):
		return Country([]byte(text)), nil
	case instead == "" && len(text) == 2 && strings.Contains(countries, upper):
		instead = upper
	}
	if instead != "" {
		return c, fmt.Errorf("%q is no country: write %s", text, instead)
	}
	return c, fmt.Errorf("%q is no country: want two letters of ISO 3166-1, such as DE", text)
}

// ParseASN reads the number of an autonomous system, with AS before it or without.
func ParseASN(text string) (uint32, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(text, "AS"), 10, 32)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is no number of an autonomous system: want 1 to 4294967295", text)
	}
	return uint32(n), nil
}
