package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// pair is a connection, and its other end.
func pair(t *testing.T) (s *Conn, far net.Conn) {
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
	far, err = ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return New(near).(*Conn), far
}

// until asks again until the answer is yes.
func until(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !yes(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func TestPeek(t *testing.T) {
	s, far := pair(t)
	if n, err := s.Peek(); n != 0 || err != syscall.EAGAIN {
		t.Errorf("nothing sent: %d, %v", n, err)
	}
	_, _ = io.WriteString(far, "ab")
	until(t, "a byte is there", func() bool { n, err := s.Peek(); return n == 1 && err == nil })
	got := make([]byte, 2)
	if _, err := io.ReadFull(s, got); string(got) != "ab" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	far.Close()
	until(t, "the end is there", func() bool { n, err := s.Peek(); return n == 0 && err == nil })
}

// Only who reads on and on without having to wait is heard of by the scheduler: whoever waits begins to count anew.
func TestWaitingIsHeardOf(t *testing.T) {
	s, far := pair(t)
	_, _ = io.WriteString(far, "0123456789")
	until(t, "ten bytes are there", func() bool { n, _ := s.Peek(); return n == 1 })
	b := make([]byte, 1)
	for i := range uint8(10) {
		if _, err := s.Read(b); err != nil || s.reads != i+1 {
			t.Fatalf("read %d: %v, and %d reads without a wait", i+1, err, s.reads)
		}
	}
	until(t, "a read has waited", func() bool { // with bad luck the time is up before the first try
		_ = s.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		_, err := s.Read(b)
		return errors.Is(err, os.ErrDeadlineExceeded) && s.reads == 0
	})
}
