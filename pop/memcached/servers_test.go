//go:build system

package memcached_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// startMemcached runs a real memcached on a free port until the test ends, and returns its address.
func startMemcached(tb testing.TB, flags ...string) (address string) {
	tb.Helper()
	return startServer(tb, "memcached", func(address string) []string {
		host, port, _ := net.SplitHostPort(address)
		return append([]string{"-u", "nobody", "-l", host, "-p", port, "-U", "0", "-m", "64"}, flags...)
	})
}

// startNutcracker runs a real twemproxy in front of memcached nodes until the test ends, and returns its address.
func startNutcracker(tb testing.TB, servers ...string) (address string) {
	tb.Helper()
	dir := tb.TempDir()
	return startServer(tb, "nutcracker", func(address string) []string {
		conf := fmt.Sprintf("pop:\n  listen: %s\n  hash: fnv1a_64\n  distribution: ketama\n  timeout: 1000\n  auto_eject_hosts: false\n  servers:\n", address)
		for _, s := range servers {
			conf += "   - " + s + ":1\n"
		}
		file := filepath.Join(dir, "nutcracker.yml")
		must(tb, os.WriteFile(file, []byte(conf), 0o644))
		_, stats, _ := net.SplitHostPort(freeAddress(tb)) // its statistics want a port as well, and on all addresses by default
		return []string{"-c", file, "-a", "127.0.0.1", "-s", stats, "-p", filepath.Join(dir, "pid"), "-o", filepath.Join(dir, "log")}
	})
}

// startServer starts a program that listens on the address given to args, and waits until it answers.
func startServer(tb testing.TB, name string, args func(address string) []string) (address string) {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/" + name); err != nil { // not in everybody's PATH
			tb.Fatalf("%s is not installed: `make test-system` installs what the tests need", name)
		}
	}
	address = freeAddress(tb)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, args(address)...)
	if err := cmd.Start(); err != nil {
		cancel()
		tb.Fatalf("%s: %v", name, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cmd.Wait()
	}()
	tb.Cleanup(func() {
		cancel()
		<-ended
	})
	if !answers(address, ended) {
		tb.Fatalf("%s does not start", name)
	}
	return address
}

// answers waits until something answers at the address. Both programs know "get".
func answers(address string, ended <-chan struct{}) bool {
	deadline := time.Now().Add(time.Minute)
	for tick := time.NewTicker(5 * time.Millisecond); time.Now().Before(deadline); {
		select {
		case <-ended:
			return false
		case <-tick.C:
		}
		c, err := net.Dial("tcp", address)
		if err != nil {
			continue
		}
		c.SetDeadline(deadline)
		fmt.Fprint(c, "get a\r\n")
		n, err := c.Read(make([]byte, 16))
		c.Close()
		if n > 0 && err == nil {
			return true
		}
	}
	return false
}
