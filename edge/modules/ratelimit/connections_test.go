package ratelimit

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"sluice/edge/listen"
)

// A machine that opens as many silent connections as there may be leaves room for the proxies of others: they get their
// verdict at once, and not when the handshakes of the silent ones are too late.
func TestSilentConnectionsOfOneMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(newEdge(t, web), nil)
		ln := &oneConn{conn: make(chan net.Conn), closed: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- s.Serve(ln) }()
		connect := func(from string) net.Conn {
			near, far := net.Pipe()
			ln.conn <- &connFrom{far, &net.TCPAddr{IP: net.ParseIP(from), Port: 1}}
			return near
		}
		began := time.Now()
		go func() {
			for range listen.MaxPrograms {
				near := connect("192.0.2.1")
				go func() { _, _ = io.Copy(io.Discard, near) }()
			}
		}()
		synctest.Wait()
		conn, err := grpc.NewClient("passthrough:edge", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return connect("192.0.2.2"), nil }))
		if err != nil {
			t.Fatal(err)
		}
		a, err := service.NewRateLimitServiceClient(conn).ShouldRateLimit(context.Background(), request("web", "user=a"))
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 0 || said(a) != "OK | OK user 3/10MINUTE 2" {
			t.Errorf("%s after %v, want a verdict at once", said(a), took)
		}
		conn.Close()
		s.Drain(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

type connFrom struct {
	net.Conn
	from net.Addr
}

func (c *connFrom) RemoteAddr() net.Addr { return c.from }
