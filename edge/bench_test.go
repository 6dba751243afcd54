package edge_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/counter"
	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/edgetest"
	"sluice/edge/listen"
	"sluice/edge/modules/geo"
	"sluice/edge/modules/geo/geotest"
	"sluice/edge/modules/tracing"
	"sluice/edge/upstream"
	"sluice/mitigation"
)

// BenchmarkRequest is a request on a kept connection through the edge and back, client and origin included, beside the
// same through a plain fasthttp proxy.
func BenchmarkRequest(b *testing.B) {
	origin := edgetest.ListenEach(b, "tcp4", func(c net.Conn) {
		answer := append([]byte(edgetest.BenchAnswer), bytes.Repeat([]byte("x"), 1000)...)
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadSlice('\n')
			if err != nil {
				return
			}
			if len(line) == 2 {
				if _, err := c.Write(answer); err != nil {
					return
				}
			}
		}
	})
	b.Run("plain", func(b *testing.B) {
		client := &fasthttp.HostClient{Addr: origin}
		s := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
			if err := client.Do(&ctx.Request, &ctx.Response); err != nil {
				ctx.SetStatusCode(502)
			}
		}}
		ln := edgetest.ListenHere(b)
		go func() { _ = s.Serve(ln) }()
		defer func() { _ = s.Shutdown() }()
		benchClient(b, ln.Addr().String())
	})
	for name, rules := range map[string]string{
		"no rule": "", "one rule": "rules: [{name: r, limit: 1000000}]", "refused": "rules: [{name: r, limit: 1, mitigation_timeout: 1h}]",
	} {
		b.Run(name, func(b *testing.B) {
			s := edgetest.NewServer(b, edgetest.Parse(b, "origins: [{servers: ['http://"+origin+"']}]\n"+rules))
			ln := edgetest.ListenHere(b)
			go func() { _ = s.Serve(ln) }()
			defer func() { _ = s.Drain(context.Background(), 0) }()
			benchClient(b, ln.Addr().String())
		})
	}
}

func benchClient(b *testing.B, addr string) {
	b.ReportAllocs()
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Error(err)
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		r := bufio.NewReader(c)
		length := 0
		for pb.Next() {
			if _, err := io.WriteString(c, edgetest.BenchRequest); err != nil {
				b.Error(err)
				return
			}
			for {
				line, err := r.ReadSlice('\n')
				if err != nil {
					b.Error(err)
					return
				}
				if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
					length, _ = fasthttp.ParseUint(bytes.TrimSpace(value))
				}
				if len(line) == 2 {
					break
				}
			}
			_, _ = r.Discard(length)
		}
	})
}

// BenchmarkHandle is what a request costs outside of the kernel: parsing, judging, forwarding and answering, over
// connections in memory. With many connections as many requests are under way at once, and what each of them keeps is no longer in
// the processor's nearest cache when it goes on.
func BenchmarkHandle(b *testing.B) {
	countries := filepath.Join(b.TempDir(), "country.mmdb")
	geotest.Countries(b, countries, map[string]string{"0.0.0.0/1": "DE", "128.0.0.0/1": "FR", "::/1": "DE"})
	for _, test := range []struct{ name, yaml, origin string }{
		{"no rule", "rules: [{name: r, limit: 1000000000, mode: off}]", ""},
		{"one rule", "rules: [{name: r, limit: 1000000000}]", ""},
		{"by key", "rules: [{name: r, limit: 1000000000, key: 'header:User-Agent'}]", ""},
		{"by country", "geo: {country: " + countries + "}\nrules: [{name: r, limit: 1000000000, key: country}]", ""},
		{"of a country", "geo: {country: " + countries + "}\nrules: [{name: r, limit: 1000000000, match: {not: {countries: [NO]}}}]", ""},
		{"refused", "rules: [{name: r, limit: 1, mitigation_timeout: 1h}]", ""},
		{"one rule, shedding", "rules: [{name: r, limit: 1000000000, priority: critical, queue: 1s}]", ", shedding: {min: 1000, max: 1000}"},
		{"one rule, tracing", "rules: [{name: r, limit: 1000000000}]\ntracing: {endpoint: 'http://127.0.0.1:9'}", ""},
	} {
		for _, size := range []struct{ Connections, Sources int }{{1, 1}, {1, 10_000}, {512, 1}} {
			b.Run(fmt.Sprintf("%s/connections=%d/sources=%d", test.name, size.Connections, size.Sources), func(b *testing.B) {
				use := edge.Modules{tracing.Module(""), geo.Module(nil)}
				c, err := (config.Parser{Modules: use.Config()}).Parse("f", []byte("origins: [{servers: ['http://127.0.0.1:9']"+test.origin+"}]\nsource: {trust: [0.0.0.0/0], trust_everybody: true}\n"+test.yaml))
				edgetest.Must(b, err)
				s := edgetest.NewServer(b, c, edgetest.Using(use...), func(o *edge.Options) {
					o.Table, o.Blocks = counter.New(counter.Options{Counters: 1 << 16}), mitigation.New(1<<16, nil)
				})
				edgetest.Must(b, use.Start())
				o := s.Upstreams().All[0]
				clients := make([]*edgetest.Crowd, size.Connections)
				for i := range clients {
					origin := &edgetest.Repeater{Text: append([]byte(edgetest.BenchAnswer), bytes.Repeat([]byte("x"), 1000)...)}
					o.Idle = append(o.Idle, &upstream.Link{Conn: origin, Origin: o, Until: time.Now().Add(time.Hour)})
					clients[i] = &edgetest.Crowd{Requests: b.N / size.Connections, Sources: size.Sources}
				}
				clients[0].Requests += b.N % size.Connections
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
				if got := edgetest.Metrics(b, s)["sluice_received_total"]; got != float64(b.N) {
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
