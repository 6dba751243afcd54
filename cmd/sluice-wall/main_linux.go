// Sluice-wall refuses new connections of blocked sources in the kernel. It is the only part of
// Sluice with CAP_NET_ADMIN: an edge sends it the sources to refuse, over a Unix socket and for
// seconds at a time (edge/modules/wall), and it keeps a table of its own in nftables.
//
// The process starts with an empty table and removes it when it stops. Entries that a killed
// process leaves behind end with their leases.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"os/user"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"sluice/cmd/sluice-wall/internal/helper"
	"sluice/cmd/sluice-wall/internal/nft"
)

const (
	exitFailed = 1
	exitMisuse = 2

	mostEntries  = 1_000_000
	longestLease = time.Minute
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// options is what the command line says.
type options struct {
	socket, user, answer string
	ports                []uint
	max                  int
	lease                time.Duration
}

func parse(args []string) (o options, set *pflag.FlagSet, err error) {
	set = pflag.NewFlagSet("sluice-wall", pflag.ContinueOnError)
	set.SortFlags = false
	set.Usage = func() {}
	set.StringVar(&o.socket, "socket", "/run/sluice-wall/wall.sock",
		"socket that the edge connects to: wall.socket of its configuration")
	set.UintSliceVar(&o.ports, "ports", nil,
		"ports that the edge listens on, such as 8080,8443; no others are guarded")
	set.StringVar(&o.user, "user", "sluice",
		"user that the edge runs as, by name or number; connections of all others are refused")
	set.IntVar(&o.max, "max", 65536, "how many prefixes may be refused at once")
	set.DurationVar(&o.lease, "lease", 10*time.Second,
		"how long an entry may live before the edge renews it")
	set.StringVar(&o.answer, "answer", "reset",
		"answer to a refused connection: reset, or drop for none")
	if err = set.Parse(args); err != nil {
		return o, set, err
	}
	switch {
	case set.NArg() > 0:
		err = fmt.Errorf("%q is no flag: sluice-wall --help lists them", set.Arg(0))
	case o.socket == "":
		err = errors.New("--socket is empty: give the path of a socket")
	case len(o.ports) == 0:
		err = errors.New("--ports is missing: give the ports that the edge listens on, such as --ports 8080,8443")
	case slices.ContainsFunc(o.ports, func(p uint) bool { return p == 0 || p > 65535 }):
		err = fmt.Errorf("--ports %v: a port is between 1 and 65535", o.ports)
	case o.max < 1 || o.max > mostEntries:
		err = fmt.Errorf("--max %d: want 1 to %d", o.max, mostEntries)
	case o.lease < time.Second || o.lease > longestLease:
		err = fmt.Errorf("--lease %v: want 1s to %v", o.lease, longestLease)
	case o.answer != "reset" && o.answer != "drop":
		err = fmt.Errorf("--answer %s: want reset or drop", o.answer)
	}
	return o, set, err
}

func run(args []string, stdout, stderr io.Writer) int {
	o, set, err := parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(stdout,
			"Usage: sluice-wall --ports PORTS [flags]\n\nRefuses new connections of blocked sources in the kernel, for an edge with shed: kernel. It needs CAP_NET_ADMIN.\n\n%s", set.FlagUsages())
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "sluice-wall:", err)
		return exitMisuse
	}
	stop, unhook := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer unhook()
	if err := serve(stop, o, slog.New(slog.NewTextHandler(stderr, nil))); err != nil {
		fmt.Fprintln(stderr, "sluice-wall:", err)
		return exitFailed
	}
	return 0
}

// serve keeps the table until ctx is done.
func serve(ctx context.Context, o options, log *slog.Logger) (err error) {
	id, err := userID(o.user)
	if err != nil {
		return err
	}
	c := nft.Config{Drop: o.answer == "drop", Max: o.max}
	for _, p := range o.ports {
		c.Ports = append(c.Ports, uint16(p))
	}
	slices.Sort(c.Ports)
	c.Ports = slices.Compact(c.Ports)
	ln, err := listen(o.socket)
	if err != nil {
		return err
	}
	defer ln.Close()
	table, err := nft.Open(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.Close()) }()
	log.Info("guarding", "socket", o.socket, "ports", c.Ports, "user", o.user, "max", o.max,
		"lease", o.lease, "answer", o.answer)
	h := helper.New(helper.Config{
		Kernel: helper.Kernel{Apply: table.Apply, Flush: table.Flush, Counts: table.Counts},
		Ports:  c.Ports, User: id, Max: o.max, Lease: o.lease, Log: log,
	})
	err = h.Serve(ctx, ln)
	log.Info("stopped: the kernel refuses no connection any more")
	return err
}

// userID is the number of a user.
func userID(name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("--user %s: there is no such user: give the one that the edge runs as",
			name)
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(n), err
}

// listen makes the socket, in place of one without a listener. Every user may connect: the helper
// refuses all but one by SO_PEERCRED, because a helper without CAP_CHOWN cannot give the socket to
// the edge's user.
func listen(path string) (*net.UnixListener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != fs.ModeSocket {
			return nil,
				fmt.Errorf("--socket %s: there is a file that is no socket: name another, or remove it", path)
		}
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			c.Close()
			return nil,
				fmt.Errorf("--socket %s: another process listens there: stop it, or name another",
					path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("--socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		ln.Close()
		return nil, err
	}
	return ln, nil
}
