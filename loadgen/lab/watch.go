package lab

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/scrape"
)

// watcher learns which edge knew of which mitigation, and when, by asking every edge for its list
// now and then. An edge says itself when it learned of each, so how often it is asked decides only
// whether short ones are seen at all.
type watcher struct {
	client *http.Client
	edges  []netip.AddrPort // their admin addresses

	mu   sync.Mutex
	seen map[sighting]learned
}

type sighting struct {
	edge   int
	rule   string
	source string
	start  time.Time
}

type learned struct {
	at, until time.Time
	byPoP     bool
	ordered   bool // by an operator
}

// Mitigations is the part of GET /v1/mitigations that matters here.
type Mitigations []struct {
	Rule    string    `json:"rule"`
	Source  string    `json:"source"`
	Start   time.Time `json:"start"`
	End     time.Time `json:"end"`
	Learned time.Time `json:"learned"`
	By      string    `json:"by"`
	Reason  string    `json:"reason"`
}

// run asks every edge once per period until ctx ends. An edge that does not answer is asked again
// next time.
func (w *watcher) run(ctx context.Context, period time.Duration) {
	var all sync.WaitGroup
	for i := range w.edges {
		all.Go(func() {
			tick := time.NewTicker(period)
			defer tick.Stop()
			for {
				w.look(ctx, i)
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
	all.Wait()
}

// look asks one edge.
func (w *watcher) look(ctx context.Context, edge int) {
	var list Mitigations
	if scrape.Get(ctx, w.client, w.edges[edge], "/v1/mitigations?rule="+ruleName,
		scrape.JSON(&list)) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range list {
		key := sighting{edge, m.Rule, m.Source, m.Start.UTC()}
		if _, known := w.seen[key]; !known {
			w.seen[key] = learned{m.Learned, m.End, m.By == "pop", m.By == "admin"}
		}
	}
}

// inForce is what was seen, for a judge: sources by their addresses, edges as they are numbered
// here, times since epoch. A mitigation that an edge has from the PoP and knew the moment it began
// is one that the PoP's total began there.
func (w *watcher) inForce(epoch time.Time, sources map[string]int32) []judge.InForce {
	w.mu.Lock()
	defer w.mu.Unlock()
	type block struct {
		rule, source string
		start        time.Time
	}
	totals := make(map[block]bool)
	for key, l := range w.seen {
		if l.byPoP && l.at.Equal(key.start) {
			totals[block{key.rule, key.source, key.start}] = true
		}
	}
	var out []judge.InForce
	for key, l := range w.seen {
		source, ok := sources[key.source]
		if !ok {
			continue
		}
		out = append(out, judge.InForce{
			Source: source, Edge: int16(key.edge), Start: key.start.Sub(epoch), At: l.at.Sub(epoch),
			Until: l.until.Sub(epoch),
			Total: totals[block{key.rule, key.source, key.start}], Operator: l.ordered,
		})
	}
	slices.SortFunc(out, func(a, b judge.InForce) int { // a map's order is chance
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Edge, b.Edge),
			cmp.Compare(a.Start, b.Start))
	})
	judge.SortInForce(out)
	return out
}
