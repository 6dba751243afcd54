package lab

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestNutcrackerIsTheShippedOne: what labs show of twemproxy is true of the file that is shipped.
func TestNutcrackerIsTheShippedOne(t *testing.T) {
	shipped, err := os.ReadFile("../../deploy/nutcracker.yml")
	if err != nil {
		t.Fatal(err)
	}
	settings := func(text string) (list []string) {
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			name, value, _ := strings.Cut(line, ": ")
			if value != "" && name != "listen" && line[0] != '#' && line[0] != '-' {
				list = append(list, line)
			}
		}
		slices.Sort(list)
		return list
	}
	ours := settings(nutcrackerConfig(netip.MustParseAddrPort("127.0.0.1:1"), nil))
	if theirs := settings(string(shipped)); len(ours) < 5 || !slices.Equal(ours, theirs) {
		t.Errorf("a lab's twemproxy has %q, the shipped one %q", ours, theirs)
	}
}
