package edge

import (
	"errors"
	"io"
	"os"
	"sluice/edge/socket"
	"time"
)

// old reports whether the connection is to end as soon as it is idle.
func (c *conn) old() bool {
	return c.accepted <= c.site.retired.Load() || c.going.Load() != 0
}

// readOn goes on with a Read that failed with err, perhaps because retire or evict woke it before it was due. An idle connection ends
// here, unless a request has arrived in this very moment.
func (c *conn) readOn(p []byte, due time.Time, err error) (int, error) {
	// Twice: this connection's deadline may be set by retire and, at the same time, by Read.
	for n := 0; n < 2 && errors.Is(err, os.ErrDeadlineExceeded) && !c.aborted.Load(); n++ {
		going := c.going.Load()
		if !c.body && (going == goNow || !c.heading && !c.waiting()) {
			c.heading = false
			c.linger.Store(going == 0) // one that makes room has been idle for long, and lingering takes room
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

// waiting reports whether the client has sent something that has not been read.
func (c *conn) waiting() bool {
	s, ok := c.raw.(*socket.Conn)
	if !ok {
		return false
	}
	n, _ := s.Peek()
	return n > 0
}

// What going says: why the one who reads was woken.
const (
	goIdle = 1 + iota // the connection is to end, unless a request has come
	goNow             // or in any case
)
