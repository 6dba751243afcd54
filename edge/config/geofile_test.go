package config

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
