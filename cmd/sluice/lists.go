package main

import (
	"fmt"
	"path/filepath"

	"sluice/edge/config"
	"sluice/edge/events"
	"sluice/edge/lists"
)

// listBook makes the keeper of the named lists.
func listBook(c *config.Config, happened *events.Log) *lists.Store {
	b := &lists.Store{Events: happened}
	if c.StateDir != "" {
		b.Dir = filepath.Join(c.StateDir, "lists")
	}
	return b
}

// listNotes say what lists have, for check, which asks no URL.
func listNotes(all []lists.Status) (notes []string) {
	for _, l := range all {
		switch {
		case !l.URL:
			notes = append(notes, fmt.Sprintf("list %s has %s", l.Name, lists.Entries(l.Entries)))
		case l.Entries > 0:
			notes = append(notes,
				fmt.Sprintf("list %s had %s when its URL was last read; check asks no URL", l.Name,
					lists.Entries(l.Entries)))
		default:
			notes = append(notes,
				fmt.Sprintf("list %s comes from a URL, which check does not ask: a start needs its answer", l.Name))
		}
	}
	return notes
}
