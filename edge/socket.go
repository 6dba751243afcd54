package edge

import (
	"io"
	"net"
	"os"
	"syscall"
)

// A socket is a connection of the kernel's, read and written with system calls that the scheduler does not hear of (system_linux.go):
// they never block, so nothing is gained by telling it, and on a busy machine its monitor thread, which watches who is told of,
// takes a tenth of the edge's time. Waiting, deadlines and closing are those of package net.
//
// One goroutine may read while another writes.
type socket struct {
	net.Conn
	raw    syscall.RawConn
	in     transfer
	out    transfer
	asking []byte // a request that the next Read sends first
	failed error  // of sending it
	look   func(fd uintptr)
	ahead  transfer // what look saw
}

// A transfer is a read or a write under way.
type transfer struct {
	step func(fd uintptr) (done bool)
	p    []byte
	n    int
	err  error
}

// newSocket returns c itself if it is none of the kernel's.
func newSocket(c net.Conn) net.Conn {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return c
	}
	s := &socket{Conn: c, raw: raw}
	s.in.step, s.out.step = s.read, s.write
	return s
}

func (s *socket) Read(p []byte) (int, error) {
	t := &s.in
	t.p = p
	err := s.raw.Read(t.step)
	t.p = nil
	switch {
	case err != nil: // the time is up, or the connection has been closed
		return 0, err
	case s.asking != nil:
		return s.readAfterAsking(p)
	case t.err != nil:
		return 0, os.NewSyscallError("read", t.err)
	case t.n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return t.n, nil
}

// readAfterAsking sends what the kernel did not take of the request at once, in the usual way, and then reads.
func (s *socket) readAfterAsking(p []byte) (int, error) {
	if s.failed == nil {
		_, s.failed = s.Write(s.asking)
	}
	s.asking = nil
	if s.failed != nil {
		return 0, s.failed
	}
	return s.Read(p)
}

// read is a step of Read: it sends the request, if there is one, and then reads whenever there may be something to read.
func (s *socket) read(fd uintptr) (done bool) {
	t := &s.in
	if s.asking != nil {
		n, err := systemWrite(fd, s.asking)
		if n == len(s.asking) {
			s.asking = nil
			return false // no answer can be there yet, and the poller has been told to watch
		}
		if s.asking = s.asking[n:]; err != nil && err != syscall.EAGAIN {
			s.failed = os.NewSyscallError("write", err)
		}
		return true
	}
	t.n, t.err = systemRead(fd, t.p)
	return t.err != syscall.EAGAIN
}

func (s *socket) Write(p []byte) (int, error) {
	t := &s.out
	t.p, t.n, t.err = p, 0, nil
	err := s.raw.Write(t.step)
	t.p = nil
	if err == nil && t.err != nil {
		err = os.NewSyscallError("write", t.err)
	}
	return t.n, err
}

func (s *socket) write(fd uintptr) (done bool) {
	t := &s.out
	for t.n < len(t.p) {
		n, err := systemWrite(fd, t.p[t.n:])
		if err == syscall.EAGAIN {
			return false
		}
		if err != nil {
			t.err = err
			return true
		}
		t.n += n
	}
	return true
}

// peek returns how many bytes there are to read, at most 1, or the error that a read would give: EAGAIN where there is nothing yet.
func (s *socket) peek() (n int, err error) {
	if s.look == nil {
		s.look = func(fd uintptr) { s.ahead.n, s.ahead.err = systemPeek(fd) }
	}
	if err := s.raw.Control(s.look); err != nil {
		return 0, err
	}
	return s.ahead.n, s.ahead.err
}
