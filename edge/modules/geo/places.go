package geo

import (
	"fmt"
	"strconv"
	"strings"
)

// countries are those of ISO 3166-1, and Kosovo, for which databases have XK.
const countries = "AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ " +
	"CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO FR " +
	"GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP " +
	"KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ " +
	"NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW " +
	"SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ " +
	"UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS XK YE YT ZA ZM ZW"

// parseCountry reads a country.
func parseCountry(text string) (string, error) {
	upper := strings.ToUpper(text)
	instead := map[string]string{"UK": "GB", "EL": "GR"}[upper]
	switch {
	case len(text) == 2 && !strings.Contains(text, " ") && strings.Contains(countries, text):
		return text, nil
	case instead == "" && len(text) == 2 && strings.Contains(countries, upper):
		instead = upper
	}
	if instead != "" {
		return "", fmt.Errorf("%q is no country: write %s", text, instead)
	}
	return "", fmt.Errorf("%q is no country: want two letters of ISO 3166-1, such as DE", text)
}

// parseASN reads the number of an autonomous system, with AS before it or without.
func parseASN(text string) (string, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(text, "AS"), 10, 32)
	if err != nil || n == 0 {
		return "", fmt.Errorf("%q is no number of an autonomous system: want 1 to 4294967295", text)
	}
	return strconv.FormatUint(n, 10), nil
}

// numberOf is a country or a system as databases keep it (content.values); 0: the text is none.
func numberOf(of, text string) uint32 {
	if of == Country {
		if _, err := parseCountry(text); err != nil {
			return 0
		}
		return uint32(text[0])<<8 | uint32(text[1])
	}
	number, _ := parseASN(text)
	n, _ := strconv.ParseUint(number, 10, 32)
	return uint32(n)
}
