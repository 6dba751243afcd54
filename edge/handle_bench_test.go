package edge

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge/listen"
	"sluice/edge/upstream"
	"sluice/mitigation"
)

// BenchmarkHandle is what a request costs outside of the kernel: parsing, judging, forwarding and answering, over
// connections in memory. With many connections as many requests are under way at once, and what each of them keeps is no longer in
// the processor's nearest cache when it goes on.
func BenchmarkHandle(b *testing.B) {
	for _, test := range []struct{ name, yaml, origin string }{
		{"no rule", "rules: [{name: r, limit: 1000000000, mode: off}]", ""},
		{"one rule", "rules: [{name: r, limit: 1000000000}]", ""},
		{"refused", "rules: [{name: r, limit: 1, mitigation_timeout: 1h}]", ""},
		{"one rule, shedding", "rules: [{name: r, limit: 1000000000, priority: critical, queue: 1s}]", ", shedding: {min: 1000, max: 1000}"},
	} {
		for _, size := range []struct{ connections, sources int }{{1, 1}, {1, 10_000}, {512, 1}} {
			b.Run(fmt.Sprintf("%s/connections=%d/sources=%d", test.name, size.connections, size.sources), func(b *testing.B) {
				c := parse(b, "origins: [{servers: ['http://127.0.0.1:9']"+test.origin+"}]\nsource: {trust: [0.0.0.0/0], trust_everybody: true}\n"+test.yaml)
				s := newServer(b, c, func(o *Options) {
					o.Table, o.Bits = counter.New(counter.Options{Counters: 1 << 16}), mitigation.New(1<<16, nil)
				})
				o := s.Upstreams().All[0]
				clients := make([]*crowd, size.connections)
				for i := range clients {
					origin := &repeater{text: append([]byte(benchAnswer), bytes.Repeat([]byte("x"), 1000)...)}
					o.Idle = append(o.Idle, &upstream.Link{Conn: origin, Origin: o, Until: time.Now().Add(time.Hour)})
					clients[i] = &crowd{requests: b.N / size.connections, sources: size.sources}
				}
				clients[0].requests += b.N % size.connections
				b.ReportAllocs()
				b.ResetTimer()
				before := processorTime()
				var served sync.WaitGroup
				for _, client := range clients {
					served.Go(func() {
						s.ServeConn((&listen.Listener{Registry: s.Registry()}).Admit(client))
					})
				}
				served.Wait()
				b.StopTimer()
				b.ReportMetric(float64(processorTime()-before)/float64(b.N), "cpu-ns/op")
				if got := metricsOf(b, s)["sluice_received_total"]; got != float64(b.N) {
					b.Fatalf("%v requests received of %d", got, b.N)
				}
			})
		}
	}
}

// processorTime is what this process has used, in its own mode: other work on the machine disturbs it little.
func processorTime() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano()
}

// A repeater is an origin that gives the same answer again and again, and lets others run before.
type repeater struct {
	net.Conn
	text []byte
}

func (a *repeater) Read(p []byte) (int, error) {
	runtime.Gosched()
	return copy(p, a.text), nil
}
func (a *repeater) Write(p []byte) (int, error)      { return len(p), nil }
func (a *repeater) Close() error                     { return nil }
func (a *repeater) SetDeadline(time.Time) error      { return nil }
func (a *repeater) SetReadDeadline(time.Time) error  { return nil }
func (a *repeater) SetWriteDeadline(time.Time) error { return nil }

// crowd is a trusted proxy that sends requests of many sources on one connection.
type crowd struct {
	repeater
	requests, sources, sent int
	buf, rest               []byte // a request, and what of it has not been read
}

func (c *crowd) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		if c.sent == c.requests {
			return 0, io.EOF
		}
		n := c.sent % c.sources
		c.sent++
		c.buf = fmt.Appendf(append(c.buf[:0], benchRequest[:len(benchRequest)-2]...), "X-Forwarded-For: 198.18.%d.%d\r\n\r\n", n>>8, n&255)
		c.rest = c.buf
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *crowd) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1} }
func (c *crowd) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 80} }
