package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge"
	"sluice/edge/bearer"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/modules/lists"
	"sluice/edge/modules/maintenance"
	"sluice/edge/modules/suggest"
	"sluice/edge/modules/try"
	"sluice/edge/route"
	"sluice/mitigation"
)

const yaml = `
origins: [{servers: ["http://127.0.0.1:1"]}]
rules: [{name: login, match: {path: /login}, limit: 5}]
`

// withRoutes are the modules that have routes: TestRoutesInDocument in cmd/sluice looks for others.
var withRoutes = edge.Modules{lists.Module(true), maintenance.Module(), suggest.Module(), try.Module()}

func newAPI(t *testing.T, change func(*Options)) (http.Handler, *edge.Server) {
	t.Helper()
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return newAPIOf(t, c, edge.Tier{}, change)
}

func newAPIOf(t *testing.T, c *config.Config, tier edge.Tier, change func(*Options)) (http.Handler, *edge.Server) {
	t.Helper()
	s, err := edge.New(edge.Options{Config: c, Tier: tier, Table: counter.New(counter.Options{Counters: 4096}), Blocks: mitigation.New(1024, nil),
		Events: events.New(100, nil), Use: withRoutes})
	if err != nil {
		t.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(s.Collector())
	o := Options{Edge: s, Metrics: metrics, Address: "10.1.2.3:8081", Hosts: []string{"edge.example"}, Reload: func() (control.Reloaded, error) { return control.Reloaded{Reloaded: true}, nil }}
	if change != nil {
		change(&o)
	}
	return New(o), s
}

func do(h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "localhost:8081"
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A module's route wants the token and a Host of this listener, as all do.
func TestRoutesOfModules(t *testing.T) {
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	s, err := edge.New(edge.Options{Config: c, Table: counter.New(counter.Options{Counters: 4096}),
		Blocks: mitigation.New(1024, nil),
		Use: edge.Modules{{Name: "tea", Routes: []route.Route{{Pattern: "GET /v1/tea/{pot}",
			Serve: func(a *route.API, w http.ResponseWriter, r *http.Request) {
				route.Reply(w, r.PathValue("pot")+strconv.Itoa(len(a.Edge.Listed(control.Deny, time.Now()))))
			}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	h := New(Options{Edge: s, Metrics: prometheus.NewRegistry(), Token: bearer.New("right")})
	for _, test := range []struct {
		token, host string
		want        int
		body        string
	}{
		{"right", "localhost", 200, `"brown0"`}, {"wrong", "localhost", 401, "wants a token"},
		{"right", "other.example", 403, "admin_hosts"},
	} {
		w := do(h, "GET", "/v1/tea/brown", "", "Authorization", "Bearer "+test.token, "Host", test.host)
		if w.Code != test.want || !strings.Contains(w.Body.String(), test.body) {
			t.Errorf("%v: %d %s", test, w.Code, w.Body)
		}
	}
}

func TestStatuses(t *testing.T) {
	h, _ := newAPI(t, nil)
	for _, test := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", "/healthz", "", 200},
		{"GET", "/readyz", "", 200},
		{"GET", "/metrics", "", 200},
		{"GET", "/v1/rules", "", 200},
		{"GET", "/v1/rules/login", "", 200},
		{"GET", "/v1/rules/none", "", 404},
		{"GET", "/v1/mitigations", "", 200},
		{"PUT", "/v1/mitigations/login/192.0.2.1", `{"for":"10m","reason":"x"}`, 200},
		{"PUT", "/v1/mitigations/login/2001:db8::/64", `{"for":"10m"}`, 200},
		{"PUT", "/v1/mitigations/login/192.0.2.1", `{"for":"10m","until":"x"}`, 400},
		{"PUT", "/v1/mitigations/login/192.0.2.1", `{"for":"10"}`, 400},
		{"PUT", "/v1/mitigations/login/192.0.2.1", `{"for":"48h"}`, 200},
		{"PUT", "/v1/mitigations/login/192.0.2.1", `{"for":"1d12h"}`, 200},
		{"PUT", "/v1/mitigations/login/192.0.2.1", `{"for":"31d"}`, 400},
		{"PUT", "/v1/mitigations/login/192.0.2.1", `{"for":"720h"}`, 200},
		{"PUT", "/v1/mitigations/login/192.0.2.1", `{"for":"721h"}`, 400},
		{"PUT", "/v1/mitigations/*/192.0.2.0/24", `{"for":"10m"}`, 200},
		{"PUT", "/v1/mitigations/login/192.0.2.0/7", `{"for":"10m"}`, 400},
		{"PUT", "/v1/mitigations/+deny/192.0.2.1", `{"for":"10m"}`, 404},
		{"PUT", "/v1/mitigations/*/%23" + strings.Repeat("0", 32), `{"for":"10m"}`, 404},
		{"DELETE", "/v1/mitigations/*/192.0.2.0/24", "", 200},
		{"GET", "/v1/mitigations?mode=shadow&by=admin&q=x", "", 200},
		{"GET", "/v1/mitigations?mode=off", "", 400},
		{"GET", "/v1/mitigations?by=me", "", 400},
		{"GET", "/v1/mitigations?n=0", "", 400},
		{"PUT", "/v1/allow/192.0.2.0/24", `{"for":"10m"}`, 200},
		{"PUT", "/v1/allow/192.0.2.0/24", `{"for":"10"}`, 400},
		{"PUT", "/v1/deny/0.0.0.0/0", `{"for":"10m"}`, 400},
		{"PUT", "/v1/deny/2001::/15", `{"for":"10m"}`, 400},
		{"PUT", "/v1/deny/::ffff:10.0.0.0/104", `{"for":"10m"}`, 400}, // 10.0.0.0/8, not 10.0.0.0
		{"PUT", "/v1/deny/::ffff:10.0.0.1", `{"for":"10m"}`, 200},
		{"PUT", "/v1/mitigations/login/::ffff:10.0.0.0/104", `{"for":"10m"}`, 400},
		{"PUT", "/v1/deny/nobody", `{"for":"10m"}`, 400},
		{"PUT", "/v1/deny/2001:db8::/32", `{"for":"721h"}`, 400},
		{"GET", "/v1/deny", "", 200},
		{"DELETE", "/v1/allow/192.0.2.0/24", "", 200},
		{"PUT", "/v1/mitigations/login/nobody", `{"for":"10m"}`, 400},
		{"PUT", "/v1/mitigations/none/192.0.2.1", `{"for":"10m"}`, 404},
		{"DELETE", "/v1/mitigations/login/192.0.2.1", "", 200},
		{"GET", "/v1/sources/192.0.2.1", "", 200},
		{"GET", "/v1/sources/2001:db8::1", "", 200},
		{"GET", "/v1/sources/nobody", "", 400},
		{"GET", "/v1/nodes", "", 200},
		{"POST", "/v1/reload", "", 200},
		{"GET", "/v1/top", "", 200},
		{"GET", "/v1/top?by=refused&n=5", "", 200},
		{"GET", "/v1/top?by=shadow", "", 200},
		{"GET", "/v1/mitigations?mode=shadow", "", 200},
		{"GET", "/v1/top?by=size", "", 400},
		{"GET", "/v1/top?n=0", "", 400},
		{"PUT", "/v1/rules/login", "{}", 400},
		{"PUT", "/v1/rules/login", `{"limit":5,"window":"1y"}`, 400},
		{"PUT", "/v1/rules/login", `{"name":"other","limit":5}`, 400},
		{"PUT", "/v1/rules/login", `limit: 5`, 400},
		{"PUT", "/v1/rules/login", `{"limit":5,"match":{"path":"/in"}}`, 501}, // nobody to change it
		{"PUT", "/v1/rules/login", `{"limit":5}`, 409},
		{"PUT", "/v1/rules/login?replace=true", `{"limit":5}`, 501},
		{"PUT", "/v1/rules/login?replace=true", `{"limit":5,"response":{"body":"` + strings.Repeat("x", 100<<10) + `"}}`, 413},
		{"PUT", "/v1/rules/login?replace=yes", `{"limit":5}`, 400},
		{"PATCH", "/v1/rules/login", `{"limit":6}`, 501},
		{"PATCH", "/v1/rules/login", `{"limit":null}`, 400},
		{"PATCH", "/v1/rules/login", `[]`, 400},
		{"PATCH", "/v1/rules/none", `{"limit":6}`, 404},
		{"DELETE", "/v1/rules/none", "", 404},
		{"GET", "/v1/rules/login/history", "", 200},
		{"GET", "/v1/rules/none/history", "", 404},
		{"POST", "/v1/rules/login/rollback", `{"to":"one"}`, 400},
		{"POST", "/v1/rules/login/rollback", `{}`, 400},
		{"POST", "/v1/rules/login/rollback", `{"to":7}`, 404},
		{"GET", "/v1/config", "", 200},
		{"GET", "/v1/pop", "", 200},
		{"GET", "/", "", 200},
		{"GET", "/elsewhere", "", 404},
		{"GET", "/v1/reload", "", 405},
	} {
		if w := do(h, test.method, test.path, test.body); w.Code != test.want {
			t.Errorf("%s %s: %d %s, want %d", test.method, test.path, w.Code, w.Body, test.want)
		}
	}
}

// A lift of nobody says so.
func TestLiftOfNobody(t *testing.T) {
	h, _ := newAPI(t, nil)
	do(h, "DELETE", "/v1/mitigations/login/192.0.2.1", "")
	if text := do(h, "GET", "/v1/events", "").Body.String(); !strings.Contains(text, `"lifted: nothing was in force here"`) {
		t.Error(text)
	}
}

// What operators do is told afterwards: what, who and from where; what was refused is not.
func TestOperatorsEvents(t *testing.T) {
	h, s := newAPI(t, nil)
	do(h, "PUT", "/v1/mitigations/login/192.0.2.1", `{"for":"10m","reason":"scraper"}`, "X-Operator", "ada")
	do(h, "PUT", "/v1/mitigations/none/192.0.2.1", `{"for":"10m"}`)
	do(h, "DELETE", "/v1/mitigations/login/192.0.2.1", "")
	do(h, "POST", "/v1/reload", "")
	list := func(since string) (list []events.Event) {
		if err := json.Unmarshal(do(h, "GET", "/v1/events?since="+since, "").Body.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	all := slices.DeleteFunc(list(""), func(e events.Event) bool { return e.Kind != events.Operator })
	if len(all) != 3 || all[0].Text != "reloaded the configuration" || all[1].Text != "lifted" || all[2].Text != "blocked for 10m: scraper" {
		t.Fatalf("%+v", all)
	}
	if e := all[2]; e.Who != "ada" || e.From != "192.0.2.1:1234" || e.Rule != "login" || e.Source != "192.0.2.1" || !strings.HasSuffix(e.New, " by admin: scraper") || e.Old != "" ||
		all[1].Old != e.New || all[1].New != "" {
		t.Errorf("%+v, then %+v", e, all[1])
	}
	if after := list(strconv.FormatUint(all[1].Number, 10)); len(after) != 1 || after[0].Number != all[0].Number {
		t.Errorf("after the lift: %+v", after)
	}
	for range 20 { // in one second: none of an operator's actions is dropped
		do(h, "PUT", "/v1/mitigations/login/192.0.2.2", `{"for":"10m","reason":"again"}`)
	}
	do(h, "DELETE", "/v1/mitigations/login/192.0.2.2", "")
	if all = slices.DeleteFunc(list(strconv.FormatUint(all[0].Number, 10)), func(e events.Event) bool { return e.Kind != events.Operator }); len(all) != 21 || !strings.HasSuffix(all[0].Old, "again") || all[0].New != "" || all[20].Old != "" {
		t.Errorf("blocks: %+v", all)
	}
	if n := s.Events().Count(events.Operator); n != 24 {
		t.Errorf("%d actions are counted", n)
	}
	if after := list(time.Now().Add(time.Minute).UTC().Format(time.RFC3339)); len(after) != 0 {
		t.Errorf("after a minute from now: %+v", after)
	}
	if w := do(h, "GET", "/v1/events?since=yesterday", ""); w.Code != 400 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestMitigations(t *testing.T) {
	h, _ := newAPI(t, nil)
	do(h, "PUT", "/v1/mitigations/login/192.0.2.1", `{"for":"10m","reason":"<scraper>"}`)
	var list []control.Mitigation
	if err := json.Unmarshal(do(h, "GET", "/v1/mitigations", "").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].Rule != "login" || list[0].Source != "192.0.2.1" || list[0].By != "admin" || list[0].Reason != "<scraper>" ||
		list[0].End.Sub(list[0].Start).Minutes() != 10 || list[0].Learned.IsZero() {
		t.Errorf("%+v", list)
	}
	var looked control.Looked
	if err := json.Unmarshal(do(h, "GET", "/v1/sources/192.0.2.1", "").Body.Bytes(), &looked); err != nil {
		t.Fatal(err)
	}
	standings := looked.Rules
	if len(standings) != 1 || standings[0].Until == nil || !standings[0].Until.Equal(list[0].End) || standings[0].Remaining != 5 ||
		standings[0].Block == nil || standings[0].Block.Reason != "<scraper>" || looked.Asked || looked.Allowed || looked.Denied {
		t.Errorf("%+v", looked)
	}
	do(h, "DELETE", "/v1/mitigations/login/192.0.2.1", "")
	if body := do(h, "GET", "/v1/mitigations", "").Body.String(); body != "[]\n" {
		t.Errorf("after the lift: %s", body)
	}
}

// A source that this edge has never seen is known to the tier, which is asked; a tier that does not answer is waited for no longer than
// an operator waits. Lists are told.
func TestSourceAsksTheTier(t *testing.T) {
	c, err := config.Parse("test.yaml", []byte(yaml+"allow: [192.0.2.8/30]\ndeny: [192.0.2.8]\n"))
	if err != nil {
		t.Fatal(err)
	}
	table := counter.New(counter.Options{Counters: 4096, Tier: true})
	answers := true
	s, err := edge.New(edge.Options{Config: c, Table: table, Blocks: mitigation.New(1024, nil), Tier: edge.Tier{
		Fetch: func(r *algorithm.Spec, source counter.Source) {
			if now := time.Now(); answers {
				oldest, newest := table.Reports().Groups(r, now, 0)
				table.Reports().Apply(counter.Counter{Rule: r, Source: source}, newest, append([]uint64{4}, make([]uint64, newest-oldest)...), 0, now)
			}
		}}})
	if err != nil {
		t.Fatal(err)
	}
	h := New(Options{Edge: s, Metrics: prometheus.NewRegistry()})
	look := func(address string) (l control.Looked) {
		w := do(h, "GET", "/v1/sources/"+address, "")
		if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil || w.Code != 200 {
			t.Errorf("%d %s: %v", w.Code, w.Body, err)
		}
		return l
	}
	if l := look("192.0.2.1"); !l.Asked || len(l.Rules) != 1 || l.Rules[0].Estimate != 4 || l.Rules[0].Remaining != 1 {
		t.Errorf("%+v", l)
	}
	for address, denied := range map[string]bool{"192.0.2.8": true, "192.0.2.9": false} {
		if l := look(address); l.Denied != denied || l.Allowed == denied {
			t.Errorf("%+v", l)
		}
	}
	answers = false
	if l := look("192.0.2.2"); l.Asked || len(l.Rules) != 1 || l.Rules[0].Estimate != 0 {
		t.Errorf("%+v", l)
	}
}

// A page in an operator's browser must not use the API, whatever name it has given to 127.0.0.1.
func TestForeignPages(t *testing.T) {
	h, _ := newAPI(t, nil)
	for _, test := range []struct {
		header []string
		want   int
	}{
		{[]string{"Host", "localhost:8081"}, 200}, {[]string{"Host", "127.0.0.1:8081"}, 200}, {[]string{"Host", "[::1]:8081"}, 200},
		{[]string{"Host", "10.1.2.3:8081"}, 200}, {[]string{"Host", "EDGE.example:1"}, 200},
		{[]string{"Host", "evil.example"}, 403}, {[]string{"Host", "10.1.2.4:8081"}, 403}, {[]string{"Host", ""}, 403},
		{[]string{"Host", "localhost:8081", "Origin", "http://localhost:8081"}, 200},
		{[]string{"Host", "localhost:8081", "Origin", "http://evil.example"}, 403}, {[]string{"Host", "localhost:8081", "Origin", "null"}, 403},
	} {
		if w := do(h, "GET", "/v1/rules", "", test.header...); w.Code != test.want {
			t.Errorf("%v: %d, want %d", test.header, w.Code, test.want)
		}
	}
	if w := do(h, "GET", "/healthz", "", "Host", "evil.example"); w.Code != 200 {
		t.Errorf("health: %d", w.Code)
	}
}

func TestToken(t *testing.T) {
	h, _ := newAPI(t, func(o *Options) { o.Token = bearer.New("secret") })
	for _, test := range []struct {
		path, authorization string
		want                int
	}{
		{"/v1/rules", "", 401}, {"/v1/rules", "Bearer wrong", 401}, {"/v1/rules", "Bearer secret", 200},
	} {
		if w := do(h, "GET", test.path, "", "Authorization", test.authorization); w.Code != test.want {
			t.Errorf("%s with %q: %d, want %d", test.path, test.authorization, w.Code, test.want)
		}
	}
}

// Machines ask for health and metrics by address and without a token; metrics can be made to want both.
func TestMachines(t *testing.T) {
	for _, closed := range []bool{false, true} {
		h, _ := newAPI(t, func(o *Options) { o.Token, o.MetricsToken = bearer.New("secret"), closed })
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			open := path != "/metrics" || !closed
			for _, test := range []struct {
				host, authorization string
				want                int // if it is closed
			}{
				{"10.9.9.9:8081", "", 403}, {"10.9.9.9:8081", "Bearer secret", 403}, {"localhost:8081", "", 401}, {"localhost:8081", "Bearer secret", 200},
			} {
				want := test.want
				if open {
					want = 200
				}
				if w := do(h, "GET", path, "", "Host", test.host, "Authorization", test.authorization); w.Code != want {
					t.Errorf("metrics_token %v: %s of %s with %q: %d, want %d", closed, path, test.host, test.authorization, w.Code, want)
				}
			}
		}
		if w := do(h, "GET", "/metrics", "", "Origin", "http://evil.example"); w.Code != 403 {
			t.Errorf("metrics for a page from elsewhere: %d", w.Code)
		}
	}
}

func TestReloadTellsWhatIsWrong(t *testing.T) {
	h, _ := newAPI(t, func(o *Options) {
		o.Reload = func() (control.Reloaded, error) { return control.Reloaded{}, errors.New("f.yaml:1:1: wrong") }
	})
	if w := do(h, "POST", "/v1/reload", ""); w.Code != 400 || !strings.Contains(w.Body.String(), "f.yaml:1:1: wrong") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestRulesAreConfiguration(t *testing.T) {
	h, _ := newAPI(t, nil)
	body, _ := io.ReadAll(do(h, "GET", "/v1/rules/login", "").Body)
	c, err := config.Parse("", []byte("rules: ["+string(body)+"]"))
	if err != nil || c.Rules[0].Match.Path != "/login" || c.Rules[0].Limit != 5 {
		t.Errorf("%v from %s", err, body)
	}
}

// TestWords: an answer says which edges have what an operator said, and a full list is a conflict that changes nothing.
func TestWords(t *testing.T) {
	c, err := config.Parse("test.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	var said []mitigation.Order
	full, unready := false, ""
	h, s := newAPIOf(t, c, edge.Tier{
		PoP: control.PoP{Order: func(w mitigation.Order) (control.Spread, error) {
			if full {
				return control.Spread{}, control.ErrFull
			}
			said = append(said, w)
			return control.Spread{Spread: mitigation.Spread{Known: 3, Have: 3 - len(said) + 1, Missing: []string{"web2"}[:len(said)-1]}}, nil
		}},
		Unready: func() string { return unready },
	}, nil)
	body := strings.Join(strings.Fields(do(h, "PUT", "/v1/mitigations/login/192.0.2.1", `{"for":"10m","reason":"x"}`).Body.String()), "")
	if !strings.Contains(body, `"by":"admin"`) || !strings.Contains(body, `"edges":{"known":3,"have":3,"missing":[]}`) {
		t.Errorf("%s", body)
	}
	body = strings.Join(strings.Fields(do(h, "DELETE", "/v1/mitigations/login/192.0.2.1", "").Body.String()), "")
	if body != `{"lifted":false,"edges":{"known":3,"have":2,"missing":["web2"]}}` {
		t.Errorf("%s", body)
	}
	if len(said) != 2 || said[0].Rule != "login" || said[0].End.Sub(said[0].Start) != 10*time.Minute || said[0].Reason != "x" || !said[1].End.IsZero() {
		t.Errorf("%+v", said)
	}
	full = true
	for _, method := range []string{"PUT", "DELETE"} {
		if w := do(h, method, "/v1/mitigations/login/192.0.2.2", `{"for":"10m"}`); w.Code != 409 || !strings.Contains(w.Body.String(), "full") {
			t.Errorf("%s to a full list: %d %s", method, w.Code, w.Body)
		}
	}
	if list := s.Mitigations(time.Now()); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	unready = "too many edges"
	if w := do(h, "GET", "/readyz", ""); w.Code != 503 || w.Body.String() != "too many edges\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Blocks of shadows stand apart, and a block that can have no effect says so.
func TestBlocksWithoutEffect(t *testing.T) {
	c, err := config.Parse("test.yaml", []byte(`
origins: [{servers: ["http://127.0.0.1:1"]}]
allow: [198.51.100.0/24]
rules: [{name: real, limit: 5}, {name: trial, limit: 5, mode: shadow}, {name: asleep, limit: 5, mode: off}]
`))
	if err != nil {
		t.Fatal(err)
	}
	h, _ := newAPIOf(t, c, edge.Tier{}, nil)
	do(h, "PUT", "/v1/allow/2001:db8::/32", `{"for":"10m"}`)
	const ten = `{"for":"10m","reason":"Scraper"}`
	for path, want := range map[string]string{
		"real/192.0.2.1":        `"mode": "enforce"`,
		"trial/192.0.2.1":       `"warning": "rule trial is a shadow: the block refuses nobody"`,
		"*/192.0.2.0/24":        `"mode": "enforce"`,
		"real/198.51.100.7":     `"warning": "this source is allowed, which goes before: the block refuses nobody"`,
		"*/198.51.100.128/25":   `"warning": "this source is allowed,`,
		"real/2001:db8:1::/64":  `"warning": "this source is allowed,`,
		"trial/203.0.113.0/24":  `"mode": "shadow"`,
		"asleep/192.0.2.1":      `that rule is off, so a block under it refuses nobody`,
		"real/198.51.100.0/23":  `"mode": "enforce"`,
		"nosuch/192.0.2.1":      `no such rule`,
		"trial/2001:db9:1::/48": `"warning": "rule trial is a shadow`,
	} {
		body := do(h, "PUT", "/v1/mitigations/"+path, ten).Body.String()
		if !strings.Contains(body, want) || strings.Contains(want, "mode") && strings.Contains(body, "warning") != strings.Contains(want, "shadow") {
			t.Errorf("%s: %s, want %s", path, body, want)
		}
	}
	if w := do(h, "PUT", "/v1/mitigations/asleep/192.0.2.1", ten); w.Code != 409 {
		t.Errorf("under a rule that is off: %d", w.Code)
	}
	for query, want := range map[string]int{
		"": 9, "?mode=shadow": 3, "?mode=enforce": 6, "?by=admin": 9, "?by=pop": 0, "?q=SCRAPER": 9, "?q=trial": 3, "?q=192.0.2.9": 1, "?q=192.0.2.1": 3,
		"?q=203.0.113": 1, "?mode=enforce&q=trial": 0, "?q=2001:db9:1::7": 1,
		"?rule=trial": 3, "?rule=*": 2, "?rule=asleep": 0, "?source=192.0.2.1": 3, "?source=192.0.2.77": 1, "?source=192.0.0.0/16": 3, "?source=%23" + strings.Repeat("0", 32): 0,
		"?rule=real&source=198.51.100.0/24&by=admin": 2,
	} {
		var list []control.Mitigation
		if err := json.Unmarshal(do(h, "GET", "/v1/mitigations"+query, "").Body.Bytes(), &list); err != nil || len(list) != want {
			t.Errorf("%q: %d of them, want %d, %v", query, len(list), want, err)
		}
	}
	text := do(h, "GET", "/metrics", "").Body.String()
	for _, line := range []string{`sluice_mitigations_active{mode="shadow",rule="trial"} 3`, `sluice_mitigations_active{mode="enforce",rule="*"} 2`,
		`sluice_mitigations_started_total{by="admin",mode="shadow",rule="trial"} 3`, `sluice_listed{list="allow"} 1`} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no metric %s", line)
		}
	}
}

// A slowMetric is collected when it is told to.
type slowMetric struct {
	begun chan<- struct{}
	goOn  <-chan struct{}
}

func (slowMetric) Describe(chan<- *prometheus.Desc) {}

func (m slowMetric) Collect(chan<- prometheus.Metric) {
	m.begun <- struct{}{}
	<-m.goOn
}

// Metrics cost the more the more are blocked, and want no token: few are collected at once, whoever asks.
func TestMetricsAtOnce(t *testing.T) {
	begun, goOn, done := make(chan struct{}), make(chan struct{}), make(chan int)
	h, _ := newAPI(t, func(o *Options) { o.Metrics.(*prometheus.Registry).MustRegister(slowMetric{begun, goOn}) })
	for range 2 * metricsAtOnce {
		go func() { done <- do(h, "GET", "/metrics", "").Code }()
	}
	for range metricsAtOnce {
		<-begun
	}
	for range metricsAtOnce {
		select {
		case code := <-done:
			if code != http.StatusServiceUnavailable {
				t.Errorf("%d", code)
			}
		case <-begun:
			t.Fatal("one more is collected")
		}
	}
	close(goOn)
	for range metricsAtOnce {
		if code := <-done; code != http.StatusOK {
			t.Errorf("%d", code)
		}
	}
}

// A writes is an answer that knows how it was written.
type writes struct {
	*httptest.ResponseRecorder
	largest int
}

func (w *writes) Write(b []byte) (int, error) {
	w.largest = max(w.largest, len(b))
	return w.ResponseRecorder.Write(b)
}

// Under attack as many are blocked as the table has room for: they are written as they are found, and the first few can be asked for.
func TestManyMitigations(t *testing.T) {
	h, s := newAPI(t, nil)
	ask := func(query string) (list []control.Mitigation, largest int) {
		t.Helper()
		r := httptest.NewRequest("GET", "/v1/mitigations"+query, nil)
		r.Host = "localhost:8081"
		w := &writes{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(w, r)
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || list == nil {
			t.Fatalf("%s: %v in %s", query, err, w.Body)
		}
		return list, w.largest
	}
	if list, _ := ask(""); len(list) != 0 {
		t.Errorf("%d of none", len(list))
	}
	now := time.Now()
	for i := range 250 {
		if _, err := s.Block("login", "10.0.0."+strconv.Itoa(i), time.Hour, strings.Repeat("x", 200), control.Operator{}, now.Add(time.Duration(i))); err != nil {
			t.Fatal(err)
		}
	}
	if list, largest := ask("?mode=enforce"); len(list) != 250 || largest > 64<<10 {
		t.Errorf("%d in writes of up to %d bytes", len(list), largest)
	}
	if list, _ := ask("?n=3"); len(list) != 3 || list[0].Source != "10.0.0.249" || list[2].Source != "10.0.0.247" {
		t.Errorf("%+v", list)
	}
	if list, _ := ask("?q=10.0.0.249&n=3"); len(list) != 1 {
		t.Errorf("%+v", list)
	}
	if list, _ := ask("?mode=shadow"); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

// A block of an IPv6 address says how much of what sources are told apart by it blocks.
func TestBlockOfAnAddressSaysHowWide(t *testing.T) {
	for prefix, want := range map[int][2]string{
		64:  {`"warning": "sources are told apart by /64: this blocks all of 2001:db9::/64"`, `"warning": "sources are told apart by /64: this blocks the one address, and whoever has it may take another of 2001:db9::/64: block that"`},
		56:  {`this blocks all of 2001:db9::/56"`, `may take another of 2001:db9::/56: block that"`},
		128: {`"by": "admin"`, `"by": "admin"`},
	} {
		c, err := config.Parse("test.yaml", fmt.Appendf(nil, "origins: [{servers: ['http://127.0.0.1:1']}]\nsource: {ipv6_prefix: %d}\nrules: [{name: r, limit: 5}]", prefix))
		if err != nil {
			t.Fatal(err)
		}
		h, _ := newAPIOf(t, c, edge.Tier{}, nil)
		for i, rule := range []string{"r", "*"} {
			body := do(h, "PUT", "/v1/mitigations/"+rule+"/2001:db9::1", `{"for":"10m"}`).Body.String()
			if !strings.Contains(body, want[i]) || prefix == 128 && strings.Contains(body, "warning") {
				t.Errorf("/%d, rule %s: %s, want %s", prefix, rule, body, want[i])
			}
		}
		if body := do(h, "PUT", "/v1/mitigations/*/2001:db9:0:1::/80", `{"for":"10m"}`).Body.String(); strings.Contains(body, fmt.Sprintf("told apart by /%d: this blocks a part of one", prefix)) != (prefix < 80) {
			t.Errorf("/%d, a part of it: %s", prefix, body)
		}
		if body := do(h, "PUT", "/v1/mitigations/*/192.0.2.1", `{"for":"10m"}`).Body.String(); strings.Contains(body, "warning") {
			t.Errorf("IPv4: %s", body)
		}
	}
}
