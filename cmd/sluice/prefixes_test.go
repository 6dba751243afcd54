//go:build system

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sluice/edge/control"
)

// A line is a connection over which requests of many clients come, as a trusted proxy's do.
type line struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func (p *process) line() *line {
	p.t.Helper()
	c, err := net.Dial("tcp", p.front)
	must(p.t, err)
	p.t.Cleanup(func() { c.Close() })
	return &line{p.t, c, bufio.NewReader(c)}
}

// ask makes a request for each client, all at once, and counts those that are admitted.
func (l *line) ask(clients ...string) (admitted int) {
	l.t.Helper()
	var b strings.Builder
	for _, c := range clients {
		fmt.Fprintf(&b, "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: %s\r\n\r\n", c)
	}
	if _, err := l.conn.Write([]byte(b.String())); err != nil {
		l.t.Fatal(err)
	}
	for range clients {
		resp, err := http.ReadResponse(l.in, nil)
		must(l.t, err)
		_, _ = l.in.Discard(int(resp.ContentLength))
		switch resp.StatusCode {
		case 200:
			admitted++
		case 429:
		default:
			l.t.Fatalf("status %d", resp.StatusCode)
		}
	}
	return admitted
}

// blocks are the sources that an edge blocks, by the limit.
func (p *process) blocks() map[string]string {
	p.t.Helper()
	_, body := p.admin("GET", "/v1/mitigations")
	var list []control.Mitigation
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		p.t.Fatalf("%v: %s", err, body)
	}
	all := make(map[string]string)
	for _, m := range list {
		all[m.Source] += strings.TrimSpace(m.Rule + " " + m.Policy)
	}
	return all
}

// Who takes another of the 65,536 /64s of a /48 for each request is blocked with the /48, on every edge, and nobody else is. A lift of the
// prefix at one edge holds on all, and then only who is still over a limit is blocked again.
func TestRotationThroughAPrefix(t *testing.T) {
	t.Parallel()
	const (
		limit     = 5
		ofTheWide = 256 * limit
		batch     = 64
		requests  = 16_384
	)
	file := write(t, fmt.Sprintf("source: {trust: [127.0.0.1]}\n"+
		"rules: [{name: r, limit: %d, window: 1m, mitigation_timeout: 10m, prefixes: [64, 56, 48]}]", limit))
	node, from := startMemcached(t), origin(t)
	edges := []*process{start(t, from, "--config", file, "--memcached", node), start(t, from, "--config", file, "--memcached", node)}
	meet(edges...)
	lines := []*line{edges[0].line(), edges[1].line()}
	honest := func(round int) {
		t.Helper()
		for i, l := range lines { // each of its own /48, next to the other
			if got := l.ask(fmt.Sprintf("2001:db8:%x::%d", 0x1000+2*round+i, 1), fmt.Sprintf("198.51.100.%d", 1+(2*round+i)%250)); got != 2 {
				t.Errorf("round %d: %d of 2 honest requests are admitted", round, got)
			}
		}
	}
	began, admitted, sent, blockedAfter := time.Now(), 0, 0, time.Duration(0)
	for round := 0; sent < requests; round++ {
		for _, l := range lines {
			clients := make([]string, batch)
			for i := range clients {
				clients[i] = fmt.Sprintf("2001:db8:7:%x::1", sent*40_503&0xffff)
				sent++
			}
			n := l.ask(clients...)
			admitted += n
			if blockedAfter == 0 && edges[0].blocks()["2001:db8:7::/48"] != "" && edges[1].blocks()["2001:db8:7::/48"] != "" {
				blockedAfter = time.Since(began)
			}
		}
		if round%16 == 0 && round < 1600 {
			honest(round / 16)
		}
	}
	t.Logf("%d of %d /64s are admitted, the /48 is blocked on both edges after %v; all took %v", admitted, sent, blockedAfter, time.Since(began))
	// An edge learns what the other has counted by its reports: what both admit meanwhile is over the limit.
	if admitted < ofTheWide || admitted > 2*ofTheWide {
		t.Errorf("%d of %d requests are admitted, at a limit of %d", admitted, sent, ofTheWide)
	}
	for i, p := range edges {
		if p.blocks()["2001:db8:7::/48"] != "r r/48" {
			t.Errorf("edge %d blocks %v", i, p.blocks())
		}
		if code, stdout, _ := sluice("blocked", "--source", "2001:db8:7::/48", "--admin", p.back); code != 0 || !strings.Contains(squeezed(stdout), "2001:db8:7::/48 r/48 enforce ") {
			t.Errorf("edge %d: exit %d: %s", i, code, stdout)
		}
	}
	if code, stdout, stderr := sluice("unblock", "2001:db8:7::/48", "--rule", "r", "--admin", edges[0].back); code != 0 || !strings.Contains(stdout, "on all 2 edges") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	if code, _, stderr := sluice("block", "2001:db8:9::/64", "--rule", "r", "--admin", edges[0].back); code != 0 {
		t.Error(stderr)
	}
	for i, p := range edges { // under one of the limits, which is enough
		if got := p.blocks()["2001:db8:9::/64"]; got != "r" || lines[i].ask("2001:db8:9::7") != 0 {
			t.Errorf("edge %d: blocked under %q", i, got)
		}
	}
	for i, l := range lines {
		neighbour, one := fmt.Sprintf("2001:db8:7:ff%02x::1", i), "2001:db8:7:abcd::1"
		for _, p := range edges { // they learn of what they lift from each other, counts among it
			p.until("served after the lift", func() bool { return p.line().ask("2001:db8:7:aaaa::1") == 1 })
		}
		if got := l.ask(one, one, one, one, one, one, one); got > limit {
			t.Errorf("%d of one /64 are admitted", got)
		}
		for j, p := range edges {
			p.until("blocking the one", func() bool { return p.blocks()["2001:db8:7:abcd::/64"] == "r" })
			if p.blocks()["2001:db8:7::/48"] != "" || lines[j].ask(neighbour) != 1 {
				t.Errorf("edge %d blocks %v", j, p.blocks())
			}
		}
	}
}
