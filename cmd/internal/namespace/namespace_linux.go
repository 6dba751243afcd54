// Package namespace runs programs in a network of their own: nothing of the machine's is in it, and it goes with them. Who is not root
// gets one of a user namespace, in which he is.
package namespace

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// inside is set in what Command starts.
const inside = "SLUICE_NAMESPACE"

// Sources are the addresses that Up gives the loopback device: clients may connect from any of them, and to any of them.
var Sources = []string{"198.18.0.0/15", "2001:db8:1::/48"}

// Inside reports whether this process was started by Command.
func Inside() bool { return os.Getenv(inside) != "" }

// Command is a program in a network of its own. It calls Up first.
func Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
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
			return fmt.Errorf("namespace: ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
	}
	// Clients may use addresses that belong to no device.
	return os.WriteFile("/proc/sys/net/ipv6/ip_nonlocal_bind", []byte("1"), 0)
}

// Test runs a test in a network of its own: the same test in another process. It reports whether this is the one in it, where the test goes on.
func Test(t *testing.T) bool {
	t.Helper()
	if Inside() {
		if err := Up(); err != nil {
			t.Fatal(err)
		}
		return true
	}
	cmd := Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.timeout=5m")
	if testing.Verbose() {
		cmd.Args = append(cmd.Args, "-test.v")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("in a network namespace: %v (this needs root, or a kernel that gives others a user namespace)\n%s", err, out)
	}
	if testing.Verbose() {
		t.Logf("%s", out)
	}
	return false
}
