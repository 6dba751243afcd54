package front

import (
	"errors"
	"io"
	"os"
	"time"

	"sluice/edge/socket"
)

// Old reports whether the connection is to end as soon as it is idle.
func (c *Client) Old() bool {
	return c.Accepted <= c.Server.Retired.Load() || c.Going.Load() != 0
}

// readOn goes on with a Read that failed with err, perhaps because retire or evict woke it before
// it was due. An idle connection ends here, unless a request has arrived in this very moment.
func (c *Client) readOn(p []byte, due time.Time, err error) (int, error) {
	// Twice: this connection's deadline may be set by retire and, at the same time, by Read.
	for n := 0; n < 2 && errors.Is(err, os.ErrDeadlineExceeded) && !c.aborted.Load(); n++ {
		going := c.Going.Load()
		if !c.body && (going == GoNow || !c.heading && !c.Waiting()) {
			c.heading = false
			// One that makes room has been idle for long, and lingering takes room
			c.Linger.Store(going == 0)
			return 0, io.EOF
		}
		if !time.Now().Before(due) || c.Conn.SetReadDeadline(due) != nil {
			break
		}
		var got int
		if got, err = c.Conn.Read(p); err == nil || got > 0 {
			return got, err
		}
	}
	return 0, err
}

// Waiting reports whether the client has sent something that has not been read.
func (c *Client) Waiting() bool {
	s, ok := c.Raw.(*socket.Conn)
	if !ok {
		return false
	}
	n, _ := s.Peek()
	return n > 0
}

// Values of going: why the reader was woken.
const (
	GoIdle = 1 + iota // the connection is to end, unless a request has come
	GoNow             // or in any case
)
