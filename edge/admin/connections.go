package admin

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// Connections bounds how many connections of operators, or of peers, are open, because each takes a
// descriptor that requests need, and nobody needs a token to connect. Of more than Most one goes,
// of those that matter least the one of which nothing was received for longest (state). So who
// floods the listener cuts himself off: probes and operators still get in, and nobody who is being
// answered is pushed out by connections that ask for nothing, or, once he has shown who he is, by
// any. If all have, it is the new one that goes. Most must be set.
type Connections struct {
	Most int

	mu    sync.Mutex
	order [states]list.List // of *connection, that which changed its state last at the back
	at    map[net.Conn]*connection
}

// A state is what a connection's request is, from those that go first.
type state uint8

const (
	silent  state = iota // there is none, or not all of it
	asking               // it is being answered
	vouched              // so, and whose it is is known: he has the token, or the key of peers
	states
)

type connection struct {
	net.Conn
	state   state
	element *list.Element
}

// connectionKey is that of a request's net.Conn in its context.
type connectionKey struct{}

// Guard has c know the connections of a server, and what its handler does. Call it before s serves.
func (c *Connections) Guard(s *http.Server) {
	next := s.Handler
	s.ConnState = c.state
	s.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, nc)
	}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 { // else some of it may never come
			c.raise(r, asking)
		}
		next.ServeHTTP(w, r)
	})
}

// Vouch says that a request comes from whom the listener is for. Its connection stays until it is
// answered.
func (c *Connections) Vouch(r *http.Request) { c.raise(r, vouched) }

func (c *Connections) raise(r *http.Request, to state) {
	nc, _ := r.Context().Value(connectionKey{}).(net.Conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.at[nc]; known != nil {
		c.move(known, to)
	}
}

// state takes note of a connection's state.
func (c *Connections) state(nc net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at = make(map[net.Conn]*connection)
	}
	switch known := c.at[nc]; {
	case state == http.StateNew:
		if len(c.at) >= c.Most && !c.makeRoom() {
			nc.Close()
			return
		}
		known = &connection{Conn: nc}
		known.element = c.order[silent].PushBack(known)
		c.at[nc] = known
	case known == nil: // it has had to go
	case state == http.StateClosed, state == http.StateHijacked:
		c.drop(known)
	default: // its request begins, or is over
		c.move(known, silent)
	}
}

// makeRoom closes a connection, and reports whether there was one that may have to go.
func (c *Connections) makeRoom() bool {
	for s := range vouched {
		if e := c.order[s].Front(); e != nil {
			goes := e.Value.(*connection)
			c.drop(goes)
			goes.Close()
			return true
		}
	}
	return false
}

func (c *Connections) move(known *connection, to state) {
	c.order[known.state].Remove(known.element)
	known.state, known.element = to, c.order[to].PushBack(known)
}

func (c *Connections) drop(known *connection) {
	c.order[known.state].Remove(known.element)
	delete(c.at, known.Conn)
}
