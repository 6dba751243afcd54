package main

import (
	"maps"
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
