package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"sluice/counter"
	"sluice/counter/member"
	"sluice/edge"
	"sluice/edge/bearer"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/view"
	"sluice/mitigation"
)

// pageView is what the page reads of a summary.
type pageView struct {
	PoP, Edge string
	Rules     []struct {
		Name, Mode string
		Verdicts   map[string]float64
		Active     float64
	}
	Origins         []view.OriginLoad
	Nodes           []nodeLoad
	Blocked, Shadow control.Extract
	Events          []events.Event
}

func summaryOf(t *testing.T, get func(path string) (int, string), query string) (s pageView) {
	t.Helper()
	code, body := get("/v1/dashboard" + query)
	if code != 200 {
		t.Fatalf("%s: %d %s", query, code, body)
	}
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// The summary has what operators have blocked before what is newer, and shadows apart; ?q= finds, also by an address within a prefix.
func TestSummary(t *testing.T) {
	c, err := config.Parse("test.yaml", []byte(`
pop: {name: fra1}
edge_id: web1
origins: [{servers: ["http://127.0.0.1:1"]}]
rules: [{name: login, match: {path: /login}, limit: 5}, {name: trial, limit: 9, mode: shadow}, {name: never, limit: 1, mode: off}]
`))
	if err != nil {
		t.Fatal(err)
	}
	nodes := []member.Node{{Address: "10.0.0.1:11211", Up: true}}
	h, s := newAPIOf(t, c, edge.Tier{PoP: control.PoP{Nodes: func() []member.Node { return nodes }}}, func(o *Options) {
		seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "sluice_origin_seconds", Buckets: []float64{0.1, 1}}, []string{"origin"})
		seconds.WithLabelValues("http://127.0.0.1:1").Observe(0.5)
		seconds.WithLabelValues("http://127.0.0.1:1").Observe(7)
		server, instead := o.Metrics, prometheus.NewRegistry()
		instead.MustRegister(seconds)
		o.Metrics = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			list, err := server.Gather()
			list = slices.DeleteFunc(list, func(f *dto.MetricFamily) bool { return f.GetName() == "sluice_origin_seconds" })
			more, alsoErr := instead.Gather()
			return append(list, more...), errors.Join(err, alsoErr)
		})
	})
	get := func(path string) (int, string) { w := do(h, "GET", path, ""); return w.Code, w.Body.String() }
	do(h, "PUT", "/v1/mitigations/login/192.0.2.1", `{"for":"10m","reason":"Scraper"}`)
	do(h, "PUT", "/v1/mitigations/trial/192.0.2.2", `{"for":"10m"}`)
	now := time.Now()
	for i := range 3 {
		s.Adopt(control.Handed{Mitigation: control.Mitigation{Rule: "login", Source: fmt.Sprintf("2001:db8:0:%d::/64", i), Start: now.Add(time.Duration(i) * time.Millisecond), End: now.Add(time.Minute), By: "pop"}}, now)
	}
	names := func(b control.Extract) (list []string) {
		for _, m := range b.List {
			list = append(list, m.Source+" "+m.By+" "+string(m.Mode))
		}
		return list
	}
	all := summaryOf(t, get, "")
	if diff := cmp.Diff([]string{"192.0.2.1 admin enforce", "2001:db8:0:2::/64 pop enforce", "2001:db8:0:1::/64 pop enforce", "2001:db8::/64 pop enforce"}, names(all.Blocked)); diff != "" {
		t.Errorf("blocked: %s", diff)
	}
	if diff := cmp.Diff([]string{"192.0.2.2 admin shadow"}, names(all.Shadow)); diff != "" {
		t.Errorf("shadow: %s", diff)
	}
	if all.PoP != "fra1" || all.Edge != "web1" || len(all.Rules) != 3 || all.Rules[2].Mode != "off" || all.Rules[0].Active != 4 || all.Rules[0].Verdicts["pass"] != 0 ||
		len(all.Nodes) != 1 || !all.Nodes[0].Up || !slices.ContainsFunc(all.Events, func(e events.Event) bool { return e.Kind == events.Operator && e.Source == "192.0.2.1" }) {
		t.Errorf("%+v", all)
	}
	if len(all.Origins) != 1 || !all.Origins[0].Up || !cmp.Equal(all.Origins[0].Seconds, [][2]float64{{0.1, 0}, {1, 1}, {-1, 2}}) {
		t.Errorf("origins: %+v", all.Origins[0])
	}
	for q, want := range map[string]int{"2001:db8:0:1::7": 1, "scrAPer": 1, "login": 4, "192.0.2.2": 0, "nobody": 0, "%20": 4} {
		if found := summaryOf(t, get, "?q="+q); len(found.Blocked.List) != want || found.Blocked.Matching != want || found.Blocked.InForce != 4 {
			t.Errorf("%s: found %d, want %d: %v", q, found.Blocked.Matching, want, names(found.Blocked))
		}
	}
	if later := summaryOf(t, get, fmt.Sprintf("?since=%d", all.Events[0].Number)); len(later.Events) != 0 {
		t.Errorf("events after the last: %+v", later.Events)
	}
	if code, _ := get("/v1/dashboard?since=yesterday"); code != 400 {
		t.Errorf("since=yesterday: %d", code)
	}
}

// The summary says how the kernel's set is where there is to be one.
func TestSummaryTellsOfTheWall(t *testing.T) {
	for _, want := range []*control.Wall{nil, {Up: true, Entries: 3}} {
		h, _ := newAPI(t, func(o *Options) {
			o.State = func() control.State { return control.State{Wall: want} }
		})
		var got struct{ Wall *control.Wall }
		if err := json.Unmarshal(do(h, "GET", "/v1/dashboard", "").Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Wall); diff != "" {
			t.Error(diff)
		}
	}
}

// However many are blocked, the summary shows a hundred, and counts all; among them what an operator said.
func TestSummaryIsBounded(t *testing.T) {
	h, s := newAPI(t, nil)
	get := func(path string) (int, string) { w := do(h, "GET", path, ""); return w.Code, w.Body.String() }
	now, first := time.Now(), netip.MustParseAddr("10.0.0.0")
	block := func(n int) {
		for range n {
			first = first.Next()
			s.Adopt(control.Handed{Mitigation: control.Mitigation{Rule: "login", Source: first.String(), Start: now, End: now.Add(time.Minute), By: "pop"}}, now)
		}
	}
	block(120)
	do(h, "PUT", "/v1/mitigations/login/192.0.2.1", `{"for":"10m"}`)
	block(120)
	got := summaryOf(t, get, "")
	if got.Blocked.InForce != 241 || got.Blocked.Matching != 241 || len(got.Blocked.List) != 100 || got.Blocked.List[0].Source != "192.0.2.1" {
		t.Errorf("%d in force, %d match, %d shown, first %s", got.Blocked.InForce, got.Blocked.Matching, len(got.Blocked.List), got.Blocked.List[0].Source)
	}
}

// The page needs no token, the summary does; and a browser is told to run nothing but the page's own script.
func TestPages(t *testing.T) {
	h, _ := newAPI(t, func(o *Options) { o.Token = bearer.New("secret") })
	for path, kind := range map[string]string{"/": "text/html", "/dashboard.css": "text/css", "/dashboard.js": "text/javascript"} {
		w := do(h, "GET", path, "")
		policy := w.Header().Get("Content-Security-Policy")
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) || !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
		for _, way := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "//cdn", "https://"} {
			if strings.Contains(strings.ReplaceAll(w.Body.String(), "no innerHTML here", ""), way) {
				t.Errorf("%s has %s", path, way)
			}
		}
	}
	if w := do(h, "GET", "/v1/dashboard", ""); w.Code != 401 {
		t.Errorf("the summary without a token: %d", w.Code)
	}
}

// BenchmarkSummary is what one look of a dashboard costs an edge: of nobody blocked, and of 100,000.
func BenchmarkSummary(b *testing.B) {
	for _, n := range []int{0, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c, err := config.Parse("test.yaml", []byte(yaml))
			if err != nil {
				b.Fatal(err)
			}
			s, err := edge.New(edge.Options{Config: c, Table: counter.New(counter.Options{Counters: 4096}), Blocks: mitigation.New(200_000, nil)})
			if err != nil {
				b.Fatal(err)
			}
			metrics := prometheus.NewRegistry()
			metrics.MustRegister(s.Collector(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
			h := New(Options{Edge: s, Metrics: metrics})
			now, first := time.Now(), netip.MustParseAddr("10.0.0.0")
			for range n {
				first = first.Next()
				s.Adopt(control.Handed{Mitigation: control.Mitigation{Rule: "login", Source: first.String(), Start: now, End: now.Add(time.Minute), By: "pop"}}, now)
			}
			for b.Loop() {
				if w := do(h, "GET", "/v1/dashboard", ""); w.Code != 200 {
					b.Fatal(w.Code)
				}
			}
		})
	}
}
