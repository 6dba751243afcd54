package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/counter"
	"sluice/edge"
	"sluice/edge/changes"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/memcached"
	"sluice/pop/secret"
	"sluice/pop/words"
)

// shared is what this edge counts in, and what shares it with the PoP. Everything that differs between an edge that counts
// alone and one with a tier is decided in share.
type shared struct {
	table   *counter.Table
	bits    *mitigation.Table
	tier    edge.Tier
	metrics prometheus.Collector // nil: none beside the edge's own
	machine *pop.Machine         // nil: it counts alone
	rules   *ruleStore
	local   *localList   // nil: changes of rules are in the PoP's list
	states  []*stateFile // none without state_dir
	// sync works until ctx is done, then reports what is left and returns when all that it started has ended.
	sync func(ctx context.Context) error
}

func share(c *config.Config, key secret.Secret, log *slog.Logger, happened *events.Log) (*shared, error) {
	if len(c.PoP.Memcached) == 0 {
		s := &shared{table: counter.New(counter.Options{Counters: c.Counters, Began: time.Now()}), bits: mitigation.New(0, nil)}
		if err := s.keepRulesHere(c, key); err != nil {
			return nil, err
		}
		s.sync = func(ctx context.Context) error {
			var keepers sync.WaitGroup
			defer keepers.Wait()
			s.keep(ctx, &keepers, log)
			return s.tidy(ctx)
		}
		return s, nil
	}
	var tier *memcached.Tier
	wake := func() { tier.Wake() }
	s := &shared{
		table: counter.New(counter.Options{Counters: c.Counters, Tier: true, Began: time.Now(), Phase: key.Phase, Wake: wake}),
		bits:  mitigation.New(0, wake),
	}
	machine, err := pop.NewMachine(pop.Config{
		Nodes: c.PoP.Memcached, Secret: key, ID: rand.Uint64(), Name: edgeName(c), Edges: c.PoP.Edges, Rules: c.PoP.SecretFile != "", Counters: s.table, Bits: s.bits,
	}, time.Now())
	if err != nil {
		return nil, err
	}
	s.machine = machine
	if err := s.openState(c, "words", machine); err != nil {
		return nil, err
	}
	if tier, err = memcached.NewTier(machine, c.PoP.Memcached); err != nil {
		return nil, fmt.Errorf("pop.memcached: %w", err)
	}
	tier.Caught = func(v any, stack []byte) {
		log.Error("a panic in the tier's goroutines was caught", "panic", v, "stack", string(stack))
	}
	s.sync = func(ctx context.Context) error {
		var keepers sync.WaitGroup
		defer keepers.Wait()
		keepers.Go(func() { watch(ctx, machine, happened) })
		s.keep(ctx, &keepers, log)
		return tier.Sync(ctx)
	}
	if c.PoP.SecretFile == "" {
		if err := s.keepRulesHere(c, key); err != nil {
			return nil, err
		}
		s.rules.warnings = append(s.rules.warnings, "this edge only: without pop.secret_file changes of rules do not travel to the other edges of the PoP")
	} else {
		s.rules = &ruleStore{
			origin: changes.PoP, list: machine.Changes, inForce: machine.InForce,
			add: func(w words.Word, now time.Time) (words.Mark, error) {
				receipt, err := machine.Say(w, now)
				return receipt.Mark, err
			},
			await: func(mark words.Mark) *control.Spread {
				tier.Wake()
				spread := awaitSpread(machine, pop.Receipt{Mark: mark})
				return &spread
			},
		}
		s.keepRules()
	}
	s.metrics = newTierMetrics(tier, machine)
	s.tier = edge.Tier{
		Up: func(counter.Source) bool { return machine.Up() },
		Ask: func(rule *counter.Rule, source counter.Source) {
			machine.Ask(counter.Counter{Rule: rule, Source: source})
			tier.Wake()
		},
		Rules: func(rules []edge.TierRule) {
			known := make([]pop.Rule, len(rules))
			for i, r := range rules {
				known[i] = pop.Rule{Name: r.Name, Counter: r.Counter, Timeout: r.Timeout}
			}
			machine.SetRules(known)
		},
		Unready: func() string {
			if machine.Stats().Full {
				return fullPoP
			}
			return ""
		},
		EdgeCount: func() int { return machine.Stats().Edges },
		PoP: control.PoP{
			Say: func(w control.Word) (control.Spread, error) {
				word := words.Word{Rule: w.Rule, Source: w.Source, Kind: words.Block, Start: w.Start, End: w.End, Reason: w.Reason}
				if w.End.IsZero() {
					word.Kind = words.Lift
				}
				receipt, err := machine.Say(word, time.Now())
				if errors.Is(err, words.ErrFull) {
					return control.Spread{}, control.ErrFull
				} else if err != nil {
					return control.Spread{}, err
				}
				tier.Wake()
				return awaitSpread(machine, receipt), nil
			},
			Nodes: func() []control.NodeStatus {
				var nodes []control.NodeStatus
				for _, m := range machine.Members() {
					nodes = append(nodes, control.NodeStatus{Address: m.Name, Up: m.Up, Joining: m.Joining, Leaving: m.Leaving})
				}
				return nodes
			},
			Edges: func() []control.EdgeStatus {
				var edges []control.EdgeStatus
				for _, e := range machine.Edges() {
					edges = append(edges, edgeStatus(e))
				}
				slices.SortFunc(edges[1:], func(a, b control.EdgeStatus) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
				return edges
			},
		},
	}
	return s, nil
}

// openState begins to keep a list where there is a state_dir.
func (s *shared) openState(c *config.Config, name string, list kept) error {
	if c.StateDir == "" {
		return nil
	}
	f, err := openState(c.StateDir, name, list)
	if err == nil {
		s.states = append(s.states, f)
	}
	return err
}

// keep writes lists as they change, until ctx is done.
func (s *shared) keep(ctx context.Context, keepers *sync.WaitGroup, log *slog.Logger) {
	for _, f := range s.states {
		keepers.Go(func() { f.keep(ctx, log) })
	}
}

// keepRulesHere has changes of rules stay on this edge.
func (s *shared) keepRulesHere(c *config.Config, key secret.Secret) error {
	s.local = &localList{secret: key, id: rand.Uint64()}
	if err := s.openState(c, "rules", s.local); err != nil {
		return err
	}
	s.rules = &ruleStore{origin: changes.Local, list: s.local.Changes, add: s.local.Add, inForce: func(uint64, []words.Mark) {}}
	s.keepRules()
	return nil
}

// keepRules has changes of rules on the disk before an operator is told of them.
func (s *shared) keepRules() {
	if len(s.states) == 0 {
		s.rules.warnings = append(s.rules.warnings, "in memory only: without state_dir changes of rules are lost when all edges that have them end")
		return
	}
	s.rules.save = s.states[len(s.states)-1].save
}

// fullPoP is why an edge that counts alone gets no requests.
var fullPoP = fmt.Sprintf("the PoP has %d edges already: this one counts alone until one of them leaves", counter.MaxEdges)

const (
	spreadWait = 2 * time.Second // how long an operator waits for all edges to have what was said
	spreadLook = 10 * time.Millisecond
)

// awaitSpread waits until all edges have a word, or for as long as an operator does.
func awaitSpread(m *pop.Machine, r pop.Receipt) control.Spread {
	tick := time.NewTicker(spreadLook)
	defer tick.Stop()
	for end := time.Now().Add(spreadWait); ; <-tick.C {
		if s := m.Spread(r); s.Have == s.Known || !time.Now().Before(end) {
			return control.Spread{Known: s.Known, Have: s.Have, Missing: append([]string{}, s.Missing...)}
		}
	}
}

// watchEvery is how often the tier is looked at for operators. A node that was away for less may be missed.
const watchEvery = 100 * time.Millisecond

// watch tells operators which nodes go and come, and when this edge counts alone, until ctx is done.
func watch(ctx context.Context, m *pop.Machine, happened *events.Log) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for w := (watcher{up: make(map[string]bool)}); ; {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, e := range w.look(m.Members(), m.Up(), m.Stats().Full) {
				e.Time = now
				happened.Add(e)
			}
		}
	}
}

// A watcher knows how the tier stood when it looked last.
type watcher struct {
	up          map[string]bool // nodes
	alone, full bool
}

// look returns what has changed.
func (w *watcher) look(members []pop.Member, up, full bool) (list []events.Event) {
	now := make(map[string]bool, len(members))
	for _, m := range members {
		now[m.Name] = m.Up
		switch was, known := w.up[m.Name]; {
		case !known && m.Up || was == m.Up:
		case m.Up:
			list = append(list, events.Event{Kind: events.Node, Text: "node " + m.Name + " is back", Old: "down", New: "up"})
		default:
			list = append(list, events.Event{Kind: events.Node, Level: slog.LevelWarn, Text: "node " + m.Name + " is down", Old: "up", New: "down"})
		}
	}
	w.up = now
	if alone := !up; alone != w.alone || full != w.full {
		e := events.Event{Kind: events.Tier, Text: "this edge counts with the PoP", Old: "alone", New: "with the PoP"}
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

// edgeName is what operators call this edge.
func edgeName(c *config.Config) string {
	if c.EdgeID != "" {
		return c.EdgeID
	}
	host, err := os.Hostname()
	if err != nil {
		host = "edge"
	}
	if _, port, err := net.SplitHostPort(c.Listen); err == nil {
		return host + ":" + port
	}
	return host
}

// alone reports whether there is no tier.
func (s *shared) alone() bool { return s.tier.Up == nil }

// tidy keeps the tables of an edge without a tier tidy.
func (s *shared) tidy(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if step := s.table.Stepped(now); step != 0 {
				s.table.Adjust(step, false, now)
			}
			s.table.Sweep(now, true)
		}
	}
}
