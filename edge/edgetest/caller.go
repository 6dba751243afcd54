package edgetest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A Caller makes requests of whatever listens at an address.
type Caller struct {
	T    *testing.T
	Addr string
}

// StatusLine returns the first line of the answer to a request.
func (e *Caller) StatusLine(request string) string {
	c := e.Talk()
	defer c.Close()
	_, _ = io.WriteString(c, request)
	line, _ := c.R.ReadString('\n')
	return line
}

// From is a connection of another source.
func (e *Caller) From(source netip.Addr) *Talk {
	e.T.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: source.AsSlice()}}
	c, err := d.Dial("tcp", e.Addr)
	Must(e.T, err)
	e.T.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return &Talk{e.T, c, bufio.NewReader(c)}
}

// Served reports whether another source is served on a new connection.
func (e *Caller) Served(source netip.Addr) bool {
	e.T.Helper()
	c := e.From(source)
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	resp, err := http.ReadResponse(c.R, nil)
	return err == nil && resp.StatusCode == 200
}

// Raw sends bytes on a connection of its own and returns all that comes back until the edge closes
// it or has been silent for a while after an answer.
func (e *Caller) Raw(request string) string {
	e.T.Helper()
	c := e.Dial()
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		e.T.Fatal(err)
	}
	var all bytes.Buffer
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	_, _ = io.CopyN(&all, c, 1)
	_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
	_, _ = all.ReadFrom(c)
	return unnamed(all.String())
}

// Dial is a connection.
func (e *Caller) Dial() net.Conn {
	e.T.Helper()
	c, err := net.Dial("tcp", e.Addr)
	Must(e.T, err)
	e.T.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// Talk is a connection to talk on.
func (e *Caller) Talk() *Talk {
	c := e.Dial()
	return &Talk{e.T, c, bufio.NewReader(c)}
}

// Get is one request on a connection of its own.
func (e *Caller) Get(path string, header ...string) (*http.Response, string) {
	e.T.Helper()
	c := e.Talk()
	defer c.Close()
	return c.Say("GET " + path + " HTTP/1.1\r\nHost: example.com\r\n" + Lines(header) + "\r\n")
}

// A Talk is a connection on which requests and answers follow one another.
type Talk struct {
	T *testing.T
	net.Conn
	R *bufio.Reader
}

// Reads reads exactly this of a connection.
func (c *Talk) Reads(want string) {
	c.T.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c.R, got); err != nil || string(got) != want {
		c.T.Fatalf("%q, %v, want %q", got[:n], err, want)
	}
}

// Say sends a request and reads its answer, body and all.
func (c *Talk) Say(request string) (*http.Response, string) {
	c.T.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		c.T.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	return c.Hear(method)
}

// Hear reads the answer to a request that was sent, body and all. Interim ones are passed over.
func (c *Talk) Hear(method string) (*http.Response, string) {
	c.T.Helper()
	resp, err := http.ReadResponse(c.R, &http.Request{Method: method})
	// An interim one
	for err == nil && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(c.R, &http.Request{Method: method})
	}
	if err != nil {
		c.T.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp, string(body) + " then " + err.Error()
	}
	return resp, string(body)
}

// ownName is the line that names a request, as no two of them have it.
var ownName = regexp.MustCompile(`X-Request-ID: [0-9a-f]{32}\r\n`)

// unnamed is text without the names that the edge gives to requests, for what compares it byte for
// byte.
func unnamed(text string) string { return ownName.ReplaceAllString(text, "") }

// Undated is an answer without its date.
func Undated(answer string) string {
	before, rest, _ := strings.Cut(answer, "Date: ")
	_, after, _ := strings.Cut(rest, "\r\n")
	return before + after
}

// Lines ends each line of a head.
func Lines(header []string) string {
	if len(header) == 0 {
		return ""
	}
	return strings.Join(header, "\r\n") + "\r\n"
}

// Local is a source on this machine, one of many.
func Local(last byte) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, last}) }

// Reset ends a connection out of order.
func Reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// Until asks again until the answer is yes.
func Until(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !yes(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// Receive waits for a word.
func Receive(t *testing.T, what string, words <-chan string) string {
	t.Helper()
	select {
	case w := <-words:
		return w
	case <-time.After(time.Minute):
		t.Fatalf("not within 10 s: %s", what)
		return ""
	}
}

// PlainGet is a request that is the last of its connection.
const PlainGet = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

// UpgradeGet asks for a switch of protocols.
const UpgradeGet = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: x\r\n\r\n"

// Smuggled follows every request that is refused: it must be neither answered, nor counted, nor
// forwarded.
const Smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
