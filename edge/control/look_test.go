package control

import (
	"net/netip"
	"testing"
	"time"
)

// What is in force over a source is told with it, be it said of a prefix or under all rules.
func TestLookShowsCoveringPrefixes(t *testing.T) {
	c := newPlane(t, "rules: [{name: r, limit: 5}]")
	now := time.Now()
	for i, said := range [][2]string{{AllRules, "192.0.2.0/24"}, {"r", "192.0.2.0/25"}, {AllRules, "192.0.2.7"}, {"r", "192.0.2.7"}} {
		if _, err := c.Block(said[0], said[1], time.Duration(i+1)*time.Hour, "because", Operator{}, now); err != nil {
			t.Fatal(err)
		}
		b := c.Look(t.Context(), netip.MustParseAddr("192.0.2.7")).Rules[0].Block
		if b == nil || b.Rule != said[0] || b.Source != said[1] || b.Reason != "because" {
			t.Errorf("%v: %+v", said, b)
		}
	}
}
