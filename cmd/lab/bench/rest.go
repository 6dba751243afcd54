package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"sluice/loadgen/process"
	"sluice/loadgen/scrape"
)

// Rest measures what an edge costs while hardly anybody asks it: at rest and at a low rate, alone
// and with nodes of memcached. All edges of a case run beside each other and take their figures
// over the same seconds, so what else the machine does meets them alike.
type Rest struct {
	Sluice string
	Before string   // the executable of another edge, to compare with; "": none
	Cases  []string // some of RestCases
	For    time.Duration
	After  time.Duration // from the start, or a block, until a case with nodes is measured
	Rounds int
	Self   string // the executable of which "origin" is a subcommand
	Say    func(string)

	*bed
}

// restCases are by name; see RestCases.
var restCases = []struct {
	name  string
	nodes int
	block bool    // a source was blocked, Rest.After before
	rate  float64 // requests a second
}{
	{name: "alone"},
	{name: "alone at 20/s", rate: restRate},
	{name: "2 nodes", nodes: 2},
	{name: "2 nodes after a block", nodes: 2, block: true},
	{name: "2 nodes at 20/s", nodes: 2, rate: restRate},
	{name: "21 nodes", nodes: 21},
}

// RestCases are the names of all cases.
func RestCases() (names []string) {
	for _, c := range restCases {
		names = append(names, c.name)
	}
	return names
}

// RestFigures is what one edge costs in one case: medians over the rounds.
type RestFigures struct {
	Case string `json:"case"`
	Edge string `json:"edge"`
	// Seconds of processor time in a second, all threads
	CPU      float64 `json:"cpu_per_second"`
	Switches float64 `json:"context_switches_per_second"`
	// At each node, by memcached's own counts
	Commands float64   `json:"node_commands_per_second"` // a get of many keys is one
	Keys     float64   `json:"node_keys_per_second"`     // read and written
	AllCPU   []float64 `json:"cpu_rounds"`
}

// restSources take turns at restRate requests a second, so nobody comes near a limit.
const (
	restSources = 200
	restRate    = 20
)

// Run measures each case.
func (r Rest) Run(ctx context.Context) (figures []RestFigures, err error) {
	dir, err := os.MkdirTemp("", "sluice-rest-")
	if err != nil {
		return nil, fmt.Errorf("loadgen: rest: %w", err)
	}
	r.bed = &bed{dir: dir, stops: []func(){func() { os.RemoveAll(dir) }}}
	defer r.stop()
	free, err := process.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	r.originAt = free[0]
	stop, err := launch(ctx, &process.Process{Name: "origin", Path: r.Self,
		Args: []string{"origin", "--listen", r.origin(), "--size", "1000"}}, r.origin())
	if err != nil {
		return nil, err
	}
	r.stops = append(r.stops, stop)
	for i, c := range restCases {
		if !slices.Contains(r.Cases, c.name) {
			continue
		}
		r.Say(c.name)
		list, err := r.measure(ctx, i)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		figures = append(figures, list...)
	}
	return figures, nil
}

// A restEdge is an edge that is measured, with nodes of its own.
type restEdge struct {
	name  string
	at    netip.AddrPort
	admin netip.AddrPort
	main  *process.Process
	nodes []netip.AddrPort
}

// restCount is what an edge has used so far.
type restCount struct{ cpu, switches, commands, keys float64 }

// measure measures the edges in one case.
func (r *Rest) measure(ctx context.Context, i int) (figures []RestFigures, err error) {
	c := restCases[i]
	var edges []*restEdge
	for _, program := range []struct{ name, path string }{{"sluice", r.Sluice},
		{Before, r.Before}} {
		if program.path == "" {
			continue
		}
		e, stop, err := r.start(ctx, program.name, program.path, c.nodes)
		if err != nil {
			return nil, err
		}
		defer stop()
		edges = append(edges, e)
		figures = append(figures, RestFigures{Case: c.name, Edge: e.name})
	}
	if c.block {
		for _, e := range edges {
			if err := restBlock(ctx, e.at); err != nil {
				return nil, err
			}
		}
	}
	if c.nodes > 0 { // an edge that starts reads more, to find out who is there
		if err := wait(ctx, r.After); err != nil {
			return nil, err
		}
	}
	load, end := context.WithCancel(ctx)
	var loads sync.WaitGroup
	defer loads.Wait()
	defer end()
	if c.rate > 0 {
		for n, e := range edges {
			loads.Go(func() { restLoad(load, e.at, c.rate, uint64(n)) })
		}
	}
	if err := wait(ctx, 3*time.Second); err != nil { // what a start does is over
		return nil, err
	}
	rounds := make([][]restCount, len(edges))
	for range r.Rounds {
		before, began := make([]restCount, len(edges)), time.Now()
		for n, e := range edges {
			before[n], err = e.count(e.countTier, e.countProcess)
			if err != nil {
				return nil, err
			}
		}
		if err := wait(ctx, r.For); err != nil {
			return nil, err
		}
		lasted := time.Since(began).Seconds()
		for n, e := range edges {
			after, err := e.count(e.countProcess, e.countTier)
			if err := errors.Join(err, e.main.Crashed()); err != nil {
				return nil, err
			}
			rounds[n] = append(rounds[n], after.since(before[n], lasted))
		}
	}
	for n := range figures {
		f := &figures[n]
		for _, one := range rounds[n] {
			f.AllCPU = append(f.AllCPU, one.cpu)
		}
		median := func(of func(restCount) float64) float64 {
			return medianOf(r.Rounds, func(i int) float64 { return of(rounds[n][i]) })
		}
		f.CPU = median(func(c restCount) float64 { return c.cpu })
		f.Switches = median(func(c restCount) float64 { return c.switches })
		if of := float64(c.nodes); of > 0 {
			f.Commands = median(func(c restCount) float64 { return c.commands }) / of
			f.Keys = median(func(c restCount) float64 { return c.keys }) / of
		}
	}
	return figures, nil
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// start starts an edge and its nodes.
func (r *Rest) start(ctx context.Context, name, path string, nodes int) (e *restEdge,
	stop func(), err error) {
	free, err := process.FreeAddresses(2 + nodes)
	if err != nil {
		return nil, nil, err
	}
	e = &restEdge{name: name, at: free[0], admin: free[1], nodes: free[2:]}
	var stops []func()
	stop = func() {
		for _, s := range slices.Backward(stops) {
			s()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	var list []string
	for _, at := range e.nodes {
		_, end, err := launchMemcached(ctx, at)
		if err != nil {
			return nil, nil, err
		}
		stops, list = append(stops, end), append(list, fmt.Sprintf("%q", at))
	}
	pop := ""
	if nodes > 0 {
		pop = fmt.Sprintf("pop: {name: rest, memcached: [%s]}\n", strings.Join(list, ", "))
	}
	if e.main, err = r.server(name, path, fmt.Sprintf(`listen: %s
admin: %s
source: {trust: [127.0.0.0/8]}
%sorigins: [{servers: ["http://%s"]}]
rules: [{name: sources, limit: 100, window: 1m, mitigation_timeout: 1s}]
`, e.at, e.admin, pop, r.origin())); err != nil {
		return nil, nil, err
	}
	end, err := launch(ctx, e.main, e.at.String())
	if err == nil {
		stops = append(stops, end)
	}
	return e, stop, err
}

// restRequest asks once for a source, and reads the answer.
func restRequest(ctx context.Context, at netip.AddrPort, source string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+"/", nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("X-Forwarded-For", source)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

// restBlock has one source pass its limit.
func restBlock(ctx context.Context, at netip.AddrPort) error {
	for range 200 {
		status, err := restRequest(ctx, at, "198.51.100.7")
		if err != nil || status == http.StatusTooManyRequests {
			return err
		}
	}
	return fmt.Errorf("200 requests of one source within its limit of 100 at %s", at)
}

// restLoad makes requests at random times, until ctx is done.
func restLoad(ctx context.Context, at netip.AddrPort, rate float64, seed uint64) {
	draw := rand.New(rand.NewPCG(seed, 0))
	for wait(ctx, time.Duration(draw.ExpFloat64()/rate*float64(time.Second))) == nil {
		n := draw.IntN(restSources)
		// One that fails is none: the edge's own log has it
		_, _ = restRequest(ctx, at, fmt.Sprintf("203.0.%d.%d", n>>8, n&255))
	}
}

// since is what was used in a second between two counts.
func (c restCount) since(before restCount, seconds float64) restCount {
	return restCount{(c.cpu - before.cpu) / seconds, (c.switches - before.switches) / seconds,
		(c.commands - before.commands) / seconds, (c.keys - before.keys) / seconds}
}

// count reads what an edge has used, the process nearest to the interval: to be asked costs it too.
func (e *restEdge) count(of ...func(*restCount) error) (c restCount, err error) {
	for _, read := range of {
		if err := read(&c); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (e *restEdge) countProcess(c *restCount) error {
	cpu, err := process.CPUTime(e.main.PID())
	if err != nil {
		return err
	}
	c.cpu = cpu.Seconds()
	c.switches, err = switches(e.main.PID())
	return err
}

// countTier has commands from the edge, and keys from its nodes, whose own counts they are.
func (e *restEdge) countTier(c *restCount) error {
	if len(e.nodes) == 0 {
		return nil
	}
	metrics, err := scrape.MetricsOf(context.Background(), http.DefaultClient, e.admin)
	if err != nil {
		return err
	}
	c.commands = metrics.Sum("sluice_tier_operations_total")
	for _, at := range e.nodes {
		node, err := scrape.Memcached(at)
		if err != nil {
			return err
		}
		c.keys += float64(node.Commands()) // a get of many keys counts as many
	}
	return nil
}

// switches is how often threads of a process have been switched from, by their own will or not.
func switches(pid int) (n float64, err error) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if len(files) == 0 {
		return 0, fmt.Errorf("loadgen: no context switches of process %d", pid)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if strings.HasSuffix(name, "voluntary_ctxt_switches") {
				v, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
				n += v
			}
		}
	}
	return n, nil
}

// WriteRest prints the figures, a line for each edge and case.
func WriteRest(w io.Writer, figures []RestFigures) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "case\tedge\tms of CPU a second\tmin-max\tcontext switches/s\t"+
		"commands/s a node\tkeys/s a node\t")
	for _, f := range figures {
		least, most := 0.0, 0.0
		if len(f.AllCPU) > 0 {
			least, most = slices.Min(f.AllCPU)*1e3, slices.Max(f.AllCPU)*1e3
		}
		fmt.Fprintf(t, "%s\t%s\t%.2f\t%s\t%.0f\t%.1f\t%.1f\t\n", f.Case, f.Edge, f.CPU*1e3,
			between(least, most), f.Switches, f.Commands, f.Keys)
	}
	return t.Flush()
}
