package main

import (
	"context"
	"net"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/cmd/lab/bench"
	"sluice/cmd/lab/ratelimitproxy"
	"sluice/loadgen/rival"
)

// cmdRatelimitProxy serves the proxy that sluice-loadgen lab --limiter envoy-ratelimit has before
// envoyproxy/ratelimit.
func cmdRatelimitProxy(ctx context.Context, args []string) error {
	t := newTrial("ratelimit-proxy", "")
	listen := t.String("listen", "127.0.0.1:0", "`HOST:PORT` to serve at")
	p := ratelimitproxy.Proxy{Domain: rival.Domain, Key: rival.Descriptor}
	t.StringVar(&p.Service, "service", "", "`HOST:PORT` of the rate limit service")
	t.StringVar(&p.Origin, "origin", "", "`HOST:PORT` to which admitted requests go")
	t.DurationVar(&p.Timeout, "timeout", time.Second,
		"how `LONG` the service has to answer; then a request passes")
	if err := t.parse(args); err != nil {
		return err
	}
	if p.Service == "" || p.Origin == "" {
		return cli.Usagef("--service, --origin: say where they are")
	}
	return serve(ctx, *listen, p.Serve)
}

// cmdBareProxy serves the baseline of bench-peers.
func cmdBareProxy(ctx context.Context, args []string) error {
	t := newTrial("bare-proxy", "")
	listen := t.String("listen", "127.0.0.1:0", "`HOST:PORT` to serve at")
	origin := t.String("origin", "", "`HOST:PORT` to which requests go")
	refuse := t.Bool("refuse", false, "refuse everything")
	if err := t.parse(args); err != nil {
		return err
	}
	return serve(ctx, *listen, func(ln net.Listener) error {
		return bench.ServeBaselineProxy(ln, *origin, *refuse)
	})
}

// serve serves at an address until ctx ends.
func serve(ctx context.Context, at string, with func(net.Listener) error) error {
	ln, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { ln.Close() })
	if err := with(ln); ctx.Err() == nil {
		return err
	}
	return nil
}
