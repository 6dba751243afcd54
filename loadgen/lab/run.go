package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/origin"
	"sluice/loadgen/process"
	"sluice/loadgen/replay"
	"sluice/loadgen/scrape"
	"sluice/loadgen/trace"
)

// Outcome is what a replay on a Site saw, from the client's side and from inside.
type Outcome struct {
	*replay.Outcome
	// When each edge had each mitigation; edges are numbered through, those of the first PoP first
	InForce  []judge.InForce
	Balance  Balance
	TierOps  map[string]float64 // commands that edges sent to the tier, by kind
	Nodes    []NodeDelta
	Happened []string     // the faults, as they were done
	Lost     []judge.Lost // edges that they killed or restarted
	// When the last of them was done, what it restarted being ready; the zero Time: there was none
	Over    time.Time
	Excused bool // a fault was done to an edge or to the origin, which clients may notice

	// From an edge to a node and back: the mean that edges measured; 0: there was none
	RoundTrip time.Duration
}

// NodeDelta is what a memcached node counted during the run.
type NodeDelta struct {
	Name  string
	Stats scrape.NodeStats
	Err   error // it did not answer, before or after
}

// Ops is the number of commands that edges sent to the tier.
func (o *Outcome) Ops() uint64 {
	total := 0.0
	for _, n := range o.TierOps {
		total += n
	}
	return uint64(math.Round(total))
}

// Err is nil if the run was sound: the balance holds, and no client met an error that no fault
// explains.
func (o *Outcome) Err() error {
	errs := []error{o.Balance.Err()}
	if n := o.ClientErrors(); n > 0 && !o.Excused {
		errs = append(errs, fmt.Errorf("loadgen: %d client errors that no fault explains: %s", n,
			o.Trouble()))
	}
	return errors.Join(errs...)
}

// Run replays a trace on the site, doing the faults at their times, and collects what everybody
// saw. The replay's edges, and its way of carrying sources, are the site's.
func (s *Site) Run(ctx context.Context, r replay.Replay, trace *trace.Trace,
	faults []Fault) (*Outcome, error) {
	if err := s.Check(faults); err != nil {
		return nil, err
	}
	r.PoPs, r.Carrier, r.HTTP2, r.Walled = s.Targets, s.Carrier, s.HTTP2, s.Wall != ""
	r.Ahead = func(edge int16) time.Duration { return time.Duration(s.EdgeProcesses[edge].ahead.Load()) }
	if s.HTTP2 {
		r.TLS = s.client()
	}
	for _, m := range s.members() {
		m.harmed = false // what an earlier run did to it is in both readings
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	edgesBefore, err := s.Settle(ctx, client)
	if err != nil {
		return nil, err
	}
	originBefore, err := s.originStats(ctx, client)
	if err != nil {
		return nil, err
	}
	nodesBefore := s.NodeStats()
	wallBefore, err := s.wallRefused()
	if err != nil {
		return nil, err
	}

	w := &watcher{client: client, seen: make(map[sighting]learned)}
	for _, e := range s.EdgeProcesses {
		w.edges = append(w.edges, e.Admin)
	}
	inside, stop := context.WithCancel(ctx)
	defer stop()
	var helpers sync.WaitGroup
	out := &Outcome{}
	if s.Rule.Mode == judge.Deployed && s.Rule.MitigationTimeout > 0 {
		helpers.Go(func() { w.run(inside, watchPeriod(s.Rule.MitigationTimeout)) })
	}
	var done []doneFault
	helpers.Go(func() { out.Happened, done = s.injectFaults(inside, faults) })
	out.Outcome, err = r.Run(ctx, trace)
	stop()
	helpers.Wait()
	if err != nil {
		return out, err
	}

	epoch := out.Start
	for _, f := range done {
		if f.over.After(out.Over) {
			out.Over = f.over
		}
		if f.Kind == "edge" && (f.Action == Kill || f.Action == Term || f.Action == Restart) {
			for _, at := range []time.Time{f.began, f.over} {
				out.Lost = append(out.Lost, judge.Lost{Edge: int16(f.Index), At: at.Sub(epoch)})
			}
		}
	}
	sources := make(map[string]int32, len(out.Addresses))
	for i, a := range out.Addresses {
		sources[a.String()] = int32(i)
	}
	for i := range w.edges {
		w.look(ctx, i) // what began after it was last asked
	}
	out.InForce = w.inForce(epoch, sources)

	b := counts{out: out.Outcome, shared: anySpread(trace), guests: s.Guests}
	for _, m := range s.members() {
		if m.harmed {
			switch kind, _, _ := strings.Cut(m.Name, "/"); kind {
			case "edge":
				b.noEdges, b.harmed = true, append(b.harmed, m.Name)
			case "origin":
				b.noOrig, b.harmed = true, append(b.harmed, m.Name)
			case "wall":
				b.noWall, b.harmed = true, append(b.harmed, m.Name)
			}
		}
	}
	for _, f := range faults {
		out.Excused = out.Excused || f.Kind == "edge" && f.Action != StepClock || f.Kind == "origin"
	}
	edges, err := s.Settle(ctx, client)
	if err != nil {
		return out, err
	}
	b.edges = edges.Minus(edgesBefore)
	if !b.noOrig {
		origin, err := s.originStats(ctx, client)
		if err != nil {
			return out, err
		}
		b.origin = origin.Minus(originBefore)
	}
	if b.wall = s.Wall != ""; b.wall && !b.noWall {
		refused, err := s.wallRefused()
		if err != nil {
			return out, err
		}
		b.walled = float64(refused - wallBefore)
	}
	if err := s.learn(ctx, out.Outcome, trace, edges); err != nil {
		return out, err
	}
	out.Balance = b.balance()
	out.TierOps = b.edges.By("sluice_tier_operations_total", "op")
	if n := b.edges.Sum("sluice_tier_operation_seconds_count"); n > 0 {
		out.RoundTrip = time.Duration(b.edges.Sum("sluice_tier_operation_seconds_sum") / n * float64(time.Second)).Round(time.Microsecond)
	}
	out.Nodes = Delta(nodesBefore, s.NodeStats())
	return out, s.Crashed()
}

// watchPeriod is how often edges are asked for their mitigations: several times in the life of the
// shortest.
func watchPeriod(timeout time.Duration) time.Duration {
	return max(50*time.Millisecond, min(timeout/5, 200*time.Millisecond))
}

// learn reads the outcome of requests that were reset from the edges' access logs. The edges are at
// rest, but they write a moment later.
func (s *Site) learn(ctx context.Context, out *replay.Outcome, t *trace.Trace,
	edges scrape.Metrics) error {
	var logs []io.Reader
	for range 40 { // 2 s
		lines := int(edges.Sum("sluice_log_lines_lost_total"))
		logs = nil
		for _, e := range s.EdgeProcesses {
			if e.access == "" {
				continue
			}
			text, err := os.ReadFile(e.access)
			if err != nil {
				return fmt.Errorf("loadgen: read the access log of %s: %w", e.Name, err)
			}
			lines += bytes.Count(text, []byte("\n"))
			logs = append(logs, bytes.NewReader(text))
		}
		if len(logs) == 0 || lines >= int(edges.Sum("sluice_received_total")) {
			break
		}
		if err := process.Pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return out.Learn(t, logs...)
}

func anySpread(t *trace.Trace) bool {
	return slices.ContainsFunc(t.Sources, func(s trace.Source) bool { return s.Spread > 1 })
}

// doneFault is a fault that was done, and when.
type doneFault struct {
	Fault
	began, over time.Time
}

// injectFaults does the faults at their times, each without waiting for the one before to be over.
func (s *Site) injectFaults(ctx context.Context,
	faults []Fault) (happened []string, done []doneFault) {
	var mu sync.Mutex
	var all sync.WaitGroup
	start := time.Now()
	sorted := slices.Clone(faults)
	slices.SortStableFunc(sorted, func(a, b Fault) int { return int(a.At - b.At) })
	for _, f := range sorted {
		timer := time.NewTimer(time.Until(start.Add(f.At)))
		select {
		case <-ctx.Done():
			timer.Stop()
			all.Wait()
			return append(happened, fmt.Sprintf("%s: the run was over by then", f)), done
		case <-timer.C:
		}
		began := time.Now()
		s.Log("fault: %s", f)
		all.Go(func() {
			err := s.Do(ctx, f)
			line := f.String()
			switch took := time.Since(began); {
			case err != nil:
				line += ": " + err.Error()
			case f.Action == Restart:
				line += fmt.Sprintf(" (ready after %v)", took.Round(time.Millisecond))
			}
			mu.Lock()
			happened, done = append(happened, line), append(done, doneFault{f, began, time.Now()})
			mu.Unlock()
		})
		if f.Action != Restart && f.Kind != Other {
			all.Wait() // at once done; a stop and its cont must not overtake each other
		}
	}
	all.Wait()
	return happened, done
}

// Settle waits until the edges are at rest, all requests received being answered or aborted, and
// gives their metrics, added up. Edges that do not run are left out. One that never comes to rest
// shows in the balance.
func (s *Site) Settle(ctx context.Context, client *http.Client) (scrape.Metrics, error) {
	var sum scrape.Metrics
	for range 400 { // 20 s
		sum = make(scrape.Metrics)
		for _, e := range s.EdgeProcesses {
			if _, running := e.Running(); !running {
				continue
			}
			if err := scrape.Get(ctx, client, e.Admin, "/metrics", sum.Parse); err != nil {
				if ctx.Err() == nil && e.harmed {
					continue
				}
				return nil, fmt.Errorf("loadgen: read the metrics of %s: %w", e.Name, err)
			}
		}
		if sum.Sum("sluice_received_total") == sum.Sum("sluice_answers_total")+sum.Sum("sluice_aborted_total") {
			return sum, nil
		}
		if err := process.Pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

func (s *Site) originStats(ctx context.Context, client *http.Client) (origin.Stats, error) {
	var out origin.Stats
	err := scrape.Get(ctx, client, s.origin.Addr, origin.StatsPath, scrape.JSON(&out))
	if err != nil {
		return out, fmt.Errorf("loadgen: read the origin's counts: %w", err)
	}
	return out, nil
}

// NodeStats is what every memcached node has counted so far.
func (s *Site) NodeStats() []NodeDelta {
	out := make([]NodeDelta, len(s.NodeProcesses))
	for i, n := range s.NodeProcesses {
		stats, err := scrape.Memcached(n.Addr)
		out[i] = NodeDelta{n.Name, stats, err}
	}
	return out
}

// Delta is what nodes counted between two looks. A node that was restarted counts from then.
func Delta(before, after []NodeDelta) []NodeDelta {
	out := make([]NodeDelta, len(after))
	for i, a := range after {
		out[i] = NodeDelta{a.Name, make(scrape.NodeStats), errors.Join(before[i].Err, a.Err)}
		for name, v := range a.Stats {
			if was := before[i].Stats[name]; was <= v {
				v -= was
			}
			out[i].Stats[name] = v
		}
	}
	return out
}
