package check

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"sluice/loadgen/lab"
	"sluice/loadgen/process"
)

// An ExactScale is how long Exact floods before a node restarts, and after.
type ExactScale struct{ Calm, After time.Duration }

// ExactScales are the full form of Exact and a short one.
func ExactScales(short bool) ExactScale {
	if short {
		return ExactScale{Calm: 8 * time.Second, After: 8 * time.Second}
	}
	return ExactScale{Calm: 25 * time.Second, After: 35 * time.Second}
}

// exactRules are the rules of Exact: each is about a path, and counts who pays.
var exactRules = []struct {
	path   string
	limit  int
	window time.Duration
	refill time.Duration // of a token bucket as large as limit: one in so long; 0: it is a window
	says   string
}{
	{"/hour", 3, time.Hour, 0, "algorithm: exact, limit: 3, window: 1h, on_store_failure: local"},
	{"/many", 50, 10 * time.Second, 0, "algorithm: exact, limit: 50, window: 10s, on_store_failure: closed"},
	{"/few", 3, 10 * time.Second, 0, "algorithm: exact, limit: 3, window: 10s, on_store_failure: closed"},
	{"/bucket", 20, 0, 500 * time.Millisecond, "algorithm: token_bucket, limit: 120, window: 1m, burst: 20, on_store_failure: closed"},
}

// exactFaults are what goes wrong, each so long after the one before. A restart begins with a kill.
func exactFaults(site *lab.Site) []lab.Fault {
	node, edge := len(site.NodeProcesses)-1, len(site.EdgeProcesses)-1
	return []lab.Fault{
		{Action: lab.Restart, Kind: "memcached", Index: 0},
		{Action: lab.Restart, Kind: "edge", Index: edge},
		{Action: lab.Kill, Kind: "memcached", Index: node},
		{Action: lab.Restart, Kind: "memcached", Index: node},
	}
}

const (
	exactWorkers = 3 // for each edge and rule
	exactPause   = 15 * time.Millisecond
	exactWay     = 100 * time.Millisecond // by which requests may be on their way for longer than others: a bucket has no margin for that
)

// Exact checks that a rule with check: sync and algorithm: exact lets no more than its limit through in any window, over all edges and while
// nodes and an edge are killed, by the log of the origin, and while nothing happens as many as that. Before it floods it waits until no node
// has anything that it may have forgotten.
func Exact(ctx context.Context, l lab.Lab, scale ExactScale) (*Result, error) {
	c := &Result{Name: "exact", Kept: true}
	arrived := &arrivals{at: make(map[string][]time.Time)}
	server, addr, err := Serve(func(w http.ResponseWriter, r *http.Request) { arrived.note(r.URL.Path) })
	if err != nil {
		return nil, err
	}
	defer server.Close()
	l.Before, l.Wait, l.MoreRules = addr, 100*time.Millisecond, nil
	for _, r := range exactRules {
		l.MoreRules = append(l.MoreRules, fmt.Sprintf("{name: %s, match: {path: %s}, key: header:x-account, mitigation_timeout: 0s, check: sync, %s}", r.path[1:], r.path, r.says))
	}
	site, err := l.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer site.Stop()
	f := exactFlood{edges: site.Targets[0], killed: site.Targets[0][len(site.Targets[0])-1], client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: 5 * time.Second}}
	defer f.client.CloseIdleConnections()
	site.Log("waiting until closed rules admit")
	for n, path := range []string{"/many", "/few", "/bucket"} {
		if err := f.await(ctx, path, fmt.Sprint("first", n)); err != nil {
			return nil, err
		}
	}
	arrived.forget() // it was another account's
	site.Log("everybody pays for %v", scale.Calm)
	calm, err := f.run(ctx, scale.Calm, nil)
	if err != nil {
		return nil, err
	}
	before := arrived.most()
	site.Log("and for %v while nodes and an edge are killed, and start again", scale.After)
	after, err := f.run(ctx, scale.After, func() error {
		faults := exactFaults(site)
		for _, fault := range faults {
			if err := process.Pause(ctx, scale.After/time.Duration(len(faults)+1)); err != nil {
				return err
			}
			if err := site.Do(ctx, fault); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	most := arrived.most()
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "rule\tat the origin\t429\t503\tno answer\tmost in a window\tuntil the first fault")
	for i, r := range exactRules {
		n := calm[i].plus(after[i])
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\n", r.says, len(arrived.at[r.path]), n.limited, n.closed, n.other, most[i], before[i])
		c.Kept = c.Kept && most[i] <= r.limit && before[i] == r.limit && n.limited > 100 && n.other <= n.limited/100 // some connections break where a machine is busy
	}
	table.Flush()
	for line := range strings.Lines(text.String()) {
		c.See("%s", strings.TrimRight(line, " \n"))
	}
	c.See("want no more than the limit in any window, and while nothing happens the limit; of the bucket %d, and what it has been refilled by", exactRules[3].limit)
	return c, site.Crashed()
}

// arrivals is when requests arrived at the origin, by their path.
type arrivals struct {
	mu sync.Mutex
	at map[string][]time.Time
}

func (a *arrivals) note(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at[path] = append(a.at[path], time.Now())
}

func (a *arrivals) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.at)
}

// most is, for each rule, the most that arrived in any window; under a bucket, the most that it must have held.
func (a *arrivals) most() (most []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range exactRules {
		at := a.at[r.path]
		slices.SortFunc(at, time.Time.Compare)
		n := 0
		for i := range at {
			for j := i; j < len(at); j++ {
				span := at[j].Sub(at[i])
				if r.refill == 0 && span >= r.window {
					break
				}
				in := j - i + 1
				if r.refill > 0 {
					in -= int((span + exactWay) / r.refill)
				}
				n = max(n, in)
			}
		}
		most = append(most, n)
	}
	return most
}

// exactFlood asks all edges.
type exactFlood struct {
	edges  []netip.AddrPort
	killed netip.AddrPort // the edge that exactFaults kills: it does not answer for as long as this machine takes to start it
	client *http.Client
}

// exactCount is what became of the requests of a rule.
type exactCount struct{ limited, closed, other int }

func (n exactCount) plus(m exactCount) exactCount {
	return exactCount{n.limited + m.limited, n.closed + m.closed, n.other + m.other}
}

func (f *exactFlood) ask(ctx context.Context, edge netip.AddrPort, path, account string) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+edge.String()+path, nil)
	if err != nil {
		return 0
	}
	request.Header.Set("X-Account", account)
	answer, err := f.client.Do(request)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	return answer.StatusCode
}

// await waits until an account may pay.
func (f *exactFlood) await(ctx context.Context, path, account string) error {
	for end := time.Now().Add(30 * time.Second); ; {
		status := f.ask(ctx, f.edges[0], path, account)
		switch {
		case status == http.StatusOK:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("loadgen: check exact: %s still answers %d after 30s", path, status)
		}
		if err := process.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// run has everybody pay for so long, while something happens.
func (f *exactFlood) run(ctx context.Context, length time.Duration, meanwhile func() error) ([]exactCount, error) {
	counts := make([]exactCount, len(exactRules))
	end := time.Now().Add(length)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, r := range exactRules {
		for _, edge := range f.edges {
			for range exactWorkers {
				all.Go(func() {
					for time.Now().Before(end) && process.Pause(ctx, exactPause) == nil {
						status := f.ask(ctx, edge, r.path, "one")
						mu.Lock()
						switch status {
						case http.StatusOK:
						case http.StatusTooManyRequests:
							counts[i].limited++
						case http.StatusServiceUnavailable:
							counts[i].closed++
						default:
							if edge != f.killed || meanwhile == nil {
								counts[i].other++
							}
						}
						mu.Unlock()
					}
				})
			}
		}
	}
	var err error
	if meanwhile != nil {
		err = meanwhile()
	}
	all.Wait()
	if err == nil {
		err = ctx.Err()
	}
	return counts, err
}
