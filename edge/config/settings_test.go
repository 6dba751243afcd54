package config

import (
	"fmt"
	"reflect"
	"testing"

	"sluice/counter"
)

// Ranges in tags that are constants elsewhere are these.
func TestRangesAreThoseOfTheCode(t *testing.T) {
	for _, of := range []struct {
		in    any
		field string
		want  string
	}{
		{PoP{}, "edges", fmt.Sprintf("0 to %d", counter.MaxEdges)},
	} {
		for name, f := range settingsIn(reflect.ValueOf(of.in)) {
			if name == of.field && f.Tag.Get("want") != of.want {
				t.Errorf("%T.%s wants %s, and the code takes %s", of.in, name, f.Tag.Get("want"), of.want)
			}
		}
	}
}
