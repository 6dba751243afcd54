package config

import (
	"fmt"
	"reflect"
	"testing"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
)

// Ranges that tags repeat are those of the constants.
func TestRangesAreThoseOfTheCode(t *testing.T) {
	limit := fmt.Sprintf("1 to %d", algorithm.MaxLimit)
	window := fmt.Sprintf("%v to %v", algorithm.MinWindow, rules.Duration(algorithm.MaxWindow))
	for _, of := range []struct {
		in          any
		field, want string
	}{
		{PoP{}, "edges", fmt.Sprintf("0 to %d", counter.MaxEdges)},
		{rules.Config{}, "limit", limit},
		{rules.Config{}, "burst", fmt.Sprintf("0 to %d", algorithm.MaxLimit)},
		{rules.Config{}, "window", window},
		{rules.Config{}, "show_key", fmt.Sprintf("0 to %d", key.MaxStart)},
		{rules.Config{}, "concurrency", fmt.Sprintf("0 to %d", rules.MaxConcurrency)},
		{rules.Window{}, "limit", limit},
		{rules.Window{}, "window", window},
		{rules.Prefix{}, "limit", limit},
		{rules.Cost{}, "estimate", fmt.Sprintf("1 to %d", algorithm.MaxCost)},
	} {
		found := false
		for name, f := range settingsIn(reflect.ValueOf(of.in)) {
			if name == of.field {
				found = true
				if got := f.Tag.Get("want"); got != of.want {
					t.Errorf("%T.%s wants %s, and the code takes %s", of.in, name, got, of.want)
				}
			}
		}
		if !found {
			t.Errorf("%T has no %s", of.in, of.field)
		}
	}
}
