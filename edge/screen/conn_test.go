package screen

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"sluice/edge/socket"
)

// A body that is given up because the time for all of it is over was late, whatever its reader was about.
func TestAbortedBodyIsLate(t *testing.T) {
	near, _ := net.Pipe()
	c := &Client{Conn: near, Raw: near, Site: &Site{}}
	c.StartBody(time.Second, time.Second)
	c.AbortBody()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

func TestReadOfARetiredConnection(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	raw := socket.New(accepted)
	defer raw.Close()
	l := &Site{}
	l.Retired.Store(1)
	f := func(what string, change func(*Client), want error) {
		t.Helper()
		c := &Client{Conn: raw, Raw: raw, Site: l, readDue: time.Now().Add(time.Minute)}
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
