package tier

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"sluice/edge/events"
	"sluice/pop/presence"
)

// settles is how long an edge that starts learns which others are there before it reports new ones.
const settles = 5 * time.Second

// An edgeWatcher keeps which other edges of the PoP were there at its last look, by name: an edge
// whose process is replaced stays.
type edgeWatcher struct {
	began time.Time
	there map[string]bool
}

// look returns which edges have come and gone. The first of edges is this one.
func (w *edgeWatcher) look(edges []presence.Edge, now time.Time) (list []events.Event) {
	if w.began.IsZero() {
		w.began = now
	}
	there := make(map[string]bool)
	for _, e := range edges[1:] {
		if e.Name != edges[0].Name {
			there[e.Name] = true
		}
	}
	known := fmt.Sprintf("; edges of the PoP that are known here: %d", len(there)+1)
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if !w.there[name] && now.Sub(w.began) >= settles {
			list = append(list, events.Event{Kind: events.Edge, Text: "edge " + name + " is there" +
				known, New: "there"})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.there)) {
		if !there[name] {
			list = append(list, events.Event{Kind: events.Edge, Level: slog.LevelWarn,
				Text: "edge " + name + " is gone" + known, Old: "there", New: "gone"})
		}
	}
	w.there = there
	return list
}
