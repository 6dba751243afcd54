package edge

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/edge/accesslog"
	"sluice/edge/front"
	"sluice/edge/listen"
)

// halves is a connection in memory that can be closed in one direction, as far as anybody asks.
type halves struct{ net.Conn }

func (halves) CloseWrite() error { return nil }

// serveAlone serves one client in memory until the server is done with it, and returns how long that was.
func serveAlone(s *Server, change func(*front.Client), talk func(net.Conn)) time.Duration {
	near, far := net.Pipe()
	c := (&listen.Listener{Registry: s.Registry()}).Admit(halves{near})
	change(c)
	start := time.Now()
	var talking sync.WaitGroup
	talking.Go(func() { talk(far) })
	s.ServeConn(c)
	took := time.Since(start)
	talking.Wait()
	return took
}

func unchanged(*front.Client) {}

// An empty line after a request is no other: who sends one and then nothing is no slow client, and gets no answer.
func TestEmptyLineIsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memoryServer(t, nil, "deny: ['0.0.0.0/0', '::/0']\nlimits: {header_timeout: 10s, idle_timeout: 1m}")
		var got []byte
		took := serveAlone(s, unchanged, func(client net.Conn) {
			_, _ = io.WriteString(client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx\r\n")
			got, _ = io.ReadAll(client)
		})
		if n, received := strings.Count(string(got), "HTTP/1.1 "), metricsOf(t, s)["sluice_received_total"]; n != 1 || received != 1 || took != time.Minute {
			t.Errorf("%d answers to %v requests after %v: %q", n, received, took, got)
		}
	})
}

// The answer to a refused request has its time to be written, however long the body took that was read before it.
func TestAnswerAfterASlowRefusedBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memoryServer(t, &hasty{takes: 1000, answer: "HTTP/1.1 204 No Content\r\n\r\n"}, "limits: {idle_timeout: 5s}\nrules: [{name: r, limit: 1}]")
		var got []byte
		serveAlone(s, unchanged, func(client net.Conn) {
			answer := make([]byte, 1000)
			_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			_, _ = client.Read(answer)
			_, _ = io.WriteString(client, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n")
			for range 20 {
				_, _ = client.Write(make([]byte, 500))
				time.Sleep(front.LingerTime / 2)
			}
			got, _ = io.ReadAll(client)
		})
		if !strings.HasPrefix(string(got), "HTTP/1.1 429 ") || s.Registry().SlowReaders.Load() != 0 {
			t.Errorf("%q; %d slow readers", got, s.Registry().SlowReaders.Load())
		}
	})
}

// The body of a refused request is read so that its connection can stay open, up to 64 KiB. One that says it is longer is not waited for,
// and one that turns out to be, in bytes or in what is around them, is left at that: the answer comes at once, and the connection ends.
func TestRefusedBodyIsReadUpToABound(t *testing.T) {
	const fixed, chunked = "Content-Length: %d\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"
	chunks := func(n, size int) string {
		return chunked + strings.Repeat(fmt.Sprintf("%x\r\n%s\r\n", size, strings.Repeat("x", size)), n) + "0\r\n\r\n"
	}
	for _, test := range []struct {
		name, sends string
		stays       bool
	}{
		{"fits", fmt.Sprintf(fixed, 64<<10) + strings.Repeat("x", 64<<10), true},
		{"longer, and not sent", fmt.Sprintf(fixed, 64<<10+1), false},
		{"chunks that fit", chunks(60, 1000), true},
		{"chunks that go on", chunks(70, 1000), false},
		{"small chunks that fit", chunks(10_000, 1), true},
		{"small chunks that go on", chunks(12_000, 1), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memoryServer(t, nil, "deny: ['0.0.0.0/0', '::/0']")
				serveAlone(s, unchanged, func(client net.Conn) {
					var sending sync.WaitGroup
					defer sending.Wait()
					defer client.Close()
					sent := time.Now()
					sending.Go(func() { _, _ = io.WriteString(client, "POST / HTTP/1.1\r\nHost: a\r\n"+test.sends) })
					answer, err := http.ReadResponse(bufio.NewReader(client), nil)
					if err != nil {
						t.Error(err)
					} else if answer.StatusCode != 403 || answer.Close == test.stays || time.Since(sent) != 0 {
						t.Errorf("%s after %v, close %t", answer.Status, time.Since(sent), answer.Close)
					}
				})
			})
		})
	}
}

// A client that does not take its answer is cut when its time is up, over TLS as well.
func TestSlowReaderOverTLS(t *testing.T) {
	folder := t.TempDir()
	writeCertificate(t, filepath.Join(folder, "a"), "a.example")
	certificates, err := listen.LoadCertificates(listen.TLSConfig{Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := memoryServer(t, &hasty{takes: 1000, answer: okHead + "Content-Length: 1000\r\n\r\n" + strings.Repeat("x", 1000)}, "limits: {idle_timeout: 1m}")
		took := serveAlone(s, func(c *front.Client) { c.Conn = tls.Server(c.Conn, certificates.Config("http/1.1")) }, func(client net.Conn) {
			_, _ = io.WriteString(tls.Client(client, &tls.Config{InsecureSkipVerify: true, ServerName: "a.example"}), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		})
		if took.Truncate(time.Second) != time.Minute || s.Registry().SlowReaders.Load() != 1 || metricsOf(t, s)["sluice_aborted_total"] != 1 {
			t.Errorf("after %v: %d slow readers, %v answers aborted", took, s.Registry().SlowReaders.Load(), metricsOf(t, s)["sluice_aborted_total"])
		}
	})
}

// A connection above the cap is closed a second after its answer, also if its proxy then begins to say whose it is.
func TestCrowdedProxyDoesNotLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memoryServer(t, nil, "source: {trust: ['::'], proxy_protocol: true}\nlimits: {header_timeout: 10s}") // a pipe has no address
		var got []byte
		took := serveAlone(s, func(c *front.Client) { c.OverCap = true }, func(client net.Conn) {
			got = make([]byte, len(crowded))
			_, _ = io.ReadFull(client, got)
			_, _ = io.WriteString(client, "PROXY TCP4 192.0.2.1 192.0.2.200 4000 80\r\n")
		})
		if string(got) != crowded || took != front.LingerTime {
			t.Errorf("%q, closed after %v", got, took)
		}
	})
}

// A faulty connection panics when it is read.
type faulty struct{ repeater }

func (faulty) Read([]byte) (int, error) { panic("a bug") }
func (faulty) RemoteAddr() net.Addr     { return nil }

// A fault outside of any request, and one in saying that there was one, are counted, and end nothing but the connection.
func TestFaultsAroundRequests(t *testing.T) {
	s := memoryServer(t, nil, "")
	s.ServeConn((&listen.Listener{Registry: s.Registry()}).Admit(&faulty{}))
	if m := metricsOf(t, s); m["sluice_panics_total"] != 1 || m["sluice_received_total"] != 0 || s.Connections() != 0 {
		t.Errorf("%v, %d connections", m, s.Connections())
	}
	s.Log(func(*accesslog.Entry) { panic("a bug") })
	told := &sender{sends: "GET /\r\n\r\n", most: 100}
	s.ServeConn((&listen.Listener{Registry: s.Registry()}).Admit(told))
	if told.got.Len() > 0 {
		t.Errorf("after two faults the client is told %q", told.got.String())
	}
	if m := metricsOf(t, s); m["sluice_panics_total"] != 3 || m["sluice_received_total"] != 1 || m["sluice_aborted_total"] != 1 || s.Connections() != 0 {
		t.Errorf("%v, %d connections", m, s.Connections())
	}
	s = memoryServer(t, &breaking{closed: make(chan struct{})}, "")
	client := &sender{sends: "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100000), most: 1 << 20}
	s.ServeConn((&listen.Listener{Registry: s.Registry()}).Admit(client))
	if all, _ := client.answers("POST"); len(all) != 1 || all[0] != 500 || metricsOf(t, s)["sluice_panics_total"] != 1 {
		t.Errorf("in the body: %v faults, answers %d", metricsOf(t, s)["sluice_panics_total"], all)
	}
}

// A breaking origin panics when it is written, and answers nothing until it is closed.
type breaking struct {
	repeater
	once   sync.Once
	closed chan struct{}
}

func (o *breaking) Read([]byte) (int, error)  { <-o.closed; return 0, io.EOF }
func (o *breaking) Write([]byte) (int, error) { panic("a bug") }
func (o *breaking) Close() error              { o.once.Do(func() { close(o.closed) }); return nil }
