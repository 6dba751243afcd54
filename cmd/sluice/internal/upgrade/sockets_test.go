package upgrade

import (
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestUnixSocketIsTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := listen("listen", "unix:"+path, 4)
	if err != nil {
		t.Fatal(err)
	}
	if len(first) != 1 {
		t.Errorf("%d Unix sockets, want 1", len(first))
	}
	if _, err := listen("listen", "unix:"+path, 1); err == nil {
		t.Error("a socket in use was taken")
	}
	first[0].(*net.UnixListener).SetUnlinkOnClose(false)
	first[0].Close()
	again, err := listen("listen", "unix:"+path, 1)
	if err != nil {
		t.Fatal(err)
	}
	again[0].Close()
}

// Connections are spread over the sockets of one address, each of which gets its part within 20 %.
func TestSocketsShareConnections(t *testing.T) {
	const sockets, connections = 4, 8000
	all, err := listen("listen", "127.0.0.1:0", sockets)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != sockets {
		t.Fatalf("%d sockets, want %d", len(all), sockets)
	}
	accepted := make(chan int)
	for i, ln := range all {
		defer ln.Close()
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				c.Close()
				accepted <- i
			}
		}()
	}
	var got [sockets]int
	for range connections {
		c, err := net.Dial("tcp", all[0].Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		got[<-accepted]++
	}
	for i, n := range got {
		if mean := connections / sockets; n < mean*8/10 || n > mean*12/10 {
			t.Errorf("socket %d accepted %d of %d connections, want %d within 20 %%", i, n, connections, mean)
		}
	}
}

// A port that another process listens at is an error, although sockets that share a port may be opened by several processes.
func TestPortInUseIsNotShared(t *testing.T) {
	all, err := listen("listen", "127.0.0.1:0", 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, ln := range all {
		defer ln.Close()
	}
	if _, err := listen("listen", all[0].Addr().String(), 2); err == nil || !strings.Contains(err.Error(), "the port is in use") {
		t.Errorf("a second process on the port: %v", err)
	}
}

// Sockets that an older process handed over are listened on as they are, whatever number is wanted.
func TestGivenSocketsAreKept(t *testing.T) {
	handed, err := listen("listen", "127.0.0.1:0", 3)
	if err != nil {
		t.Fatal(err)
	}
	s := &Sockets{given: map[string][]net.Listener{"listen": handed}}
	defer s.Close(true)
	got, err := s.Listen("listen", []string{"127.0.0.1:0"}, 1)
	if err != nil || len(got) != 1 || len(got[0]) != 3 || len(s.open) != 3 {
		t.Errorf("%d sockets, %d to hand over (%v), want the 3 that were given", len(got), len(s.open), err)
	}
}

// Sockets of several listeners go to the listener that they were for, or whose address they have, wherever that stands in the list by now. One whose
// address was changed gets new ones, as one that is new, and those of an address that is gone are closed. Where an older
// process did not say which they were for, they are kept whatever their address is.
func TestGivenSocketsFindTheirListener(t *testing.T) {
	open := func(n int) (list []net.Listener, at string) {
		list, err := listen("listen", "127.0.0.1:0", n)
		if err != nil {
			t.Fatal(err)
		}
		return list, list[0].Addr().String()
	}
	a, atA := open(2)
	b, atB := open(1)
	c, atC := open(1)
	for _, test := range []struct {
		name string
		was  []string // of a, b and c
		want []string
		got  []int // which of the given sockets each has; -1: new ones
	}{
		{"as they were", []string{atA, atB, atC}, []string{atA, atB, atC}, []int{0, 2, 3}},
		{"in another order", []string{atA, atB, atC}, []string{atC, atA, atB}, []int{3, 0, 2}},
		{"one changed", []string{atA, atB, atC}, []string{atA, "127.0.0.1:0", atC}, []int{0, -1, 3}},
		{"all changed", []string{atA, atB, atC}, []string{"127.0.0.1:0", "127.0.0.2:0"}, []int{-1, -1}},
		{"one more", []string{atA, atB, atC}, []string{"127.0.0.1:0", atA, atB, atC}, []int{-1, 0, 2, 3}},
		{"one less", []string{atA, atB, atC}, []string{atC, atB}, []int{3, 2}},
		{"at any port", []string{"127.0.0.1:0", atB, atC}, []string{atB, "127.0.0.1:0"}, []int{2, 0}},
		{"unsaid, for others", []string{":80", ":81", atC}, []string{":81", ":80", atC}, []int{2, 0, 3}},
		{"unsaid", nil, []string{":81", atA, ":80"}, []int{2, 0, 3}},
	} {
		given := slices.Concat(a, b, c)
		s := &Sockets{given: map[string][]net.Listener{"listen": given}, was: make(map[net.Listener]string)}
		for i, ln := range given {
			if test.was != nil {
				s.was[ln] = test.was[max(0, i-1)]
			}
		}
		all, err := s.Listen("listen", test.want, 1)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		for i, has := range all {
			if got := slices.Index(given, has[0]); got != test.got[i] {
				t.Errorf("%s: %s has socket %d, want %d", test.name, test.want[i], got, test.got[i])
			}
			if slices.Index(given, has[0]) < 0 {
				has[0].Close()
			}
		}
		for _, o := range s.open {
			if !slices.Contains(test.want, o.address) {
				t.Errorf("%s: a socket is handed over for %s", test.name, o.address)
			}
		}
		if left := len(s.given["listen"]) + len(s.open); left < len(given) {
			t.Errorf("%s: %d of %d sockets are known", test.name, left, len(given))
		}
	}
	for _, ln := range slices.Concat(a, b, c) {
		ln.Close()
	}
}

// A name is not taken for a socket at all addresses of the machine: it would be open to more than is configured.
func TestNameIsNoWildcard(t *testing.T) {
	for _, test := range []struct {
		at, address string
		want        bool
	}{
		{"127.0.0.1:80", "localhost:80", true}, {"0.0.0.0:80", "localhost:80", false}, {"[::]:80", "localhost:80", false},
		{"[::]:80", ":80", true}, {"0.0.0.0:80", "127.0.0.1:80", false}, {"127.0.0.1:80", "127.0.0.1:81", false},
	} {
		if got := isAt(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(test.at)), test.address); got != test.want {
			t.Errorf("a socket at %s for %s: %v", test.at, test.address, got)
		}
	}
}

// A socket that systemd gives is at an address of the configuration, or the process does not start, and the error has both. It took a
// packaged edge off listen: ":80" by a unit of port 8080, and nothing said so.
func TestUnitsSocketsEqualTheConfiguration(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	at := ln.Addr().String()
	_, port, _ := net.SplitHostPort(at)
	for _, test := range []struct {
		given, name string
		addresses   []string
		wrong       string // in the error; "": there is none
	}{
		{"listen", "listen", []string{at}, ""},
		{"listen", "listen", []string{"127.0.0.1:0", at}, ""},
		{"listen", "listen", []string{"localhost:" + port}, ""},
		{"listen", "listen", []string{"127.0.0.1:0"}, "listen is 127.0.0.1:0"},
		{"listen", "listen", []string{"127.0.0.2:" + port}, "listen is 127.0.0.2:" + port},
		{"admin", "admin", []string{"127.0.0.1:0"}, "admin is 127.0.0.1:0"},
		{"listen_tls", "listen_tls", nil, "there is no listen_tls"},
	} {
		s := &Sockets{unit: true, given: map[string][]net.Listener{test.given: {ln}}, was: make(map[net.Listener]string)}
		all, err := s.Listen(test.name, test.addresses, 1)
		if err == nil {
			err = s.Unwanted(test.name)
		}
		switch {
		case test.wrong == "" && (err != nil || !slices.ContainsFunc(all, func(l []net.Listener) bool { return l[0] == ln })):
			t.Errorf("%v: %v, %v", test.addresses, all, err)
		case test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong) || !strings.Contains(err.Error(), "a socket at "+at)):
			t.Errorf("%v: %v, want %q and %s", test.addresses, err, test.wrong, at)
		}
		for _, o := range s.open {
			if o.Listener != ln {
				o.Close()
			}
		}
	}
}
