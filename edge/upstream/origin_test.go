package upstream

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"sluice/edge/socket"
)

// pair is a link to the other end of a connection.
func pair(t *testing.T) (*Link, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return &Link{Conn: socket.New(near)}, far
}

// A request that the kernel does not take at once is sent all the same, and the answer comes after it.
func TestAsk(t *testing.T) {
	for _, size := range []int{1, 1 << 10, 64 << 20} {
		l, far := pair(t)
		request := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)
		var wait sync.WaitGroup
		wait.Go(func() {
			got := make([]byte, len(request))
			if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, request) {
				t.Errorf("%d bytes: another request, or %v", len(request), err)
			}
			_, _ = io.WriteString(far, "answer")
		})
		if _, err := l.Ask(request); err != nil {
			t.Errorf("%d bytes: %v", len(request), err)
		}
		if got, err := l.Reader.Peek(6); err != nil || string(got) != "answer" {
			t.Errorf("%d bytes: %q, %v", len(request), got, err)
		}
		wait.Wait()
	}
}

// What has gone wrong shows where it did: in sending, or in reading.
func TestAskInVain(t *testing.T) {
	l, far := pair(t)
	_ = l.SetDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := l.Ask([]byte("request")); err != nil {
		t.Errorf("sending, within the time: %v", err)
	}
	if _, err := l.Reader.Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reading, out of time: %v", err)
	}
	if _, err := l.Ask([]byte("request")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("sending, out of time: %v", err)
	}
	_ = l.SetDeadline(time.Time{})
	far.Close()
	if _, err := l.Reader.Peek(1); err == nil {
		t.Error("something was read of a closed connection")
	}
	if _, err := l.Ask([]byte("request")); err == nil { // the first of these is answered by a reset
		for err == nil { // until that is here
			_, err = l.Ask([]byte("request"))
		}
	}
	l.Close()
	_, _ = l.Ask([]byte("request"))
	if _, err := l.Reader.Peek(1); !errors.Is(err, net.ErrClosed) {
		t.Errorf("reading, closed: %v", err)
	}
}
