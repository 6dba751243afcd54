package http2

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/edge/front"
)

// A client that has all of its answer may go before whoever made that has asked whether it was written, if somebody else has written it. What goes
// wrong if the end of the connection decides: the answer counts as aborted, and clients got one more than edges have sent.
func TestWrittenBeforeTheClientWasGone(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	go io.Copy(io.Discard, here)
	site := &front.Server{Limits: front.Limits{IdleTimeout: time.Minute}}
	c := &conn{client: &front.Client{Conn: there, Raw: there, Server: site}}
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

// A busy connection always has more to write.
type busy struct {
	said
	write func(p []byte)
}

func (b busy) Write(p []byte) (int, error) {
	b.write(p)
	return len(p), nil
}

// The reset of a stream that was answered goes right behind the answer, however much others have to say.
func TestLateResetOnABusyConnection(t *testing.T) {
	c := &conn{}
	c.drained.L, c.worked.L = &c.mu, &c.mu
	writes, at := 0, 0
	nc := busy{write: func(p []byte) {
		if writes++; p[3] == 3 {
			at = writes
		}
		if writes < 100 {
			c.mu.Lock()
			c.putPing(0, farewell)
			c.mu.Unlock()
		}
	}}
	c.client = &front.Client{Conn: nc, Raw: nc, Server: &front.Server{Limits: front.Limits{IdleTimeout: time.Minute}}}
	c.putData(1, []byte("hello"), true)
	c.putLateReset(1, 0)
	if err := c.flush(); err != nil || at != 2 {
		t.Errorf("it was write %d of %d: %v", at, writes, err)
	}
}

// Whoever writes what others have put as well is relieved of that: a request that is over must not count as under way for as long as others on its
// connection are answered, and the loop must go on reading what the client says of them.
func TestWritersAreRelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &conn{}
		c.drained.L, c.worked.L = &c.mu, &c.mu
		const most = 1000
		var writes atomic.Int64
		returned := make(chan struct{})
		nc := busy{write: func([]byte) {
			n := writes.Add(1)
			if n >= 10 { // whoever goes on may be much faster than who is relieved
				<-returned
			}
			if n < most {
				c.mu.Lock()
				c.putData(3, make([]byte, frameSize), false)
				c.mu.Unlock()
			}
		}}
		c.client = &front.Client{Conn: nc, Raw: nc, Server: &front.Server{Limits: front.Limits{IdleTimeout: time.Minute}}}
		c.putData(1, []byte("hello"), true)
		if err := c.flush(); err != nil || writes.Load() > 10 {
			t.Errorf("%d writes, %v", writes.Load(), err)
		}
		close(returned)
		synctest.Wait()
		if n := writes.Load(); n != most {
			t.Errorf("%d of %d writes in the end", n, most)
		}
	})
}
