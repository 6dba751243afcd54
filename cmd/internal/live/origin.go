package live

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/internal/cli"
	"sluice/loadgen/origin"
)

// Origin serves until it is stopped.
func Origin(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("origin", pflag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:3000",
		"`ADDRESS` to serve on; GET "+origin.StatsPath+" reports what it received, by source")
	var o origin.Server
	flags.IntVar(&o.Status, "status", 200, "of every answer")
	flags.IntVar(&o.Size, "size", 2, "`BYTES` of every answer's body")
	flags.DurationVar(&o.Delay, "delay", 0, "before each answer")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	switch {
	case o.Status < 200 || o.Status > 599:
		return cli.Usagef("--status %d: want 200 to 599", o.Status)
	case o.Size < 0 || o.Size > 1<<30:
		return cli.Usagef("--size %d: want 0 to 1 GiB", o.Size)
	case o.Delay < 0 || o.Delay > time.Hour:
		return cli.Usagef("--delay %v: want 0 to 1h", o.Delay)
	}
	if o.Size == 0 {
		o.Size = -1 // nothing at all
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w; choose another address with --listen", *listen, err)
	}
	fmt.Fprintf(os.Stderr, "origin on http://%s\n", ln.Addr())
	stop := context.AfterFunc(ctx, func() { o.Shutdown() })
	defer stop()
	return o.Serve(ln)
}
