package front_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/counter"
	"sluice/edge"
	"sluice/edge/edgetest"
)

// traps tries each trap on a plain proxy as well (make traps). It is no part of every test: a fasthttp that is better breaks nothing here.
var traps = flag.Bool("traps", false, "fail where a plain proxy of fasthttp does not fall into a trap")

// A trap is something that a plain proxy made of fasthttp does and that nobody may do who faces the internet. This edge must not fall
// into it. With -traps the same steps are taken on such a proxy, which must: that shows that they lead there.
type trap struct {
	yaml   string                             // limits of the edge
	server func(*fasthttp.Server)             // the like of them for the plain proxy, where it has any
	client func(*fasthttp.HostClient)         // and for its way to the origin
	Answer func(n int, request string) string // of the origin; nil: hello
	origin func(t *testing.T) string          // in place of answer: the address of an origin of its own
	// falls takes the steps and says what went wrong; "" is all right.
	falls func(p *trapped) string
}

// A trapped proxy is under test.
type trapped struct {
	edgetest.Caller
	origin   *edgetest.Recorder
	patience time.Duration // how long to wait for what the plain proxy never does
	serve    func(net.Listener) error
	stop     func(context.Context) error
	alone    func(net.Conn) error // serves a connection in the caller's goroutine; nil: it cannot
	logged   func() string
}

func (test trap) try(t *testing.T) {
	t.Helper()
	if *traps {
		t.Run("plain", func(t *testing.T) {
			what := test.falls(test.startPlain(t))
			if what == "" {
				t.Error("a plain proxy of fasthttp does not fall into this trap: do the steps still lead there?")
			}
			t.Log(what)
		})
	}
	t.Run("edge", func(t *testing.T) {
		if what := test.falls(test.startEdge(t)); what != "" {
			t.Error(what)
		}
	})
}

func (test trap) startOrigin(t *testing.T) (*edgetest.Recorder, string) {
	if test.origin != nil {
		return nil, test.origin(t)
	}
	answer := test.Answer
	if answer == nil {
		answer = edgetest.Hello
	}
	o := edgetest.StartRecorder(t, answer)
	return o, o.Addr
}

// startPlain serves what is in every introduction to fasthttp, streaming both ways. The path /refused stands for whatever a
// limiter would not let pass, and /panic for a fault.
func (test trap) startPlain(t *testing.T) *trapped {
	t.Helper()
	o, addr := test.startOrigin(t)
	client := &fasthttp.HostClient{Addr: addr, StreamResponseBody: true}
	var log testLog
	server := &fasthttp.Server{StreamRequestBody: true, Logger: &log, Handler: func(ctx *fasthttp.RequestCtx) {
		switch string(ctx.Path()) {
		case "/refused":
			ctx.SetStatusCode(fasthttp.StatusTooManyRequests)
			return
		case "/panic":
			panic("a bug")
		}
		if err := client.Do(&ctx.Request, &ctx.Response); err != nil {
			ctx.Error("bad gateway", fasthttp.StatusBadGateway)
		}
	}}
	if test.server != nil {
		test.server(server)
	}
	if test.client != nil {
		test.client(client)
	}
	p := &trapped{origin: o, Caller: edgetest.Caller{T: t}, patience: 300 * time.Millisecond, serve: server.Serve, stop: server.ShutdownWithContext,
		alone: server.ServeConn, logged: log.String}
	p.listen()
	return p
}

func (test trap) startEdge(t *testing.T) *trapped {
	t.Helper()
	o, addr := test.startOrigin(t)
	c := edgetest.Parse(t, test.yaml+`
rules:
  - {name: refused, match: {path: /refused}, limit: 1, window: 1h}
  - {name: panic, match: {path: /panic}, limit: 1, on_store_failure: closed}
`)
	c.Origins = edgetest.WithoutRules(t, "http://"+addr).Origins
	c.Origins[0].Timeout = time.Second // less than the patience of a trap
	var log testLog
	s := edgetest.NewServer(t, c, func(o *edge.Options) {
		o.Warn = func(message string, args ...any) { log.Printf("%s %q", message, args) }
		o.Tier.Up = func(counter.Source) bool { panic("a bug") }
	})
	p := &trapped{origin: o, Caller: edgetest.Caller{T: t}, patience: 10 * time.Second, serve: s.Serve, logged: log.String,
		stop: func(ctx context.Context) error { return s.Drain(ctx, 0) }}
	p.listen()
	return p
}

func (p *trapped) listen() {
	p.T.Helper()
	ln := edgetest.ListenHere(p.T)
	p.Caller.Addr = ln.Addr().String()
	p.on(ln)
}

// on serves a listener until the test ends.
func (p *trapped) on(ln net.Listener) {
	done := make(chan error, 1)
	go func() { done <- p.serve(ln) }()
	p.T.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.stop(ctx)
		ln.Close()
		<-done
	})
}

// ends reports whether a connection is closed, or something comes on it, before patience ends.
func (p *trapped) ends(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(p.patience))
	_, err := c.Read(make([]byte, 1))
	var timeout net.Error
	return !errors.As(err, &timeout) || !timeout.Timeout()
}

// A testLog keeps what a server logs.
type testLog struct {
	mu   sync.Mutex
	Text strings.Builder
}

func (b *testLog) Printf(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(&b.Text, format+"\n", args...)
}

func (b *testLog) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Text.String()
}
