//go:build system

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// at opens connections to the edges, one after the other, as another address of this machine, and then sends a request on each at once. It
// returns how many were answered with each status.
func at(t *testing.T, edges []*process, connections int, source, path string) map[int]int {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: patience}
	conns := make([]net.Conn, connections)
	for i := range conns {
		c, err := dialer.Dial("tcp", edges[i%len(edges)].front)
		must(t, err)
		defer c.Close()
		conns[i] = c
	}
	statuses := make([]int, connections)
	var all sync.WaitGroup
	begin := make(chan struct{})
	for i, c := range conns {
		all.Go(func() {
			<-begin
			if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", path); err != nil {
				return
			}
			if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
				statuses[i] = resp.StatusCode
			}
		})
	}
	close(begin)
	all.Wait()
	by := make(map[int]int)
	for _, s := range statuses {
		by[s]++
	}
	return by
}

// Over eight edges, two hundred requests at once of a source are admitted exactly as often as a rule with check: sync says, whether a
// refusal blocks or throttles.
func TestExactlyTheLimitOverEightEdges(t *testing.T) {
	t.Parallel()
	node, _ := startNode(t)
	file := write(t, `
pop: {wait: 1s}
rules:
  - {name: pay, match: {path: /pay}, limit: 50, window: 10m, mitigation_timeout: 0, algorithm: exact, check: sync}
  - {name: login, match: {path: /login}, limit: 5, window: 10m, mitigation_timeout: 20m, algorithm: exact, check: sync}
`)
	server := origin(t)
	var edges []*process
	for range 8 {
		edges = append(edges, start(t, server, "--memcached", node, "--config", file))
	}
	for _, e := range edges {
		e.until("told of eight edges", func() bool {
			_, body := e.admin("GET", "/metrics")
			return strings.Contains(body, "sluice_tier_edges 8\n")
		})
	}
	before := written(t, node)
	const rounds, connections = 5, 200
	asked := 0
	for round, late, deadline := 0, 0, time.Now().Add(patience); round < rounds; round++ {
		source := fmt.Sprintf("127.0.1.%d", round+late+1)
		for path, limit := range map[string]int{"/pay": 50, "/login": 5} {
			by := at(t, edges, connections, source, path)
			asked += connections
			if by[503] > 0 && by[200] <= limit && time.Now().Before(deadline) { // the tier did not answer within the second: another round
				round, late = round-1, late+1
				break
			}
			if by[200] != limit || by[429] != connections-limit {
				t.Errorf("%s, %s: %v, want 200 %d times and 429 else", source, path, by, limit)
			}
		}
	}
	t.Logf("%.2f commands that write for each request", float64(written(t, node)-before)/float64(asked))
}

// written is how many commands that write a node has carried out.
func written(t *testing.T, node string) (n int) {
	t.Helper()
	c, err := net.Dial("tcp", node)
	must(t, err)
	defer c.Close()
	fmt.Fprint(c, "stats\r\nquit\r\n")
	text, err := io.ReadAll(c)
	must(t, err)
	for _, name := range []string{"cmd_set", "incr_hits", "incr_misses", "decr_hits", "decr_misses"} {
		_, value, there := strings.Cut(string(text), "STAT "+name+" ")
		var count int
		if _, err := fmt.Sscan(value, &count); err != nil || !there {
			t.Fatalf("no %s: %v", name, err)
		}
		n += count
	}
	return n
}
