package memcached

import (
	"context"
	"errors"
	"net"
	"time"

	"sluice/pop"
	"sluice/pop/wire"
)

// Pipeline is a node's pipeline, for tests that need poptest and so cannot be in this package.
type Pipeline struct {
	p *pipeline
	d *dialer
}

type Dial = func(ctx context.Context, network, address string) (net.Conn, error)

func NewPipeline(dial Dial, address string, deliver func([]wire.Result)) Pipeline {
	d := newDialer(address, 1, dial)
	return Pipeline{newPipeline(d, deliver, func(any) {}), d}
}

func (p Pipeline) Send(cmds []wire.Command) []wire.Command { return p.p.send(cmds) }
func (p Pipeline) Run(ctx context.Context)                 { p.p.run(ctx) }
func (p Pipeline) Dials() uint64                           { return p.d.dials.Load() }
func (p Pipeline) Backlog() int                            { return p.p.backlog() }
func (p Pipeline) Drops() (closed, timeout, wrong uint64) {
	return p.p.drops.closed.Load(), p.p.drops.timeout.Load(), p.p.drops.wrong.Load()
}

// ReadAnswer reads one answer as a pipeline does.
func ReadAnswer(c wire.Command, in []byte) (used int, complete bool, r wire.Result, err error) {
	var a answers
	r.Command = c
	used, complete, err = a.read(in, &r)
	return used, complete, r, err
}

const ProgressTimeout = progressTimeout

var LegalKey = legalKey

var (
	ErrAnswer  = errAnswer
	ErrBackoff = errBackoff
	ErrStopped = errStopped
)

// Client is what carries out single commands with gomemcache.
type Client struct {
	c      *client
	d      *dialer
	panics *int
}

func NewClient(dial Dial, address string) Client {
	d, panics := newDialer(address, 1, dial), new(int)
	return Client{newClient(d, func(any) { *panics++ }), d, panics}
}

func (c Client) Do(cmd wire.Command) wire.Result { return c.c.do(cmd) }
func (c Client) Close()                          { c.c.close() }
func (c Client) Dials() uint64                   { return c.d.dials.Load() }
func (c Client) Panics() int                     { return *c.panics }
func (c Client) Lost()                           { c.d.lost() }

// NotConnected reports whether a command failed because there was no connection.
func NotConnected(err error) bool {
	var d *dialError
	return errors.As(err, &d)
}

// NewScriptedTier is a Tier with something else than a Machine inside.
func NewScriptedTier(step func(time.Time, pop.Event) []wire.Command, flush func(time.Time) []wire.Command, unreported func() (hits, lost uint64), nodes []string) (*Tier, error) {
	return newTier(stepper{step, flush, func(time.Time) time.Duration { return pop.Tick }, unreported, func() []string { return nodes }}, nodes)
}
