package simulate

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/cmd/internal/virtual"
	"sluice/counter"
	"sluice/edge/limiter"
	"sluice/loadgen/judge"
	"sluice/loadgen/report"
	"sluice/loadgen/workload"
	"sluice/mitigation"
)

// Published judges every rule, and two plain counters, on one calibrated stream of the published
// size, one edge, in estimator mode. Sources are independent, so each core takes the next one and
// needs the memory of one.
func Published(ctx context.Context, name string, scale int, seed uint64,
	rules []mitigation.Rule) ([]*report.Report, error) {
	first := rules[0].Counter
	stream, err := workload.NewPublished(name, scale)
	if err != nil {
		return nil, err
	}
	stream.Seed, stream.Limit, stream.Window = seed, first.Limit, first.Window
	counts := stream.Counts()
	o := judge.Options{Limit: first.Limit, Window: first.Window}

	workers := make([]*publishedWorker, runtime.GOMAXPROCS(0))
	var next, done atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for i := range workers {
		b := newPublishedWorker(o, rules)
		workers[i] = b
		wg.Go(func() {
			for ctx.Err() == nil {
				source := int(next.Add(1)) - 1
				if source >= len(counts) {
					return
				}
				b.source(stream, source, counts[source])
				done.Add(counts[source])
			}
		})
	}
	bar := cli.Progress(int(stream.Requests), name)
	finished := make(chan struct{})
	go func() { wg.Wait(); close(finished) }()
	for tick := time.NewTicker(200 * time.Millisecond); ; {
		select {
		case <-tick.C:
			bar.Set(int(done.Load()))
			continue
		case <-finished:
			tick.Stop()
		}
		break
	}
	bar.Finish()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	took := time.Since(began)

	total := workers[0]
	for _, b := range workers[1:] {
		total.add(b)
	}
	return total.reports(name, seed, rules, took), nil
}

// InOrder is Published with all sources in one table, in the order of time, as an edge has them.
// The table has as many counters for each source as one of a million has for all sources of the
// published size. One core does it, and each source takes a few kilobytes, so it suits a tenth of
// that size.
func InOrder(ctx context.Context, name string, scale int, seed uint64,
	rules []mitigation.Rule) ([]*report.Report, error) {
	first := rules[0].Counter
	stream, err := workload.NewPublished(name, scale)
	if err != nil {
		return nil, err
	}
	stream.Seed, stream.Limit, stream.Window = seed, first.Limit, first.Window
	b := newPublishedWorker(judge.Options{Limit: first.Limit, Window: first.Window}, rules)
	for i := range b.limiters {
		b.limiters[i] = virtual.Alone(max(1_000_000/scale, 100), virtual.Secret.Phase)
	}
	began := time.Now()
	bar := cli.Progress(int(stream.Requests), name+" in order")
	requests := make([]publishedRequest, 0, batch)
	done := 0
	decide := func() {
		b.inOrder(requests)
		done += len(requests)
		bar.Set(done)
		requests = requests[:0]
	}
	for source, at := range stream.InOrder() {
		if requests = append(requests, publishedRequest{int32(source),
			at}); len(requests) == batch {
			if decide(); ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
	}
	decide()
	bar.Finish()
	reports := b.reports(name, seed, rules, time.Since(began))
	for _, r := range reports {
		r.Run.Notes = append(r.Run.Notes, "all sources in one table, in the order of time")
	}
	return reports, nil
}

type publishedRequest struct {
	source int32
	at     time.Duration
}

// inOrder lets every rule, and then the baseline, decide about some requests.
func (b *publishedWorker) inOrder(requests []publishedRequest) {
	for i := range b.rules {
		began := time.Now()
		for _, r := range requests {
			b.ask(i, virtual.SourceKey(r.source), r.source, r.at)
		}
		b.busy[i] += time.Since(began)
	}
	for _, r := range requests {
		estimate, over := b.twin.Estimate(r.source, int64(r.at))
		b.base.Observe(r.source, int64(r.at), estimate, over)
	}
}

// reports is what came of it, a report for each rule.
func (b *publishedWorker) reports(name string, seed uint64, rules []mitigation.Rule,
	took time.Duration) []*report.Report {
	var reports []*report.Report
	base := b.base.Figures()
	for i, r := range rules {
		f := b.judges[i].Figures()
		// On one core, without what making the traffic takes
		f.DecisionsASecond = float64(f.Requests) / b.busy[i].Seconds()
		found := &report.Report{Figures: f, Baseline: &base}
		found.Run = report.Run{
			Command: "simulate", Mode: judge.Estimator.String(), Workload: name, Seed: seed,
			Limit: r.Counter.Limit, Window: report.Seconds(r.Counter.Window),
			SubWindows: r.Counter.SubWindows,
			Estimate:   r.Counter.Estimate.String(), Edges: 1, Took: report.Seconds(took),
			Notes: []string{workload.Calibrated},
		}
		reports = append(reports, found)
	}
	return reports
}

// publishedWorker judges all rules on one source after the other.
type publishedWorker struct {
	rules    []limiter.Rule
	limiters []limiter.Limiter // of each rule
	judges   []*judge.EstimatorJudge
	twin     *judge.TwoCounters
	base     *judge.EstimatorJudge
	arrivals []time.Duration
	decision limiter.Decision
	busy     []time.Duration // of each rule's decisions and their judge
}

func newPublishedWorker(o judge.Options, rules []mitigation.Rule) *publishedWorker {
	b := &publishedWorker{busy: make([]time.Duration, len(rules)), twin: judge.NewTwoCounters(o,
		virtual.Epoch), base: judge.NewEstimatorJudge(o)}
	for _, r := range rules {
		b.rules = append(b.rules, virtual.RuleOf(r, judge.Estimator))
		b.limiters = append(b.limiters, virtual.Alone(100, virtual.Secret.Phase))
		b.judges = append(b.judges, judge.NewEstimatorJudge(o))
	}
	return b
}

// batch is how many requests are made before they are decided, so that the two can be timed apart.
const batch = 4096

func (b *publishedWorker) source(stream workload.Published, source int, n int64) {
	key := virtual.SourceKey(int32(source))
	b.arrivals = b.arrivals[:0]
	for at := range stream.Arrivals(source, n) {
		if b.arrivals = append(b.arrivals, at); len(b.arrivals) == batch {
			b.decide(key)
		}
	}
	b.decide(key)
	if n == 0 {
		return
	}
	for i, r := range b.rules {
		b.limiters[i].Counters.Forget(r.Counter, key)
		b.judges[i].Done(0)
	}
	b.twin.Forget(0)
	b.base.Done(0)
}

// decide lets every rule, and then the baseline, decide about the requests that have gathered.
func (b *publishedWorker) decide(key counter.Source) {
	for i := range b.rules {
		began := time.Now()
		for _, at := range b.arrivals {
			b.ask(i, key, 0, at)
		}
		b.busy[i] += time.Since(began)
	}
	for _, at := range b.arrivals {
		estimate, over := b.twin.Estimate(0, int64(at))
		b.base.Observe(0, int64(at), estimate, over)
	}
	b.arrivals = b.arrivals[:0]
}

// ask lets a rule decide about a request, and its judge judge.
func (b *publishedWorker) ask(rule int, key counter.Source, source int32, at time.Duration) {
	d := &b.decision
	d.Reset()
	d.Add(&b.rules[rule], key)
	b.limiters[rule].Decide(d, virtual.Epoch.Add(at))
	estimate, over := math.NaN(), false
	if ask := d.Results[0].Reservation; ask != nil { // nil: undecided, which the judge shall see
		estimate, over = ask.Estimate, ask.Over
	}
	b.judges[rule].Observe(source, int64(at), estimate, over)
}

func (b *publishedWorker) add(other *publishedWorker) {
	for i := range b.judges {
		b.judges[i].Add(other.judges[i])
		b.busy[i] += other.busy[i]
	}
	b.base.Add(other.base)
}
