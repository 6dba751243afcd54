package http2

import (
	"io"
	"net"
	"testing"
	"time"

	"sluice/edge/front"
)

// A client that has all of its answer may go before whoever made that has asked whether it was written, if somebody else has written it. What goes
// wrong if the end of the connection decides: the answer counts as aborted, and clients got one more than edges have sent.
func TestWrittenBeforeTheClientWasGone(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	go io.Copy(io.Discard, here)
	site := &front.Site{Limits: front.Limits{IdleTimeout: time.Minute}}
	c := &conn{client: &front.Client{Conn: there, Raw: there, Site: site}}
	c.drained.L, c.worked.L = &c.mu, &c.mu
	put := func() {
		c.mu.Lock()
		c.putPing(0, farewell)
		c.mu.Unlock()
	}
	put()
	if err := c.flush(); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.breakOff(errGone)
	c.mu.Unlock()
	if err := c.flush(); err != nil {
		t.Errorf("what was written before the end: %v", err)
	}
	put()
	if err := c.flush(); err != errGone {
		t.Errorf("what was not: %v, want %v", err, errGone)
	}
}
