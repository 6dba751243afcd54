package front

import (
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"sluice/edge/socket"
)

// A client that has closed one direction counts against no cap for a while, and then counts again. It has gone when it
// resets the connection.
func TestWatchOfAHalfClosedClient(t *testing.T) {
	client, accepted := connected(t)
	raw := socket.New(accepted)
	defer raw.Close()
	saw := make(chan string, 3)
	site := &Server{
		Leave:  func(*Client) { saw <- "leaves" },
		Return: func(*Client) bool { saw <- "counts"; return true },
	}
	var w watch
	w.start(&Client{Conn: raw, Raw: raw, Server: site}, nil, func() { saw <- "gone" })
	expect := func(want ...string) {
		t.Helper()
		for _, want := range want {
			select {
			case got := <-saw:
				if got != want {
					t.Errorf("%s, want %s", got, want)
				}
			case <-time.After(time.Minute):
				t.Fatalf("nothing, want %s", want)
			}
		}
	}
	_ = client.(*net.TCPConn).CloseWrite()
	expect("leaves", "counts")
	_ = client.(*net.TCPConn).SetLinger(0)
	client.Close()
	expect("leaves", "gone")
	w.stop()
}

// A client that has closed one direction, and whose source has no room for it when it is to count
// again, is cut: by closing, no source has more connections than its cap.
func TestWatchCutsAHalfClosedClientAboveTheCap(t *testing.T) {
	client, accepted := connected(t)
	raw, gone := socket.New(accepted), make(chan struct{})
	defer raw.Close()
	site := &Server{Leave: func(*Client) {}, Return: func(*Client) bool { return false }}
	var w watch
	w.start(&Client{Conn: raw, Raw: raw, Server: site}, nil, func() { close(gone) })
	_ = client.(*net.TCPConn).CloseWrite()
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Fatal("the client is waited for")
	}
	w.stop()
	_ = client.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := client.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the client got %d bytes, %v", n, err)
	}
}

// A watch that waits at the client's socket has its own read deadline there, and one that ends leaves one that is over. Who reads from the
// client next must know, or a client would be cut whose answer took a while.
func TestWatchLeavesNoDeadline(t *testing.T) {
	_, accepted := connected(t)
	raw, due := socket.New(accepted), time.Now().Add(time.Hour)
	defer raw.Close()
	c := &Client{Conn: raw, Raw: raw, Server: &Server{HalfClosed: time.Hour}}
	var w watch
	for _, waits := range []bool{false, true, false} {
		c.ReadBy = due
		w.start(c, nil, func() { t.Error("the client has gone") })
		if waits {
			w.timer.Reset(0)
			for end := time.Now().Add(time.Minute); !w.waiting.Load(); runtime.Gosched() {
				if time.Now().After(end) {
					t.Fatal("nobody looks")
				}
			}
		} else {
			w.timer.Reset(time.Hour)
		}
		w.stop()
		if c.ReadBy.IsZero() != waits {
			t.Errorf("having waited %v: the deadline is taken for %v", waits, c.ReadBy)
		}
	}
}
