//go:build system

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"sluice/cmd/internal/labtest"
	"sluice/edge/changes/etcd/etcdtest"
	"sluice/edge/modules/geo/geotest"
)

// query is an expression, and where it stands.
type query struct{ where, expr string }

// dashboard reads the queries of the dashboard, with its variables as Grafana would fill them in.
func dashboard(t *testing.T) []query {
	t.Helper()
	var board struct {
		UID        string
		Templating struct{ List []struct{ Name string } }
		Panels     []struct {
			Type, Title string
			Targets     []struct{ Expr string }
			GridPos     struct{ X, Y, W, H int }
		}
	}
	text, err := os.ReadFile("../../deploy/grafana/sluice.json")
	if err == nil {
		err = json.Unmarshal(text, &board)
	}
	must(t, err)
	if len(board.Templating.List) != 4 {
		t.Errorf("variables %v", board.Templating.List)
	}
	fill := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*", "$rule", ".*")
	var all []query
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s: %+v", p.Title, p)
		}
		for _, q := range p.Targets {
			expr := fill.Replace(q.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("%s: %s: a variable that nobody fills in", p.Title, q.Expr)
			}
			all = append(all, query{"panel " + p.Title, expr})
		}
	}
	return all
}

// An alertRule is a rule of Prometheus', an alert or a record.
type alertRule struct {
	Alert, Record, Expr string
	For                 string
	Labels, Annotations map[string]string
}

func alertRules(t *testing.T) (all []alertRule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []alertRule
		}
	}
	text, err := os.ReadFile("../../deploy/prometheus/sluice.rules.yml")
	if err == nil {
		err = yaml.UnmarshalWithOptions(text, &file, yaml.Strict())
	}
	must(t, err)
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// Every query of the dashboard returns data from a Prometheus that scrapes a PoP with traffic, and every expression of an alert or a record is one. A metric that
// has another name, or a label that is no more, is an empty panel, or an alert that never comes.
func TestDashboardHasData(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	config := filepath.Join(folder, "sluice.yaml")
	put := func(file, text string) {
		t.Helper()
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	cert, key := newAuthority(t).issue(t, "sluice")
	countries := filepath.Join(folder, "country.mmdb")
	geotest.Countries(t, countries, map[string]string{"192.0.2.0/24": "DE"})
	put(config, fmt.Sprintf(`
listen_tls: "127.0.0.2:0"
tls: {certificate: %s, key: %s}
geo: {country: %s}
lists: [{name: partners, file: %s}]
shed: kernel
wall: {socket: %s}
pop: {name: test, memcached: ["%s"], peers: [{name: away, edges: ["127.0.0.1:1"]}], peers_listen: "127.0.0.1:0", peers_secret_file: %s}
source: {trust: [127.0.0.1/32]}
access_log: {file: %s}
etcd: {endpoints: ["%s"]}
acme: {hosts: [a.example], agree: true, directory: "https://127.0.0.1:1/dir"}
plans: {key: "header:X-API-Key", default: free, store: "sqlite:%s"}
origins:
  - {hosts: [down.example], servers: ["http://127.0.0.1:1"]}
  - {servers: ["%s"]}
rules:
  - {name: default, limit: 5, window: 10s}
  - {name: trial, limit: 2, window: 10s, mode: shadow}
  - {name: planned, key: "header:X-API-Key", limit: 100, plans: {free: 50}}
`, cert, key, countries, write(t, "192.0.2.0/24\n"), filepath.Join(folder, "wall.sock"), startMemcached(t), write(t, "a secret of these peers"), filepath.Join(folder, "access.log"), etcdtest.Start(t).Endpoint, filepath.Join(folder, "plans.db"), origin(t)))
	edges := []*process{startFile(t, config), startFile(t, config)}

	// The shipped configuration, but for who is scraped and how often.
	text, err := os.ReadFile("../../deploy/prometheus/prometheus.yml")
	must(t, err)
	rules, err := filepath.Abs("../../deploy/prometheus/sluice.rules.yml")
	must(t, err)
	filled := strings.NewReplacer("[sluice.rules.yml]", "["+rules+"]", "15s", "200ms",
		`"127.0.0.1:8081"`, strconv.Quote(edges[0].back)+", "+strconv.Quote(edges[1].back)).Replace(string(text))
	put(filepath.Join(folder, "prometheus.yml"), filled)
	prometheus := startPrometheus(t, folder)

	queries := dashboard(t)
	if len(queries) < 50 {
		t.Errorf("only %d queries are found", len(queries))
	}
	for _, r := range alertRules(t) {
		if _, err := prometheus.values(r.Expr); err != nil {
			t.Errorf("%s%s: %v", r.Alert, r.Record, err)
		}
		queries = append(queries, query{"rule " + r.Alert + r.Record, r.Expr})
	}

	// Every metric that is named anywhere is one that an edge has.
	name := regexp.MustCompile(`\b(?:sluice|process|go)_[a-z_]+`)
	var want []query
	shown := ""
	for _, e := range edges {
		_, metrics := e.admin("GET", "/metrics")
		shown += metrics
	}
	for _, q := range queries {
		for _, n := range name.FindAllString(q.expr, -1) {
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(n, "")
			switch {
			case strings.Contains(shown, "# TYPE "+base+" "), base == "sluice_answers_total", base == "sluice_origin_requests_total", base == "sluice_tier_operations_total": // these three come with the first request
			default:
				t.Errorf("%s: an edge has no metric %s", q.where, n)
			}
		}
		if !strings.HasPrefix(q.where, "rule ") {
			want = append(want, q)
		}
	}

	// Traffic comes in rounds, of new sources each time, so that rates and histograms have something to show.
	round := 0
	traffic := func() {
		round++
		for i, e := range edges {
			for n := range 40 {
				e.send(fmt.Sprintf("10.%d.%d.%d", i, round, n/8), "shop.example")
			}
		}
		edges[0].send(fmt.Sprintf("10.9.9.%d", round), "down.example")
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * patience); ; <-tick.C {
		traffic()
		var still []query
		for _, q := range want {
			values, err := prometheus.values(q.expr)
			if err != nil {
				t.Fatalf("%s: %v", q.where, err)
			}
			data := false
			for _, v := range values {
				data = data || !math.IsNaN(v)
			}
			if !data {
				still = append(still, q)
			}
		}
		if want = still; len(want) == 0 {
			break
		}
		if time.Now().After(deadline) {
			for _, q := range want {
				t.Errorf("%s: no data: %s", q.where, q.expr)
			}
			break
		}
	}
	for _, e := range edges {
		e.stop(syscall.SIGTERM)
	}
}

// startFile runs sluice as a file says, on ports of its own.
func startFile(t *testing.T, config string) *process {
	t.Helper()
	p := &process{t: t, front: freePort(t), back: freePort(t), log: new(labtest.Buffer)}
	p.cmd = exec.Command(os.Args[0], "--config", config, "--listen", p.front, "--admin", p.back, "--grace", "5s")
	p.cmd.Stderr = p.log
	p.run()
	return p
}

// send makes a request for a host as a trusted proxy would for a source.
func (p *process) send(source, host string) {
	p.t.Helper()
	req, err := http.NewRequest("GET", "http://"+p.front+"/", nil)
	must(p.t, err)
	req.Host = host
	req.Header.Set("X-Forwarded-For", source)
	resp, err := http.DefaultClient.Do(req)
	must(p.t, err)
	resp.Body.Close()
}

// A monitor is a running Prometheus.
type monitor struct{ address string }

// startPrometheus runs Prometheus with the prometheus.yml of a folder, and returns once it answers.
func startPrometheus(t *testing.T, folder string) monitor {
	t.Helper()
	m := monitor{freePort(t)}
	log := new(strings.Builder)
	cmd := exec.Command("prometheus", "--config.file", filepath.Join(folder, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(folder, "data"),
		"--web.listen-address", m.address)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatalf("this test needs Prometheus on the PATH: install it (apt-get install prometheus): %v", err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); ; {
		if status, _ := fetch("GET", "http://"+m.address+"/-/ready"); status == 200 {
			return m
		}
		select {
		case <-tick.C:
		case <-ended:
			t.Fatalf("Prometheus ended:\n%s", log)
		case <-deadline:
			t.Fatal("Prometheus is not ready after a minute")
		}
	}
}

// values are those that an expression has now.
func (m monitor) values(expr string) ([]float64, error) {
	_, body := fetch("GET", "http://"+m.address+"/api/v1/query?query="+url.QueryEscape(expr))
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		return nil, fmt.Errorf("%w: %.200s", err, body)
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", answer.Error, expr)
	}
	var all []float64
	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// Each alert comes when it should, and not on series close to that; who gets it finds what to do.
func TestAlerts(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("promtool", "test", "rules", "../../deploy/prometheus/sluice.rules.test.yml").CombinedOutput()
	if err != nil {
		t.Errorf("promtool (of the package prometheus): %v\n%s", err, out)
	}
	var cases struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	text, err := os.ReadFile("../../deploy/prometheus/sluice.rules.test.yml")
	if err == nil {
		err = yaml.Unmarshal(text, &cases)
	}
	must(t, err)
	fires, quiet := make(map[string]bool), make(map[string]bool)
	for _, c := range cases.Tests {
		for _, a := range c.AlertRuleTest {
			if len(a.ExpAlerts) > 0 {
				fires[a.Alertname] = true
			} else {
				quiet[a.Alertname] = true
			}
		}
	}

	reported, page := make(map[string]string), make(map[string]string) // the first word under each heading, its severity; where it is
	for name, text := range runbook(t) {
		for _, m := range regexp.MustCompile(`(?m)^## (\w+)\n(\w+)\. `).FindAllStringSubmatch(text, -1) {
			reported[m[1]], page[m[1]] = m[2], name
		}
	}
	alerts := 0
	for _, r := range alertRules(t) {
		if r.Alert == "" {
			continue
		}
		alerts++
		if !fires[r.Alert] || !quiet[r.Alert] {
			t.Errorf("%s: has a case in which it comes: %v, and one in which it does not: %v", r.Alert, fires[r.Alert], quiet[r.Alert])
		}
		severity := r.Labels["severity"]
		if severity != "page" && severity != "ticket" && severity != "info" || reported[r.Alert] != severity {
			t.Errorf("%s: severity %q, in docs/alerts %q", r.Alert, severity, reported[r.Alert])
		}
		if want := "https://sluice.example.org/" + page[r.Alert] + "#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want || r.Annotations["summary"] == "" {
			t.Errorf("%s: annotations %v, want the link %s and a summary", r.Alert, r.Annotations, want)
		}
		delete(reported, r.Alert)
	}
	if alerts < 20 || len(reported) > 0 {
		t.Errorf("%d alerts; docs/alerts has headings for none: %v", alerts, reported)
	}
}
