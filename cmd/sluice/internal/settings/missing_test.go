//go:build minimal

package settings

import (
	"os"
	"strings"
	"testing"
)

// The page on a minimal program has a row for each setting that it refuses.
func TestMinimalPage(t *testing.T) {
	const name = "docs/install/one-machine.md"
	page, err := os.ReadFile("../../../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	for setting := range missing {
		if !strings.Contains(string(page), "`"+setting+"`") {
			t.Errorf("%s does not say that a minimal program refuses %s", name, setting)
		}
	}
}
