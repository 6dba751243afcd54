package edge

import (
	"io"
	"os"
	"syscall"
)

// A visit sends the head of a request and reads the beginning of its answer, without a look for an answer that cannot be there
// yet: the poller is told to watch before the request is written, and the socket is read when it says so.
type visit struct {
	step  func(fd uintptr) (done bool)
	ask   []byte // what is left of the request; nil: there is no visit
	asked bool   // it has been written, as far as it went
	into  []byte // where the answer goes
	n     int    // how much of it came
	err   error  // of the last step
}

// ask sends the head of a request that has no body, and waits for the first bytes of the answer, which are in br then. An error
// is one of sending: the origin may have answered all the same. One of reading shows when br is read.
func (l *link) ask(head []byte) error {
	if l.raw == nil || l.secure != nil {
		_, err := l.Conn.Write(head)
		return err
	}
	v := &l.visit
	v.ask, v.asked, v.err = head, false, nil
	_, _ = l.br.Peek(1)
	v.ask = nil
	if v.asked {
		return nil
	}
	return v.err
}

// Read is for br.
func (l *link) Read(p []byte) (int, error) {
	v := &l.visit
	if v.ask == nil {
		return l.Conn.Read(p)
	}
	v.into = p
	err := l.raw.Read(v.step)
	v.into = nil
	switch {
	case err != nil: // the time is up, or the connection has been closed
		return 0, err
	case !v.asked:
		if v.err == nil {
			_, v.err = l.Conn.Write(v.ask) // it is too long for the kernel to take at once
		}
		if v.asked = v.err == nil; !v.asked {
			return 0, v.err
		}
		return l.Conn.Read(p)
	case v.err != nil:
		return 0, os.NewSyscallError("read", v.err)
	case v.n == 0:
		return 0, io.EOF
	}
	return v.n, nil
}

// step is called with the socket: first to write the request, which is what the poller waits for the answer of, and then whenever there
// may be something to read.
func (l *link) step(fd uintptr) (done bool) {
	v := &l.visit
	if !v.asked {
		n, err := uninterrupted(syscall.Write, fd, v.ask)
		v.ask = v.ask[n:]
		if v.asked = len(v.ask) == 0; !v.asked && err != syscall.EAGAIN {
			v.err = err
		}
		return !v.asked
	}
	v.n, v.err = uninterrupted(syscall.Read, fd, v.into)
	return v.err != syscall.EAGAIN
}

// uninterrupted makes a system call until no signal interrupts it.
func uninterrupted(call func(int, []byte) (int, error), fd uintptr, p []byte) (int, error) {
	for {
		n, err := call(int(fd), p)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
