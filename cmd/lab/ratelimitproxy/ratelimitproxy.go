// Package ratelimitproxy is the least that stands in Envoy's place before a rate limit service: a
// proxy that asks the service about each request, by the address that it comes from, and waits for
// the answer.
package ratelimitproxy

import (
	"context"
	"net"
	"time"

	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/valyala/fasthttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Proxy asks the service at Service about requests, and passes those that it admits on to Origin.
type Proxy struct {
	Service string // HOST:PORT
	Origin  string // HOST:PORT
	Domain  string // of the descriptors
	Key     string // of the descriptor that has the source's address for a value
	Timeout time.Duration
}

// Serve answers on ln until it is closed. A request about which the service says nothing in time
// passes, as it does at Envoy, which has failure_mode_deny for others.
func (p Proxy) Serve(ln net.Listener) error {
	conn, err := grpc.NewClient(p.Service, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}))
	if err != nil {
		return err
	}
	defer conn.Close()
	asked, origin := service.NewRateLimitServiceClient(conn), &fasthttp.HostClient{Addr: p.Origin,
		MaxConns: 4096}
	s := &fasthttp.Server{NoDefaultServerHeader: true, Concurrency: 1 << 16,
		Handler: func(ctx *fasthttp.RequestCtx) {
			source := ctx.RemoteIP().String()
			if p.over(asked, source) {
				ctx.SetStatusCode(fasthttp.StatusTooManyRequests)
				return
			}
			ctx.Request.Header.Set("X-Forwarded-For", source)
			if err := origin.Do(&ctx.Request, &ctx.Response); err != nil {
				ctx.Response.Reset()
				ctx.SetStatusCode(fasthttp.StatusBadGateway)
			}
		}}
	return s.Serve(ln)
}

// over reports whether the service refuses a request of the source.
func (p Proxy) over(asked service.RateLimitServiceClient, source string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), p.Timeout)
	defer cancel()
	answer, err := asked.ShouldRateLimit(ctx, &service.RateLimitRequest{Domain: p.Domain,
		Descriptors: []*descriptor.RateLimitDescriptor{{
			Entries: []*descriptor.RateLimitDescriptor_Entry{{Key: p.Key, Value: source}}}}})
	return err == nil && answer.OverallCode == service.RateLimitResponse_OVER_LIMIT
}
