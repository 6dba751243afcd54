// Package bench measures what a request costs: at this edge, at others and at the least that a
// proxy can do, side by side (Peers); what attacks on HTTP/2 cost this edge and others
// (HTTP2Attacks); and how many requests the load generator itself sends, and how late (Pace).
package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/cmd/lab/closedloop"
	"sluice/loadgen/process"
)

// Peers measures what edges cost per request, one beside the other: each before the same origin,
// one at a time, round after round so that whatever else the machine does falls on all of them. The
// edge has one processor to itself; load, origin and tier share another.
type Peers struct {
	Sluice  string // the edge's executable
	Before  string // another executable of it, which is measured as the edge Before; "": none
	Self    string // the executable of which "origin" and "bare-proxy" are subcommands
	Rounds  int
	For     time.Duration // of a measurement
	Conns   []int         // connections
	Sources []int
	Edges   []string     // names of PeerNames
	Works   []string     // names of PeerWorks
	Say     func(string) // progress
	*bed
	tier string
	node *process.Process // memcached, at tier
}

// PeerNames are the edges that Peers can measure, and PeerWorks what they can do: with "new" or
// "resumed" over a connection for each request, with "tls" over TLS, whose handshake is a full one
// for each new connection, or resumes the session of another, and with "h2" over HTTP/2, with one
// request at once on a connection, or 16. At rest an edge has no request and no connection, and
// seldom one 20 times a second: its processor time is of a second then.
var (
	PeerNames = []string{"nginx", "haproxy", "caddy", "fasthttp", "sluice off", "sluice",
		"sluice memcached", "nginx 444", "haproxy reject", "sluice shed"}
	PeerWorks = []string{"proxy", "refuse", "refuse new", "proxy tls", "proxy tls new",
		"proxy tls resumed",
		"proxy tls h2", "proxy tls h2 16", "refuse tls h2", "refuse tls h2 16", atRest, seldom}
)

const (
	atRest = "rest"
	seldom = "seldom"
)

// Before is the edge before a change, measured beside what it became.
const Before = "sluice before"

// PeerCase is one thing that edges are compared in.
type PeerCase struct {
	Work    string `json:"work"`
	Conns   int    `json:"connections"`
	Sources int    `json:"sources"`
}

// has reports whether a word is among those of the work.
func (c PeerCase) has(word string) bool { return slices.Contains(strings.Fields(c.Work), word) }

// still reports whether edges have next to nothing to do.
func (c PeerCase) still() bool { return c.Work == atRest || c.Work == seldom }

// streams is how many requests it has at once on a connection of HTTP/2; 0: it is HTTP/1.1.
func (c PeerCase) streams() int {
	switch {
	case c.has("16"):
		return 16
	case c.has("h2"):
		return 1
	}
	return 0
}

// PeerFigures is what one edge showed in one case: medians over the rounds.
type PeerFigures struct {
	PeerCase
	Edge     string  `json:"edge"`
	CPU      float64 `json:"cpu_per_request"` // seconds, those of Tier included
	Tier     float64 `json:"cpu_of_tier"`     // of them memcached's
	Rate     float64 `json:"requests_per_second"`
	P50      float64 `json:"p50"` // seconds
	P99      float64 `json:"p99"`
	Memory   float64 `json:"memory"` // bytes
	Wrong    float64 `json:"wrong"`  // share of answers that were not what the case is about
	ByNginx  float64 `json:"cpu_by_nginx"`
	ByProxy  float64 `json:"cpu_by_haproxy"`
	ByBare   float64 `json:"cpu_by_fasthttp"`
	ByOff    float64 `json:"cpu_by_sluice_off"`
	ByBefore float64 `json:"cpu_by_sluice_before,omitempty"`
	P99Nginx float64 `json:"p99_by_nginx"`
	// Share of its processor that the edge used; well below 1 the load was the slower
	Busy   float64   `json:"busy"`
	AllCPU []float64 `json:"cpu_per_request_by_round"`

	SpreadNginx [2]float64 `json:"cpu_by_nginx_least_and_most"` // over the rounds
	SpreadProxy [2]float64 `json:"cpu_by_haproxy_least_and_most"`
	SpreadBare  [2]float64 `json:"cpu_by_fasthttp_least_and_most"`
	measured    []PeerFigures
}

// Run measures every edge in every case, and returns the figures in the order of cases and edges.
func (p Peers) Run(ctx context.Context) (figures []PeerFigures, err error) {
	if p.bed, err = makeBed(ctx, "bench-peers", p.Self); err != nil {
		return nil, err
	}
	defer p.stop()
	if slices.Contains(p.Edges, "sluice memcached") {
		free, err := process.FreeAddresses(1)
		if err != nil {
			return nil, err
		}
		p.tier = free[0].String()
		node, stop, err := launchMemcached(ctx, free[0])
		if err != nil {
			return nil, err
		}
		defer stop()
		p.node = node
	}
	for _, c := range p.cases() {
		var rows []PeerFigures
		for _, e := range p.Edges {
			if can(e, c) {
				rows = append(rows, PeerFigures{PeerCase: c, Edge: e})
			}
		}
		err := p.rounds(ctx, c, rows, func(round, i int) error {
			f, err := p.measure(ctx, rows[i].Edge, c)
			if err != nil {
				return err
			}
			rows[i].measured = append(rows[i].measured, f)
			p.Say(fmt.Sprintf("round %d of %d: %s, %s, %d connections, %d sources: %.2f µs of processor time a request, %.0f requests/s",
				round+1, p.Rounds, f.Edge, c.Work, c.Conns, c.Sources, f.CPU*1e6, f.Rate))
			return nil
		})
		if err != nil {
			return nil, err
		}
		for i := range rows {
			rows[i].settle()
		}
		compare(rows)
		figures = append(figures, rows...)
	}
	return figures, nil
}

// rounds measures the edges of a case round after round.
func (p *Peers) rounds(ctx context.Context, c PeerCase, rows []PeerFigures,
	measure func(round, i int) error) error {
	if c.still() {
		return p.still(ctx, c, rows)
	}
	return interleave(p.Rounds, len(rows), measure)
}

func (p *Peers) cases() (list []PeerCase) {
	for _, w := range p.Works {
		if c := (PeerCase{Work: w}); c.still() {
			list = append(list, c)
			continue
		}
		for _, n := range p.Conns {
			for _, s := range p.Sources {
				list = append(list, PeerCase{w, n, s})
			}
		}
	}
	return list
}

// closers are edges that close the connection of a refused source in place of an answer, each by
// the means it has: nginx once it has read the request, HAProxy and Sluice when they accept.
var closers = map[string]bool{"nginx 444": true, "haproxy reject": true, "sluice shed": true}

// can reports whether an edge does the work: one without a limiter refuses nobody, and one that
// closes connections keeps none. The baseline has no TLS, and what a rule or a tier adds to a
// request is the same beneath it.
func can(edge string, c PeerCase) bool {
	if closers[edge] {
		return c.Work == "refuse new" && c.Sources == 1
	}
	switch edge {
	case "fasthttp", "sluice memcached":
		return !c.has("tls")
	case "caddy", "sluice off": // Caddy has no limiter of its own
		return c.Work == "proxy" || c.still()
	}
	return true
}

// measure runs one edge in one case.
func (p *Peers) measure(ctx context.Context, edge string, c PeerCase) (f PeerFigures, err error) {
	free, err := process.FreeAddresses(2)
	if err != nil {
		return f, err
	}
	at := free[0].String()
	proc, err := p.edge(edge, at, free[1], c)
	if err != nil {
		return f, err
	}
	stop, err := launchAlone(ctx, proc, at)
	if err != nil {
		return f, err
	}
	defer stop()
	node := p.node
	if edge != "sluice memcached" {
		node = nil
	}
	var before, after []time.Duration
	var cpuErr error
	costs := func() []time.Duration {
		of, err := spent(proc, node)
		cpuErr = errors.Join(cpuErr, err)
		return of
	}
	warm := max(p.For/3, 500*time.Millisecond)
	first := 0
	if c.has("refuse") { // so that all have had what they are admitted
		warm += time.Duration(c.Sources) * 200 * time.Microsecond
		first = 3 * c.Sources
	}
	load := closedloop.Load{Edge: free[0], Conns: c.Conns, Sources: c.Sources,
		Fresh: c.has("new") || c.has("resumed"), Shed: closers[edge],
		Warm: warm, WarmRequests: first, For: p.For, Begun: func() { before = costs() },
		Ended: func() { after = costs() }}
	if c.has("tls") {
		load.TLS = clientTLS(c)
	}
	if load.Streams = c.streams(); load.Streams > 0 {
		load.TLS.NextProtos = []string{"h2"}
	}
	out, err := load.Run(ctx)
	if err = errors.Join(err, cpuErr); err != nil {
		return f, fmt.Errorf("loadgen: %s: %w", edge, err)
	}
	if out.Answers == 0 {
		return f, fmt.Errorf("loadgen: %s answered nothing: %s", edge, proc.Output())
	}
	want := 200
	if c.has("refuse") {
		want = 429
	}
	wrong := out.Answers - out.Shed - out.Statuses[want]
	if c.has("resumed") {
		wrong = max(wrong, out.Answers-out.Resumed)
	}
	n, cost, tier := float64(out.Answers), after[0]-before[0], after[1]-before[1]
	return PeerFigures{
		PeerCase: c, Edge: edge,
		CPU: (cost + tier).Seconds() / n, Tier: tier.Seconds() / n, Rate: n / out.Took.Seconds(),
		Busy:   cost.Seconds() / out.Took.Seconds(),
		P50:    float64(out.Latency.ValueAtQuantile(50)) / 1e9,
		P99:    float64(out.Latency.ValueAtQuantile(99)) / 1e9,
		Memory: float64(process.Memory(proc.PID())),
		Wrong:  float64(wrong+out.Failed) / (n + float64(out.Failed)),
	}, proc.Crashed()
}

// settles is how long an edge at rest is left alone before it is measured: one that has just started
// looks for the others of its PoP.
const settles = 12 * time.Second

// still measures edges that have next to nothing to do, all beside each other over the same
// seconds, so that what else the machine does meets them alike.
func (p *Peers) still(ctx context.Context, c PeerCase, rows []PeerFigures) (err error) {
	free, err := process.FreeAddresses(2 * len(rows))
	if err != nil {
		return err
	}
	edges := make([][]*process.Process, len(rows)) // and the node, nil for most
	for i, f := range rows {
		at := free[2*i]
		proc, err := p.edge(f.Edge, at.String(), free[2*i+1], c)
		if err != nil {
			return err
		}
		stop, err := launchAlone(ctx, proc, at.String())
		if err != nil {
			return err
		}
		defer stop()
		edges[i] = []*process.Process{proc, nil}
		if f.Edge == "sluice memcached" {
			edges[i][1] = p.node
		}
	}
	load, end := context.WithCancel(ctx)
	var loads sync.WaitGroup
	defer loads.Wait()
	defer end()
	if c.Work == seldom {
		for i := range rows {
			loads.Go(func() { restLoad(load, free[2*i], restRate, uint64(i)) })
		}
	}
	if err := wait(ctx, settles); err != nil {
		return err
	}
	spend := func() (all [][]time.Duration, err error) {
		for _, e := range edges {
			of, wrong := spent(e...)
			all, err = append(all, of), errors.Join(err, wrong, e[0].Crashed())
		}
		return all, err
	}
	for round := range p.Rounds {
		before, err := spend()
		if err != nil {
			return err
		}
		began := time.Now()
		if err := wait(ctx, p.For); err != nil {
			return err
		}
		after, err := spend()
		if err != nil {
			return err
		}
		long := time.Since(began).Seconds()
		for i := range rows {
			f, memory := &rows[i], process.Memory(edges[i][0].PID())
			cost := (after[i][0] - before[i][0]).Seconds() / long
			tier := (after[i][1] - before[i][1]).Seconds() / long
			f.measured = append(f.measured, PeerFigures{PeerCase: c, Edge: f.Edge,
				CPU: cost + tier, Tier: tier, Busy: cost, Memory: float64(memory)})
		}
		p.Say(fmt.Sprintf("round %d of %d: %s", round+1, p.Rounds, c.Work))
	}
	return nil
}
