// Package namespace runs programs in a network of their own: nothing of the machine's is in it, and
// it goes with them. Who is not root gets one of a user namespace, in which he is.
package namespace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"sluice/cmd/internal/cli"
)

// inside is set in what Command starts.
const inside = "SLUICE_NAMESPACE"

// Sources are the addresses that Up gives the loopback device: clients may connect from any of
// them, and to any of them.
var Sources = []string{"198.18.0.0/15", "2001:db8:1::/48"}

// Inside reports whether this process was started by Command.
func Inside() bool { return os.Getenv(inside) != "" }

// Command is a program in a network of its own. It calls Up first.
func Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET,
		Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

// Up gives this process's network its loopback device, with the addresses of Sources.
func Up() error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"route", "add", "local", Sources[0], "dev", "lo"},
		{"-6", "route", "add", "local", Sources[1], "dev", "lo"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("namespace: ip %s: %w: %s", strings.Join(args, " "), err,
				strings.TrimSpace(string(out)))
		}
	}
	// Clients may use addresses that belong to no device.
	return os.WriteFile("/proc/sys/net/ipv6/ip_nonlocal_bind", []byte("1"), 0)
}

// Again runs this program anew, with its arguments, in a network of its own, until it ends or ctx
// does. What it says goes where this one's words go. The network is gone when the last process in
// it is.
func Again(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := Command(self, os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr.Setpgid = true // a terminal's signal comes to it once: from here
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: a network of its own needs root, or a kernel that gives others a user namespace", err)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })()
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return cli.Told(max(exit.ExitCode(), 1)) // it has said why; -1: a signal has ended it
	}
	return err
}
