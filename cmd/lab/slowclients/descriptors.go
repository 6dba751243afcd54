package slowclients

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"sluice/cmd/lab/check"
	"sluice/loadgen/lab"
	"sluice/loadgen/process"
	"sluice/loadgen/replay"
	"sluice/loadgen/scrape"
)

const (
	// FewDescriptors is how many files an edge may open for Descriptors.
	FewDescriptors = 256
	// idleConnections is how many idle connections it then gets.
	idleConnections = 1000
	// soon is within what time an edge is to serve again once it can.
	soon = time.Second
)

// Descriptors checks that an edge which may open few files survives what takes all of them: first many idle connections,
// then a limit on what it has open at that moment, so that it cannot accept at all. Its operators are answered all the while,
// in the second case on connections that they have, and other clients are served within a second of relief.
func Descriptors(ctx context.Context, s *lab.Site) (*check.Result, error) {
	c := &check.Result{Name: "descriptors", Kept: true}
	edge := s.EdgeProcesses[0]
	sources := replay.AddrWalk{Network: 127}
	idle := kind{name: "idle", begin: "GET / HTTP/1.1\r\nHost: idle\r\n\r\n"}

	s.Log("%d idle connections to an edge that may open %d files", idleConnections, FewDescriptors)
	many := &attack{kind: idle, to: edge.Addr, most: idleConnections, ramp: slowPeriod, source: sources.Next}
	operator := operate(ctx, s, true)
	if err := many.run(ctx, 4*slowPeriod); err != nil { // it closes them at its end
		operator.stop()
		return nil, fmt.Errorf("loadgen: check descriptors: %w", err)
	}
	again, err := servesWithin(ctx, edge.Addr)
	answered, failed := operator.stop()
	if err != nil {
		return nil, err
	}
	kept := 0
	for i := range many.conns {
		if many.conns[i].outcome == slowOpen {
			kept++
		}
	}
	c.See("%d idle connections from as many sources: the edge kept %d; a new client was served %v after they had gone; operators, each time on a new connection: %d answers, %d failures",
		idleConnections, kept, again.Round(time.Millisecond), answered, failed)
	c.Kept = again <= soon && failed == 0 && answered > 0 && kept > 0 && kept < FewDescriptors

	open, err := process.OpenDescriptors(edge.PID())
	if err != nil {
		return nil, err
	}
	s.Log("and none left to open: a limit of %d", open)
	operator = operate(ctx, s, false)
	if err := operator.first(ctx); err != nil {
		operator.stop()
		return nil, err
	}
	if open, err = process.OpenDescriptors(edge.PID()); err == nil {
		err = process.LimitDescriptors(edge.PID(), open)
	}
	if err != nil {
		operator.stop()
		return nil, err
	}
	many = &attack{kind: idle, to: edge.Addr, most: idleConnections / 10, ramp: slowPeriod, source: sources.Next}
	err = many.run(ctx, 3*slowPeriod)
	if err == nil {
		err = process.LimitDescriptors(edge.PID(), FewDescriptors)
	}
	if err == nil {
		again, err = servesWithin(ctx, edge.Addr)
	}
	answered, failed = operator.stop()
	if err != nil {
		return nil, fmt.Errorf("loadgen: check descriptors: %w", err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	m, err := scrape.MetricsOf(ctx, client, edge.Admin)
	if err != nil {
		return nil, err
	}
	failures := m.Sum("sluice_accept_failures_total")
	c.See("no descriptor left for 3 s: %.0f accepts failed; a new client was served %v after there were some; operators on a kept connection: %d answers, %d failures",
		failures, again.Round(time.Millisecond), answered, failed)
	c.Kept = c.Kept && again <= soon && failed == 0 && answered > 0 && failures > 0
	return c, s.Crashed()
}

// servesWithin is how long it takes until a new client is served.
func servesWithin(ctx context.Context, edge netip.AddrPort) (time.Duration, error) {
	start := time.Now()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	for {
		err := askOnce(client, edge)
		if err == nil {
			return time.Since(start), nil
		}
		if time.Since(start) > 10*soon {
			return 0, fmt.Errorf("loadgen: the edge does not serve %v after relief: %w", 10*soon, err)
		}
		if err := process.Pause(ctx, 5*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// An operator asks an edge whether it is well, twenty times a second.
type operator struct {
	client *http.Client
	edge   netip.AddrPort
	end    context.CancelFunc
	all    sync.WaitGroup

	mu               sync.Mutex
	answered, failed int
}

// operate begins to ask, each time on a new connection or always on the same.
func operate(ctx context.Context, s *lab.Site, fresh bool) *operator {
	ctx, cancel := context.WithCancel(ctx)
	o := &operator{client: &http.Client{Transport: &http.Transport{DisableKeepAlives: fresh}}, edge: s.EdgeProcesses[0].Admin, end: cancel}
	o.all.Go(func() {
		for process.Pause(ctx, 50*time.Millisecond) == nil {
			err := scrape.Get(context.WithoutCancel(ctx), o.client, o.edge, "/healthz", func(io.Reader) error { return nil })
			o.mu.Lock()
			if err != nil {
				o.failed++
			} else {
				o.answered++
			}
			o.mu.Unlock()
		}
	})
	return o
}

// first waits for the first answer.
func (o *operator) first(ctx context.Context) error {
	for {
		o.mu.Lock()
		n := o.answered
		o.mu.Unlock()
		if n > 0 {
			return nil
		}
		if err := process.Pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

func (o *operator) stop() (answered, failed int) {
	o.end()
	o.all.Wait()
	o.client.CloseIdleConnections()
	return o.answered, o.failed
}
