package config

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Deny and allow take places beside prefixes, which need their database, and are shown as they are written.
func TestListedPlaces(t *testing.T) {
	const text = "deny: [192.0.2.0/24, 'country:DE', 'asn:64500']\nallow: ['asn:AS64501']\n"
	c, err := Parse("f.yaml", []byte("geo: {country: c, asn: a}\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprint(shownGroup(c.Deny, c.DenyLists, c.DenyPlaces), shownGroup(c.Allow, c.AllowLists, c.AllowPlaces))
	if want := "[192.0.2.0/24 country:DE asn:64500] [asn:64501]"; shown != want {
		t.Errorf("%s, want %s", shown, want)
	}
	if now := Running(Default(), c); !now.DenyPlaces.Is() || !now.AllowPlaces.Is() {
		t.Error("a reload leaves places out")
	}
	for text, want := range map[string]string{
		text: "f.yaml:1:22: deny: no database says in which country an address is: give geo: {country: FILE}\n" +
			"f.yaml:1:36: deny: no database says of which autonomous system an address is: give geo: {asn: FILE}\n" +
			"f.yaml:2:9: allow: no database says of which autonomous system an address is: give geo: {asn: FILE}",
		"geo: {country: c, asn: a}\ndeny: ['country:de', 'asn:0', 'asn:1', 'asn:AS1']\n": `f.yaml:2:8: deny: "de" is no country: write DE` + "\n" +
			`f.yaml:2:22: deny: "0" is no number of an autonomous system: want 1 to 4294967295` + "\n" + "f.yaml:2:40: deny: 1 is there twice: remove one",
	} {
		if _, err := Parse("f.yaml", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
}

// A wrong database is an error where the file names it. NO is Norway.
func TestGeo(t *testing.T) {
	text := []byte("geo: {country: c, asn: a}\nrules: [{name: a, limit: 1, match: {countries: [NO, DE], asns: [AS64500, 64501]}}]\n")
	c, err := Parse("f.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	m := &c.Rules[0].Match
	if d := cmp.Diff([]string{"NO", "DE"}, m.Countries) + cmp.Diff([]uint32{64500, 64501}, m.ASNs); d != "" {
		t.Error(d)
	}
	_, err = Parser{Geo: func(of, file string) error { return errors.New(of + " in " + file) }}.Parse("f.yaml", text)
	if want := "f.yaml:1:16: geo.country: country in c\nf.yaml:1:24: geo.asn: asn in a"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
