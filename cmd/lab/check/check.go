// Package check holds promises of the limiter against running sites: that mitigated sources cost the tier nothing (Quiet), that edges share
// mitigations (Shared), that slow clients, large bodies and too few descriptors take nothing from anybody else
// (Slow, Bodies, Descriptors), that attacks do not hold up operators (Words), that what was rolled back leaves nothing (Rollback), that an
// origin which suffers keeps its critical clients (Shedding), that no window has more than the limit where that is promised (Exact), and that
// edges know how wrong they are (Audit).
package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/process"
	"sluice/loadgen/replay"
	"sluice/loadgen/scrape"
	"sluice/loadgen/trace"
)

// Result is one promise of a limiter, held against a running site: what was seen, and whether that keeps it.
type Result struct {
	Name string
	Seen []string
	Kept bool
}

// See adds a line to what was seen.
func (c *Result) See(format string, args ...any) {
	c.Seen = append(c.Seen, fmt.Sprintf(format, args...))
}

// sources is how many sources a check blocks.
const sources = 20

// Quiet checks that requests of mitigated sources cost the tier nothing: while blocked sources send as fast as the
// edges answer, for the given time, the memcached nodes count not one increment, and no more commands than in as long a time
// when nobody sends. Edges read the mitigation log and tell of their presence all the time, by timers that an idle machine
// runs a little late: a twentieth more is that. The rule's mitigation timeout must be well over three times as long.
func Quiet(ctx context.Context, s *lab.Site, length time.Duration) (*Result, error) {
	c := &Result{Name: "quiet"}
	if len(s.NodeProcesses) == 0 {
		return nil, errors.New("loadgen: check quiet: there is no memcached node to be quiet")
	}
	if s.Rule.MitigationTimeout < 3*length+5*time.Second {
		return nil, fmt.Errorf("loadgen: check quiet: the mitigation timeout is %v: want at least %v", s.Rule.MitigationTimeout, 3*length+5*time.Second)
	}
	s.Log("blocking %d sources", sources)
	if _, err := block(ctx, s, s.Targets); err != nil {
		return nil, err
	}
	if err := everyEdgeKnows(ctx, s, sources); err != nil {
		return nil, err
	}
	if err := EverythingReported(ctx, s); err != nil {
		return nil, err
	}

	phase := func(what string, during func() error) ([]lab.NodeDelta, error) {
		s.Log("%s for %v", what, length)
		before := s.NodeStats()
		if err := during(); err != nil {
			return nil, err
		}
		out := lab.Delta(before, s.NodeStats())
		for _, n := range out {
			if n.Err != nil {
				return nil, fmt.Errorf("loadgen: check quiet: %w", n.Err)
			}
		}
		return out, nil
	}
	idle := func() error { return process.Pause(ctx, length) }
	first, err := phase("nobody sends", idle)
	if err != nil {
		return nil, err
	}
	var out *replay.Outcome
	attack, err := phase("only blocked sources send, as fast as they can,", func() (err error) {
		out, err = storm(ctx, s, length)
		return err
	})
	if err != nil {
		return nil, err
	}
	second, err := phase("nobody sends", idle)
	if err != nil {
		return nil, err
	}
	others := 0
	for _, d := range out.Decisions {
		if d.Verdict != judge.Mitigated {
			others++
		}
	}
	c.See("%d requests of %d mitigated sources in %v (%.0f/s), %d of them not refused by the mitigation", len(out.Decisions),
		sources, length, float64(len(out.Decisions))/length.Seconds(), others)
	c.Kept = others == 0 && len(out.Decisions) > 0
	for i, n := range s.NodeProcesses {
		busy, quiet := attack[i].Stats, max(first[i].Stats.Commands(), second[i].Stats.Commands())
		c.See("%s: %d commands while they sent, %d of them increments; %d and %d in as long a time when nobody sent", n.Name,
			busy.Commands(), busy.Increments(), first[i].Stats.Commands(), second[i].Stats.Commands())
		c.Kept = c.Kept && busy.Increments() == 0 && busy.Commands() <= quiet+quiet/20+uint64(len(s.EdgeProcesses))
	}
	return c, nil
}

// Shared checks that the edges of the first PoP share their mitigations: sources that were blocked by its first
// edge are refused by every other edge on their first request there, so long after the block began.
func Shared(ctx context.Context, s *lab.Site, after time.Duration) (*Result, error) {
	c := &Result{Name: "shared", Kept: true}
	edges := s.Targets[0]
	if len(edges) < 2 || len(s.NodeProcesses) == 0 {
		return nil, errors.New("loadgen: check shared: want at least two edges and a memcached node")
	}
	s.Log("blocking %d sources on edge/0", sources)
	began, err := block(ctx, s, [][]netip.AddrPort{{edges[0]}})
	if err != nil {
		return nil, err
	}
	s.Log("and asking the other edges %v later", after)
	outs, errs := make([]*replay.Outcome, len(edges)), make([]error, len(edges))
	var all sync.WaitGroup
	for i := 1; i < len(edges); i++ {
		all.Go(func() {
			t := &trace.Trace{Name: "check", Sources: make([]trace.Source, sources)}
			now := time.Now()
			for source, at := range began {
				t.Requests = append(t.Requests, trace.Request{At: max(at.Add(after).Sub(now), 0), Source: int32(source)})
			}
			trace.Sort(t)
			outs[i], errs[i] = replay.Replay{PoPs: [][]netip.AddrPort{{edges[i]}}, Carrier: s.Carrier}.Run(ctx, t)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i := 1; i < len(edges); i++ {
		refused, mitigated, latest := 0, 0, time.Duration(0)
		for _, d := range outs[i].Decisions {
			switch d.Verdict {
			case judge.Mitigated:
				mitigated++
				refused++
			case judge.Limited: // it knew the count, and not yet the block
				refused++
			}
			latest = max(latest, outs[i].Start.Add(d.At).Sub(began[d.Source]))
		}
		c.See("edge/%d refused the first request of %d of %d sources, made %v to %v after edge/0 had blocked them; %d of them by the block, the others by the count",
			i, refused, sources, after, latest.Round(time.Millisecond), mitigated)
		c.Kept = c.Kept && refused == sources
	}
	return c, nil
}

// block sends more than the limit of every source, within a tenth of a second, and tells when each was refused first.
func block(ctx context.Context, s *lab.Site, pops [][]netip.AddrPort) ([]time.Time, error) {
	t := &trace.Trace{Name: "check", Sources: make([]trace.Source, sources)}
	each := int(s.Rule.Limit)*3/2 + 5
	for i := range each {
		for source := range sources {
			at := time.Duration(i) * 100 * time.Millisecond / time.Duration(each)
			t.Requests = append(t.Requests, trace.Request{At: at, Source: int32(source)})
		}
	}
	out, err := replay.Replay{PoPs: pops, Carrier: s.Carrier}.Run(ctx, t)
	if err != nil {
		return nil, err
	}
	began := make([]time.Time, sources)
	for _, d := range out.Decisions {
		if began[d.Source].IsZero() && (d.Verdict == judge.Limited || d.Verdict == judge.Mitigated) {
			began[d.Source] = out.Start.Add(d.At)
		}
	}
	for source, at := range began {
		if at.IsZero() {
			return nil, fmt.Errorf("loadgen: %s sent %d requests at a limit of %d and was not refused; client errors: %d (%s)",
				out.Addresses[source], each, s.Rule.Limit, out.ClientErrors(), out.Trouble())
		}
	}
	return began, nil
}

// everyEdgeKnows waits until every edge holds that many mitigations.
func everyEdgeKnows(ctx context.Context, s *lab.Site, n int) error {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, e := range s.EdgeProcesses {
		held := -1
		for range 600 { // 30 s
			var list lab.Mitigations
			if err := scrape.Get(ctx, client, e.Admin, "/v1/mitigations", scrape.JSON(&list)); err != nil {
				return fmt.Errorf("loadgen: ask %s for its mitigations: %w", e.Name, err)
			}
			if held = len(list); held >= n {
				break
			}
			if err := process.Pause(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
		if held < n {
			return fmt.Errorf("loadgen: %s holds %d mitigations after 30s, want %d", e.Name, held, n)
		}
	}
	return nil
}

// EverythingReported waits until no edge has hits that the tier has not been told of. An edge may keep a few of a source back
// until their sub-windows are over.
func EverythingReported(ctx context.Context, s *lab.Site) error {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for quiet := 0; quiet < 10; quiet++ {
		if err := process.Pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		m, err := s.Settle(ctx, client)
		if err != nil {
			return err
		}
		if m.Sum("sluice_unreported_hits") > 0 {
			quiet = -1
		}
	}
	return nil
}

// storm has the check's sources send as fast as they are answered.
func storm(ctx context.Context, s *lab.Site, length time.Duration) (*replay.Outcome, error) {
	const most = 1_000_000 // requests: more than any machine of today sends in so short a time
	trace := &trace.Trace{Name: "check", Sources: make([]trace.Source, sources), Requests: make([]trace.Request, most)}
	for i := range trace.Requests {
		trace.Requests[i].Source = int32(i % sources)
	}
	brief, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	out, err := replay.Replay{PoPs: s.Targets, Carrier: s.Carrier, PerConnection: math.MaxInt, MaxPerSource: 4}.Run(brief, trace)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return out, err
}

// Serve is an origin on a free port of 127.0.0.1, until it is closed.
func Serve(answer http.HandlerFunc) (*http.Server, netip.AddrPort, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, netip.AddrPort{}, fmt.Errorf("loadgen: the origin of a check: %w", err)
	}
	s := &http.Server{Handler: answer, ErrorLog: log.New(io.Discard, "", 0)} // the clients see what fails
	go s.Serve(ln)
	return s, ln.Addr().(*net.TCPAddr).AddrPort(), nil
}

// WriteTo writes the check for people.
func (c *Result) WriteTo(w io.Writer) (int64, error) {
	text := "check " + c.Name + ": kept\n"
	if !c.Kept {
		text = "check " + c.Name + ": NOT KEPT\n"
	}
	for _, line := range c.Seen {
		text += "  " + line + "\n"
	}
	n, err := io.WriteString(w, text)
	return int64(n), err
}
