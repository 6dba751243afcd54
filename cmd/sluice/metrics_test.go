//go:build system

package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"sluice/edge/changes/etcd/etcdtest"
	"sluice/edge/modules/geo/geotest"
)

// A family is the metrics of one name, as a scrape shows them.
type family struct {
	name, kind, help string
	labels           map[string]bool
}

// families reads a scrape: those of sluice's own.
func families(text string) (list []*family) {
	sample := regexp.MustCompile(`^(\w+)(?:\{(.*)\})? \S+$`)
	label := regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if rest, is := strings.CutPrefix(line, "# HELP "); is {
			name, help, _ := strings.Cut(rest, " ")
			list = append(list, &family{name: name, help: help, labels: make(map[string]bool)})
			continue
		}
		f := &family{}
		if len(list) > 0 {
			f = list[len(list)-1]
		}
		if rest, is := strings.CutPrefix(line, "# TYPE "); is {
			_, f.kind, _ = strings.Cut(rest, " ")
		} else if m := sample.FindStringSubmatch(line); m != nil {
			for _, l := range label.FindAllStringSubmatch(m[2], -1) {
				f.labels[l[1]] = true
			}
			delete(f.labels, "le") // a histogram's own
		}
	}
	return slices.DeleteFunc(list, func(f *family) bool { return !strings.HasPrefix(f.name, "sluice_") })
}

// metricPages says which metrics are on which page, by how their names begin: the first page that has a beginning has the metric.
var metricPages = []struct {
	name, intro string
	begin       *regexp.Regexp
}{
	{"pop", `# Metrics of a PoP

What ` + "`GET /metrics`" + ` shows of an edge that shares a tier. ` + "`sluice_peer_*`" + ` are there with peers, and
` + "`sluice_etcd_*`" + ` with an etcd. [README.md](README.md) says which to watch.
`, regexp.MustCompile(`^sluice_(etcd|exact|hits|operators|peer|pop|propagation|tier|unreported)_`)},
	{"edge", `# Metrics of an edge

What ` + "`GET /metrics`" + ` of each edge shows, beside the ` + "`go_*` and `process_*`" + ` of every Go program.
Some metrics are there only with what they are about: ` + "`sluice_certificate_*`" + ` with a listener
for TLS, ` + "`sluice_plans_*`" + ` with a store of plans, ` + "`sluice_acme_*`" + ` with ` + "`acme`" + `.
The same holds for ` + "`sluice_trace_*`" + ` (` + "`tracing`" + `), ` + "`sluice_list_*`" + ` (` + "`lists`" + `),
` + "`sluice_geo_*`" + ` (` + "`geo`" + `), ` + "`sluice_limit_connections*`" + ` (` + "`limit_api`" + `),
` + "`sluice_rate_limit_connections*`" + ` (` + "`rate_limit_service`" + `) and
` + "`sluice_http2_memory_*bytes`" + ` (` + "`limits.memory`" + `).
[README.md](README.md) says which to watch.
`, regexp.MustCompile(`^sluice_`)},
}

const metricsHead = `
The page is made from an edge's scrape: ` + "`go test -tags system ./cmd/sluice -run TestMetrics -rewrite`" + `.

| name | type | labels | what it is |
|---|---|---|---|
`

// The pages on metrics are what a running edge with a tier, peers, an etcd, a store of plans and traces shows; and a scrape is what Prometheus wants of one.
func TestMetrics(t *testing.T) {
	t.Parallel()
	secret := write(t, popKey)
	cert, key := newAuthority(t).issue(t, "sluice")
	systems := filepath.Join(t.TempDir(), "asn.mmdb")
	geotest.Systems(t, systems, map[string]uint32{"192.0.2.0/24": 64500})
	p := start(t, "", "--memcached", startMemcached(t), "--config", write(t, "geo: {asn: "+systems+"}\nlimit_api: {listen: \""+freePort(t)+"\"}\nrate_limit_service: {listen: \""+freePort(t)+"\"}\nlisten_tls: \"127.0.0.1:0\"\ntls: {certificate: "+cert+", key: "+key+"}\npop: {peers: [{name: ams1, edges: [\""+freePort(t)+"\"]}], secret_file: "+secret+", peers_secret_file: "+secret+", peers_listen: \""+freePort(t)+"\"}\n"+
		"acme: {hosts: [a.example], agree: true, directory: \"https://127.0.0.1:1/dir\"}\netcd: {endpoints: [\""+etcdtest.Start(t).Endpoint+"\"]}\nplans: {key: \"header:X-API-Key\", store: \"sqlite:"+filepath.Join(t.TempDir(), "plans.db")+"\"}\n"+
		"limits: {memory: 1GiB}\ntracing: {endpoint: \"http://"+freePort(t)+"\", sample: 0}\nlists: [{name: partners, file: "+write(t, "192.0.2.0/24\n")+"}]\nshed: kernel\nwall: {socket: /nowhere/wall.sock}\norigins: [{servers: [\""+origin(t)+"\"], shedding: {}}]\nrules: [{name: r, limit: 100000, on_store_failure: open}, {name: slow, concurrency: 1000}, {name: api, key: \"header:X-API-Key\", limit: 1000, plans: {free: 500}}]"))
	var text string
	p.until("telling of requests and of the tier", func() bool {
		p.get()
		_, text = p.admin("GET", "/metrics")
		return strings.Contains(text, "sluice_answers_total") && strings.Contains(text, "sluice_origin_requests_total") && strings.Contains(text, "sluice_tier_operations_total")
	})
	p.stop(syscall.SIGTERM)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	must(t, err)
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
	if len(text) > 60_000 {
		t.Errorf("a scrape of an edge with one rule has %d bytes", len(text))
	}
	rows := make(map[string]string)
	for _, f := range families(text) {
		for _, p := range metricPages {
			if p.begin.MatchString(f.name) {
				rows[p.name] += fmt.Sprintf("| `%s` | %s | %s | %s |\n", f.name, f.kind, strings.Join(slices.Sorted(maps.Keys(f.labels)), ", "), strings.ReplaceAll(f.help, "|", `\|`))
				break
			}
		}
	}
	for _, p := range metricPages {
		madePage(t, "metrics/"+p.name, p.intro+metricsHead+rows[p.name], "TestMetrics")
	}
}
