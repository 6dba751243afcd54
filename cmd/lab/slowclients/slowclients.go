// Package slowclients holds against running edges that clients which do next to nothing take nothing from one that does (Check),
// and those that do nothing no descriptor that an edge needs (Descriptors).
package slowclients

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"sluice/cmd/lab/check"
	"sluice/loadgen/lab"
	"sluice/loadgen/process"
	"sluice/loadgen/replay"
	"sluice/loadgen/socket"
)

// A Scale is how large Check is. Its limits must be those of the edge.
type Scale struct {
	Connections   int // slow ones of each kind
	Flood         int // connections that one source opens
	PerSource     int // of which it may keep so many
	HeaderTimeout time.Duration
	IdleTimeout   time.Duration
	Timed         bool // there are enough requests for a p99, and it decides too
}

// Scales are the full form of Slow and a short one, of some seconds.
func Scales(short bool) Scale {
	if short {
		return Scale{Connections: 200, Flood: 500, PerSource: 100, HeaderTimeout: 500 * time.Millisecond, IdleTimeout: time.Second}
	}
	return Scale{Connections: 4000, Flood: 10_000, PerSource: 1024, HeaderTimeout: 12 * time.Second, IdleTimeout: 12 * time.Second, Timed: true}
}

// Limits are the limits of the edge that goes with it.
func (s Scale) Limits() string {
	return fmt.Sprintf("connections_per_source: %d, header_timeout: %v, idle_timeout: %v", s.PerSource, s.HeaderTimeout, s.IdleTimeout)
}

// slowSlack is by how much a slow connection may outlive its limit: it is seen once a period. What a busy machine is late comes on top.
const slowSlack = 5 * slowPeriod

// tooBusy is a p99 of an ordinary second, at an edge that nobody harms, which says that the machine has something else to do: ten
// times what it is otherwise.
const tooBusy = 50 * time.Millisecond

// mostHarm is how many times as long as elsewhere a regular client may wait beside slow ones.
const mostHarm = 2

// Check checks that clients which do next to nothing take nothing from one that does: while slow connections of each kind stand at the first
// edge, first each from a source of its own and then all from one, a probe client of that edge has no failed request, and while
// they open, stand and end a p99 at most twice that of one which asks an edge that nobody else uses, by turns with it (phasesOf): machine,
// origin and moment are the same for both, and what holds up one and not the other for long is what slow clients do to an edge. Slow heads and
// bodies are answered 408 in time, slow readers cut, and one source keeps no more connections than it may.
func Check(ctx context.Context, s *lab.Site, scale Scale) (*check.Result, error) {
	if len(s.EdgeProcesses) != 2 {
		return nil, fmt.Errorf("loadgen: check slow: %d edges: want one that has slow clients, and one that has none", len(s.EdgeProcesses))
	}
	c := &check.Result{Name: "slow", Kept: true}
	edge := s.EdgeProcesses[0]
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "beside\tended\tafter\tedge's memory\tat most each\trequests\tfailed\tp50\tmax\tother edge's p50\tmax\tworst while\tp99\tother edge's p99")
	row := func(name, ended, after string, memory int64, each string, probes []*probeClient, worst phase) {
		r := probes[0]
		fmt.Fprintf(table, "%s\t%s\t%s\t%d MB\t%s\t%d\t%d", name, ended, after, memory>>20, each, len(r.answers)+r.failed, r.failed)
		for _, r := range probes {
			fmt.Fprintf(table, "\t%v\t%v", quantile(0.5, r.answers).Round(time.Microsecond), quantile(1, r.answers).Round(time.Microsecond))
		}
		fmt.Fprintf(table, "\t%s\t%v\t%v\n", worst.name, worst.with.Round(time.Microsecond), worst.without.Round(time.Microsecond))
	}
	broken := func(format string, args ...any) {
		c.Kept = false
		c.See("BROKEN: "+format, args...)
	}

	s.Log("regular clients alone for %v", scale.HeaderTimeout)
	brief, cancel := context.WithTimeout(ctx, scale.HeaderTimeout)
	alone := runProbes(brief, edge.Addr, s.EdgeProcesses[1].Addr)
	cancel()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	nothing := worstPhase(phasesOf(alone[0].answers, alone[1].answers, scale.HeaderTimeout/3))
	nothing.name = ""
	before := process.Memory(edge.PID())
	row("nobody", "", "", before, "", alone, nothing)
	if alone[0].failed > 0 {
		broken("of a regular client alone %d requests failed: %s", alone[0].failed, alone[0].why)
	}

	many := replay.AddrWalk{Network: 127}
	one := func() netip.Addr { return netip.AddrFrom4([4]byte{127, 9, 9, 9}) }
	attacks := make([]attack, 0, 2*len(kinds())+1)
	for _, from := range []func() netip.Addr{many.Next, one} {
		for _, k := range kinds() {
			attacks = append(attacks, attack{kind: k, most: scale.Connections, source: from})
		}
	}
	// Silent but for a byte: a connection on which nothing at all comes is closed without an answer, as one that is turned away.
	flood := kind{name: "silent ones", begin: "G", held: func(header, _ time.Duration) time.Duration { return header }, ends: slow408}
	attacks = append(attacks, attack{kind: flood, most: scale.Flood, source: one})
	for i, a := range attacks {
		capped := i >= len(kinds())
		limit := a.kind.held(scale.HeaderTimeout, scale.IdleTimeout)
		a.to, a.ramp = edge.Addr, limit/2 // all are there before the first is cut
		name := fmt.Sprintf("%d %s of as many sources", a.most, a.kind.name)
		if capped {
			name = fmt.Sprintf("%d %s of one source", a.most, a.kind.name)
		}
		// Who shares this machine with the edges may do so for a minute, but hardly twice of three times. While it does so much that
		// an edge without slow clients is late as well, there is nothing to be seen.
		late, inTime, busy := 0, 0, 0
		for late < 2 && inTime < late+1 {
			a := a
			s.Log("and beside %s", name)
			probes, memory, err := beside(ctx, s, &a, limit)
			if err != nil {
				return nil, fmt.Errorf("loadgen: check slow: %s: %w", name, err)
			}
			r, other := probes[0], probes[1]
			phases := phasesOf(r.answers, other.answers, a.ramp)
			worst, t := worstPhase(phases), a.tally()
			kept := a.most - t.by[slowRefused]
			each := "" // of what the edge has by now; what an attack made it take it keeps for the next
			if !capped {
				each = fmt.Sprintf("%d KB", (memory-before)/int64(max(kept, 1))>>10)
			}
			row(name, t.String(), fmt.Sprintf("%.1f to %.1f s", t.first.Seconds(), t.last.Seconds()), memory, each, probes, worst)
			if calm := slices.MaxFunc(phases, func(a, b phase) int { return cmp.Compare(a.without, b.without) }).without; scale.Timed && (calm > tooBusy || other.failed > 0) {
				if busy++; busy == 3 {
					return nil, fmt.Errorf("loadgen: check slow: %s: disturbed: this machine is too busy to tell: at an edge without them the p99 is %v, and %d requests failed", name, calm, other.failed)
				}
				continue
			}

			switch {
			case capped && (kept > scale.PerSource || kept < scale.PerSource/2):
				broken("%s: %d of them were kept, want at most %d", name, kept, scale.PerSource)
			case !capped && kept < a.most:
				broken("%s: %d were turned away", name, t.by[slowRefused])
			}
			if t.by[a.kind.ends] != kept {
				broken("%s: %v; want all that were kept %s", name, t, a.kind.ends)
			}
			// The machine is as late with what it has to do as it was with the latest answer of the other edge.
			if t.last > limit+slowSlack+quantile(1, other.answers) {
				broken("%s: one lasted %v where %v is the limit", name, t.last, limit)
			}
			if r.failed > 0 {
				broken("%s: %d requests of the regular client failed: %s", name, r.failed, r.why)
			}
			if !scale.Timed || worst.ratio() <= mostHarm {
				inTime++
				continue
			}
			if late++; late == 2 {
				broken("%s: twice, the regular client's p99 is more than double that of one at an edge without them, here %.1f times it while they are %s", name, worst.ratio(), worst.name)
			}
		}
	}
	table.Flush()
	c.Seen = append(strings.Split(strings.TrimRight(text.String(), "\n"), "\n"), c.Seen...)
	return c, s.Crashed()
}

// beside runs probe clients of both edges beside an attack on the first, and tells how much memory that edge had at most.
func beside(ctx context.Context, s *lab.Site, a *attack, limit time.Duration) ([]*probeClient, int64, error) {
	during, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan []*probeClient)
	go func() { done <- runProbes(during, a.to, s.EdgeProcesses[1].Addr) }()
	peak := make(chan int64)
	go func() { peak <- check.PeakMemory(during, s.EdgeProcesses[0].PID()) }()
	begin := time.Now()
	err := a.run(ctx, a.ramp+4*limit+slowSlack) // all have ended before that
	if err == nil {
		err = process.Pause(ctx, time.Until(begin.Add(3*a.ramp))) // they may have ended soon, but each phase is as long
	}
	cancel()
	probes, memory := <-done, <-peak
	if errors.Is(err, socket.ErrExhausted) {
		err = fmt.Errorf("%w: raise the limit of open files (ulimit -n) beyond %d", err, 2*a.most+500)
	}
	return probes, memory, err
}
