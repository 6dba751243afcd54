//go:build system

package main

import (
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Maintenance is on at every edge of the PoP, at one that starts later and at one that starts again, and what each says is the same, whoever was
// asked for it at once.
func TestMaintenanceOverThePoP(t *testing.T) {
	t.Parallel()
	nodes, site := startMemcached(t), origin(t)
	file := write(t, "source: {trust: [127.0.0.1]}\n")
	begin := func() *process { return start(t, site, "--config", file, "--memcached", nodes) }
	first, second := begin(), begin()
	meet(first, second)
	do := func(want string, args ...string) {
		t.Helper()
		if code, out, errs := sluice(append([]string{"maintenance"}, args...)...); code != 0 || !strings.Contains(out, want) {
			t.Fatalf("%v: %d %s%s", args, code, out, errs)
		}
	}
	closed := func(p *process) bool {
		return ask("GET", "http://"+p.front, "192.0.2.7") == http.StatusServiceUnavailable && ask("GET", "http://"+p.front, "10.1.2.3") == http.StatusOK
	}
	do("in force on all 2 edges of the PoP", "on", "--allow", "10.0.0.0/8", "--for", "1h", "--admin", first.back)
	for _, p := range []*process{first, second} {
		if !closed(p) {
			t.Error("an edge serves")
		}
		if code, text := p.admin("GET", "/readyz"); code != 200 || !strings.HasPrefix(text, "ready\nmaintenance is on until ") {
			t.Errorf("%d %s", code, text)
		}
		do("every request gets 503, but those of 10.0.0.0/8", "status", "--admin", p.back)
		if _, out, _ := sluice("status", "--admin", p.back); !strings.Contains(out, "\nclosed    maintenance is on until ") {
			t.Error(out)
		}
	}
	later := begin()
	later.until("the order at an edge that starts later", func() bool { return closed(later) })
	second.stop(syscall.SIGTERM)
	second = begin()
	second.until("the order at an edge that starts again", func() bool { return closed(second) })

	meet(first, second, later)
	var both sync.WaitGroup
	for _, p := range []*process{first, later} {
		both.Go(func() { sluice("maintenance", "on", "--message", "by "+p.front, "--admin", p.back) })
	}
	both.Wait()
	says := func(p *process) string {
		_, out, _ := sluice("maintenance", "status", "--admin", p.back)
		_, message, _ := strings.Cut(out, ", with ") // ends differ by a part of a second
		return message
	}
	second.until("one order everywhere", func() bool { return says(first) == says(second) && says(second) == says(later) })

	do("maintenance is off: requests are served\nin force on all 3 edges of the PoP", "off", "--admin", second.back)
	for _, p := range []*process{first, second, later} {
		if ask("GET", "http://"+p.front, "192.0.2.7") != 200 {
			t.Error("an edge does not serve")
		}
	}
	do("maintenance was not on here", "off", "--admin", first.back)
	do("maintenance is off", "--admin", first.back)
	for _, wrong := range [][]string{{"on", "--allow", "10.0.0.0/33"}, {"on", "--allow", ""}, {"on", "--for", "soon"}, {"on", "--for", "-1h"}, {"off", "--for", "1h"}, {"maybe"}} {
		if code, out, errs := sluice(append(append([]string{"maintenance"}, wrong...), "--admin", first.back)...); code != 2 || out != "" || errs == "" {
			t.Errorf("%v: %d %s%s", wrong, code, out, errs)
		}
	}
}
