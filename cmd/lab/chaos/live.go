package chaos

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/replay"
)

// Live runs stories with real edges, nodes and an origin.
type Live struct {
	Sluice string   // the edge's executable
	Origin []string // command that serves an origin
	Secret string   // of the PoPs
	Seed   uint64   // of the traffic, and of which edges it meets
	Log    func(format string, args ...any)
}

// Run runs a story and judges it.
func (l Live) Run(ctx context.Context, s *Scenario) (*Row, error) {
	site, err := l.lab(s).Start(ctx)
	if err != nil {
		return nil, err
	}
	defer site.Stop()
	before, err := dials(ctx, site)
	if err != nil {
		return nil, err
	}
	watched, stop := context.WithCancel(ctx)
	defer stop()
	w := &watch{site: site}
	var looking sync.WaitGroup
	looking.Go(func() { w.run(watched) })
	out, err := site.Run(ctx, replay.Replay{Seed: l.Seed, Timeout: 5 * time.Second},
		s.Traffic(l.Seed), s.faults())
	stop()
	looking.Wait()
	if err != nil {
		return nil, err
	}
	o, err := observe(s, out)
	if err != nil {
		return nil, err
	}
	if len(s.Steps) > 0 {
		o.Noticed, o.Unsettled = w.since(out.Start, s.Steps[0].At)
	}
	after, err := dials(ctx, site)
	if err != nil {
		return nil, err
	}
	o.Dials = after - before
	if err := site.Crashed(); err != nil {
		return nil, err
	}
	return s.Judge(o), nil
}

// observe gathers what a run left, once all is at rest. It fails where something of the story could
// not be done.
func observe(s *Scenario, out *lab.Outcome) (*Observed, error) {
	for _, h := range out.Happened {
		if strings.Contains(h, "loadgen: ") || strings.Contains(h, "was over by then") {
			return nil, fmt.Errorf("%s: %s", s.Place, h)
		}
	}
	o := &Observed{Edges: s.Edges, Decisions: out.Decisions, InForce: out.InForce,
		Failed: out.ClientErrors(), Unanswered: sum(out.Errors), Unjudged: sum(out.Unjudged),
		Unbalanced: out.Balance.Err()}
	if out.Troubled > 0 || len(out.Errors) > 0 {
		o.Trouble = out.Trouble()
	}
	if !out.Over.IsZero() {
		o.Over = out.Over.Sub(out.Start)
	}
	if s.endsWithRestart() {
		o.Ready = o.Over - s.Steps[len(s.Steps)-1].At
	}
	for _, step := range s.Steps {
		o.Over = max(o.Over, step.At)
	}
	for _, n := range out.Nodes {
		o.Evicted += int(n.Stats["evictions"])
	}
	return o, nil
}

// lab is the lab that a story needs.
func (l Live) lab(s *Scenario) lab.Lab {
	out := lab.Lab{
		PoPs: 1, Edges: s.Edges, Memcached: s.Nodes, Memory: s.MB, Twemproxy: s.Proxied,
		Sluice: l.Sluice, Origin: l.Origin, Secret: l.Secret, Carrier: replay.Loopback, Log: l.Log,
		Rule: lab.RuleConfig{Limit: s.Limit, Window: s.Window, MitigationTimeout: s.Block,
			OnStoreFailure: s.FailurePolicy, Mode: judge.Deployed},
		Other: func(ctx context.Context, site *lab.Site, f lab.Fault) error {
			return fill(ctx, site, s.Steps[f.Index].node, s.Steps[f.Index].items)
		},
	}
	if s.Patience > 0 {
		out.OriginOptions = fmt.Sprintf("timeout: %v", s.Patience)
	}
	return out
}

// faults are all that is done.
func (s *Scenario) faults() (faults []lab.Fault) {
	for i, step := range s.Steps {
		if step.Fault != nil {
			faults = append(faults, *step.Fault)
		} else {
			faults = append(faults, lab.Fault{At: step.At, Kind: lab.Other,
				Action: lab.Action(step.Text), Index: i})
		}
	}
	return faults
}

// fill writes as many items into a node as so many new sources would, each as large as that of a
// counter.
func fill(ctx context.Context, site *lab.Site, name string, items int) error {
	for _, n := range site.NodeProcesses {
		if n.Name != name {
			continue
		}
		c, err := new(net.Dialer).DialContext(ctx, "tcp", n.Addr.String())
		if err != nil {
			return err
		}
		defer c.Close()
		var b strings.Builder
		for i := range items {
			fmt.Fprintf(&b, "set sluice-chaos-flood-%012d 0 0 20 noreply\r\n%020d\r\n", i, i)
			if b.Len() > 1<<16 || i == items-1 {
				if _, err := c.Write([]byte(b.String())); err != nil {
					return fmt.Errorf("loadgen: chaos: fill %s: %w", name, err)
				}
				b.Reset()
			}
		}
		return nil
	}
	return fmt.Errorf("loadgen: chaos: there is no %s", name)
}

func sum(of map[string]int) (n int) {
	for v := range maps.Values(of) {
		n += v
	}
	return n
}
