package socket

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
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
	_ = near.SetDeadline(time.Now().Add(time.Minute))
	return New(near).(*Conn), far
}

// until asks again until the answer is yes.
func until(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !yes(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// A request that the kernel does not take at once is sent all the same, and the answer comes after it.
func TestAsk(t *testing.T) {
	for _, size := range []int{1, 1 << 10, 64 << 20} {
		s, far := pair(t)
		request := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)
		var wait sync.WaitGroup
		wait.Go(func() {
			got := make([]byte, len(request))
			if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, request) {
				t.Errorf("%d bytes: another request, or %v", len(request), err)
			}
			_, _ = io.WriteString(far, "answer")
		})
		if _, err := s.Ask(request); err != nil {
			t.Errorf("%d bytes: %v", len(request), err)
		}
		got := make([]byte, 6)
		if _, err := io.ReadFull(s, got); err != nil || string(got) != "answer" {
			t.Errorf("%d bytes: %q, %v", len(request), got, err)
		}
		wait.Wait()
	}
}

// What has gone wrong shows where it did: in sending, or in reading.
func TestAskInVain(t *testing.T) {
	s, far := pair(t)
	b := make([]byte, 1)
	_ = s.SetDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := s.Ask([]byte("request")); err != nil {
		t.Errorf("sending, within the time: %v", err)
	}
	if _, err := s.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reading, out of time: %v", err)
	}
	if _, err := s.Ask([]byte("request")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("sending, out of time: %v", err)
	}
	_ = s.SetDeadline(time.Time{})
	far.Close()
	if _, err := s.Read(b); err == nil {
		t.Error("something was read of a closed connection")
	}
	if _, err := s.Ask([]byte("request")); err == nil { // the first of these is answered by a reset
		until(t, "the reset is here", func() bool { _, err := s.Ask([]byte("request")); return err != nil })
	}
	s.Close()
	_, _ = s.Ask([]byte("request"))
	if _, err := s.Read(b); !errors.Is(err, net.ErrClosed) {
		t.Errorf("reading, closed: %v", err)
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

// Only a connection that reads on and on without a wait goes through entersyscall: a wait begins the count anew.
func TestWaitsGoThroughTheScheduler(t *testing.T) {
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
