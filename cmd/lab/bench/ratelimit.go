package bench

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"sluice/loadgen/process"
)

// RateLimit measures what it costs to ask whether somebody may go on: a call of Envoy's rate limit
// service at the edge and at envoyproxy/ratelimit, and POST /v1/limit at the edge. Each has a
// memcached of its own that is started anew for every measurement: one at a time, round after
// round, to and fro. The server has one processor to itself; load and memcached share another.
type RateLimit struct {
	Sluice string // the edge's executable
	Peer   string // that of envoyproxy/ratelimit
	Rounds int
	For    time.Duration // of a measurement
	Conns  int
	Calls  int // at once on each connection
	Users  int
	Works  []string     // names of RateLimitWorks
	Say    func(string) // progress
	*bed
	free []netip.AddrPort
}

// RateLimitWorks are what is asked: calls that are admitted, and calls over the limit.
var RateLimitWorks = []string{"admit", "refuse"}

// asked is what is measured: a server, and how it is asked.
type asked int

const (
	overGRPC asked = iota // the edge's rate_limit_service
	// The edge's limit_api, over HTTP/1.1, which has a connection for each call at once
	overHTTP
	peer // envoyproxy/ratelimit, over gRPC
	allAsked
)

func (a asked) String() string {
	return [allAsked]string{"sluice over gRPC", "sluice over HTTP", "envoyproxy/ratelimit"}[a]
}

// RateLimitFigures is what a call cost in one kind of work: medians over the rounds, in seconds of
// processor time, those of memcached included.
type RateLimitFigures struct {
	Work   string  `json:"work"`
	Sluice float64 `json:"cpu_per_call"`
	HTTP   float64 `json:"cpu_per_call_over_http"`
	Peer   float64 `json:"cpu_per_call_of_envoyproxy_ratelimit"`
	// Sluice's over gRPC to the peer's: the median of those within a round
	Ratio     float64   `json:"ratio"`
	HTTPRatio float64   `json:"ratio_over_http"`
	Ratios    []float64 `json:"ratio_by_round"`

	SluiceTier float64 `json:"cpu_of_tier"`
	HTTPTier   float64 `json:"cpu_of_tier_over_http"`
	PeerTier   float64 `json:"cpu_of_tier_of_envoyproxy_ratelimit"`
	SluiceRate float64 `json:"calls_per_second"`
	HTTPRate   float64 `json:"calls_per_second_over_http"`
	PeerRate   float64 `json:"calls_per_second_of_envoyproxy_ratelimit"`
	// The largest share of answers, of any, that were not what the work is about
	Wrong float64 `json:"wrong"`

	rounds [allAsked][]callCost
}

// callCost is one measurement.
type callCost struct{ cpu, tier, rate, wrong float64 }

// Run measures all in every work.
func (b RateLimit) Run(ctx context.Context) (figures []RateLimitFigures, err error) {
	if b.bed, err = makeBed(ctx, "bench-rls", ""); err != nil {
		return nil, err
	}
	defer b.stop()
	for _, work := range b.Works {
		f := RateLimitFigures{Work: work}
		err := interleave(b.Rounds, int(allAsked), func(round, i int) error {
			a := asked(i)
			m, err := b.measure(ctx, work, a)
			if err != nil {
				return err
			}
			f.rounds[a] = append(f.rounds[a], m)
			b.Say(fmt.Sprintf("round %d of %d: %s, %s: %.1f µs of processor time a call, %.0f calls/s", round+1, b.Rounds, a, work, m.cpu*1e6, m.rate))
			return nil
		})
		if err != nil {
			return nil, err
		}
		figures = append(figures, f.settled())
	}
	return figures, nil
}

// settled makes medians of the rounds.
func (f RateLimitFigures) settled() RateLimitFigures {
	median := func(of func(i int) float64) float64 { return medianOf(len(f.rounds[peer]), of) }
	of := func(a asked) (cpu, tier, rate, ratio float64) {
		m := f.rounds[a]
		return median(func(i int) float64 { return m[i].cpu }),
			median(func(i int) float64 { return m[i].tier }),
			median(func(i int) float64 { return m[i].rate }),
			median(func(i int) float64 { return m[i].cpu / f.rounds[peer][i].cpu })
	}
	f.Sluice, f.SluiceTier, f.SluiceRate, f.Ratio = of(overGRPC)
	f.HTTP, f.HTTPTier, f.HTTPRate, f.HTTPRatio = of(overHTTP)
	f.Peer, f.PeerTier, f.PeerRate, _ = of(peer)
	for i, m := range f.rounds[overGRPC] {
		f.Ratios = append(f.Ratios, m.cpu/f.rounds[peer][i].cpu)
	}
	for _, ms := range f.rounds {
		for _, m := range ms {
			f.Wrong = max(f.Wrong, m.wrong)
		}
	}
	return f
}

// WriteRateLimit prints figures as a table.
func WriteRateLimit(w io.Writer, figures []RateLimitFigures) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t,
		"work\tsluice gRPC µs\tof it memcached\tcalls/s\tsluice HTTP µs\tof it memcached\tcalls/s\tenvoyproxy/ratelimit µs\tof it memcached\tcalls/s\tratio gRPC\tratio HTTP\twrong\t")
	for _, f := range figures {
		fmt.Fprintf(t,
			"%s\t%.1f\t%.1f\t%.0f\t%.1f\t%.1f\t%.0f\t%.1f\t%.1f\t%.0f\t%.3f\t%.3f\t%.2g\t\n",
			f.Work, f.Sluice*1e6, f.SluiceTier*1e6, f.SluiceRate,
			f.HTTP*1e6, f.HTTPTier*1e6, f.HTTPRate, f.Peer*1e6, f.PeerTier*1e6, f.PeerRate, f.Ratio,
			f.HTTPRatio, f.Wrong)
	}
	return t.Flush()
}

// measure runs one of them in one work.
func (b *RateLimit) measure(ctx context.Context, work string, a asked) (m callCost, err error) {
	if b.free, err = process.FreeAddresses(5); err != nil {
		return m, err
	}
	node, stop, err := launchMemcached(ctx, b.free[1])
	if err != nil {
		return m, err
	}
	defer stop()
	server, err := b.server(work, a)
	if err != nil {
		return m, err
	}
	if stop, err = launchAlone(ctx, server, b.free[0].String()); err != nil {
		return m, err
	}
	defer stop()
	callers, closeAll, err := b.callers(b.free[0].String(), work, a)
	if err != nil {
		return m, err
	}
	defer closeAll()
	return b.load(ctx, callers, server, node)
}

// server is the edge or its peer, with one rule about a user: a limit that nobody reaches, or one
// that all are over.
func (b *RateLimit) server(work string, a asked) (*process.Process, error) {
	limit := 1_000_000_000
	if work == "refuse" {
		limit = 1
	}
	n, host := b.free, "127.0.0.1"
	if a != peer {
		service, of := "rate_limit_service",
			"match: {descriptors: {domain: bench, entries: [{key: user}]}}"
		if a == overHTTP {
			service, of = "limit_api", "key: \"header:X-User\""
		}
		text := fmt.Sprintf("listen: %s\nadmin: %s\n%s: {listen: \"%s\"}\npop: {name: bench, memcached: [\"%s\"]}\nrules: [{name: user, %s, limit: %d, window: 1h}]\n",
			n[2], n[3], service, n[0], n[1], of, limit)
		return b.bed.server("sluice", b.Sluice, text)
	}
	folder := filepath.Join(b.dir, "peer", "config")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("loadgen: bench-rls: %w", err)
	}
	text := fmt.Sprintf("domain: bench\ndescriptors:\n  - key: user\n    rate_limit: {unit: hour, requests_per_unit: %d}\n", limit)
	if _, err := b.file("peer/config/config.yaml", text); err != nil {
		return nil, err
	}
	env, err := process.Find("env", "it comes with coreutils")
	if err != nil {
		return nil, err
	}
	// Idle connections for all calls at once, nothing traced, no statsd: the cheapest that it can
	// be set to
	return &process.Process{Name: "envoyproxy/ratelimit", Path: env, Args: []string{
		"BACKEND_TYPE=memcache", "MEMCACHE_HOST_PORT=" +
			n[1].String(), fmt.Sprintf("MEMCACHE_MAX_IDLE_CONNS=%d", b.Conns*b.Calls),
		"USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=ERROR", "RUNTIME_ROOT=" +
			filepath.Dir(folder), "RUNTIME_SUBDIRECTORY=", "RUNTIME_WATCH_ROOT=false",
		"HOST=" + host, fmt.Sprint("PORT=", n[2].Port()), "DEBUG_HOST=" +
			host, fmt.Sprint("DEBUG_PORT=", n[3].Port()), "GRPC_HOST=" +
			host, fmt.Sprint("GRPC_PORT=", n[0].Port()), b.Peer}}, nil
}

// A caller asks about the i-th user, over its own connection or with others over one, and returns
// whether the answer is what the work is about.
type caller func(ctx context.Context, i int) (right bool, err error)

// load calls a server for a while, after all users have been there, and returns what a call cost.
func (b *RateLimit) load(ctx context.Context, callers []caller, server,
	node *process.Process) (m callCost, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var next, done, wrong atomic.Int64
	var running sync.WaitGroup
	failed := make(chan error, 1)
	for _, call := range callers {
		running.Go(func() {
			for ctx.Err() == nil {
				right, err := call(ctx, int(next.Add(1))%b.Users)
				switch {
				case ctx.Err() != nil:
					return
				case err != nil:
					select {
					case failed <- err:
					default:
					}
					return
				case !right:
					wrong.Add(1)
				}
				done.Add(1)
			}
		})
	}
	defer running.Wait()
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	until := func(enough func() bool) error {
		for !enough() {
			select {
			case err := <-failed:
				return fmt.Errorf("loadgen: bench-rls: %s: %w; it said: %s", server.Name, err,
					server.Output())
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
			}
		}
		return nil
	}
	// All have had what they are admitted
	if err := until(func() bool { return done.Load() > int64(3*b.Users) }); err != nil {
		return m, err
	}
	began, n, w := time.Now(), done.Load(), wrong.Load()
	before, err := spent(server, node)
	if err != nil {
		return m, err
	}
	if err := until(func() bool { return time.Since(began) >= b.For }); err != nil {
		return m, err
	}
	after, err := spent(server, node)
	took, calls := time.Since(began).Seconds(), float64(done.Load()-n)
	cost, tier := after[0]-before[0], after[1]-before[1]
	return callCost{cpu: (cost + tier).Seconds() / calls, tier: tier.Seconds() / calls,
		rate: calls / took, wrong: float64(wrong.Load()-w) / calls}, err
}
