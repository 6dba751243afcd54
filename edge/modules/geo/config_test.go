package geo

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/modules/geo/geotest"
	"sluice/edge/rules/match"
)

func parse(text string, checks *Checks) (*config.Config, error) {
	return config.Parser{Modules: edge.Modules{Module(checks)}.Config()}.Parse("f.yaml", []byte(text))
}

// Deny and allow take places beside prefixes, which need their database, and are shown as they are written.
func TestListedPlaces(t *testing.T) {
	const text = "deny: [192.0.2.0/24, 'country:DE', 'asn:64500']\nallow: ['asn:AS64501']\n"
	c, err := parse("geo: {country: c, asn: a}\n"+text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*config.Config{c, config.Running(config.Default(), c)} {
		of := config.Shown(c)
		shown := fmt.Sprint(of["deny"], of["allow"], of["geo"])
		if want := "[192.0.2.0/24 country:DE asn:64500] [asn:64501] map[asn:"; !cmp.Equal(shown[:len(want)], want) {
			t.Errorf("%s, want %s", shown, want)
		}
	}
	for text, want := range map[string]string{
		text: "f.yaml:1:22: deny: no database says in which country an address is: give geo: {country: FILE}\n" +
			"f.yaml:1:36: deny: no database says of which autonomous system an address is: give geo: {asn: FILE}\n" +
			"f.yaml:2:9: allow: no database says of which autonomous system an address is: give geo: {asn: FILE}",
		"geo: {country: c, asn: a}\ndeny: ['country:de', 'asn:0', 'asn:1', 'asn:AS1']\n": `f.yaml:2:8: deny: "de" is no country: write DE` + "\n" +
			`f.yaml:2:22: deny: "0" is no number of an autonomous system: want 1 to 4294967295` + "\n" + "f.yaml:2:40: deny: 1 is there twice: remove one",
		"geo: {country: ''}": "f.yaml:1:16: geo.country: it is empty: give the path of a MaxMind database",
		"geo: {country: c}\nrules: [{name: a, limit: 1, match: {countries: [DE, DE]}}]": "f.yaml:2:53: match.countries: DE is there twice: remove one",
		"geo: {country: c}\nrules: [{name: a, limit: 1, key: [country, asn]}]":          "f.yaml:2:44: key: no database says of which autonomous system an address is: give geo: {asn: FILE}",
		"plans: {key: country}": `f.yaml:1:14: plans.key: "country" does not identify a client: want what it sends, such as header:X-API-Key`,
	} {
		if _, err := parse(text, nil); err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
}

// A wrong database is an error where the file names it, unless the process has found it good before. NO is Norway, and
// numbers are numbers in JSON, in the order of their size where it is a rule's identity.
func TestGeo(t *testing.T) {
	const of = "rules: [{name: a, limit: 1, match: {countries: [NO, DE], asns: [AS64500, 9], not: {asns: [7]}}}]\n"
	c, err := parse("geo: {country: c, asn: a}\n"+of, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &c.Rules[0].Match
	want := map[string]match.Values{"countries": {Texts: []string{"NO", "DE"}}, "asns": {Texts: []string{"64500", "9"}, Numbers: true}}
	if d := cmp.Diff(want, m.Facts); d != "" {
		t.Error(d)
	}
	for _, one := range []struct {
		of   match.Config
		want string
	}{{*m, `{"countries":["NO","DE"],"asns":[64500,9],"not":{"asns":[7]}}`}, {m.Plainly(), `{"countries":["DE","NO"],"asns":[9,64500],"not":{"asns":[7]}}`}} {
		if text, err := one.of.MarshalJSON(); err != nil || string(text) != one.want {
			t.Errorf("%s %v, want %s", text, err, one.want)
		}
	}
	files, at := new(Checks), filepath.Join(t.TempDir(), "asn")
	text := "geo: {country: " + at + ", asn: " + at + "}\n"
	if _, err := parse(text, files); err == nil || err.Error() != fmt.Sprintf("f.yaml:1:16: geo.country: stat %s: no such file or directory\nf.yaml:1:%d: geo.asn: stat %s: no such file or directory", at, 23+len(at), at) {
		t.Error(err)
	}
	geotest.Systems(t, at, map[string]uint32{"192.0.2.0/25": 64500})
	if _, err := parse("geo: {asn: "+at+"}", files); err != nil {
		t.Error(err)
	}
	put(t, at, []byte("damaged"))
	if _, err := parse("geo: {asn: "+at+"}", files); err != nil {
		t.Error("it was good: ", err)
	}
}
