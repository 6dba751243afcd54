package http2

import (
	"crypto/rand"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	frames "golang.org/x/net/http2"

	"sluice/edge/message"
)

// A WebSocket over HTTP/2 begins with an extended CONNECT (RFC 8441). To rules and origins it is
// what it would be in HTTP/1.1: GET with Upgrade. That has a key, by which a server shows that it
// has understood; a client of HTTP/2 sends none, so the edge makes one, and whoever passes the
// request on looks at the answer. What is an answer with 101 in HTTP/1.1 is one with 200 here, and
// the stream goes on as a connection.

// webSocket is the only protocol that a tunnel may carry.
const webSocket = "websocket"

var noProtocol = message.Refuse(http.StatusNotImplemented, "no_protocol",
	"This server makes no tunnels for that protocol.")

// appendUpgrade appends the lines by which HTTP/1.1 asks for a WebSocket.
func appendUpgrade(b []byte) []byte {
	var key [16]byte
	_, _ = rand.Read(key[:]) // it never fails
	b = append(b, "connection: Upgrade\r\nupgrade: "+webSocket+"\r\nsec-websocket-key: "...)
	return append(base64.StdEncoding.AppendEncode(b, key[:]), "\r\n"...)
}

// upgradeLines is how many lines that are.
const upgradeLines = 3

// A tunnel is a stream whose request has become a connection. One goroutine may read, and another
// write.
type tunnel struct {
	st *Stream

	// What follows is guarded by conn.mu.
	readBy, writeBy time.Time // zero: there is no hurry
	sent            bool      // nothing more is written
}

// Hijack has run called with what the stream has become, and ends it when that is over.
func (st *Stream) Hijack(run func(net.Conn)) {
	t := &tunnel{st: st}
	defer t.Close()
	run(t)
}

// switches sends the answer that makes the stream a tunnel.
func (st *Stream) switches() error {
	c := st.conn
	c.mu.Lock()
	err := st.able()
	if err == nil {
		c.putHead(st.id, st.block, false)
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return c.flush()
}

func (t *tunnel) Read(p []byte) (int, error) {
	st := t.st
	for {
		switch there, err := st.take(); {
		case there:
			n := copy(p, st.shown)
			st.Discard(n)
			return n, nil
		case err == io.EOF:
			return 0, err
		case err != nil:
			return 0, syscall.ECONNRESET
		}
		if st.conn.flush() != nil { // it may have to be told that it may go on
			return 0, syscall.ECONNRESET
		}
		if err := t.wait(st.arrived, &t.readBy); err != nil {
			return 0, err
		}
	}
}

func (t *tunnel) Write(p []byte) (n int, err error) {
	c := t.st.conn
	for n < len(p) {
		part, err := t.put(p[n:])
		n += part
		if err != nil {
			return n, err
		}
		if part > 0 {
			continue
		}
		t.st.stalls()
		c.site.Memory.makeRoom()
		if err = c.flush(); err != nil {
			err = syscall.ECONNRESET
		} else {
			err = t.wait(t.st.opened, &t.writeBy)
		}
		if t.st.goesOn(); err != nil {
			return n, err
		}
	}
	c.mu.Lock()
	c.earn(messageControls)
	c.mu.Unlock()
	return n, c.flush()
}

// put sends so much of p as windows allow now.
func (t *tunnel) put(p []byte) (int, error) {
	st, c := t.st, t.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case t.sent:
		return 0, net.ErrClosed
	case st.able() != nil:
		return 0, syscall.ECONNRESET
	}
	n := min(int64(len(p)), frameSize, st.window, c.window)
	if n <= 0 {
		return 0, nil
	}
	c.sendNow(st, p[:n], false)
	return int(n), nil
}

// CloseWrite says that nothing more comes.
func (t *tunnel) CloseWrite() error {
	st, c := t.st, t.st.conn
	c.mu.Lock()
	if t.sent || st.able() != nil {
		c.mu.Unlock()
		return nil
	}
	t.sent = true
	c.putData(st.id, nil, true)
	c.mu.Unlock()
	return c.flush()
}

// Close ends the stream: in order where both have said that nothing more comes.
func (t *tunnel) Close() error {
	st, c := t.st, t.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.sent && st.ended {
		st.closed = true
		c.drop(st)
	}
	c.reset(st, frames.ErrCodeCancel)
	return nil
}

// wait waits for a signal, and for by at most, which may be moved meanwhile.
func (t *tunnel) wait(signal <-chan struct{}, by *time.Time) error {
	due := t.due(by)
	if due.IsZero() {
		<-signal
		return nil
	}
	if wait(signal, time.Until(due)) {
		return nil
	}
	if due = t.due(by); due.IsZero() || time.Now().Before(due) {
		return nil
	}
	return os.ErrDeadlineExceeded
}

func (t *tunnel) due(by *time.Time) time.Time {
	t.st.conn.mu.Lock()
	defer t.st.conn.mu.Unlock()
	return *by
}

func (t *tunnel) SetReadDeadline(at time.Time) error {
	t.st.conn.mu.Lock()
	defer t.st.conn.mu.Unlock()
	t.readBy = at
	signal(t.st.arrived)
	return nil
}

func (t *tunnel) SetWriteDeadline(at time.Time) error {
	t.st.conn.mu.Lock()
	defer t.st.conn.mu.Unlock()
	t.writeBy = at
	signal(t.st.opened)
	return nil
}

func (t *tunnel) SetDeadline(at time.Time) error {
	_ = t.SetReadDeadline(at)
	return t.SetWriteDeadline(at)
}

func (t *tunnel) LocalAddr() net.Addr  { return t.st.conn.client.LocalAddr() }
func (t *tunnel) RemoteAddr() net.Addr { return t.st.conn.client.RemoteAddr() }
