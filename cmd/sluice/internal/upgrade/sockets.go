package upgrade

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// What a process finds in its environment about listening sockets it has been given, from descriptor 3 on.
const (
	handedSockets = "SLUICE_SOCKETS" // by an older process of ours: names, separated by colons
	handedPipes   = "SLUICE_PIPES"   // the descriptors of its pipes: where to say ready, where mitigations come from

	handedCounters = "SLUICE_COUNTERS" // and where counters come from, if they do
)

// A socket is a place to listen at, under the name of the flag or field that says where.
type socket struct {
	name string
	net.Listener
}

// Sockets are those that this process was given or has opened, in order.
type Sockets struct {
	given map[string]net.Listener
	open  []socket
}

// GivenSockets takes over what an older process of ours or systemd (sd_listen_fds(3)) has opened. Of systemd's, those named
// listen, listen_tls, admin, peers_listen and rate_limit_service (FileDescriptorName=) are these; the first without such a name is listen.
func GivenSockets() (*Sockets, error) {
	s := &Sockets{given: make(map[string]net.Listener)}
	var names []string
	if text := os.Getenv(handedSockets); text != "" {
		names = strings.Split(text, ":")
	} else if n, err := strconv.Atoi(os.Getenv("LISTEN_FDS")); err == nil && n > 0 && os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid()) {
		names = make([]string, n)
		copy(names, strings.Split(os.Getenv("LISTEN_FDNAMES"), ":"))
	}
	for _, name := range []string{handedSockets, "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"} {
		os.Unsetenv(name) // not for our own children
	}
	for i, name := range names {
		f := os.NewFile(uintptr(3+i), name)
		syscall.CloseOnExec(3 + i)
		ln, err := net.FileListener(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("the socket given as descriptor %d cannot be listened on: %w", 3+i, err)
		}
		switch name {
		case "listen", "listen_tls", "admin", "peers_listen", "rate_limit_service":
		default:
			name = "listen"
		}
		if s.given[name] != nil {
			ln.Close()
			return nil, fmt.Errorf("two sockets were given for %s: name them listen, listen_tls, admin, peers_listen or rate_limit_service (FileDescriptorName=)", name)
		}
		s.given[name] = ln
	}
	return s, nil
}

// Listen returns the socket that was given under a name, or opens one at the address.
func (s *Sockets) Listen(name, address string) (net.Listener, error) {
	ln := s.given[name]
	delete(s.given, name)
	if ln == nil {
		var err error
		if ln, err = listen(name, address); err != nil {
			return nil, err
		}
	}
	if u, ok := ln.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // another process may have it; whoever listens next removes what is left
	}
	s.open = append(s.open, socket{name, ln})
	return ln, nil
}

// Close closes what was given and not wanted, and, after a failure to start, what is open.
func (s *Sockets) Close(all bool) {
	for _, ln := range s.given {
		ln.Close()
	}
	if all {
		for _, o := range s.open {
			o.Close()
		}
	}
}

func listen(what, address string) (net.Listener, error) {
	network := "tcp"
	path, unix := strings.CutPrefix(address, "unix:")
	if unix {
		network = "unix"
		removeStale(path)
	} else {
		path = address
	}
	// Plain TCP: what is set on a multipath socket, Go's default, is not inherited by the connections accepted from it.
	// Without keep-alive probes: whatever waits for a client has a deadline, and setting them costs four system calls a connection.
	config := net.ListenConfig{KeepAlive: -1}
	config.SetMultipathTCP(false)
	ln, err := config.Listen(context.Background(), network, path)
	if err != nil {
		return nil, ListenError(what, address, err)
	}
	return ln, nil
}

// ListenError says why one cannot listen, and what to do.
func ListenError(what, address string, err error) error {
	flag := "--" + what
	switch what {
	case "listen_tls", "peers_listen":
		flag = what
	case "rate_limit_service":
		flag = what + ".listen"
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s %s: the port is in use: stop what uses it or choose another with %s", what, address, flag)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s %s: this user may not listen there: choose a port above 1023 with %s", what, address, flag)
	}
	return fmt.Errorf("%s %s: one cannot listen there (%w): give an address of this machine with %s", what, address, err, flag)
}

// removeStale removes a Unix socket that nobody listens on any more.
func removeStale(path string) {
	if info, err := os.Stat(path); err != nil || info.Mode()&os.ModeSocket == 0 {
		return
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		os.Remove(path)
	}
}
