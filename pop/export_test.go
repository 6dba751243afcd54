package pop

import (
	"context"
	"net"
)

// Pipeline is a node's pipeline, for tests that need poptest and so cannot be in this package.
type Pipeline struct {
	p *pipeline
	d *dialer
}

type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

func NewPipeline(dial Dial, address string, deliver func([]Result)) Pipeline {
	d := newDialer(address, 1, dial)
	return Pipeline{newPipeline(d, deliver), d}
}

func (p Pipeline) Send(cmds []Command) []Command { return p.p.send(cmds) }
func (p Pipeline) Run(ctx context.Context)       { p.p.run(ctx) }
func (p Pipeline) Dials() uint64                 { return p.d.dials.Load() }
func (p Pipeline) Backlog() int                  { return p.p.backlog() }
func (p Pipeline) Trips() uint64                 { _, n, _ := p.p.trips.Snapshot(); return n }
func (p Pipeline) Drops() (closed, timeout, wrong uint64) {
	return p.p.drops.closed.Load(), p.p.drops.timeout.Load(), p.p.drops.wrong.Load()
}

// ReadAnswer reads one answer as a pipeline does.
func ReadAnswer(c Command, in []byte) (used int, complete bool, r Result, err error) {
	var a answers
	r.Command = c
	used, complete, err = a.read(in, &r)
	return used, complete, r, err
}

var (
	ErrAnswer  = errAnswer
	ErrBackoff = errBackoff
	ErrStopped = errStopped
)
