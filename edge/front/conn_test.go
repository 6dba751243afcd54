package front

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"sluice/edge/socket"
)

// A body that is given up because the time for all of it is over was late at once, whatever its reader was about: it may have been in a
// read, or just before one, for which it sets a deadline of its own.
func TestAbortedBodyIsLate(t *testing.T) {
	f := func(what string, abort func(*Client)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer far.Close()
			c := &Client{Conn: near, Raw: near, Server: &Server{}}
			c.StartBody(time.Hour, time.Hour)
			began := time.Now()
			abort(c)
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 0 {
				t.Errorf("%s: %v after %v", what, err, time.Since(began))
			}
		})
	}
	f("before a read", (*Client).AbortBody)
	f("in a read", func(c *Client) {
		go func() {
			synctest.Wait()
			c.AbortBody()
		}()
	})
}

func TestReadOfARetiredConnection(t *testing.T) {
	client, accepted := connected(t)
	raw := socket.New(accepted)
	defer raw.Close()
	l := &Server{}
	l.Retired.Store(1)
	f := func(what string, change func(*Client), want error) {
		t.Helper()
		c := &Client{Conn: raw, Raw: raw, Server: l, readDue: time.Now().Add(time.Minute)}
		change(c)
		c.ReadBy = c.readDue
		_ = raw.SetReadDeadline(socket.LongAgo)
		n, err := c.Read(make([]byte, 1))
		if !errors.Is(err, want) || (n == 1) != (want == nil) {
			t.Errorf("%s: %d, %v, want %v", what, n, err, want)
		}
		if c.Linger.Load() != (want == io.EOF) {
			t.Errorf("%s: lingers %t", what, c.Linger.Load())
		}
	}
	f("idle", func(*Client) {}, io.EOF)
	f("in a head whose time is up", func(c *Client) { c.heading, c.readDue = true, time.Now() }, os.ErrDeadlineExceeded)
	f("aborted", func(c *Client) { c.aborted.Store(true) }, os.ErrDeadlineExceeded)
	if _, err := client.Write([]byte("ab")); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !(&Client{Raw: raw}).Waiting(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the bytes did not come within 10 s")
		}
	}
	f("a request has just arrived", func(*Client) {}, nil)
	f("in a head", func(c *Client) { c.heading = true }, nil)
}

// connected is a connection over TCP at both its ends, until the test is over.
func connected(t *testing.T) (client, accepted net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if accepted, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	return client, accepted
}
