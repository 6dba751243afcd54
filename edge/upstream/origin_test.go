package upstream

import (
	"io"
	"net"
	"net/url"
	"runtime"
	"testing"
	"time"
)

// A kept connection on which a body may still come rests first: until then others are taken, or a new one is made. What has come by the end of
// it ends the connection.
func TestLinksRest(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 8)
	go func() {
		defer close(accepted)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	o := NewOrigin(&url.URL{Scheme: "http", Host: ln.Addr().String()})
	t.Cleanup(func() {
		ln.Close()
		o.Retire()
		for c := range accepted {
			c.Close()
		}
	})
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	take := func(ms int) *Link {
		t.Helper()
		l, err := o.Acquire(at(ms), false, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	a := take(0)
	far := <-accepted
	defer far.Close()
	if !a.RestFrom(at(0)) {
		t.Fatal("a connection may not rest")
	}
	o.Release(a, at(0), time.Minute)
	b := take(int(restTime/time.Millisecond) - 1)
	if b == a || b.Reused {
		t.Error("a connection is taken before it has rested")
	}
	o.Release(b, at(1), time.Minute)
	c := take(2)
	if c != b {
		t.Error("one that rests stands in the way of another")
	}
	d := take(int(restTime / time.Millisecond))
	if d != a || !d.Reused {
		t.Error("a connection that has rested is not taken")
	}
	o.Release(d, at(100), time.Minute)
	if e := take(100); e != a {
		t.Error("a connection rests again, although nothing was announced on it")
	}
	if !a.RestFrom(at(200)) {
		t.Fatal("a connection may not rest")
	}
	o.Release(a, at(200), time.Minute)
	if _, err := io.WriteString(far, "late"); err != nil {
		t.Fatal(err)
	}
	for a.quiet() { // it is on its way
		runtime.Gosched()
	}
	if e := take(300); e == a {
		t.Error("a connection is taken on which something has come while it rested")
	} else if e.RestFrom(at(300)) {
		t.Error("a connection to an origin that has sent what an answer must not have is to be used again")
	} else {
		e.Close()
	}
	b.Close()
}
