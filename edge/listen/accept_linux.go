package listen

import (
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	// shedInARow connections shed one after the other start the shedder. The one to keep that stops
	// it costs some system calls, so there must be reason to expect more to shed.
	shedInARow = 8
	// shedAtOnce is how many are shed before the rest of the process has its turn, for yieldTime at
	// least: the scheduler does not see acceptKept's system calls, and on one processor looks for
	// other work only while that waits.
	shedAtOnce = 256
	yieldTime  = 20 * time.Microsecond
)

// An acceptShedder works while a listener gets connections to shed and no others. They are then
// closed by their descriptors, with two raw system calls, which skip entersyscall, so sysmon is not
// woken. Accept and Close of package net make six for each, and the first of them, when the process
// had nothing to do, wakes it, which costs more than they do.
type acceptShedder struct {
	shed int // connections shed since the last one that was not
	// The listening socket once more, to wait for connections without net; nil: the shedder rests
	file atomic.Pointer[os.File]
}

// next accepts a connection.
func (l *Listener) next() (net.Conn, error) {
	if l.shedder.shed < shedInARow {
		l.shedder.stop()
	} else if c := l.acceptKept(); c != nil {
		return c, nil
	}
	return l.Listener.Accept()
}

// stop stops the shedder; a call of acceptKept returns.
func (s *acceptShedder) stop() {
	if f := s.file.Swap(nil); f != nil {
		f.Close()
	}
}

// acceptKept sheds connections until it has one to keep, which it returns. It returns nil when
// Accept is to be called: the listener stops, or something is wrong, and Accept returns the error.
func (l *Listener) acceptKept() net.Conn {
	f := l.shedder.file.Load()
	if f == nil {
		if f = duplicate(l.Listener); f == nil {
			return nil
		}
		l.shedder.file.Store(f)
	}
	if l.stopping.Load() { // perhaps before there was a file to close
		l.shedder.stop()
		return nil
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	for {
		var kept int
		var errno syscall.Errno
		err := raw.Read(func(socket uintptr) bool {
			kept, errno = l.shedWaiting(socket)
			return errno != syscall.EAGAIN
		})
		switch {
		case err != nil || errno != 0:
			return nil
		case kept >= 0:
			return l.keep(kept)
		}
		time.Sleep(yieldTime)
	}
}

// shedWaiting sheds connections that wait to be accepted, and returns the first to keep; -1 without
// an error: there may be more.
func (l *Listener) shedWaiting(socket uintptr) (kept int, errno syscall.Errno) {
	for range shedAtOnce {
		fd, peer, errno := accept(socket)
		switch {
		case errno != 0:
			return -1, errno
		case !l.Shed(peer):
			return fd, 0
		}
		_, _, _ = syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(fd), 0, 0)
	}
	return -1, 0
}

// keep stops the shedder: first, so that there is a descriptor for the duplicate that FileConn
// makes.
func (l *Listener) keep(fd int) net.Conn {
	l.shedder.stop()
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		l.Stats.AcceptFails.Add(1)
		return nil
	}
	return c
}

// duplicate returns the listening socket as a file that can be waited on, or nil: it is not of TCP,
// it is closed, or there are no descriptors.
func duplicate(ln net.Listener) *os.File {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	var f *os.File
	_ = raw.Control(func(socket uintptr) {
		if fd, _, errno := syscall.Syscall(syscall.SYS_FCNTL, socket, syscall.F_DUPFD_CLOEXEC,
			0); errno == 0 {
			f = os.NewFile(fd, "")
		}
	})
	return f
}

// accept is accept4(2) on a socket that does not block. The connection it returns does.
func accept(socket uintptr) (fd int, peer netip.Addr, errno syscall.Errno) {
	var from syscall.RawSockaddrInet6 // the larger one
	size := uint32(unsafe.Sizeof(from))
	n, _, errno := syscall.RawSyscall6(syscall.SYS_ACCEPT4, socket,
		uintptr(unsafe.Pointer(&from)), uintptr(unsafe.Pointer(&size)), syscall.SOCK_CLOEXEC, 0, 0)
	switch from.Family {
	case syscall.AF_INET:
		peer = netip.AddrFrom4((*syscall.RawSockaddrInet4)(unsafe.Pointer(&from)).Addr)
	case syscall.AF_INET6:
		peer = netip.AddrFrom16(from.Addr).Unmap()
	}
	return int(n), peer, errno
}
