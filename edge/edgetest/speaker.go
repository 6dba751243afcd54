package edgetest

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
)

// A Speaker plays one connection of an origin.
type Speaker struct {
	net.Conn
	Wire *Held
	R    *bufio.Reader
}

// Put writes, whatever comes of it.
func (s *Speaker) Put(text string) { _, _ = io.WriteString(s, text) }

// Next reads a request, body and all; nil means that there are no more.
func (s *Speaker) Next() *http.Request {
	req, err := http.ReadRequest(s.R)
	if err == nil {
		_, err = io.Copy(io.Discard, req.Body)
	}
	if err != nil {
		return nil
	}
	return req
}

// A Held connection keeps what is written to it while it is corked.
type Held struct {
	net.Conn
	Corked bool
	kept   []byte
	Free   int // if not 0, it is corked after so many writes
}

func (c *Held) Write(p []byte) (int, error) {
	if c.Free > 0 {
		c.Free--
		c.Corked = c.Free == 0
		return c.Conn.Write(p)
	}
	if c.Corked {
		c.kept = append(c.kept, p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Uncork writes what was kept, but for its last bytes, which stay.
func (c *Held) Uncork(but int) {
	n := max(0, len(c.kept)-but)
	_, _ = c.Conn.Write(c.kept[:n])
	c.kept, c.Corked = c.kept[n:], false
}

// StartSpeaker lets play have each connection to an origin, over this version of TLS at most, or,
// with 0, without it. It returns the origin's configuration and how many connections there were.
func StartSpeaker(t *testing.T, version uint16,
	play func(*Speaker)) (yaml string, connections func() int) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	yaml = fmt.Sprintf("origins: [{servers: ['http://%s'], timeout: 10s}]", ln.Addr())
	var cert tls.Certificate
	if version > 0 {
		base := filepath.Join(t.TempDir(), "server")
		WriteCertificate(t, base, "origin.internal")
		if cert, err = tls.LoadX509KeyPair(base+".crt", base+".key"); err != nil {
			t.Fatal(err)
		}
		yaml = fmt.Sprintf("origins: [{servers: ['https://%s'], timeout: 10s, tls: {ca_file: %s.crt, server_name: origin.internal}}]", ln.Addr(), base)
	}
	var mu sync.Mutex
	var conns []net.Conn
	var all sync.WaitGroup
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			all.Go(func() {
				defer c.Close()
				s := &Speaker{Wire: &Held{Conn: c}}
				if s.Conn = s.Wire; version > 0 {
					s.Conn = tls.Server(s.Wire, &tls.Config{Certificates: []tls.Certificate{cert},
						MaxVersion: version})
				}
				s.R = bufio.NewReader(s)
				play(s)
			})
		}
	})
	return yaml, func() int { mu.Lock(); defer mu.Unlock(); return len(conns) }
}

// VersionName names a version of TLS; 0 is plain.
func VersionName(version uint16) string {
	if version == 0 {
		return "plain"
	}
	return tls.VersionName(version)
}

const (
	OwnAnswer = OKHead + "Content-Length: 3\r\n\r\nown"
	Poison    = OKHead + "Content-Length: 6\r\n\r\npoison" // an answer that nobody asked for
)
