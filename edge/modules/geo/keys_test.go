package geo_test

import (
	"net/netip"
	"testing"

	"sluice/counter"
	"sluice/edge/modules/geo"
	"sluice/edge/rules/key"
)

// TestKeysOfOtherVersions: who is counted by country or autonomous system is the same source as under versions to which these were no facts. Edges of
// both count together while a PoP is upgraded, and what is blocked stays so.
func TestKeysOfOtherVersions(t *testing.T) {
	secret := key.NewSecret([16]byte{1})
	for name, test := range map[string]struct{ value, want string }{
		"country": {"DE", "#67e94069497b637eebfe13d52d0e9c2f"},
		"asn":     {"64500", "#b51abc6b4009ebd2952cd278bf4332b8"},
	} {
		facts := geo.Module(nil).Config.Facts
		for _, f := range facts {
			f.Find = func(buf []byte, _ *key.View) []byte { return append(buf, test.value...) }
		}
		part, err := key.Parse(name, facts...)
		if err != nil {
			t.Fatal(err)
		}
		view := &key.View{Client: netip.MustParseAddr("192.0.2.1")}
		if got, _, _ := secret.Digest([]key.Part{part}, view, counter.Source{}, nil); got.String() != test.want {
			t.Errorf("%s: a request is counted for %v, want %v", name, got, test.want)
		}
		value, err := key.ParseValue(part, test.value, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, is := secret.DigestOfValues([]key.Part{part}, []key.Value{value}); got.String() != test.want || !is {
			t.Errorf("%s: operators name %v, want %v", name, got, test.want)
		}
		if got, is := secret.DigestOfValue(part, []key.Value{value}); got.String() != test.want || !is {
			t.Errorf("%s: of one part operators name %v, want %v", name, got, test.want)
		}
	}
}
