package chaos

import (
	"context"
	"net/http"
	"sync"
	"time"

	"sluice/loadgen/lab"
	"sluice/loadgen/scrape"
)

// watchPeriod is how often edges are asked for what they know of their tier.
const watchPeriod = 50 * time.Millisecond

// watch asks all edges of a site what they know of their tier, again and again.
type watch struct {
	site  *lab.Site
	looks []look
}

// A look is what was known at a time.
type look struct {
	at       time.Time
	all      bool // edges answered
	missing  int  // edges that miss a node
	answered int
}

func (w *watch) run(ctx context.Context) {
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Second}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var mu sync.Mutex
		var each sync.WaitGroup
		l := look{at: time.Now()}
		for _, e := range w.site.EdgeProcesses {
			each.Go(func() {
				m, err := scrape.MetricsOf(ctx, client, e.Admin)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					return
				}
				l.answered++
				if m.Sum("sluice_tier_alone") > 0 || m.Sum("sluice_tier_node_up") < nodesOf(m) {
					l.missing++
				}
			})
		}
		each.Wait()
		if ctx.Err() != nil {
			return
		}
		l.all = l.answered == len(w.site.EdgeProcesses)
		w.looks = append(w.looks, l)
	}
}

// nodesOf is how many nodes an edge has.
func nodesOf(m scrape.Metrics) float64 { return float64(len(m.By("sluice_tier_node_up", "node"))) }

// since is how long after a time of the run all edges that answered missed a node, below 0 if they
// never did; and when an edge last did not answer or missed one, both by the run's time.
func (w *watch) since(start time.Time, first time.Duration) (noticed, unsettled time.Duration) {
	noticed = -1
	for _, l := range w.looks {
		at := l.at.Sub(start)
		if at < first {
			continue
		}
		if noticed < 0 && l.answered > 0 && l.missing == l.answered {
			noticed = at - first
		}
		if !l.all || l.missing > 0 {
			unsettled = at
		}
	}
	return noticed, unsettled
}

// dials is how often the edges that answer have tried to connect to a node.
func dials(ctx context.Context, site *lab.Site) (int, error) {
	client := &http.Client{Transport: &http.Transport{}, Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	total := 0.0
	for _, e := range site.EdgeProcesses {
		if _, running := e.Running(); !running {
			continue
		}
		m, err := scrape.MetricsOf(ctx, client, e.Admin)
		if err != nil {
			return 0, err
		}
		total += m.Sum("sluice_tier_dials_total")
	}
	return int(total), nil
}
