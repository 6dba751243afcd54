package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"sluice/loadgen/process"
)

// FloodWays are what becomes of a connection of a blocked source.
var FloodWays = []string{"answer", "connection", "kernel"}

const (
	floodServer  = "198.18.0.1:8080"
	floodCalm    = "198.18.0.9" // the client beside the flood
	floodWorkers = 64           // connections of a flood under way at once, at most
)

// Floods measures what new connections of blocked sources cost the edge, which answers them, closes
// them when they come or has the kernel refuse them, and what they do to another client. What nginx
// and HAProxy take for the second is among the figures of Peers. It must run in a network of its
// own, in which clients may have any of the addresses that cmd/internal/namespace gives it.
type Floods struct {
	Ways    []string
	Rounds  int
	For     time.Duration // of a flood
	Sources int           // blocked ones; each has an address of its own
	Rate    int           // connections a second, of all together
	// Paths of the edge, of its helper, and of the program that can be an origin
	Sluice, Wall, Self string
	Say                func(string)

	*bed
}

// FloodFigures are of one way, medians of the rounds. Times are in seconds.
type FloodFigures struct {
	Way  string  `json:"way"`
	Rate float64 `json:"rate"` // connections a second that were made
	// Processor time of the server for each, beside what the other client takes
	CPU    float64 `json:"cpu"`
	Helper float64 `json:"helper"` // and of sluice-wall
	// Share of them that the kernel refused: no server heard of them
	Refused float64 `json:"refused"`
	Calm    float64 `json:"calm"`   // p99 of the other client without the flood
	P99     float64 `json:"p99"`    // and with it
	Failed  float64 `json:"failed"` // of its requests
	Ratio   float64 `json:"ratio"`  // of the two
}

// Run measures all ways by turns, and returns the medians.
func (f Floods) Run(ctx context.Context) (all []FloodFigures, err error) {
	if f.bed, err = makeBed(ctx, "flood", f.Self); err != nil {
		return nil, err
	}
	defer f.stop()
	measured := make([][]FloodFigures, len(f.Ways))
	err = interleave(f.Rounds, len(f.Ways), func(round, i int) error {
		f.Say(fmt.Sprintf("round %d of %d: %s", round+1, f.Rounds, f.Ways[i]))
		one, err := f.measure(ctx, f.Ways[i])
		measured[i] = append(measured[i], one)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("loadgen: flood: %w", err)
	}
	for i, way := range f.Ways {
		m := FloodFigures{Way: way}
		medians(&m, measured[i], func(f *FloodFigures) *float64 { return &f.Rate },
			func(f *FloodFigures) *float64 { return &f.CPU },
			func(f *FloodFigures) *float64 { return &f.Helper },
			func(f *FloodFigures) *float64 { return &f.Refused },
			func(f *FloodFigures) *float64 { return &f.Calm },
			func(f *FloodFigures) *float64 { return &f.P99 },
			func(f *FloodFigures) *float64 { return &f.Failed },
			func(f *FloodFigures) *float64 { return &f.Ratio })
		all = append(all, m)
	}
	return all, nil
}

// WriteFloods prints the figures, a line for each way.
func WriteFloods(w io.Writer, all []FloodFigures) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t,
		"way\tconnections/s\tserver µs\thelper µs\trefused by the kernel %\tcalm p99 ms\tp99 ms\ttimes calm\tfailed\t")
	for _, f := range all {
		fmt.Fprintf(t, "%s\t%.0f\t%.2f\t%.2f\t%.1f\t%.2f\t%.2f\t%.2f\t%.0f\t\n", f.Way, f.Rate,
			f.CPU*1e6, f.Helper*1e6, f.Refused*100, f.Calm*1e3, f.P99*1e3, f.Ratio, f.Failed)
	}
	return t.Flush()
}

// measure floods one edge once.
func (f *Floods) measure(ctx context.Context, way string) (one FloodFigures, err error) {
	wall, socket := "", filepath.Join(f.dir, "wall.sock")
	var helper *process.Process
	if way == "kernel" {
		wall = "wall: {socket: " + socket + "}\n"
		helper = &process.Process{Name: "sluice-wall", Path: f.Wall, Args: []string{"--socket",
			socket, "--ports", "8080", "--user", fmt.Sprint(os.Geteuid())}}
		stop, err := launchUntil(ctx, helper,
			func() error { _, err := os.Stat(socket); return err })
		if err != nil {
			return one, err
		}
		defer stop()
	}
	main, err := f.server("sluice", f.Sluice, fmt.Sprintf(`listen: %s
admin: 127.0.0.1:8081
allow: [%s]
shed: %s
%sorigins: [{servers: ["http://%s"]}]
rules: [{name: sources, limit: 1, window: 1h, mitigation_timeout: 1h}]
`, floodServer, floodCalm, way, wall, f.origin()))
	if err != nil {
		return one, err
	}
	stop, err := launchAlone(ctx, main, floodServer)
	if err != nil {
		return one, err
	}
	defer stop()
	neighbour := &http.Client{Timeout: 5 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: floodDialer(floodCalm).
			DialContext}}
	defer neighbour.CloseIdleConnections()
	askNeighbour(ctx, neighbour, f.For/10)
	begin, wrong := spent(main, helper)
	// Nobody is blocked yet: what a block costs is the flood's
	without := askNeighbour(ctx, neighbour, f.For/2)
	calmed, err := spent(main, helper)
	if err := errors.Join(wrong, err); err != nil {
		return one, err
	}
	if err := f.block(ctx); err != nil {
		return one, err
	}
	for range 20 { // the kernel is told of those that connect again: until it has been told of all
		if n := f.flood(ctx, 2*time.Second); way != "kernel" || n.refused == n.made {
			break
		}
	}
	before, wrong := spent(main, helper)
	flooded := make(chan floodCounts)
	go func() { flooded <- f.flood(ctx, f.For) }()
	with := askNeighbour(ctx, neighbour, f.For)
	n := <-flooded
	after, err := spent(main, helper)
	if err := errors.Join(wrong, err, ctx.Err(), main.Crashed()); err != nil {
		return one, fmt.Errorf("%s: %w: %s", way, err, main.Output())
	}
	if n.made == 0 || without.Asked == without.Failed || n.admitted > 0 {
		return one,
			fmt.Errorf("%s: %d connections were made, of blocked sources %d were served, and %d of %d requests failed without them: %s",
				way, n.made, n.admitted, without.Failed, without.Asked, main.Output())
	}
	made := float64(n.made)
	cost := func(i int) float64 { // beside what the other client's requests take
		each := (calmed[i] - begin[i]).Seconds() / float64(without.Asked)
		return ((after[i] - before[i]).Seconds() - each*float64(with.Asked)) / made
	}
	return FloodFigures{Way: way, Rate: made / f.For.Seconds(), CPU: cost(0), Helper: cost(1),
		Refused: float64(n.refused) / made,
		Calm:    without.P99.Seconds(), P99: with.P99.Seconds(), Failed: float64(with.Failed),
		Ratio: with.P99.Seconds() / without.P99.Seconds()}, nil
}

// floodCounts are of connections: all that were made, those that the kernel refused, and those of
// which a request was passed on.
type floodCounts struct{ made, refused, admitted int64 }

func floodDialer(from string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
}

// floodOnce makes a connection of a source and a request, and returns the status of the answer; "":
// there was none.
func floodOnce(ctx context.Context, source int) (status string, err error) {
	from := netip.AddrFrom4([4]byte{198, 19, byte(source >> 8), byte(source)}).String()
	nc, err := floodDialer(from).DialContext(ctx, "tcp", floodServer)
	if err != nil {
		return "", err
	}
	_ = nc.(*net.TCPConn).SetLinger(0) // leaves nothing behind that a source port would wait for
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(nc,
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
		return "", nil // closed when it came
	}
	head := make([]byte, 1024)
	n, _ := nc.Read(head)
	if first := string(head[:n]); strings.HasPrefix(first, "HTTP/1.1 ") && n > 12 {
		return first[9:12], nil
	}
	return "", nil
}

// block has each source pass its limit, which is one.
func (f *Floods) block(ctx context.Context) error {
	var wait sync.WaitGroup
	failed := make(chan error, floodWorkers)
	for w := range floodWorkers {
		wait.Go(func() {
			for i := w; i < f.Sources; i += floodWorkers {
				for range 2 {
					if _, err := floodOnce(ctx, i); err != nil &&
						!errors.Is(err, syscall.ECONNREFUSED) {
						failed <- err
						return
					}
				}
			}
		})
	}
	wait.Wait()
	close(failed)
	return <-failed
}

// flood makes connections, each of the next source, in an open loop: what is late is made up for.
func (f *Floods) flood(ctx context.Context, length time.Duration) floodCounts {
	var next, made, refused, admitted atomic.Int64
	begin := time.Now()
	var wait sync.WaitGroup
	for range floodWorkers {
		wait.Go(func() {
			for ctx.Err() == nil {
				n := next.Add(1) - 1
				due := time.Duration(n) * time.Second / time.Duration(f.Rate)
				if due >= length || process.Pause(ctx, due-time.Since(begin)) != nil ||
					time.Since(begin) >= length {
					return
				}
				status, err := floodOnce(ctx, int(n)%f.Sources)
				made.Add(1)
				switch {
				case errors.Is(err, syscall.ECONNREFUSED):
					refused.Add(1)
				case status == "200":
					admitted.Add(1)
				}
			}
		})
	}
	wait.Wait()
	return floodCounts{made.Load(), refused.Load(), admitted.Load()}
}

// askNeighbour has a client whom nobody blocks make a request every five milliseconds, one after
// the other, each on a connection of its own.
func askNeighbour(ctx context.Context, client *http.Client, length time.Duration) (f calmFigures) {
	var took []time.Duration
	for begin := time.Now(); time.Since(begin) < length && ctx.Err() == nil; {
		at := time.Now()
		answer, err := client.Get("http://" + floodServer + "/")
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
		if f.Asked++; err != nil || answer.StatusCode != http.StatusOK {
			f.Failed++
		}
		took = append(took, time.Since(at))
		_ = process.Pause(ctx, 5*time.Millisecond-time.Since(at))
	}
	slices.Sort(took)
	if len(took) > 0 {
		f.P99 = took[len(took)*99/100]
	}
	return f
}
