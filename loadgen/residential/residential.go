// Package residential judges what a limit does to a scraper that comes from many homes, and to the
// visitors beside it.
//
// A rule is about heavy pages. It counts their requests by something that many clients share, or by
// their source (Key), and refuses who is over, or challenges (Answer): then whoever runs the script
// of the page asks again, with a pass, and is counted by that alone under a limit of its own. Who
// does not run it is not served. The limiters are handed in as functions, one for each of the two
// limits.
//
// It is a closed loop: what a client does next depends on its answer. It says nothing about whether
// a scraper runs the script. That is the workload's (workload.ResidentialOptions.Solvers).
package residential

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/trace"
	"sluice/loadgen/workload"
)

// Key is what a rule counts by.
type Key string

const (
	Source  Key = "source"
	Prefix  Key = "/24"
	Network Key = "network"
	Path    Key = "path" // of heavy pages, which is one
	JA4     Key = "ja4"
)

// Answer is what a rule does with who is over.
type Answer string

const (
	Refuse    Answer = "refuse"
	Challenge Answer = "challenge"
)

// A Row is a rule.
type Row struct {
	Key    Key    `json:"key"`
	Answer Answer `json:"answer"`
	Limit  uint32 `json:"limit"`
}

// Rows are the rules that are judged, with these limits.
func Rows(limits map[Key]uint32) (rows []Row) {
	for _, key := range []Key{Source, Prefix, Network, Path, JA4} {
		rows = append(rows, Row{key, Refuse, limits[key]})
	}
	for _, key := range []Key{Network, Path, JA4} {
		rows = append(rows, Row{key, Challenge, limits[key]})
	}
	return rows
}

// Counted is a workload as a rule counts it.
type Counted struct {
	*workload.Residential
	Row   Row
	by    []int32      // for each client, what it counts as
	Trace *trace.Trace // whose sources are what is counted, for who makes a limiter
}

// CountBy has a rule count a workload.
func CountBy(r *workload.Residential, row Row) (*Counted, error) {
	c := &Counted{Residential: r, Row: row, Trace: &trace.Trace{Name: "residential",
		Seed: r.Options.Seed}}
	positions := make(map[any]int32)
	for i := range r.Clients {
		var of any
		switch client := &r.Clients[i]; row.Key {
		case Source:
			of = client.Addr
		case Prefix:
			of = netip.PrefixFrom(client.Addr, 24).Masked()
		case Network:
			of = client.Network
		case Path:
		case JA4:
			of = client.JA4
		default:
			return nil, fmt.Errorf("key %q: there is none of that name", row.Key)
		}
		at, known := positions[of]
		if !known {
			at = int32(len(positions))
			positions[of] = at
			c.Trace.Sources = append(c.Trace.Sources, trace.Source{Name: fmt.Sprint(of)})
		}
		c.by = append(c.by, at)
	}
	return c, nil
}

// Passes is a trace whose sources are those who may hold a pass: one for each client.
func (c *Counted) Passes() *trace.Trace {
	t := &trace.Trace{Name: "passes", Seed: c.Options.Seed}
	t.Sources = make([]trace.Source, len(c.Clients))
	return t
}

// Options says how a run goes.
type Options struct {
	Edges   int
	Window  time.Duration
	Timeout time.Duration // of a block
	PassFor time.Duration
}

// Figures are what a rule has done, before the scraper came as well.
type Figures struct {
	Scraped uint64 `json:"scraped"` // requests of the scraper
	LetIn   uint64 `json:"let_in"`  // of them, answered by the origin
	Solved  uint64 `json:"solved"`  // of these, with a pass

	Heavy   uint64 `json:"heavy"`   // requests of visitors for heavy pages
	Refused uint64 `json:"refused"` // of them, never answered by the origin
	// Of these, of visitors who run scripts
	RefusedWith uint64 `json:"refused_with"`

	Visitors      uint64 `json:"visitors"`        // who requested a heavy page
	Challenged    uint64 `json:"challenged"`      // of them, who got the page once at least
	LockedOut     uint64 `json:"locked_out"`      // who got no heavy page at all
	LockedOutWith uint64 `json:"locked_out_with"` // though they run scripts

	Blocks      uint64             `json:"blocks"`
	TimeToBlock *judge.TimeToBlock `json:"time_to_block,omitempty"` // from the crossing
}

// LetInRatio is the scraper's share that is let in; BesideSolvers that without a pass.
func (f *Figures) LetInRatio() float64 { return judge.Ratio(float64(f.LetIn), f.Scraped) }
func (f *Figures) BesideSolvers() float64 {
	return judge.Ratio(float64(f.LetIn-f.Solved), f.Scraped)
}

// RefusedRatio is the share of visitors' heavy requests that is refused; ChallengedRatio that of
// visitors who are challenged, and LockedOutRatio of those who are locked out.
func (f *Figures) RefusedRatio() float64    { return judge.Ratio(float64(f.Refused), f.Heavy) }
func (f *Figures) ChallengedRatio() float64 { return judge.Ratio(float64(f.Challenged), f.Visitors) }
func (f *Figures) LockedOutRatio() float64  { return judge.Ratio(float64(f.LockedOut), f.Visitors) }

// idleClose is how long a connection lives without a request.
const idleClose = time.Minute

// person is a client as far as it has come.
type person struct {
	pass       time.Duration // its end; 0: none
	edge       int
	last       time.Duration // when it last requested something
	asked      int           // heavy pages
	served     int           // of them
	challenged bool
}

// retry is a request that is made again, with a pass.
type retry struct {
	at     time.Duration
	client int32
}

type retries []retry

func (r retries) Len() int           { return len(r) }
func (r retries) Less(i, j int) bool { return r[i].at < r[j].at }
func (r retries) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *retries) Push(x any)        { *r = append(*r, x.(retry)) }
func (r *retries) Pop() any {
	old := *r
	x := old[len(old)-1]
	*r = old[:len(old)-1]
	return x
}

// Run has two limiters decide in virtual time: one by the rule's key, one by passes.
func (c *Counted) Run(ctx context.Context, o Options, rule, passes judge.Limiter) (Figures, error) {
	run := &run{Counted: c, o: o, rule: rule, passes: passes,
		rng:    rand.New(rand.NewPCG(c.Options.Seed, 3)),
		people: make([]person, len(c.Clients)),
		judge: judge.NewDeployedJudge(judge.Options{Limit: c.Row.Limit, Window: o.Window,
			Timeout: o.Timeout, Edges: o.Edges})}
	for i, v := range c.Requests {
		if i&0xfff == 0 && ctx.Err() != nil {
			return Figures{}, ctx.Err()
		}
		for len(run.again) > 0 && run.again[0].at <= v.At {
			again := heap.Pop(&run.again).(retry)
			run.request(again.at, again.client, true)
		}
		if v.Heavy {
			run.request(v.At, v.Client, false)
		}
	}
	for len(run.again) > 0 {
		again := heap.Pop(&run.again).(retry)
		run.request(again.at, again.client, true)
	}
	return run.figures(), nil
}

type run struct {
	*Counted
	o            Options
	rule, passes judge.Limiter
	rng          *rand.Rand
	people       []person
	again        retries
	judge        *judge.DeployedJudge
	f            Figures
}

// request is one for a heavy page; again, because it was challenged.
func (r *run) request(at time.Duration, client int32, again bool) {
	p, is := &r.people[client], &r.Clients[client]
	advance(r.rule, at)
	advance(r.passes, at)
	r.learn()
	if p.last == 0 || at-p.last > idleClose {
		p.edge = r.rng.IntN(r.o.Edges)
	}
	p.last = at
	if !again {
		p.asked++
	}
	with := p.pass > at
	var admitted bool
	if with {
		d := r.passes.Decide(p.edge, client)
		admitted = d.Verdict == judge.Admitted
	} else {
		d := r.rule.Decide(p.edge, r.by[client])
		d.At, d.Source, d.Edge = at, r.by[client], int16(p.edge)
		r.judge.Decide(&d)
		admitted = d.Verdict == judge.Admitted
		r.learn()
	}
	switch {
	case admitted:
		p.served++
		if is.Scraper {
			r.f.LetIn++
			if with {
				r.f.Solved++
			}
		}
	case !with && r.Row.Answer == Challenge:
		p.challenged = true
		if is.Script {
			// Half a second and more, for the way there and back, and the work
			wait := 500*time.Millisecond + time.Duration(r.rng.Int64N(int64(time.Second)))
			p.pass = at + r.o.PassFor
			heap.Push(&r.again, retry{at + wait, client})
		}
	}
}

func advance(l judge.Limiter, at time.Duration) {
	if l.Advance != nil {
		l.Advance(at)
	}
}

// learn notes which blocks have come into force.
func (r *run) learn() {
	for _, f := range r.rule.InForce() {
		r.judge.InForce(f)
	}
	if r.passes.InForce != nil {
		r.passes.InForce() // so that they do not gather
	}
}

func (r *run) figures() Figures {
	f := &r.f
	for i := range r.people {
		p, is := &r.people[i], &r.Clients[i]
		switch {
		case p.asked == 0:
		case is.Scraper:
			f.Scraped += uint64(p.asked)
		default:
			f.Visitors++
			f.Heavy += uint64(p.asked)
			f.Refused += uint64(max(p.asked-p.served, 0))
			if is.Script {
				f.RefusedWith += uint64(max(p.asked-p.served, 0))
			}
			if p.challenged {
				f.Challenged++
			}
			if p.served == 0 {
				f.LockedOut++
				if is.Script {
					f.LockedOutWith++
				}
			}
		}
	}
	judged := r.judge.Figures()
	f.Blocks, f.TimeToBlock = judged.Blocks, judged.TimeToBlock
	if f.TimeToBlock == nil {
		f.TimeToBlock = judged.TimeToBlockExact
	}
	return *f
}
