package tier

import (
	"strings"
	"testing"

	"sluice/counter/member"
)

// What an operator hears of the tier: nodes that go and come, and that the edge counts alone, each once.
func TestTierEvents(t *testing.T) {
	w := watcher{up: make(map[string]bool)}
	for i, step := range []struct {
		a, b, up, full bool
		want           string
	}{
		{true, true, true, false, ""},
		{true, false, true, false, "node b is down"},
		{true, false, true, false, ""},
		{false, false, false, false, "node a is down, no node of the tier answers: this edge counts alone"},
		{true, true, true, false, "node a is back, node b is back, this edge counts with the PoP"},
		{true, true, false, true, fullPoP},
		{true, true, true, false, "this edge counts with the PoP"},
	} {
		var got []string
		for _, e := range w.look([]member.Node{{Address: "a", Up: step.a}, {Address: "b", Up: step.b}}, step.up, step.full) {
			got = append(got, e.Text)
		}
		if text := strings.Join(got, ", "); text != step.want {
			t.Errorf("step %d: %q, want %q", i, text, step.want)
		}
	}
}
