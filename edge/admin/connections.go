package admin

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// Connections bounds how many connections of operators are open, because each takes a descriptor that requests need, and nobody needs a
// token to connect. For one more than Most, the one goes of which nothing was heard for longest: who floods the listener cuts himself off,
// and probes and operators still get in. State is for http.Server.ConnState. Most must be set.
type Connections struct {
	Most int

	mu    sync.Mutex
	order list.List // of net.Conn, that which changed its state last at the back
	at    map[net.Conn]*list.Element
}

// State takes note of a connection.
func (c *Connections) State(nc net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at = make(map[net.Conn]*list.Element)
	}
	switch e := c.at[nc]; {
	case state == http.StateNew:
		if c.order.Len() >= c.Most {
			c.drop(c.order.Front()).Close()
		}
		c.at[nc] = c.order.PushBack(nc)
	case e == nil: // it has had to go
	case state == http.StateClosed, state == http.StateHijacked:
		c.drop(e)
	default:
		c.order.MoveToBack(e)
	}
}

func (c *Connections) drop(e *list.Element) net.Conn {
	nc := c.order.Remove(e).(net.Conn)
	delete(c.at, nc)
	return nc
}
