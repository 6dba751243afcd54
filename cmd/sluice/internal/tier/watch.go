package tier

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"sluice/counter"
	"sluice/counter/member"
	"sluice/edge/beat"
	"sluice/edge/events"
	"sluice/pop"
)

// fullPoP is why an edge that counts alone gets no requests.
var fullPoP = fmt.Sprintf("the PoP has %d edges already: this one counts alone until one of them leaves", counter.MaxEdges)

// watch records which nodes and edges go and come, when this edge counts alone, and which edges
// count under another secret, until ctx is done. It looks once a beat: a node that was away for
// less may be missed.
func watch(ctx context.Context, m *pop.Machine, name string, happened *events.Log) {
	w, edges, secrets := watcher{up: make(map[string]bool)}, edgeWatcher{}, secretWatcher{}
	beat.Every(ctx, beat.Period, func(now time.Time) {
		list := w.look(m.Nodes.Members(), m.Nodes.Up(), m.Nodes.Full())
		list = append(list, edges.look(m.Operators.Edges(), now)...)
		status := secretStatus(name, m.ForeignSecrets.Secrets())
		if e, changed := secrets.look(status.Warning, now); changed {
			list = append(list, e)
		}
		for _, e := range list {
			e.Time = now
			happened.Add(e)
		}
	})
}

// A watcher keeps the tier's state at its last look.
type watcher struct {
	up          map[string]bool // nodes
	alone, full bool
}

// look returns what has changed.
func (w *watcher) look(members []member.Node, up, full bool) (list []events.Event) {
	now := make(map[string]bool, len(members))
	for _, m := range members {
		now[m.Address] = m.Up
		switch was, known := w.up[m.Address]; {
		case !known && m.Up || was == m.Up:
		case m.Up:
			list = append(list, events.Event{Kind: events.Node, Text: "node " + m.Address +
				" is back", Old: "down", New: "up"})
		default:
			list = append(list, events.Event{Kind: events.Node, Level: slog.LevelWarn,
				Text: "node " + m.Address + " is down", Old: "up", New: "down"})
		}
	}
	w.up = now
	if alone := !up; alone != w.alone || full != w.full {
		e := events.Event{Kind: events.Tier, Text: "this edge counts with the PoP", Old: "alone",
			New: "with the PoP"}
		switch {
		case full:
			e.Level, e.Text = slog.LevelError, fullPoP
		case alone:
			e.Level, e.Text = slog.LevelError, "no node of the tier answers: this edge counts alone"
		}
		if alone || full {
			e.Old, e.New = e.New, e.Old
		}
		w.alone, w.full = alone, full
		list = append(list, e)
	}
	return list
}
