package main

import (
	"strings"
	"testing"
)

// Every command has help, which names its flags, and a line in the list of all.
func TestHelp(t *testing.T) {
	_, all, _ := sluice("help")
	if _, asked, _ := sluice("--help"); asked != all {
		t.Error("sluice help and sluice --help differ")
	}
	for _, c := range commands() {
		if !strings.Contains(all, "\n  sluice "+c.Name+" ") {
			t.Errorf("sluice help has no line about %s", c.Name)
		}
		_, one, _ := sluice("help", c.Name)
		if !strings.HasPrefix(one, "sluice "+c.Name) || !strings.Contains(one, c.Does) || (c.Flags != nil && c.Name != "import") != strings.Contains(one, "--token-file FILE") {
			t.Errorf("sluice help %s: %s", c.Name, one)
		}
	}
}
