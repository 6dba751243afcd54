package edge

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	benchRequest = "GET /some/path?x=1 HTTP/1.1\r\nHost: example.com\r\nUser-Agent: bench\r\nAccept: */*\r\nAccept-Encoding: gzip\r\n\r\n"
	benchAnswer  = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\n"
)

// BenchmarkRequest is a request on a kept connection through the edge and back, client and origin included, beside the
// same through a plain fasthttp proxy.
func BenchmarkRequest(b *testing.B) {
	origin := listenEach(b, "tcp4", func(c net.Conn) {
		answer := append([]byte(benchAnswer), bytes.Repeat([]byte("x"), 1000)...)
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
		ln := listenHere(b)
		go func() { _ = s.Serve(ln) }()
		defer func() { _ = s.Shutdown() }()
		benchClient(b, ln.Addr().String())
	})
	for name, rules := range map[string]string{
		"no rule": "", "one rule": "rules: [{name: r, limit: 1000000}]", "refused": "rules: [{name: r, limit: 1, mitigation_timeout: 1h}]",
	} {
		b.Run(name, func(b *testing.B) {
			s := newServer(b, parse(b, "origins: [{servers: ['http://"+origin+"']}]\n"+rules))
			ln := listenHere(b)
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
			if _, err := io.WriteString(c, benchRequest); err != nil {
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
