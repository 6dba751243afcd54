package operator

import (
	"strings"
	"testing"

	"sluice/edge/control"
	"sluice/mitigation"
)

// What is in force on which edges says of no edge what is not known, and leaves none out that is missing.
func TestSpread(t *testing.T) {
	for _, test := range []struct {
		spread *Spread
		want   string
	}{
		{nil, "on this edge, which counts alone"},
		{&Spread{Spread: mitigation.Spread{Known: 1, Have: 1}}, "on the only edge of the PoP"},
		{&Spread{Spread: mitigation.Spread{Known: 3, Have: 3}}, "on all 3 edges of the PoP"},
		{&Spread{Spread: mitigation.Spread{Known: 4, Have: 4}, PoPs: 2}, "on all 4 edges of 2 PoPs"},
		{&Spread{Spread: mitigation.Spread{Known: 2, Have: 2}, Expected: 3}, "on the 2 edges of the PoP that are known here; pop.edges says that there are 3, and no more are known here"},
		{&Spread{Spread: mitigation.Spread{Known: 1, Have: 1}, Apart: 2}, "on this edge; 2 edges count under another secret and are not among them"},
		{&Spread{Spread: mitigation.Spread{Known: 2, Have: 2}, Silent: []string{"c", "d"}}, "on the 2 edges of the PoP that are known here; silent of late, and not among them: c, d"},
		{&Spread{Spread: mitigation.Spread{Known: 1, Have: 1}, Silent: []string{"c"}}, "on this edge; silent of late, and not among them: c"},
		{&Spread{Spread: mitigation.Spread{Known: 2, Have: 2}, Apart: 1}, "on the 2 edges of the PoP that are known here; 1 edge counts under another secret and is not among them"},
		{&Spread{Spread: mitigation.Spread{Known: 3, Have: 2, Missing: []string{"c"}}, Apart: 1},
			"on 2 of the 3 edges of the PoP, and not yet on c: there as soon as it can be reached; 1 edge counts under another secret and is not among them"},
		{&Spread{Spread: mitigation.Spread{Known: 3, Have: 2, Missing: []string{"c"}, Refused: []string{"c"}}},
			"on 2 of the 3 edges of the PoP; c cannot have it, and its log says why"},
		{&Spread{Spread: mitigation.Spread{Known: 4, Have: 1, Missing: []string{"b", "c", "d"}, Refused: []string{"b", "d"}}},
			"on 1 of the 4 edges of the PoP, and not yet on c: there as soon as it can be reached; b, d cannot have it, and their logs say why"},
	} {
		if got := test.spread.String(); got != test.want {
			t.Errorf("%+v: %q, want %q", test.spread, got, test.want)
		}
	}
}

// Of a digest that no rule knows, the tier is named only where it has answered.
func TestNoRules(t *testing.T) {
	for _, asked := range []bool{false, true} {
		said := NoRules(&control.Looked{Source: "#00000000000000000000000000000000", Asked: asked})
		if strings.Contains(said, "in the tier") != asked || strings.Contains(said, "this edge alone") == asked {
			t.Errorf("the tier has answered: %t, and it says %s", asked, said)
		}
	}
}
