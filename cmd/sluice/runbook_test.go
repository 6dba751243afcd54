package main

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"sluice/docs/pages"
)

// runbook is the pages on alerts.
func runbook(t *testing.T) map[string]string {
	t.Helper()
	all, err := pages.All("../..")
	must(t, err)
	maps.DeleteFunc(all, func(name, _ string) bool { return !strings.HasPrefix(name, "docs/alerts/") })
	return all
}

// Who is woken by an alert finds commands that are there.
func TestRunbookCommands(t *testing.T) {
	var text string
	for _, page := range runbook(t) {
		text += page
	}
	named := regexp.MustCompile("`sluice ([a-z]+)([^`]*)`").FindAllStringSubmatch(text, -1)
	for _, m := range named {
		if _, there := findCommand(m[1]); !there {
			t.Errorf("%s: no such command", m[0])
		}
	}
	if len(named) < 5 {
		t.Errorf("only %d commands are found", len(named))
	}
}
