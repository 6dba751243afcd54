package chaos

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/loadgen/anycast"
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

// stage is what runs of a story, and what of it can be harmed beside the processes.
type stage struct {
	site   *lab.Site
	wires  map[string]*wire
	limit  uint32
	window time.Duration

	mu     sync.Mutex // guards what follows
	crowds []net.Conn
	found  []found
	done   int                           // guests that were, and have found what they could
	later  []func(context.Context) error // looks at what came of guests, at rest
}

// Run runs a story and judges it.
func (l Live) Run(ctx context.Context, s *Scenario) (*Row, error) {
	st := &stage{wires: make(map[string]*wire), limit: s.Limit, window: s.Window}
	defer func() {
		st.disperse()
		for _, w := range st.wires {
			w.close()
		}
	}()
	site, err := l.lab(s, st).Start(ctx)
	if err != nil {
		return nil, err
	}
	defer site.Stop()
	st.site = site
	affinity, err := anycast.New(s.PoPs, s.Routes())
	if err != nil {
		return nil, err
	}
	before, err := dials(ctx, site)
	if err != nil {
		return nil, err
	}
	watched, stop := context.WithCancel(ctx)
	defer stop()
	w := &watch{site: site}
	var looking sync.WaitGroup
	looking.Go(func() { w.run(watched) })
	out, err := site.Run(ctx, replay.Replay{Affinity: affinity.PoP, Seed: l.Seed, Timeout: 5 * time.Second}, s.Traffic(l.Seed), s.faults())
	stop()
	looking.Wait()
	if err != nil {
		return nil, err
	}
	o, err := st.observe(ctx, s, out)
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

// observe gathers what a run and its guests left, once all is at rest. It fails where something of the story could not be done.
func (st *stage) observe(ctx context.Context, s *Scenario, out *lab.Outcome) (o *Observed, err error) {
	for _, h := range out.Happened {
		if strings.Contains(h, "loadgen: ") || strings.Contains(h, "was over by then") {
			return nil, fmt.Errorf("%s: %s", s.Place, h)
		}
	}
	for _, step := range s.Steps {
		if step.guest {
			st.done--
		}
	}
	if st.done < 0 {
		return nil, fmt.Errorf("%s: %d guests were not done when the run was over: let it go on for longer; what happened: %q", s.Place, -st.done, out.Happened)
	}
	o = &Observed{Edges: s.Edges * s.PoPs, Decisions: out.Decisions, InForce: out.InForce, Failed: out.ClientErrors(), Unanswered: sum(out.Errors), Unjudged: sum(out.Unjudged)}
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
	for _, look := range st.later {
		if err := look(ctx); err != nil {
			return nil, err
		}
	}
	if s.Unread {
		if o.Lost, o.Told, err = lostLines(ctx, st.site); err != nil {
			return nil, err
		}
	}
	if s.Bound.Hits >= 0 {
		stats, err := st.reached(ctx)
		if err != nil {
			return nil, err
		}
		o.Hits = stats.Most
	}
	o.Broken = o.Failed - out.Statuses[504]
	for _, w := range st.wires {
		o.Cut += int(w.cuts.Load())
	}
	if s.Bound.Whole >= 0 { // what the origin broke off is answered by the origin, and is no answer by an edge
		out.Balance.Rows = slices.DeleteFunc(out.Balance.Rows, func(r lab.BalanceRow) bool { return strings.HasPrefix(r.Name, "answers by edges from the origin") })
	}
	o.Unbalanced, o.found = out.Balance.Err(), st.found
	return o, nil
}

// lab is the lab that a story needs.
func (l Live) lab(s *Scenario, st *stage) lab.Lab {
	out := lab.Lab{
		PoPs: s.PoPs, Edges: s.Edges, Memcached: s.Nodes, Memory: s.MB, Twemproxy: s.Proxied,
		Sluice: l.Sluice, Origin: l.Origin, Secret: l.Secret, Carrier: replay.Loopback, Log: l.Log,
		Rule:  lab.RuleConfig{Limit: s.Limit, Window: s.Window, MitigationTimeout: s.Block, OnStoreFailure: s.Posture, Mode: judge.Deployed},
		Peers: s.Peers, Unread: s.Unread, Guests: slices.ContainsFunc(s.Steps, func(step Step) bool { return step.guest }),
		Source: fmt.Sprintf("trust: [%s, %s], proxy_protocol: true", proxyAddr, behindAddr),
		Wire: func(name string, own netip.AddrPort) (netip.AddrPort, error) {
			if !slices.ContainsFunc(s.Steps, func(step Step) bool { return step.act != nil && strings.Contains(step.Text, " "+name) }) {
				return own, nil
			}
			w, err := newWire(own)
			if err != nil {
				return own, err
			}
			st.wires[name] = w
			return w.addr(), nil
		},
		Other: func(ctx context.Context, _ *lab.Site, f lab.Fault) error { return s.Steps[f.Index].act(ctx, st) },
	}
	if out.Guests {
		out.MoreRules = []string{onceRule}
	}
	if s.Patience > 0 {
		out.OriginOptions = fmt.Sprintf("timeout: %v", s.Patience)
	}
	return out
}

// Routes are the changes of routes in a story.
func (s *Scenario) Routes() (routes []anycast.Route) {
	for _, step := range s.Steps {
		if step.Route != nil {
			routes = append(routes, *step.Route)
		}
	}
	return routes
}

// Faults are those of processes and clocks, which can be done in virtual time as well.
func (s *Scenario) Faults() (faults []lab.Fault) {
	for _, step := range s.Steps {
		if step.Fault != nil {
			faults = append(faults, *step.Fault)
		}
	}
	return faults
}

// faults are all that is done to real edges.
func (s *Scenario) faults() (faults []lab.Fault) {
	faults = s.Faults()
	for i, step := range s.Steps {
		if step.act != nil {
			faults = append(faults, lab.Fault{At: step.At, Kind: lab.Other, Action: lab.Action(step.Text), Index: i})
		}
	}
	return faults
}

func sum(of map[string]int) (n int) {
	for v := range maps.Values(of) {
		n += v
	}
	return n
}
