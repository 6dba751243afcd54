package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// What a process finds in its environment about listening sockets it has been given, from
// descriptor 3 on.
const (
	handedSockets = "SLUICE_SOCKETS" // by an older process of ours: names, separated by colons
	// And for which address of its configuration it had each, in JSON
	handedAddresses = "SLUICE_ADDRESSES"
	// The descriptors of its pipes: where to say ready, where mitigations come from
	handedPipes = "SLUICE_PIPES"

	handedCounters = "SLUICE_COUNTERS" // and where counters come from, if they do
)

// A socket is an address to listen at, under the name of its flag or field, and the address that is
// configured for it.
type socket struct {
	name, address string
	net.Listener
}

// Sockets are those that this process was given or has opened, in order.
type Sockets struct {
	given map[string][]net.Listener
	// For which address an older process had one that it gave; none: it did not say, or systemd
	// gave it
	was      map[net.Listener]string
	open     []socket
	services []string // names of those for programs
	// They come from systemd, or another program that speaks its protocol: an address is what the
	// configuration says
	unit bool
}

// GivenSockets takes over what an older process of ours or systemd (sd_listen_fds(3)) has opened.
// Of systemd's, those named listen, listen_tls, admin, peers_listen and as services
// (FileDescriptorName=) are these; one without such a name is listen. Only listen and listen_tls
// may have several, of one address or of several.
func GivenSockets(services []string) (*Sockets, error) {
	s := &Sockets{given: make(map[string][]net.Listener), was: make(map[net.Listener]string),
		services: services}
	var names, addresses []string
	if text := os.Getenv(handedSockets); text != "" {
		names = strings.Split(text, ":")
		if err := json.Unmarshal([]byte(os.Getenv(handedAddresses)), &addresses); err != nil ||
			len(addresses) != len(names) {
			addresses = nil // it is of another version
		}
	} else if n, err := strconv.Atoi(os.Getenv("LISTEN_FDS")); err == nil && n > 0 &&
		os.Getenv("LISTEN_PID") == strconv.Itoa(os.Getpid()) {
		s.unit, names = true, make([]string, n)
		copy(names, strings.Split(os.Getenv("LISTEN_FDNAMES"), ":"))
	}
	for _, name := range []string{handedSockets, handedAddresses, "LISTEN_FDS", "LISTEN_PID",
		"LISTEN_FDNAMES"} {
		os.Unsetenv(name) // not for our own children
	}
	for i, name := range names {
		f := os.NewFile(uintptr(3+i), name)
		syscall.CloseOnExec(3 + i)
		ln, err := net.FileListener(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("the socket given as descriptor %d cannot be listened on: %w",
				3+i, err)
		}
		switch all := s.names(); {
		case !slices.Contains(all, name):
			name = "listen"
		case name != "listen" && name != "listen_tls" && s.given[name] != nil:
			ln.Close()
			last := len(all) - 1
			return nil, fmt.Errorf("two sockets were given for %s: name them %s or %s (FileDescriptorName=)",
				name, strings.Join(all[:last], ", "), all[last])
		}
		s.given[name] = append(s.given[name], ln)
		if addresses != nil {
			s.was[ln] = addresses[i]
		}
	}
	return s, nil
}

// Listen returns the sockets of each address. Those that were given under the name go to the
// address that an older process had them for, or that they have. Those of an older process that did
// not say go, in their order, to addresses that have none. One that systemd gave and that is at no
// configured address is an error: it would take the edge off the address that the file says. Of one
// address all are taken, whatever their number: to close one would lose the connections that wait
// in it. For an address without any it opens as many as are wanted.
func (s *Sockets) Listen(name string, addresses []string, wanted int) ([][]net.Listener, error) {
	given := byAddress(s.given[name])
	all := make([][]net.Listener, len(addresses))
	for _, fits := range []func(net.Listener, string) bool{
		func(l net.Listener, address string) bool { return s.was[l] == address },
		func(l net.Listener, address string) bool { return isAt(l.Addr(), address) },
		func(l net.Listener, _ string) bool { return !s.unit && s.was[l] == "" },
	} {
		for i, address := range addresses {
			if at := slices.IndexFunc(given, func(l []net.Listener) bool {
				return fits(l[0], address)
			}); all[i] == nil && at >= 0 {
				all[i] = given[at]
				given = slices.Delete(given, at, at+1)
			}
		}
	}
	s.given[name] = slices.Concat(given...)
	if err := s.Unwanted(name, addresses...); err != nil {
		s.keep(name, addresses, all)
		return nil, err
	}
	for i, address := range addresses {
		if all[i] == nil {
			var err error
			if all[i], err = listen(name, address, wanted); err != nil {
				s.keep(name, addresses, all)
				return nil, err
			}
		}
	}
	s.keep(name, addresses, all)
	return all, nil
}

// names are those that sockets may have.
func (s *Sockets) names() []string {
	return append([]string{"listen", "listen_tls", "admin", "peers_listen"},
		slices.Sorted(slices.Values(s.services))...)
}

// Refuse is Unwanted of all names for which nothing listens.
func (s *Sockets) Refuse() error {
	for _, name := range s.names() {
		if !slices.ContainsFunc(s.open, func(o socket) bool { return o.name == name }) {
			if err := s.Unwanted(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Unwanted is the error of sockets under a name that systemd gave and that are at none of the
// configured addresses.
func (s *Sockets) Unwanted(name string, addresses ...string) error {
	if !s.unit || len(s.given[name]) == 0 {
		return nil
	}
	configured := "there is no " + name
	if len(addresses) > 0 {
		configured = name + " is " + strings.Join(addresses, ", ")
	}
	return fmt.Errorf("a socket at %s was given to this process (LISTEN_FDS, as systemd does for a .socket unit), and %s: make both the same address, or disable the .socket unit",
		s.given[name][0].Addr(), configured)
}

// keep notes sockets as those that this process has.
func (s *Sockets) keep(name string, addresses []string, all [][]net.Listener) {
	for i, list := range all {
		for _, ln := range list {
			if u, ok := ln.(*net.UnixListener); ok {
				// Another process may have it; the next one to listen removes what is left
				u.SetUnlinkOnClose(false)
			}
			s.open = append(s.open, socket{name, addresses[i], ln})
		}
	}
}

// byAddress are sockets, those of one address together, in the order in which the addresses come.
func byAddress(list []net.Listener) (all [][]net.Listener) {
	for _, ln := range list {
		at := slices.IndexFunc(all, func(l []net.Listener) bool {
			return l[0].Addr().String() == ln.Addr().String()
		})
		if at < 0 {
			all = append(all, []net.Listener{ln})
		} else {
			all[at] = append(all[at], ln)
		}
	}
	return all
}

// isAt reports whether a socket listens at an address as it is configured. A host that is a name
// may stand for any one address.
func isAt(a net.Addr, address string) bool {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return "unix:"+a.String() == address
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != strconv.Itoa(tcp.Port) {
		return false
	}
	ip := net.ParseIP(host)
	switch {
	case host == "":
		return tcp.IP.IsUnspecified()
	case ip == nil:
		return !tcp.IP.IsUnspecified()
	}
	return ip.Equal(tcp.IP)
}

// Close closes what was given and not wanted, and, after a failure to start, what is open.
func (s *Sockets) Close(all bool) {
	for _, all := range s.given {
		for _, ln := range all {
			ln.Close()
		}
	}
	if all {
		for _, o := range s.open {
			o.Close()
		}
	}
}

// listen opens a socket at an address, and over TCP as many more as are wanted, between which the
// kernel shares out the connections (SO_REUSEPORT, socket(7)): each has its own queue, and a
// goroutine that accepts from it.
func listen(what, address string, wanted int) ([]net.Listener, error) {
	network := "tcp"
	path, local := strings.CutPrefix(address, "unix:")
	if local {
		network = "unix"
		removeStale(path)
	} else {
		path = address
	}
	// Plain TCP: what is set on a multipath socket, Go's default, is not inherited by the
	// connections accepted from it. Without keep-alive probes: whatever waits for a client has a
	// deadline, and setting them costs four system calls a connection.
	config := net.ListenConfig{KeepAlive: -1}
	config.SetMultipathTCP(false)
	first, err := config.Listen(context.Background(), network, path)
	if err != nil {
		return nil, ListenError(what, address, err)
	}
	all := []net.Listener{first}
	// Elsewhere the newest socket gets all connections
	if local || wanted <= 1 || runtime.GOOS != "linux" {
		return all, nil
	}
	// The first is bound without the option: so a port that another process uses is an error,
	// whether that has set the option or not.
	raw, err := first.(*net.TCPListener).SyscallConn()
	if err == nil {
		err = share(raw)
	}
	config.Control = func(_, _ string, raw syscall.RawConn) error { return share(raw) }
	for err == nil && len(all) < wanted {
		var more net.Listener
		if more, err = config.Listen(context.Background(), network,
			first.Addr().String()); err == nil {
			all = append(all, more)
		}
	}
	if err != nil {
		for _, ln := range all {
			ln.Close()
		}
		return nil, ListenError(what, address, err)
	}
	return all, nil
}

// share lets other sockets of this user have the port of one.
func share(raw syscall.RawConn) error {
	var err error
	if e := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}); e != nil {
		return e
	}
	return err
}

// ListenError explains a failure to listen, and what to do.
func ListenError(what, address string, err error) error {
	flag := what + ".listen" // of a module
	switch what {
	case "listen", "admin":
		flag = "--" + what
	case "listen_tls", "peers_listen":
		flag = what
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s %s: the port is in use: stop what uses it or choose another with %s",
			what, address, flag)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s %s: this user may not listen there: choose a port above 1023 with %s",
			what, address, flag)
	}
	return fmt.Errorf("%s %s: one cannot listen there (%w): give an address of this machine with %s", what, address, err, flag)
}

// removeStale removes a Unix socket without a listener.
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
