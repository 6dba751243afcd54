package main

import (
	"slices"
	"testing"

	"sluice/edge/config"
)

// TestReloadSaysAfresh: a reload names each rule that begins afresh though only its limit has changed.
func TestReloadSaysAfresh(t *testing.T) {
	parse := func(text string) *config.Config {
		c, err := config.Parse("f.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := parse("rules: [{name: a, limit: 16000}, {name: b, limit: 100}, {name: gone, limit: 1}]")
	now := parse("rules: [{name: b, limit: 200}, {name: a, limit: 16001}, {name: new, limit: 20000}]")
	want := []string{"rule a: counters are wider above a limit of 16000, so it begins afresh, blocks included"}
	if got := afresh(before, now); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
