package socket

import (
	"fmt"
	"net/netip"
	"syscall"
	"time"
	"unsafe"
)

// Numbers that package syscall does not have, the same on all Linux ports.
const (
	ipBindAddressNoPort = 24 // IP_BIND_ADDRESS_NO_PORT, ip(7)
	// epoll_pwait2(2), Linux 5.11: epoll_wait with a timeout in nanoseconds
	sysEpollPwait2 = 441
	epollET        = 1 << 31
)

// Poller waits for many sockets at once. One goroutine owns it.
type Poller struct {
	fd     int
	coarse bool // the kernel has no epoll_pwait2
	buf    [256]syscall.EpollEvent
}

// Event says that the socket registered under the tag may be read or written again.
type Event struct {
	Slot, Generation int32
	Hangup           bool // the peer closed, or an error waits: read to the end
}

// NewPoller returns one that waits for nothing yet. The caller closes it.
func NewPoller() (*Poller, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("loadgen: epoll: %w", err)
	}
	return &Poller{fd: fd}, nil
}

// Close gives its descriptor back; sockets stay open.
func (p *Poller) Close() { syscall.Close(p.fd) }

// Add registers a socket once for its whole life: edge-triggered, for both directions, which spares
// a system call per change of mind.
func (p *Poller) Add(fd int, e Event) error {
	return syscall.EpollCtl(p.fd, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{
		Events: syscall.EPOLLIN | syscall.EPOLLOUT | syscall.EPOLLRDHUP | epollET,
		Fd:     e.Slot,
		Pad:    e.Generation,
	})
}

// Wait appends what happened to events, after at most d.
func (p *Poller) Wait(d time.Duration, events []Event) ([]Event, error) {
	n, err := p.sleep(d)
	if err != nil && err != syscall.EINTR {
		return events, fmt.Errorf("loadgen: epoll: %w", err)
	}
	for i := range max(n, 0) {
		e := &p.buf[i]
		hangup := e.Events&(syscall.EPOLLRDHUP|syscall.EPOLLHUP|syscall.EPOLLERR) != 0
		events = append(events, Event{e.Fd, e.Pad, hangup})
	}
	return events, nil
}

// nap is a sleep too short for answers to end it: at tens of thousands of requests a second an
// answer is read that much later and together with others, and the next request goes out when it is
// due.
const nap = 50 * time.Microsecond

// sleep waits for an event, or after a nap only looks for some. A short call need not go through
// entersyscall: that would give this thread's processor to another goroutine, and the thread would
// have to get it back.
func (p *Poller) sleep(d time.Duration) (int, error) {
	ts := syscall.NsecToTimespec(int64(max(d, 0)))
	if d < nap {
		if d > 0 {
			// A signal cuts it short: no harm
			syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
		}
		n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(p.fd),
			uintptr(unsafe.Pointer(&p.buf[0])), uintptr(len(p.buf)), 0, 0, 0)
		if errno != 0 {
			return 0, errno
		}
		return int(n), nil
	}
	if !p.coarse {
		n, _, errno := syscall.Syscall6(sysEpollPwait2, uintptr(p.fd),
			uintptr(unsafe.Pointer(&p.buf[0])),
			uintptr(len(p.buf)), uintptr(unsafe.Pointer(&ts)), 0, 0)
		if errno == 0 {
			return int(n), nil
		}
		if errno != syscall.ENOSYS && errno != syscall.EPERM {
			return 0, errno
		}
		p.coarse = true
	}
	return syscall.EpollWait(p.fd, p.buf[:], int(d/time.Millisecond))
}

// FineTimers asks the kernel to wake this thread when it asked to be, not up to 50 µs later
// (prctl(2)).
func FineTimers() {
	const prSetTimerSlack = 29
	syscall.Syscall(syscall.SYS_PRCTL, prSetTimerSlack, 1, 0)
}

// Dial starts a connection to an IPv4 address, from the given one if it is valid. It does not wait
// for it to stand: writing before that gives ErrAgain. The port is chosen when connecting and not
// when binding, so that only the four-tuple must be unique and not the port.
func Dial(from netip.Addr, to netip.AddrPort) (int, error) {
	fd, err := syscall.Socket(syscall.AF_INET,
		syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, sentinel(err)
	}
	err = connect(fd, from, to)
	if err != nil {
		syscall.Close(fd)
		return -1, sentinel(err)
	}
	return fd, nil
}

func connect(fd int, from netip.Addr, to netip.AddrPort) error {
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err != nil {
		return err
	}
	if from.IsValid() {
		if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, ipBindAddressNoPort,
			1); err != nil {
			return err
		}
		if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: from.As4()}); err != nil {
			return err
		}
	}
	err := syscall.Connect(fd, &syscall.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	if err == syscall.EINPROGRESS {
		return nil
	}
	return err
}

// Write gives ErrAgain where it would have to wait.
func Write(fd int, b []byte) (int, error) { return transfer(syscall.SYS_WRITE, fd, b) }

// Read gives ErrAgain where it would have to wait, and 0 bytes at the end of the stream.
func Read(fd int, b []byte) (int, error) { return transfer(syscall.SYS_READ, fd, b) }

// transfer makes a call that never waits, and so need not go through entersyscall.
func transfer(call uintptr, fd int, b []byte) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall(call, uintptr(fd),
			uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return 0, sentinel(errno)
		}
	}
}

// Close closes a socket.
func Close(fd int) { syscall.Close(fd) }

// Abort closes a connection with a reset: thousands a second would soon use up all ports otherwise,
// each for a minute.
func Abort(fd int) {
	_ = syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER,
		&syscall.Linger{Onoff: 1})
	Close(fd)
}

// sentinel names the outcomes of a socket call that a replay distinguishes.
func sentinel(err error) error {
	switch err {
	case nil:
		return nil
	case syscall.EAGAIN, syscall.ENOTCONN:
		return ErrAgain
	case syscall.ECONNREFUSED:
		return ErrRefused
	case syscall.ECONNRESET, syscall.EPIPE:
		return ErrReset
	case syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM:
		return ErrExhausted
	}
	return err
}
