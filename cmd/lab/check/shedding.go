package check

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"sluice/loadgen/lab"
	"sluice/loadgen/process"
)

// A SheddingScale is how long Shedding looks at an origin that is well, and then at one that is
// not.
type SheddingScale struct{ Well, Slow time.Duration }

// SheddingScales are the full form of Shedding and a short one.
func SheddingScales(short bool) SheddingScale {
	if short {
		return SheddingScale{Well: 2 * time.Second, Slow: 8 * time.Second}
	}
	return SheddingScale{Well: 5 * time.Second, Slow: 45 * time.Second}
}

const (
	// Requests that the origin works at; others wait for their turn
	floodWorkers = 16
	floodService = 10 * time.Millisecond // of each, while it is well
	floodSlower  = 10                    // times
	patience     = 2 * time.Second       // of every client
)

// floods are the clients: together 380 requests a second, of an origin that can do 1,600, and then
// 160.
var floods = []struct {
	name, path string
	rate       int // a second
	rule       string
}{
	{"critical", "/pay", 40, "{name: pay, match: {path: /pay}, priority: critical, queue: 500ms}"},
	{"default", "/", 40, ""},
	{"sheddable", "/search", 300, "{name: search, match: {path: /search}, priority: sheddable}"},
}

// Shedding checks that an origin which suffers keeps its critical clients: slowed to a tenth of
// what it can do, under a flood of requests that may be shed, it answers 99 % of the critical ones
// in time. Without shedding, in the same run, it answers less than half of them.
func Shedding(ctx context.Context, l lab.Lab, scale SheddingScale) (*Result, error) {
	c := &Result{Name: "shedding"}
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "origin slowed to a tenth")
	for _, f := range floods {
		fmt.Fprintf(table, "\t%s\tin time\tshed", f.name)
	}
	fmt.Fprintln(table)
	var share [2]float64
	for i, with := range []string{"shedding: {}", ""} {
		origin, err := startFloodOrigin()
		if err != nil {
			return nil, err
		}
		well, slow, err := flood(ctx, l, origin, with, scale)
		origin.server.Close()
		if err != nil {
			return nil, err
		}
		for j, n := range well {
			if n.inTime < n.sent*99/100 {
				return nil,
					fmt.Errorf("loadgen: check shedding: disturbed: of an origin that is well %d of %d %s requests were answered in time: this machine is too busy to tell",
						n.inTime, n.sent, floods[j].name)
			}
		}
		name := "without shedding"
		if with != "" {
			name = "with shedding"
		}
		fmt.Fprint(table, name)
		for _, n := range slow {
			fmt.Fprintf(table, "\t%d\t%.1f %%\t%.1f %%", n.sent,
				100*float64(n.inTime)/float64(n.sent), 100*float64(n.shed)/float64(n.sent))
		}
		fmt.Fprintln(table)
		share[i] = float64(slow[0].inTime) / float64(slow[0].sent)
	}
	table.Flush()
	for line := range strings.Lines(text.String()) {
		c.See("%s", strings.TrimRight(line, " \n"))
	}
	c.See("want at least 99 %% of the critical requests answered within %v with shedding, and less than half without", patience)
	c.Kept = share[0] >= 0.99 && share[1] < 0.5
	return c, nil
}

// A floodCount is what became of the requests of one kind.
type floodCount struct{ sent, inTime, shed int }

// flood runs a site before the origin, and has all clients ask its edges by turns: while the origin
// is well, and then while it is slow.
func flood(ctx context.Context, l lab.Lab, origin *floodOrigin, with string,
	scale SheddingScale) (well, slow []floodCount, err error) {
	l.Before, l.OriginOptions, l.MoreRules = origin.addr, with, nil
	for _, f := range floods {
		if f.rule != "" {
			l.MoreRules = append(l.MoreRules, f.rule)
		}
	}
	site, err := l.Start(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer site.Stop()
	site.Log("the origin is well for %v", scale.Well)
	if well, err = askAll(ctx, site.Targets[0], scale.Well); err != nil {
		return nil, nil, err
	}
	site.Log("and slowed to a tenth for %v", scale.Slow)
	origin.service.Store(int64(floodSlower * floodService))
	if slow, err = askAll(ctx, site.Targets[0], scale.Slow); err != nil {
		return nil, nil, err
	}
	return well, slow, site.Crashed()
}

// askAll sends the requests of all clients when they are due, for so long, and waits for what
// becomes of them.
func askAll(ctx context.Context, edges []netip.AddrPort,
	length time.Duration) ([]floodCount, error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: patience}
	defer client.CloseIdleConnections()
	counts := make([]floodCount, len(floods))
	begin := time.Now()
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, f := range floods {
		all.Go(func() {
			var under sync.WaitGroup
			defer under.Wait()
			for n := range int(length.Seconds() * float64(f.rate)) {
				if process.Pause(ctx,
					time.Until(begin.Add(time.Duration(n)*time.Second/time.Duration(f.rate)))) != nil {
					return
				}
				to := edges[n%len(edges)]
				under.Go(func() {
					status := 0
					if answer, err := client.Get("http://" + to.String() + f.path); err == nil {
						status = answer.StatusCode
						_, _ = io.Copy(io.Discard, answer.Body)
						answer.Body.Close()
					}
					mu.Lock()
					defer mu.Unlock()
					counts[i].sent++
					switch status {
					case http.StatusOK:
						counts[i].inTime++
					case http.StatusServiceUnavailable:
						counts[i].shed++
					}
				})
			}
		})
	}
	all.Wait()
	return counts, ctx.Err()
}

// A floodOrigin has so many workers, and does all that it is asked, whether or not anybody still
// waits for it, as most servers do.
type floodOrigin struct {
	addr    netip.AddrPort
	server  *http.Server
	service atomic.Int64 // nanoseconds
}

func startFloodOrigin() (*floodOrigin, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("loadgen: the origin of a check: %w", err)
	}
	o := &floodOrigin{addr: ln.Addr().(*net.TCPAddr).AddrPort()}
	o.service.Store(int64(floodService))
	workers := make(chan struct{}, floodWorkers)
	o.server = &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { // clients see what fails
		workers <- struct{}{}
		time.Sleep(time.Duration(o.service.Load()))
		<-workers
	})}
	go func() { _ = o.server.Serve(ln) }()
	return o, nil
}
