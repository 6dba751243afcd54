package memcached

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"sluice/pop/wire"
)

// exchange is how long a command that is not part of a report may take; connecting, where it has
// to, takes as long again. Were both one time, a node that is far would lose each connection before
// its first answer. It is also what it takes to notice that a node has stopped answering.
const exchange = 250 * time.Millisecond

// client carries out single commands on one node, with gomemcache, over a separate connection:
// bits, the mitigation log, presence and with them the proof of a node's health. One goroutine may
// use it.
type client struct {
	dialer   *dialer
	caught   func(any) // is called with a panic
	mc       *memcache.Client
	conn     *guard    // the connection gomemcache has, or had last
	deadline time.Time // of the exchange under way
	losses   uint64    // the dialer's, when conn was last known to be good
}

// nodeAddress picks the one node that a client has. It resolves no name: the dialer does, each time
// it connects.
type nodeAddress string

func (nodeAddress) Network() string                       { return "tcp" }
func (a nodeAddress) String() string                      { return string(a) }
func (a nodeAddress) PickServer(string) (net.Addr, error) { return a, nil }
func (a nodeAddress) Each(f func(net.Addr) error) error   { return f(a) }

func newClient(d *dialer, caught func(any)) *client {
	c := &client{dialer: d, caught: caught, mc: memcache.NewFromSelector(nodeAddress(d.address))}
	c.mc.Timeout = exchange
	c.mc.MaxIdleConns = 1
	c.mc.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		ctx, cancel := context.WithDeadline(ctx, c.deadline)
		defer cancel()
		conn, err := d.connect(ctx)
		if err != nil {
			return nil, err
		}
		c.conn = &guard{Conn: conn}
		c.conn.begin(time.Now().Add(exchange))
		return c.conn, nil
	}
	return c
}

// close ends the connection, if there is one.
func (c *client) close() {
	c.mc.Close()
	c.conn = nil
}

// do carries out one command, within exchange, or twice that where it connects.
func (c *client) do(cmd wire.Command) (r wire.Result) {
	deadline := time.Now().Add(exchange)
	if losses := c.dialer.losses.Load(); losses != c.losses {
		c.close() // an exchange failed since: the connection may be from before the node's restart
		c.losses = losses
	}
	c.deadline = deadline
	if c.conn != nil {
		c.conn.begin(deadline)
	}
	r.Command = cmd
	defer func() {
		if v := recover(); v != nil {
			c.caught(v)
			// gomemcache has put the connection back in its pool, with half an answer in it.
			c.failed(&r, fmt.Errorf("%w in gomemcache: %v", errPanic, v))
		}
	}()
	err := c.call(&r)
	switch {
	case err == nil:
		c.dialer.answered()
	case errors.Is(err, memcache.ErrCacheMiss), errors.Is(err, memcache.ErrNotStored),
		errors.Is(err, memcache.ErrCASConflict):
		c.dialer.answered()
		r.Status = wire.NotThere
	case errors.Is(err, memcache.ErrMalformedKey):
		r.Status, r.Err = wire.Unsent, err
	default:
		c.failed(&r, err)
	}
	return r
}

func (c *client) failed(r *wire.Result, err error) {
	defer c.close()
	r.Status, r.Err = wire.Unknown, err
	if c.conn != nil && c.conn.err != nil {
		r.Err = c.conn.err
	}
	var dial *dialError
	if errors.As(err, &dial) {
		r.Status, r.Err = wire.Unsent, err
		return // the dialer has the reason
	}
	c.dialer.lost()
	if c.conn != nil && c.conn.refused != nil {
		r.Status, r.Err = wire.Unsent, c.conn.refused
	}
}

// call maps the command to gomemcache's.
func (c *client) call(r *wire.Result) (err error) {
	switch r.Op {
	case wire.Incr:
		r.Number, err = c.mc.Increment(r.Key, r.Delta)
		return err
	case wire.Decr:
		r.Number, err = c.mc.Decrement(r.Key, r.Delta)
		return err
	case wire.Add:
		return c.mc.Add(item(&r.Command))
	case wire.Set:
		return c.mc.Set(item(&r.Command))
	case wire.Delete:
		return c.mc.Delete(r.Key)
	case wire.Cas:
		it := item(&r.Command)
		it.CasID = r.Delta
		return c.mc.CompareAndSwap(it)
	}
	// A panic in GetMulti would be in a goroutine of its own, out of our reach. The guard keeps
	// from it what could cause one.
	keys := r.Keys()
	items, err := c.mc.GetMulti(keys)
	if err != nil {
		return err // items may hold some; the caller wants all
	}
	values, found := make([][]byte, len(keys)), 0
	for i, k := range keys {
		if it := items[k]; it != nil {
			values[i], r.Number = it.Value, it.CasID
			found++
		}
	}
	if found != len(items) {
		return fmt.Errorf("%w: a value under a key that was not requested", errAnswer)
	}
	r.Values = values
	return nil
}

func item(c *wire.Command) *memcache.Item {
	return &memcache.Item{Key: c.Key, Value: c.Value, Expiration: c.Expire}
}
