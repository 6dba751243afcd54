// Package worst searches for what a source can make a PoP's tier do at worst.
//
// Whoever reads this code chooses what his sources do: which edge gets which request, when, how many at once, how near the limit he
// stays, when he pauses, and when he goes on with an address that nobody has seen. A search over all that, in virtual time, begins at
// what is suspected, then at random, changes one thing or a few, keeps what costs more, and begins anew where nothing does any more. It
// proves nothing; it finds what somebody finds who looks for an hour.
//
// What a behaviour costs is counted over a thousand requests in at most ten seconds, all the commands, bytes and records of the log that
// they cause included, and held against a budget.
package worst

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

// Options say where to search. What is 0 is searched, too, unless it says otherwise.
type Options struct {
	Seed    uint64
	Rounds  int // behaviours tried for each objective
	Nodes   int // 0: 1
	Edges   int
	Limit   uint32
	Window  time.Duration
	Timeout time.Duration // below 0: is searched
	Sources Sources
}

// Sources says which sources there are.
type Sources uint8

const (
	AnySources Sources = iota
	Known              // the same again and again
	Fresh              // always new ones
)

// ParseSources reads "known", "fresh" or "any".
func ParseSources(s string) (Sources, error) {
	for i, name := range []string{"any", "known", "fresh"} {
		if s == name {
			return Sources(i), nil
		}
	}
	return 0, fmt.Errorf("%q: want known, fresh or any", s)
}

// Objective is what is made as large as possible.
type Objective struct {
	Name   string
	Value  func(*Run) float64
	Budget func(*Run) float64
}

// Objectives are what the design has budgets for.
func Objectives() []Objective {
	return []Objective{
		{"commands per request", func(r *Run) float64 { return per(r.Commands, r.Requests) }, constant(3)},
		{"bytes per request", func(r *Run) float64 { return per(r.Bytes, r.Requests) }, constant(1024)},
		{"log records per request", func(r *Run) float64 { return per(r.LogRecords, r.Requests) }, constant(1)},
		{"log records per source and block or window", func(r *Run) float64 { return per(r.LogRecords, r.Lives) },
			func(r *Run) float64 { return float64(r.Edges + 8) }},
		{"log bytes read, per edge and second", func(r *Run) float64 { return float64(r.LogRead) / float64(r.Edges) / r.Lasted.Seconds() },
			func(r *Run) float64 { return 2*float64(r.LogWritten)/r.Lasted.Seconds() + 8192*float64(r.Nodes) }},
	}
}

func constant(x float64) func(*Run) float64 { return func(*Run) float64 { return x } }

func per(cost uint64, n int) float64 { return float64(cost) / float64(max(n, 1)) }

// share is how much of its budget a run has used.
func (o *Objective) share(r *Run) float64 { return o.Value(r) / o.Budget(r) }

// Found is the worst that was found for an objective.
type Found struct {
	Objective
	Run
}

// Over reports whether it is over the budget.
func (f *Found) Over() bool { return f.share(&f.Run) > 1 }

const (
	sketch   = 300  // requests by which behaviours are compared
	full     = 1000 // and those by which the worst is measured
	patience = 15   // changes in vain before the search begins anew
	finals   = 3    // of the worst by comparison, so many are measured
)

// Search looks for the worst of each objective. Progress, if not nil, is called with how many behaviours have been
// tried; it is called from several goroutines.
func Search(o Options, progress func(tried int)) ([]Found, error) {
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	objectives := Objectives()
	list, errs := make([]Found, len(objectives)), make([]error, len(objectives))
	var tried atomic.Int64
	var all sync.WaitGroup
	for i, objective := range objectives {
		all.Go(func() {
			list[i], errs[i] = o.search(objective, rand.New(rand.NewPCG(o.Seed, uint64(i))), func() {
				if n := tried.Add(1); progress != nil {
					progress(int(n))
				}
			})
		})
	}
	all.Wait()
	return list, errors.Join(errs...)
}

func (o *Options) search(objective Objective, rng *rand.Rand, progress func()) (worst Found, err error) {
	var best []Run // of each climb, the worst first
	var at Run
	vain := 0
	for round := range o.Rounds {
		progress()
		begin := round < len(startingPoints) || vain == patience
		var b Behaviour
		switch {
		case round < len(startingPoints):
			b = o.startingPoint(round, rng)
		case begin:
			b = o.draw(rng)
		default:
			b = o.mutate(at.Behaviour, rng)
		}
		if o.Sources != AnySources {
			b.Fresh = o.Sources == Fresh
		}
		r, err := b.run(o.Nodes, sketch, o.Seed)
		if err != nil {
			return worst, fmt.Errorf("worst: run %v: %w", b, err)
		}
		switch enough := r.Requests == sketch; {
		case begin:
			if best = append(best, r); round >= len(startingPoints) || round == 0 || objective.share(&r) > objective.share(&at) {
				at, vain = r, 0
			}
		case enough && objective.share(&r) >= objective.share(&at):
			if objective.share(&r) > objective.share(&at) {
				vain = 0
			}
			at = r
			if len(best) == len(startingPoints) {
				best = append(best, r)
			}
			best[len(best)-1] = r
		default:
			vain++
		}
	}
	worst.Objective = objective
	for range min(finals, len(best)) {
		top := 0
		for i := range best {
			if objective.share(&best[i]) > objective.share(&best[top]) {
				top = i
			}
		}
		r, err := best[top].run(o.Nodes, full, o.Seed+1)
		if err != nil {
			return worst, err
		}
		if best[top].Requests, best[top].LogRecords = 0, 0; r.Requests == full && (worst.Requests == 0 || objective.share(&r) > objective.share(&worst.Run)) {
			worst.Run = r
		}
		best = append(best[:top], best[top+1:]...)
	}
	return worst, nil
}

// Write prints what was found as a table.
func Write(out io.Writer, list []Found) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tworst\tbudget\tby")
	for i := range list {
		f := &list[i]
		mark := ""
		if f.Over() {
			mark = " OVER"
		}
		fmt.Fprintf(t, "%s\t%.3g\t%.3g%s\t%v\n", f.Name, f.Value(&f.Run), f.Budget(&f.Run), mark, &f.Run)
	}
	return t.Flush()
}
