package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/cmd/lab/ratelimitproxy"
	"sluice/loadgen/rival"
)

// cmdRatelimitProxy serves the proxy that sluice-loadgen lab --limiter envoy-ratelimit has before envoyproxy/ratelimit.
func cmdRatelimitProxy(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("ratelimit-proxy", pflag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:0", "`HOST:PORT` to serve at")
	p := ratelimitproxy.Proxy{Domain: rival.Domain, Key: rival.Descriptor}
	flags.StringVar(&p.Service, "service", "", "`HOST:PORT` of the rate limit service")
	flags.StringVar(&p.Origin, "origin", "", "`HOST:PORT` to which admitted requests go")
	flags.DurationVar(&p.Timeout, "timeout", time.Second, "how `LONG` the service has to answer; then a request passes")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if p.Service == "" || p.Origin == "" {
		return cli.Usagef("--service, --origin: say where they are")
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return fmt.Errorf("ratelimit-proxy: %w", err)
	}
	context.AfterFunc(ctx, func() { ln.Close() })
	if err := p.Serve(ln); ctx.Err() == nil {
		return err
	}
	return nil
}
