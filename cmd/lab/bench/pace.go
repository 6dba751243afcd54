package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/origin"
	"sluice/loadgen/process"
	"sluice/loadgen/replay"
	"sluice/loadgen/scrape"
	"sluice/loadgen/trace"
)

// Pace measures how many requests a second one processor sends in an open loop, and how late: it
// has Replay send even streams to an origin that answers at once, from a process that has one
// processor to itself, the origin having another.
type Pace struct {
	Self    string    // the executable of which "origin" is a subcommand
	Rates   []float64 // requests a second, one run each
	For     time.Duration
	Sources int
	Say     func(format string, args ...any) // progress; nil: nobody
}

// PaceFigures is what came of one rate.
type PaceFigures struct {
	Asked float64 `json:"asked"` // requests per second
	// Requests per second until the last one was sent
	Sent     float64 `json:"sent"`
	Answered int     `json:"answered"` // requests
	Failed   int     `json:"failed"`   // requests
	// Seconds, of the whole process, reading answers included
	CPU float64 `json:"cpu_per_request"`
	// Requests that a second of processor time sends
	PerCPU float64 `json:"per_cpu_second"`
	// Seconds from when a request was due to when it was written
	SendError judge.Quantiles `json:"send_error"`
	// Seconds from when a request was written to the end of its answer
	Latency judge.Quantiles `json:"answer_after"`
	Conns   int             `json:"connections_opened"` // in all
}

// Run makes a run for each rate. It leaves this process on one processor.
func (p Pace) Run(ctx context.Context) (figures []PaceFigures, err error) {
	if runtime.NumCPU() < 2 {
		return nil, errors.New("loadgen: pace needs two processors: one to send, one to answer")
	}
	taskset, err := process.Find("taskset", "it comes with util-linux")
	if err != nil {
		return nil, err
	}
	free, err := process.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	at := free[0]
	if err := process.Pin(0); err != nil {
		return nil, err
	}
	runtime.GOMAXPROCS(1)
	o := &process.Process{Name: "origin", Path: taskset, Args: []string{"-c", "1", p.Self, "origin",
		"--listen", at.String()}}
	if err := o.Start(); err != nil {
		return nil, err
	}
	defer o.Stop(process.StopTimeout)
	if err := o.Await(ctx, process.ReadyTimeout,
		func() error { return scrape.OK(at, origin.StatsPath) }); err != nil {
		return nil, err
	}
	for _, rate := range p.Rates {
		if p.Say != nil {
			p.Say("%.0f requests a second for %v", rate, p.For)
		}
		out, err := replay.Replay{PoPs: [][]netip.AddrPort{{at}}, Carrier: replay.Forwarded,
			PerConnection: 1 << 30}.Run(ctx, p.trace(rate))
		if err != nil {
			return nil, err
		}
		if out.Sent == 0 {
			return nil, fmt.Errorf("loadgen: pace: nothing could be sent: %s", out.Trouble())
		}
		n := float64(out.Sent)
		figures = append(figures, PaceFigures{
			Asked: rate, Sent: n / out.LastSent.Seconds(), Answered: out.Answered,
			Failed: out.ClientErrors(),
			CPU:    out.CPU.Seconds() / n, PerCPU: n / out.CPU.Seconds(),
			SendError: out.Late(), Latency: judge.SecondsOf(out.Latency), Conns: out.Connections,
		})
	}
	return figures, o.Crashed()
}

// trace is an even stream of sources that take turns.
func (p *Pace) trace(rate float64) *trace.Trace {
	t := &trace.Trace{Name: "pace", Sources: make([]trace.Source, p.Sources)}
	for i := range t.Sources {
		t.Sources[i] = trace.Source{Name: fmt.Sprint(i),
			Addr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})}
	}
	n := int(rate * p.For.Seconds())
	t.Requests = make([]trace.Request, n)
	for i := range t.Requests {
		t.Requests[i] = trace.Request{
			At:     time.Duration(float64(i) / rate * float64(time.Second)),
			Source: int32(i % p.Sources), Method: "GET", Path: "/some/path?x=1",
		}
	}
	return t
}
