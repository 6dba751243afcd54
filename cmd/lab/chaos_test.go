package main

import (
	"os"
	"regexp"
	"testing"

	"sluice/cmd/lab/chaos"
)

// TestEveryStoryHasATable, and one only, in which figures.yaml has its rows.
func TestEveryStoryHasATable(t *testing.T) {
	text, err := os.ReadFile("../../docs/figures/figures.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tables []*regexp.Regexp
	for _, m := range regexp.MustCompile(`(?m)^  chaos-.*\{what happens: '(.*?)', edges`).FindAllSubmatch(text, -1) {
		tables = append(tables, regexp.MustCompile("^("+string(m[1])+")$"))
	}
	all, err := chaos.All()
	if err != nil || len(tables) == 0 {
		t.Fatalf("%d tables: %v", len(tables), err)
	}
	for _, s := range all {
		n := 0
		for _, like := range tables {
			if like.MatchString(s.Story) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%q has rows in %d tables of docs/figures/figures.yaml", s.Story, n)
		}
	}
}
