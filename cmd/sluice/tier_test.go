package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os/exec"
	"syscall"
	"testing"
)

// startMemcached starts a node of its own.
func startMemcached(t *testing.T) string {
	t.Helper()
	addr := freePort(t)
	_, port, _ := net.SplitHostPort(addr)
	node := exec.Command("memcached", "-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-p", port)
	if err := node.Start(); err != nil {
		t.Fatalf("this test needs a memcached on the PATH: install it (apt-get install memcached): %v", err)
	}
	t.Cleanup(func() {
		_ = node.Process.Kill()
		_ = node.Wait()
	})
	return addr
}

// What an edge has counted and not yet reported reaches the tier before it ends: the next one knows of it.
func TestUnreportedHitsReachTheTier(t *testing.T) {
	node := startMemcached(t)
	args := []string{"--memcached", node, "--limit", "100000", "--window", "1h"}
	p := start(t, origin(t), args...)
	const hits = 200
	for range hits {
		if got := p.get(); got != 200 {
			t.Fatal(got)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	p.stop(syscall.SIGTERM)
	next := start(t, origin(t), args...)
	next.get() // it has not seen the source, and asks
	next.until("told of what the first one has counted", func() bool {
		_, body := next.admin("GET", "/v1/sources/127.0.0.1")
		var standings []struct{ Estimate float64 }
		return json.Unmarshal([]byte(body), &standings) == nil && len(standings) == 1 && standings[0].Estimate == hits+1
	})
	next.stop(syscall.SIGTERM)
}
