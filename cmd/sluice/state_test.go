//go:build system

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	_ "time/tzdata" // of the zone that edges are started in

	"sluice/edge/config"
)

// says returns when sluice status says something of an edge, and what it says then.
func (p *process) says(what string) (status string) {
	p.t.Helper()
	p.until("saying "+what, func() bool {
		_, out, _ := sluice("status", "--admin", p.back)
		status = squeezed(out)
		return strings.Contains(status, what)
	})
	return status
}

// What the file says and waits for a restart stands beside what runs, marked, and is counted; a reload that failed is told until one has not.
func TestConfigShowsWhatRuns(t *testing.T) {
	t.Parallel()
	file := write(t, "edge_id: before\nrules: [{name: r, limit: 5}]\n")
	p := start(t, origin(t), "--config", file)
	if status := p.says("\nrules 1 enforce\n"); strings.Contains(status, "config") {
		t.Errorf("%s", status)
	}
	put := func(text string) { must(t, os.WriteFile(file, []byte(text), 0o600)) }
	for range 2 { // read again, it still waits
		put("edge_id: after\nlimits: {idle_timeout: 2m}\nrules: [{name: r, limit: 6}]\n")
		p.until("with another limit", func() bool { return p.api("GET", "/v1/rules/r", "").Limit == 6 })
		p.says("\nconfig settings of the file that wait for a restart: 2 (sluice config shows them)\n")
		if a := p.api("POST", "/v1/reload", ""); a.status != 200 {
			t.Fatalf("%s", a.text)
		}
	}
	_, shown, _ := sluice("config", "--admin", p.back)
	for _, want := range []string{"\nedge_id: before  # the file says after: after a restart\n", "\n  idle_timeout: 1m0s  # the file says 2m0s: after a restart\n", "\n  limit: 6\n"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not in %s", want, shown)
		}
	}
	var got struct{ Waiting []config.Wait }
	must(t, json.Unmarshal([]byte(p.api("GET", "/v1/config", "").text), &got))
	if len(got.Waiting) != 2 || got.Waiting[0] != (config.Wait{Field: "edge_id", Runs: "before", File: "after"}) {
		t.Errorf("%+v", got.Waiting)
	}
	p.eventTexts(`"field": "rules.r.limit",`) // from 5 to 6
	put("rules: [{name: r, limit: many}]\n")
	p.says("\nconfig the reload at 20")
	if status := p.says("what was in force before still is: "); !strings.Contains(status, "limit") {
		t.Errorf("%s", status)
	}
	put("edge_id: before\nrules: [{name: r, limit: 5}]\n")
	p.until("as before", func() bool { _, out, _ := sluice("status", "--admin", p.back); return !strings.Contains(out, "config") })
	p.stop(syscall.SIGTERM)
}

// An edge that has just started may not know whom its neighbours have blocked, and says so; one that an older process has told does not. One whose nodes
// are gone says that it counts alone.
func TestStatusTellsWhatIsMissing(t *testing.T) {
	t.Parallel()
	nodes, node := startNode(t)
	file := write(t, "rules: [{name: r, limit: 5, mitigation_timeout: 1h}]\n")
	l := startLineage(t, origin(t), nil, "--config", file, "--memcached", nodes)
	status := l.says("this edge may not know of every block from before it started")
	if strings.Contains(status, "counts alone") {
		t.Errorf("%s", status)
	}
	var s struct {
		Until time.Time `json:"learning_until"`
	}
	must(t, json.Unmarshal([]byte(l.api("GET", "/v1/status", "").text), &s))
	if left := time.Until(s.Until); left > time.Hour || left < 50*time.Minute {
		t.Errorf("until %s", s.Until)
	}
	if _, out, _ := sluice("blocked", "--admin", l.back); !strings.HasPrefix(out, "nobody is blocked\nas far as this edge knows: until 20") {
		t.Errorf("%s", out)
	}
	must(t, node.Kill())
	l.says("\npop this edge counts alone: no node answers since 20")
	l.says("before it started: nobody can be asked now\n")
	code, out, _ := sluice("why", "192.0.2.1", "--admin", l.back)
	if code != 0 || !strings.Contains(out, "it has started lately, and may not know until 20") {
		t.Errorf("%d %s", code, out)
	}
	l.replace()
	l.until("told by the older process", func() bool { return !strings.Contains(l.api("GET", "/v1/status", "").text, "learning_until") })
	l.stop(syscall.SIGTERM)
}

// Wherever an edge and its operators are, times carry their zone, and it is one: UTC.
func TestTimesCarryTheirZone(t *testing.T) {
	t.Setenv("TZ", "America/St_Johns")
	edges := []*process{}
	nodes, site := startMemcached(t), origin(t)
	for _, file := range writePoP(t, 2) {
		edges = append(edges, start(t, site, "--config", file, "--memcached", nodes))
	}
	meet(edges...)
	p := edges[0]
	for range 7 {
		p.request("GET", p.front, "/login", "")
	}
	p.until("blocking", func() bool { return strings.Contains(p.api("GET", "/v1/mitigations", "").text, "127.0.0.1") })
	p.api("PATCH", "/v1/rules/all", `{"limit":1001}`)
	p.api("PUT", "/v1/mitigations/*/198.51.100.7", `{"for":"10m"}`)
	p.api("PUT", "/v1/allow/192.0.2.0/24", `{"for":"10m"}`)
	times := regexp.MustCompile(`"(\d{4}-\d\d-\d\dT\d\d:\d\d:[0-9.]*)([^"]*)"`)
	for _, p := range edges {
		for _, path := range []string{"/v1/mitigations", "/v1/events", "/v1/pop", "/v1/status", "/v1/config", "/v1/dashboard", "/v1/sources/127.0.0.1", "/v1/allow", "/v1/rules/all/history", "/v1/origins"} {
			text := p.api("GET", path, "").text
			all := times.FindAllStringSubmatch(text, -1)
			for _, m := range all {
				if m[2] != "Z" {
					t.Errorf("GET %s: %s has no zone, or another", path, m[0])
				}
			}
			if len(all) == 0 && path != "/v1/config" && path != "/v1/origins" {
				t.Errorf("GET %s has no time: %s", path, text)
			}
		}
		p.until("telling of the rule", func() bool { return strings.Contains(p.api("GET", "/v1/events", "").text, `"to": "1001"`) })
		for _, args := range []string{"blocked", "events", "why 127.0.0.1", "status", "allow", "rules history all"} {
			_, out, _ := sluice(append(strings.Fields(args), "--admin", p.back)...)
			clocks := regexp.MustCompile(`\d\d:\d\d:\d\d([^\s,;)]*)`).FindAllStringSubmatch(out, -1)
			for _, m := range clocks {
				if m[1] != "Z" {
					t.Errorf("sluice %s: %s has no zone, or another", args, m[0])
				}
			}
			if len(clocks) == 0 {
				t.Errorf("sluice %s tells no time: %s", args, out)
			}
		}
	}
	for _, p := range edges {
		p.stop(syscall.SIGTERM)
		for line := range strings.Lines(p.log.String()) {
			if m := regexp.MustCompile(`time=(\S+)`).FindStringSubmatch(line); m != nil && !strings.HasSuffix(m[1], "Z") {
				t.Fatal(fmt.Sprint("the log: ", line))
			}
		}
	}
}
