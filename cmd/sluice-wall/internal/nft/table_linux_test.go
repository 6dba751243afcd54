//go:build system

package nft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"sluice/cmd/internal/labtest"
)

// listen accepts whatever comes, at a port of all addresses.
func listen(t *testing.T) (port uint16) {
	t.Helper()
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
		}
	}()
	return uint16(ln.Addr().(*net.TCPAddr).Port)
}

// connect connects from an address, to one of the same family.
func connect(from string, port uint16) (net.Conn, error) {
	to := "198.18.0.1"
	if strings.Contains(from, ":") {
		to = "2001:db8:1::1"
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 300 * time.Millisecond}
	return d.Dial("tcp", net.JoinHostPort(to, fmt.Sprint(port)))
}

func open(t *testing.T, c Config) *Table {
	t.Helper()
	table, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	return table
}

func apply(t *testing.T, table *Table, lease time.Duration, adds []string, deletes ...string) {
	t.Helper()
	var leases []Lease
	var gone []netip.Prefix
	for _, p := range adds {
		leases = append(leases, Lease{Prefix: netip.MustParsePrefix(p), For: lease})
	}
	for _, p := range deletes {
		gone = append(gone, netip.MustParsePrefix(p))
	}
	if err := table.Apply(leases, gone); err != nil {
		t.Fatal(err)
	}
}

// TestRefuses: new connections from what is in the set, to the ports that were named; nothing else.
func TestRefuses(t *testing.T) {
	if !labtest.Namespace(t) {
		return
	}
	guarded, other := listen(t), listen(t)
	table := open(t, Config{Ports: []uint16{guarded}, Max: 100})
	opened, err := connect("198.18.7.7", guarded)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, table, time.Minute, []string{"198.18.7.7/32", "198.18.8.0/24", "2001:db8:1:7::/64", "2001:db8:1:8::5/128", "198.19.128.0/17"})
	for from, refused := range map[string]bool{
		"198.18.7.7": true, "198.18.7.8": false, "198.18.8.200": true, "198.18.9.1": false, "198.19.200.1": true, "198.19.1.1": false,
		"2001:db8:1:7::99": true, "2001:db8:1:9::1": false, "2001:db8:1:8::5": true, "2001:db8:1:8::6": false,
	} {
		c, err := connect(from, guarded)
		if (err != nil) != refused || refused && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v, refused: want %t", from, err, refused)
		}
		if err == nil {
			c.Close()
		}
		if c, err := connect(from, other); err != nil {
			t.Errorf("%s is refused at a port that is not guarded: %v", from, err)
		} else {
			c.Close()
		}
	}
	if _, err := opened.Write([]byte("x")); err != nil {
		t.Errorf("a connection that was open: %v", err)
	}
	counts, refused, err := table.Counts()
	if err != nil || refused != 5 || len(counts) != 5 {
		t.Fatalf("%d refused of %v, %v", refused, counts, err)
	}
	for _, c := range counts {
		if c.Refused != 1 || c.Left < 50*time.Second || c.Left > time.Minute {
			t.Errorf("%+v", c)
		}
	}
	apply(t, table, 0, nil, "198.18.7.7/32", "198.18.55.55/32", "198.18.0.0/20") // of which two are not there
	if c, err := connect("198.18.7.7", guarded); err != nil {
		t.Errorf("deleted, and refused: %v", err)
	} else {
		c.Close()
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	if c, err := connect("198.18.8.1", guarded); err != nil {
		t.Errorf("flushed, and refused: %v", err)
	} else {
		c.Close()
	}
	if _, again, err := table.Counts(); err != nil || again != refused {
		t.Errorf("%d refused after a flush, %v", again, err)
	}
}

// TestTableGone: another process removes all tables. Reading them is an error, and a flush makes the table anew.
func TestTableGone(t *testing.T) {
	if !labtest.Namespace(t) {
		return
	}
	port := listen(t)
	for _, before := range [][]string{nil, {"198.18.7.7/32"}} {
		table := open(t, Config{Ports: []uint16{port}, Max: 100})
		apply(t, table, time.Minute, before)
		other := nftables.Conn{}
		other.FlushRuleset()
		if err := other.Flush(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := table.Counts(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v, want that there is no table", err)
		}
		if err := table.Flush(); err != nil {
			t.Fatal(err)
		}
		apply(t, table, time.Minute, []string{"198.18.7.7/32"})
		if _, err := connect("198.18.7.7", port); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%v, want a refusal", err)
		}
	}
}

// TestDrops: a source whose packets are dropped gets no answer.
func TestDrops(t *testing.T) {
	if !labtest.Namespace(t) {
		return
	}
	port := listen(t)
	table := open(t, Config{Ports: []uint16{port}, Max: 100, Drop: true})
	apply(t, table, time.Minute, []string{"198.18.7.7/32"})
	if _, err := connect("198.18.7.7", port); !isTimeout(err) {
		t.Errorf("%v, want no answer", err)
	}
	if c, err := connect("198.18.7.8", port); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// TestLeases: an entry lives as long as its lease, from when it was renewed last, whether or not the kernel renews by itself.
func TestLeases(t *testing.T) {
	if !labtest.Namespace(t) {
		return
	}
	port := listen(t)
	table := open(t, Config{Ports: []uint16{port}, Max: 100})
	for _, renews := range []bool{table.renews, false} {
		table.renews = renews
		left := func() time.Duration {
			counts, _, err := table.Counts()
			if err != nil || len(counts) > 1 {
				t.Fatal(counts, err)
			}
			for _, c := range counts {
				return c.Left
			}
			return 0
		}
		apply(t, table, time.Second, []string{"198.18.7.7/32"})
		apply(t, table, time.Hour, []string{"198.18.7.7/32"})
		if is := left(); is < 50*time.Minute {
			t.Errorf("renews %t: %v left after a renewal", renews, is)
		}
		// The same lease again is one from now on: the kernel would keep the end that there is.
		apply(t, table, time.Minute, []string{"198.18.7.7/32"})
		const used = 59*time.Second + 900*time.Millisecond
		for left() > used {
		}
		apply(t, table, time.Minute, []string{"198.18.7.7/32"})
		if is := left(); is <= used {
			t.Errorf("renews %t: %v left after the same lease again", renews, is)
		}
		apply(t, table, 200*time.Millisecond, []string{"198.18.7.7/32"})
		if is := left(); is > 200*time.Millisecond {
			t.Errorf("renews %t: %v left after a shorter one", renews, is)
		}
		for end := time.Now().Add(5 * time.Second); ; {
			c, err := connect("198.18.7.7", port)
			if err == nil {
				c.Close()
				break
			}
			if time.Now().After(end) {
				t.Fatalf("renews %t: refused after the lease", renews)
			}
		}
		apply(t, table, 0, nil, "198.18.7.7/32")
	}
}

// TestAnew: a table that was left by a process that died is replaced, and the one that stops leaves none.
func TestAnew(t *testing.T) {
	if !labtest.Namespace(t) {
		return
	}
	port := listen(t)
	left, err := Open(Config{Ports: []uint16{port}, Max: 100})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, left, time.Hour, []string{"198.18.7.7/32"})
	table, err := Open(Config{Ports: []uint16{port}, Max: 100})
	if err != nil {
		t.Fatal(err)
	}
	if counts, refused, err := table.Counts(); err != nil || len(counts) != 0 || refused != 0 {
		t.Errorf("%v %d %v", counts, refused, err)
	}
	if c, err := connect("198.18.7.7", port); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	if err := table.make(); err != nil { // there is none to delete, and that is no error
		t.Fatal(err)
	}
	table.Close()
}

// TestMany: a transaction of as many as there may be, and a set that holds them all.
func TestMany(t *testing.T) {
	if !labtest.Namespace(t) {
		return
	}
	table := open(t, Config{Ports: []uint16{1}, Max: 65536})
	addr, n := netip.MustParseAddr("198.18.0.0"), 0
	var adds []Lease
	for range 65536 {
		adds = append(adds, Lease{Prefix: netip.PrefixFrom(addr, 32), For: time.Minute})
		addr = addr.Next()
	}
	for _, renews := range []bool{table.renews, false} {
		table.renews = renews
		for part := range slices.Chunk(adds, AtOnce) {
			if err := table.Apply(part, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	counts, _, err := table.Counts()
	if n = len(counts); err != nil || n != 65536 {
		t.Errorf("%d entries, %v", n, err)
	}
}

// TestWithoutTheRight: the error of a process that may not change the tables names the capability that it needs.
func TestWithoutTheRight(t *testing.T) {
	if !labtest.Namespace(t) {
		return
	}
	runtime.LockOSThread() // and never unlock it: the thread has lost its capabilities
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Ports: []uint16{1}, Max: 1}); err == nil || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
		t.Errorf("%v", err)
	}
}
