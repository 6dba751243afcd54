//go:build system

package main

import (
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
)

// A process that clients fill up with heads of requests that never end turns connections away before its memory is used up,
// and serves again when they have gone.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	p := start(t, origin(t), "--config", write(t, "table: {counters: 1024}\nlimits: {memory: 40MiB, header_timeout: 1m}"))
	refused := func() bool {
		_, body := p.admin("GET", "/metrics")
		return strings.Contains(body, `sluice_connections_refused_total{cap="memory"}`) &&
			!strings.Contains(body, `sluice_connections_refused_total{cap="memory"} 0`)
	}
	head := "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 30<<10)
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	p.until("turning connections away", func() bool {
		for range 50 {
			c, err := net.Dial("tcp", p.front)
			must(t, err)
			open = append(open, c)
			_, _ = io.WriteString(c, head)
		}
		return refused()
	})
	if t.Logf("%d connections", len(open)); len(open) > 1000 {
		t.Errorf("it took %d connections: it is the cap per source that refused", len(open))
	}
	for _, c := range open {
		c.Close()
	}
	p.until("serving again", func() bool { return p.get() == 200 })
	p.stop(syscall.SIGTERM)
}
