//go:build system

package memcached_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// Facts about memcached and nutcracker that the design rests on, each with the real program, so that an upgrade shows a
// change.

// session is a raw conversation with a node.
type session struct {
	t *testing.T
	net.Conn
	*bufio.Reader
}

func converse(t *testing.T, address string) *session {
	t.Helper()
	c, err := net.Dial("tcp", address)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return &session{t, c, bufio.NewReader(c)}
}

// ask says a command and returns the first line of the answer; "" if the connection ended instead.
func (s *session) ask(format string, args ...any) string {
	s.t.Helper()
	fmt.Fprintf(s.Conn, format+"\r\n", args...)
	line, err := s.ReadString('\n')
	if err != nil && err != io.EOF && !strings.Contains(err.Error(), "reset") {
		s.t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\r\n")
}

func (s *session) want(want, format string, args ...any) {
	s.t.Helper()
	if got := s.ask(format, args...); got != want {
		s.t.Errorf("%.60s: %q, want %q", fmt.Sprintf(format, args...), got, want)
	}
}

// An increment keeps an item's expiry, in both directions: a counter lives for its window, not for ever.
func TestMemcachedIncrKeepsExpiry(t *testing.T) {
	s := converse(t, startMemcached(t))
	s.want("STORED", "add k 0 100 1\r\n1")
	s.want("2", "incr k 1")
	var left int
	if _, err := fmt.Sscanf(s.ask("mg k t"), "HD t%d", &left); err != nil || left < 90 || left > 100 {
		t.Errorf("%d s left (%v), want 100", left, err)
	}
	s.want("STORED", "add for_ever 0 0 1\r\n1")
	s.want("2", "incr for_ever 1")
	s.want("HD t-1", "mg for_ever t")
}

// Twenty digits are room for every number, so that the item is never moved to another slab class.
func TestMemcachedIncrStaysInPlace(t *testing.T) {
	s := converse(t, startMemcached(t))
	s.want("STORED", "add k 0 100 20\r\n%020d", 41)
	s.want("42", "incr k 1")
	s.want("18446744073709551615", "incr k 18446744073709551573")
	s.want("4", "incr k 5") // around
	// Asked once: an increment while an answer to a read still holds the item makes a new one, as long as its number.
	s.want("HD s20", "mg k s")
}

// From 2^63 on memcached 1.6.18 looks for a minus sign, and finds one wherever it reads: it scans on behind the number. So the
// top lane of a packed counter stays below 2^15.
func TestMemcachedDoubtsLargeNumbers(t *testing.T) {
	s := converse(t, startMemcached(t))
	s.want("STORED", "set small 0 100 21\r\n9223372036854775806 -")
	s.want("9223372036854775807", "incr small 1")
	s.want("STORED", "set large 0 100 21\r\n9223372036854775808 -")
	s.want("CLIENT_ERROR cannot increment or decrement non-numeric value", "incr large 1")
}

// Commands sent in one piece are answered in one piece, in order: what a pipeline is built on.
func TestMemcachedPipelines(t *testing.T) {
	for name, address := range map[string]string{
		"memcached":  startMemcached(t),
		"nutcracker": startNutcracker(t, startMemcached(t), startMemcached(t)),
	} {
		t.Run(name, func(t *testing.T) {
			s := converse(t, address)
			s.want("STORED", "add a 0 100 1\r\n0\r\nadd b 0 100 1\r\n0\r\nincr a 1\r\nincr none 1\r\nincr b 5\r\nget a none b\r\ndelete a")
			for _, want := range []string{"STORED", "1", "NOT_FOUND", "5", "VALUE", "", "VALUE", "", "END", "DELETED"} {
				if got, err := s.ReadString('\n'); err != nil || !strings.HasPrefix(got, want) {
					t.Errorf("%q (%v), want %q", got, err, want)
				}
			}
		})
	}
}

// What nutcracker does not know ends the connection, and with it every command on its way. So the protocol is the classic
// one, and keys are short.
func TestNutcrackerClosesOn(t *testing.T) {
	address := startNutcracker(t, startMemcached(t))
	for _, c := range []string{"mg k v", "mn", "ma k", "gat 100 k", "version_of_what", "incr " + strings.Repeat("k", 251) + " 1"} {
		t.Run(c[:min(len(c), 10)], func(t *testing.T) {
			s := converse(t, address)
			if got := s.ask("%s", c); got != "" {
				t.Errorf("%s: %q, want the end of the connection", c, got)
			}
		})
	}
	s := converse(t, address)
	s.want("NOT_FOUND", "incr k 1")
	s.want("STORED", "add k 0 100 1\r\n1")
	s.want("2", "incr k 1")
	s.want("TOUCHED", "touch k 100")
	s.want("DELETED", "delete k")
}
