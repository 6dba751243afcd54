package presence

import (
	"fmt"
	"testing"
	"time"

	"sluice/pop/secret"
)

// TestReplacedInAFullPoP: the process that replaces an edge of a full PoP takes the slot of the one before as soon as that has said that it ends.
// An edge of another name lets it go first, and takes it two seconds later.
func TestReplacedInAFullPoP(t *testing.T) {
	key, now := secret.Of([]byte("test")), time.Unix(1_700_000_000, 0)
	for name, want := range map[string]bool{"edge7": true, "other": false} {
		values := make([][]byte, slots)
		edges := make([]Slots, slots)
		for i := range values {
			edges[i] = New(key, uint64(i+1))
			values[i] = edges[i].Encode(now, Edge{Name: fmt.Sprintf("edge%d", i)})
		}
		p := New(key, 1000)
		p.Read(values, now, now)
		if _, _, _, ok := p.Choose(name, 5, now); ok || !p.Full() {
			t.Fatalf("%s: a slot of a full PoP is taken", name)
		}
		now = now.Add(time.Second)
		for i := range values {
			values[i] = edges[i].Encode(now, Edge{Name: fmt.Sprintf("edge%d", i), Ends: i == 7})
		}
		p.Read(values, now, now)
		if slot, _, _, ok := p.Choose(name, 5, now); ok != want || ok && slot != 7 {
			t.Errorf("%s: slot %d, taken %v, want %v", name, slot, ok, want)
		}
		if slot, _, _, ok := p.Choose(name, 5, now.Add(2*time.Second)); !ok || slot != 7 {
			t.Errorf("%s: slot %d, taken %v two seconds later", name, slot, ok)
		}
	}
}
