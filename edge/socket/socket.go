// Package socket is connections of the kernel's, read and written with raw system calls that skip
// entersyscall (system_linux.go).
//
// They never block, so entersyscall, which reports a call to the scheduler, gains nothing. It wakes
// the monitor thread (sysmon), which then runs every 20 µs for a while and takes 5 to 12 % of an
// edge's time and more, most on a machine that is not quite busy. Waiting, deadlines and closing
// are those of package net. Under the race detector, and elsewhere than on Linux, the calls are the
// usual ones.
package socket

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// A Conn is a connection of the kernel's.
//
// One goroutine may read while another writes.
type Conn struct {
	net.Conn
	raw   syscall.RawConn
	in    transfer
	reads uint8 // since it had to wait
	out   transfer
	asked transfer // a request, and the wait for its answer
	look  func(fd uintptr)
	ahead transfer // what look saw

	try    func() (done bool) // see Await
	trying func(fd uintptr) (done bool)
	now    uintptr // the descriptor, while try is called: what is not there is not waited for
}

// MaxPath is how long the path of a Unix socket may be everywhere.
const MaxPath = 100

// LongAgo as a deadline wakes a reader.
var LongAgo = time.Unix(1, 0)

// pollEvery is after how many reads in a row without a wait one goes through entersyscall. It wakes
// the monitor thread, which lets other goroutines and the poller run; otherwise that would sleep on
// while the process is busy. A read that waits lets others run anyhow, and the monitor awake takes
// a tenth of the processor.
const pollEvery = 64

// A transfer is a read or a write under way.
type transfer struct {
	step func(fd uintptr) (done bool)
	p    []byte
	n    int
	err  error
}

// New returns c itself if it is none of the kernel's.
func New(c net.Conn) net.Conn {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return c
	}
	s := &Conn{Conn: c, raw: raw}
	s.in.step, s.out.step = s.read, s.write
	return s
}

func (s *Conn) Read(p []byte) (int, error) {
	if s.now != 0 {
		return readNow(s.now, p)
	}
	t := &s.in
	t.p = p
	err := s.raw.Read(t.step)
	t.p = nil
	switch {
	case err != nil: // the time is up, or the connection has been closed
		return 0, err
	case t.err != nil:
		return 0, os.NewSyscallError("read", t.err) // t.n may be -1
	case t.n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return t.n, nil
}

func (s *Conn) read(fd uintptr) (done bool) {
	t := &s.in
	if s.reads++; s.reads%pollEvery != 0 {
		t.n, t.err = systemRead(fd, t.p)
	} else if t.n, t.err = syscall.Read(int(fd), t.p); t.err == syscall.EINTR {
		return s.read(fd)
	}
	if t.err == syscall.EAGAIN {
		s.reads = 0
		return false
	}
	return true
}

// Ask writes a request and waits for something to read, without a look for an answer that cannot be
// there yet: the poller is armed before the request is written. It returns how much of it was. An
// error is one of writing; one of waiting shows when the socket is read.
func (s *Conn) Ask(request []byte) (sent int, err error) {
	if s.asked.step == nil {
		s.asked.step = s.askOnce
	}
	t := &s.asked
	t.p, t.err = request, nil
	_ = s.raw.Read(t.step)
	rest, err := t.p, t.err
	t.p, sent = nil, len(request)-len(rest)
	switch {
	case err != nil:
		return sent, os.NewSyscallError("write", err)
	case len(rest) > 0: // it is too long for the kernel to take at once
		n, err := s.Write(rest)
		return sent + n, err
	}
	return sent, nil
}

func (s *Conn) askOnce(fd uintptr) (done bool) {
	t := &s.asked
	if len(t.p) == 0 { // the poller has reported something
		s.reads = 0
		return true
	}
	n, err := systemWrite(fd, t.p)
	if t.p = t.p[n:]; err != syscall.EAGAIN {
		t.err = err
	}
	return len(t.p) > 0
}

func (s *Conn) Write(p []byte) (int, error) {
	t := &s.out
	t.p, t.n, t.err = p, 0, nil
	err := s.raw.Write(t.step)
	t.p = nil
	if err == nil && t.err != nil {
		err = os.NewSyscallError("write", t.err)
	}
	return t.n, err
}

func (s *Conn) write(fd uintptr) (done bool) {
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

// Await calls try until it is done: now, and again when there is something to read, within the read
// deadline, after which it returns an error. A read of s in try returns a timeout if there is
// nothing. So no buffer, and no stack of TLS, is needed while there is nothing to read.
func (s *Conn) Await(try func() (done bool)) error {
	if s.trying == nil {
		s.trying = s.tryOnce
	}
	s.try = try
	return s.raw.Read(s.trying)
}

func (s *Conn) tryOnce(fd uintptr) (done bool) {
	s.now = fd
	defer func() { s.now = 0 }()
	return s.try()
}

// ReadNow reads what is there, and returns a timeout if there is nothing: TLS goes on after that
// (net.Error).
func (s *Conn) ReadNow(p []byte) (n int, err error) {
	failed := s.raw.Control(func(fd uintptr) { n, err = readNow(fd, p) })
	if failed != nil {
		return 0, failed
	}
	return n, err
}

func readNow(fd uintptr, p []byte) (n int, err error) {
	switch n, err = systemRead(fd, p); {
	case err == syscall.EAGAIN:
		return 0, os.ErrDeadlineExceeded
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Peek returns how many bytes there are to read, at most 1, or the error that a read would give:
// EAGAIN where there is nothing yet.
func (s *Conn) Peek() (n int, err error) {
	if s.look == nil {
		s.look = func(fd uintptr) { s.ahead.n, s.ahead.err = systemPeek(fd) }
	}
	if err := s.raw.Control(s.look); err != nil {
		return 0, err
	}
	return s.ahead.n, s.ahead.err
}

// Hangup is what the other side of a connection has done with it.
type Hangup uint8

const (
	Open   Hangup = iota
	Closed        // in one direction, or in both
	Reset
)

// Hangup is what it has done by now. It sees an end behind unread bytes.
func (s *Conn) Hangup() (now Hangup) {
	if s.raw.Control(func(fd uintptr) { now = systemHangup(fd) }) != nil {
		return Reset
	}
	return now
}

// WaitHangup waits until the other side has closed the connection, or, once that is known, until it
// has reset it. It reads nothing, and sees an end behind bytes that nobody has read.
func (s *Conn) WaitHangup(closed bool) (now Hangup, err error) {
	err = s.raw.Read(func(fd uintptr) bool {
		now = systemHangup(fd)
		return now == Reset || now == Closed && !closed
	})
	return now, err
}

// UnsafeConn is the connection that s reads and writes around.
func (s *Conn) UnsafeConn() net.Conn { return s.Conn }

// Innermost looks through what wraps a connection of package net and shows it with UnsafeConn. It
// does not look through TLS.
func Innermost(c net.Conn) net.Conn {
	for {
		w, ok := c.(interface{ UnsafeConn() net.Conn })
		if !ok {
			return c
		}
		c = w.UnsafeConn()
	}
}
