// Package flood measures what new connections of blocked sources cost a server, and what they do to another client: at the edge, which answers
// them, closes them when they come or has the kernel refuse them, and beside it at nginx and HAProxy, which are told whom to refuse. It must run
// in a network of its own, in which clients may have any of the addresses that cmd/internal/namespace gives it.
package flood

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"time"

	"sluice/loadgen/process"
)

// Ways are what becomes of a connection.
var Ways = []string{"answer", "connection", "kernel", "nginx 444", "haproxy reject"}

const (
	server = "198.18.0.1" // of every server
	calm   = "198.18.0.9" // the client beside the flood
)

// Floods says what is measured.
type Floods struct {
	Ways         []string
	Rounds       int
	For          time.Duration // of a flood
	Sources      int           // blocked ones; each has an address of its own
	Rate         int           // connections a second, of all together
	Sluice, Wall string        // paths of the edge and of its helper
	Say          func(string)

	dir    string
	origin string
}

// Figures are of one way, medians of the rounds. Times are in seconds.
type Figures struct {
	Way     string  `json:"way"`
	Rate    float64 `json:"rate"`    // connections a second that were made
	CPU     float64 `json:"cpu"`     // processor time of the server for each, beside what the other client takes
	Helper  float64 `json:"helper"`  // and of sluice-wall
	Refused float64 `json:"refused"` // share of them that the kernel refused: no server heard of them
	Calm    float64 `json:"calm"`    // p99 of the other client without the flood
	P99     float64 `json:"p99"`     // and with it
	Failed  float64 `json:"failed"`  // of its requests
	Ratio   float64 `json:"ratio"`   // of the two
}

// Run measures all ways by turns, and returns the medians.
func (f Floods) Run(ctx context.Context) (all []Figures, err error) {
	if f.dir, err = os.MkdirTemp("", "sluice-flood-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(f.dir)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f.origin = ln.Addr().String()
	origin := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })}
	go func() { _ = origin.Serve(ln) }()
	defer origin.Close()
	rounds := make(map[string][]Figures)
	for round := range f.Rounds {
		for _, way := range f.Ways {
			f.Say(fmt.Sprintf("round %d of %d: %s", round+1, f.Rounds, way))
			one, err := f.measure(ctx, way)
			if err != nil {
				return nil, fmt.Errorf("flood: %s: %w", way, err)
			}
			rounds[way] = append(rounds[way], one)
		}
	}
	for _, way := range f.Ways {
		all = append(all, median(rounds[way]))
	}
	return all, nil
}

// median is that of each figure by itself.
func median(list []Figures) (m Figures) {
	of := func(figure func(*Figures) *float64) {
		var values []float64
		for i := range list {
			values = append(values, *figure(&list[i]))
		}
		slices.Sort(values)
		*figure(&m) = values[len(values)/2]
	}
	m.Way = list[0].Way
	for _, figure := range []func(*Figures) *float64{
		func(f *Figures) *float64 { return &f.Rate }, func(f *Figures) *float64 { return &f.CPU }, func(f *Figures) *float64 { return &f.Helper },
		func(f *Figures) *float64 { return &f.Refused }, func(f *Figures) *float64 { return &f.Calm }, func(f *Figures) *float64 { return &f.P99 },
		func(f *Figures) *float64 { return &f.Failed }, func(f *Figures) *float64 { return &f.Ratio },
	} {
		of(figure)
	}
	return m
}

// measure floods one server once.
func (f *Floods) measure(ctx context.Context, way string) (one Figures, err error) {
	to := netip.AddrPortFrom(netip.MustParseAddr(server), 8080)
	main, helper, err := f.start(ctx, way, to)
	if err != nil {
		return one, err
	}
	defer func() {
		main.Stop(2 * time.Second)
		if helper != nil {
			helper.Stop(2 * time.Second)
		}
	}()
	c := client{to: to, rate: f.Rate, sources: f.Sources}
	neighbour := newNeighbour(to)
	defer neighbour.end()
	neighbour.ask(ctx, f.For/10)
	begin, err := costs(main, helper)
	if err != nil {
		return one, err
	}
	without := neighbour.ask(ctx, f.For/2) // nobody is blocked yet: what a block costs is the flood's
	calmed, err := costs(main, helper)
	if err != nil {
		return one, err
	}
	if way == "answer" || way == "connection" || way == "kernel" {
		if err := c.block(ctx); err != nil {
			return one, err
		}
		for range 20 { // the kernel is told of those that connect again: until it has been told of all
			if n := c.flood(ctx, 2*time.Second); way != "kernel" || n.refused == n.made {
				break
			}
		}
	}
	before, err := costs(main, helper)
	if err != nil {
		return one, err
	}
	flooded := make(chan counts)
	go func() { flooded <- c.flood(ctx, f.For) }()
	with := neighbour.ask(ctx, f.For)
	n := <-flooded
	after, err := costs(main, helper)
	if err := errors.Join(err, ctx.Err(), main.Crashed()); err != nil {
		return one, fmt.Errorf("%w: %s", err, main.Output())
	}
	if n.made == 0 || without.asked == without.failed {
		return one, fmt.Errorf("%d connections were made, and %d of %d requests failed without them: %s", n.made, without.failed, without.asked, main.Output())
	}
	if n.admitted > 0 {
		return one, fmt.Errorf("%d connections of blocked sources were served", n.admitted)
	}
	made := float64(n.made)
	cost := func(i int) float64 { // beside what the other client's requests take
		each := (calmed[i] - begin[i]).Seconds() / float64(without.asked)
		return ((after[i] - before[i]).Seconds() - each*float64(with.asked)) / made
	}
	return Figures{Way: way, Rate: made / f.For.Seconds(), CPU: cost(0), Helper: cost(1),
		Refused: float64(n.refused) / made, Calm: without.p99.Seconds(), P99: with.p99.Seconds(), Failed: float64(with.failed),
		Ratio: with.p99.Seconds() / without.p99.Seconds()}, nil
}

// costs is the processor time that the server and its helper have had.
func costs(main, helper *process.Process) (spent [2]time.Duration, err error) {
	if spent[0], err = process.CPUTime(main.PID()); err != nil || helper == nil {
		return spent, err
	}
	spent[1], err = process.CPUTime(helper.PID())
	return spent, err
}
