// Package tier joins an edge to the PoP whose counts it shares: it has the tables, the machine on
// real nodes, and the operators' list, and gives the edge functions of them. Of an edge that counts
// alone it has the tables, and what operators changed of its rules.
//
//	edge --- edge.Tier ---> Shared ---> pop.Machine ---> pop/memcached
//	                          |
//	                          +--> rulelist.Shared: rules of several PoPs
//	                          +--> state_dir: what operators said, over a restart of the whole PoP
package tier

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
	"sync/atomic"
	"time"

	"sluice/cmd/sluice/internal/peers"
	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/counter/exact"
	"sluice/counter/inflight"
	"sluice/edge"
	"sluice/edge/beat"
	"sluice/edge/changes"
	"sluice/edge/changes/rulelist"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/metric"
	"sluice/mitigation"
	"sluice/pop"
	"sluice/pop/across"
	"sluice/pop/memcached"
	"sluice/pop/operatorlog"
	"sluice/pop/presence"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// Shared is what this edge counts in, and what shares it with the PoP. Everything that differs
// between an edge that counts alone and one with a tier is decided in Share.
type Shared struct {
	Table   *counter.Table
	Blocks  *mitigation.Table
	Tier    edge.Tier
	Metrics []metric.Collector // beside the edge's own
	Machine *pop.Machine       // nil: it counts alone
	// Do sends a command to a node beside the machine, and waits for the answer; nil: there is no
	// tier.
	Do    func(context.Context, wire.Command) wire.Result
	Rules *RuleStore
	Local *rulelist.List // nil: changes of rules are in the PoP's list
	// PlaceStatus is of where several PoPs have their rules; nil: this one's are not there.
	PlaceStatus func() control.EtcdStatus
	// InFlight is the requests in flight on this edge, which it counts together with the PoP.
	InFlight *inflight.Table
	// Exact is the requests whose instants the tier keeps; nil: this edge counts alone.
	Exact *exact.Table

	// Viewed is told at which node edges meet, and what is there that says that somebody looks at
	// the whole PoP. It is set before Sync; nil: nobody asks.
	Viewed func(node int, item []byte)

	// Nil: what others had blocked by then is known, from an older process
	began atomic.Pointer[time.Time]
	// The longest that a limit's block lives under the rules in force
	voids atomic.Int64

	peers *peers.Peers // nil: none
	log   *slog.Logger
	// Puts the list that was opened last on the disk; nil: there is no state_dir
	save   func() error
	sync   func(ctx context.Context) error // see Sync
	beside []func(ctx context.Context)     // what works beside it
	files  []*stateFile                    // those in state_dir
}

// Sync works until ctx is done, then reports what is left and returns when all that it started has
// ended.
func (s *Shared) Sync(ctx context.Context) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	for _, work := range s.beside {
		beside.Go(func() { work(ctx) })
	}
	return s.sync(ctx)
}

// Join makes what an edge of a configuration counts in. place is where several PoPs have their
// rules, and others are the PoPs that are its peers; nil: there are none. Nothing has been started
// yet, and no command sent.
func Join(c *config.Config, key secret.Secret, log *slog.Logger, happened *events.Log,
	place *rulelist.Place, others *peers.Peers) (*Shared, error) {
	if len(c.PoP.Memcached) == 0 {
		s := &Shared{Table: counter.New(counter.Options{Counters: c.Table.Counters, Began: time.Now()}),
			Blocks: mitigation.New(c.Table.Counters, nil), InFlight: inflight.New(inflight.Options{}),
			log: log}
		s.sync = s.tidy
		return s, s.keepRulesApart(c, key, rand.Uint64(), happened, place)
	}
	var tier *memcached.Tier
	wake := func() { tier.Wake() }
	s := &Shared{
		Table: counter.New(counter.Options{Counters: c.Table.Counters, Tier: true, Began: time.Now(),
			Phase: key.Phase, Wake: wake}),
		Blocks: mitigation.New(c.Table.Counters, wake),

		InFlight: inflight.New(inflight.Options{Tier: true, Wake: wake}),
		Exact:    exact.New(exact.Options{Wake: wake, Bucket: key.Bucket}),
		log:      log,
	}
	id, apart := rand.Uint64(), rulesApart(c, place)
	var decided func(across.Block)
	var counted func(across.Count)
	if others != nil {
		decided, counted = others.Announce, others.AnnounceCount
		s.beside = append(s.beside, others.Send)
	}
	machine, err := pop.NewMachine(pop.Config{
		PoP: c.PoP.Name, Nodes: c.PoP.Memcached, Secret: key, ID: id, Name: EdgeName(c),
		Edges: c.PoP.Edges, Rules: !apart, Counters: s.Table, Blocks: s.Blocks,
		Received: func(w operatorlog.Order) {
			happened.Add(control.Event(&w, false, time.Now()))
		},
		Decided: decided, Counted: counted, InFlight: s.InFlight, Exact: s.Exact,
		Viewed: func(node int, item []byte) {
			if s.Viewed != nil {
				s.Viewed(node, item)
			}
		},
	}, time.Now())
	if err != nil {
		return nil, err
	}
	s.Machine = machine
	began := time.Now()
	s.began.Store(&began)
	if s.peers = others; others != nil {
		others.AddPeerBlock, others.AddCount = machine.Announcer.AddPeerBlock, machine.Announcer.AddCount
	}
	s.TurnPeers(c)
	if place != nil {
		warnOfRulesLeft(c, key, place, log)
	}
	if err := s.openState(c, stateName, machine.Operators); err != nil {
		return nil, err
	}
	if tier, err = memcached.NewTier(machine, c.PoP.Memcached); err != nil {
		return nil, fmt.Errorf("pop.memcached: %w", err)
	}
	tier.Caught = func(v any, stack []byte) {
		log.Error("a panic in the tier's goroutines was caught", "panic", v, "stack", string(stack))
	}
	s.sync, s.Do = tier.Sync, tier.Do
	s.beside = append(s.beside, func(ctx context.Context) {
		watch(ctx, machine, c.PoP.Name, happened)
	})
	if apart {
		if err := s.keepRulesApart(c, key, id, happened, place); err != nil {
			return nil, err
		}
		if place == nil {
			s.Rules.Warnings = append(s.Rules.Warnings,
				"this edge only: without pop.secret_file changes of rules do not travel to the other edges of the PoP")
		}
	} else {
		s.Rules = &RuleStore{
			Origin: changes.PoP, List: machine.Operators.Changes,
			InForce: machine.Operators.InForce,
			Add: func(w operatorlog.Order, _ uint64, now time.Time) (operatorlog.Mark, error) {
				return machine.Operators.Add(w, now)
			},
			Await: func(made func() Made) Progress {
				tier.Wake()
				return await(spreadLook, func() (Progress, bool) {
					m := made()
					s, newer := spread(machine, c.PoP.Edges, m.Marks...)
					return Progress{&s, newer}, m.Overtaken
				})
			},
			Save: s.save,
		}
		s.warnWithoutDisk()
	}
	s.Metrics = append(s.Metrics, metricsOf(tier, machine))
	s.Tier = edge.Tier{
		Up: func(counter.Source) bool { return machine.Nodes.Up() }, Alone: machine.Alone,
		Fetch: func(rule *algorithm.Spec, source counter.Source) {
			machine.Exchanges.Fetch(counter.Counter{Rule: rule, Source: source})
			tier.Wake()
		},
		Rules: func(rules []mitigation.Rule) {
			s.voids.Store(0)
			for _, r := range rules {
				s.voids.Store(max(s.voids.Load(), int64(r.Repeat.Longest(r.Timeout))))
			}
			machine.SetRules(rules)
		},
		Unready: func() string {
			if machine.Nodes.Full() {
				return fullPoP
			}
			if s := secretStatus(c.PoP.Name, machine.ForeignSecrets.Secrets()); s.Held {
				return s.Warning
			}
			return ""
		},
		PoP: control.PoP{
			Order: func(o mitigation.Order) (control.Spread, error) {
				o.From += " at " + EdgeName(c)
				mark, err := machine.Operators.Add(o, time.Now())
				if errors.Is(err, operatorlog.ErrFull) {
					return control.Spread{}, control.ErrFull
				} else if err != nil {
					return control.Spread{}, err
				}
				tier.Wake()
				return *await(spreadLook, func() (Progress, bool) {
					s, _ := spread(machine, c.PoP.Edges, mark)
					return Progress{Spread: &s}, false
				}).Spread, nil
			},
			Nodes: machine.Nodes.Members,
			Edges: func() []control.EdgeStatus {
				var edges []control.EdgeStatus
				for _, e := range machine.Operators.Edges() {
					edges = append(edges, EdgeStatus(e))
				}
				slices.SortFunc(edges[1:], func(a, b control.EdgeStatus) int {
					return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
				})
				return edges
			},
			Secret: func() control.SecretStatus {
				return secretStatus(c.PoP.Name, machine.ForeignSecrets.Secrets())
			},
		},
	}
	return s, nil
}

// LearningUntil is until when there may be blocks from before this edge began that it has not
// learned: it learns each at the source's first request. The zero time: there are no others, or it
// has all blocks.
func (s *Shared) LearningUntil() (until time.Time) {
	if began := s.began.Load(); began != nil {
		until = began.Add(time.Duration(s.voids.Load()))
	}
	return until
}

// Taught notes that an older process of this edge has handed over the PoP's blocks.
func (s *Shared) Taught() { s.began.Store(nil) }

// WhyAlone is why this edge counts alone; "": it does not.
func (s *Shared) WhyAlone() string {
	if s.Machine == nil {
		return "there is no tier"
	}
	if _, since := s.Machine.Alone(); !since.IsZero() {
		return "no node answers since " + since.UTC().Format("2006-01-02 15:04:05Z")
	}
	if s.Machine.Nodes.Full() {
		return fullPoP
	}
	return ""
}

// TurnPeers turns the exchange of blocks with other PoPs on or off, by a configuration. An edge
// without peers believes no block that the others of its PoP received.
func (s *Shared) TurnPeers(c *config.Config) {
	on := s.peers != nil && c.PoP.PeersMode != "off"
	if s.peers != nil {
		s.peers.Turn(on)
	}
	if s.Machine != nil {
		s.Machine.Announcer.Peers(on)
	}
}

// openState begins to keep a list where there is a state_dir.
func (s *Shared) openState(c *config.Config, name string, list Kept) error {
	if c.StateDir == "" {
		return nil
	}
	f, err := openState(c.StateDir, name, list)
	if err != nil {
		return err
	}
	s.save, s.files = f.save, append(s.files, f)
	s.beside = append(s.beside, func(ctx context.Context) { f.keep(ctx, s.log) })
	return nil
}

// Unkept are the files of state_dir that cannot be written.
func (s *Shared) Unkept() (list []control.Unkept) {
	for _, f := range s.files {
		if why := f.unkept.Load(); why != nil {
			list = append(list, control.Unkept{File: f.path, Error: *why})
		}
	}
	return list
}

// rulesApart reports whether changes of rules are in another list than the PoP's, where anyone who
// guesses its secret could make them.
func rulesApart(c *config.Config, place *rulelist.Place) bool {
	return len(c.PoP.Memcached) == 0 || c.PoP.SecretFile == "" || place != nil
}

// keepRulesApart has changes of rules travel over a place of several PoPs, or stay on this edge.
func (s *Shared) keepRulesApart(c *config.Config, key secret.Secret, id uint64,
	happened *events.Log, place *rulelist.Place) error {
	if place != nil {
		return s.keepRulesAt(place, c, key, id, happened)
	}
	s.Local = rulelist.New(key, id)
	if err := s.openState(c, apartName(nil), s.Local); err != nil {
		return err
	}
	s.Rules = &RuleStore{Origin: changes.Local, List: s.Local.Changes,
		InForce: func(uint64, []operatorlog.Mark) {},
		Add: func(w operatorlog.Order, _ uint64, now time.Time) (operatorlog.Mark, error) {
			return s.Local.Add(w, now)
		}, Save: s.save}
	s.warnWithoutDisk()
	return nil
}

// keepRulesAt has changes of rules travel over a place, to the edges of all PoPs that share it. What
// it has now is in force from the start, if it answers soon.
func (s *Shared) keepRulesAt(place *rulelist.Place, c *config.Config, key secret.Secret, id uint64,
	happened *events.Log) error {
	in, err := place.Open(key, id, happened)
	if err != nil {
		return err
	}
	s.Local, s.PlaceStatus = in.Copy(), in.Status
	if err := s.openState(c, apartName(place), s.Local); err != nil {
		return err
	}
	in.Load(context.Background())
	s.Rules = &RuleStore{
		Origin: place.Origin, List: s.Local.Changes, Add: in.Add, Describe: in.Describe,
		InForce: func(version uint64, refused []operatorlog.Mark) {
			in.InForce(version, refused)
			if s.Machine != nil {
				s.Machine.Operators.InForce(0, refused) // it has none itself
			}
		},
		Await: func(made func() Made) Progress {
			return await(placeLook, func() (now Progress, overtaken bool) {
				m := made()
				// Otherwise it is read again
				if spread, err := in.Spread(m.Rule, m.Marks); err == nil {
					now.Spread = &spread
				}
				return now, m.Overtaken
			})
		},
		Save: s.save,
	}
	s.beside = append(s.beside, in.Follow)
	return nil
}

// warnWithoutDisk warns of changes of rules that are on no disk.
func (s *Shared) warnWithoutDisk() {
	if s.Rules.Save == nil {
		s.Rules.Warnings = append(s.Rules.Warnings,
			"in memory only: without state_dir changes of rules are lost when all edges that have them end")
	}
}

const (
	// How long an operator waits for all edges to have an order
	spreadWait    = 2 * time.Second
	overruledWait = 800 * time.Millisecond // if by then another operator's order is known to stand
	spreadLook    = 10 * time.Millisecond
	// placeLook is how often a place is read for that: all edges that share it are in the answer.
	placeLook = 50 * time.Millisecond
)

// await waits until all edges have what was said, or for as long as an operator does.
func await(every time.Duration, look func() (s Progress, overtaken bool)) Progress {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for began := time.Now(); ; <-tick.C {
		s, overtaken := look()
		waited := time.Since(began)
		if s.Spread != nil && s.Spread.Have == s.Spread.Known && !s.Newer || waited >= spreadWait ||
			overtaken && waited >= overruledWait {
			return s
		}
	}
}

// spread is how far orders have come, in a PoP of so many edges; 0: unknown.
func spread(m *pop.Machine, edges int, marks ...operatorlog.Mark) (all control.Spread, newer bool) {
	s := m.Operators.Spread(marks...)
	all = control.Spread{Spread: s.Spread, Apart: len(m.ForeignSecrets.Secrets().Apart), Silent: s.Silent}
	all.Missing = append([]string{}, s.Missing...) // none are [] in JSON
	if edges > s.Known {
		all.Expected = edges
	}
	return all, s.Newer
}

// EdgeName is what operators call this edge.
func EdgeName(c *config.Config) string {
	if c.EdgeID != "" {
		return c.EdgeID
	}
	host, err := os.Hostname()
	if err != nil {
		host = "edge"
	}
	if _, port, err := net.SplitHostPort(c.Listen[0].Address); err == nil {
		return host + ":" + port
	}
	return host
}

// EdgeStatus is an edge as operators see it.
func EdgeStatus(e presence.Edge) control.EdgeStatus {
	return control.EdgeStatus{ID: fmt.Sprintf("%016x", e.ID), Name: e.Name, About: e.About,
		Refused: len(e.Refused)}
}

// Alone reports whether there is no tier.
func (s *Shared) Alone() bool { return s.Tier.Up == nil }

// tidy keeps the table of an edge without a tier tidy.
func (s *Shared) tidy(ctx context.Context) error {
	beat.Every(ctx, beat.Period, func(now time.Time) {
		if step := s.Table.Stepped(now); step != 0 {
			s.Table.Adjust(step, false, now)
		}
		s.Table.Reports().Sweep(now, true)
	})
	return nil
}
