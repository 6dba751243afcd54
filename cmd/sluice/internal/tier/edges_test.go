package tier

import (
	"strings"
	"testing"
	"time"

	"sluice/pop/presence"
)

// What an operator hears of the PoP's other edges: who comes and goes, once each, but not whom a starting edge finds there.
func TestEdgeEvents(t *testing.T) {
	var w edgeWatcher
	began := time.Unix(1_700_000_000, 0)
	for i, step := range []struct {
		after time.Duration
		names string // the others'
		want  string
	}{
		{0, "", ""},
		{time.Second, "edge2 edge3", ""},
		{6 * time.Second, "edge2 edge3", ""},
		{7 * time.Second, "edge2", "edge edge3 is gone; edges of the PoP that are known here: 2"},
		{8 * time.Second, "edge2", ""},
		{9 * time.Second, "edge2 edge2 edge1", ""}, // while processes are replaced
		{10 * time.Second, "edge3 edge2", "edge edge3 is there; edges of the PoP that are known here: 3"},
		{11 * time.Second, "", "edge edge2 is gone; edges of the PoP that are known here: 1, edge edge3 is gone; edges of the PoP that are known here: 1"},
	} {
		edges := []presence.Edge{{Name: "edge1"}}
		for name := range strings.FieldsSeq(step.names) {
			edges = append(edges, presence.Edge{Name: name})
		}
		var got []string
		for _, e := range w.look(edges, began.Add(step.after)) {
			got = append(got, e.Text)
		}
		if text := strings.Join(got, ", "); text != step.want {
			t.Errorf("step %d: %q, want %q", i, text, step.want)
		}
	}
}
