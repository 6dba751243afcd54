package try_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/edge"
	"sluice/edge/changes"
	"sluice/edge/control"
	"sluice/edge/edgetest"
	"sluice/edge/modules/geo"
	"sluice/edge/modules/geo/geotest"
	"sluice/edge/modules/try"
	"sluice/edge/route"
	"sluice/edge/view"
)

// A desk has an operator try rules at one edge, as if changes travelled.
type desk struct {
	*edgetest.Edge
	t       *testing.T
	module  edge.Module
	said    []changes.Change // by name and the newest first
	version uint64
	refused []changes.Refused
	alone   bool
	also    *changes.Change // another edge has made it at the moment of the next
}

func newDesk(t *testing.T, yaml string, more ...edge.Module) *desk {
	m := try.Module()
	origin := edgetest.StartRecorder(t, edgetest.Hello).URL()
	use := append([]edge.Module{m, geo.Module(nil)}, more...)
	return &desk{Edge: edgetest.StartUsing(t, origin, yaml, use...), t: t, module: m}
}

// order is route.Order.
func (d *desk) order(do func() (*changes.Change, string, error)) (o route.Ordered, err error) {
	c, text, err := do()
	if err != nil || c == nil {
		return o, err
	}
	if text == "" {
		d.t.Error("there is no text for the event")
	}
	d.version++
	c.Edge = "here"
	d.say(changes.Read(c.Subject(), d.version, 1, time.Now(), c.Text()))
	if d.also != nil {
		d.say(*d.also)
		d.also = nil
	}
	return route.Ordered{Version: d.version, Maker: 1, Alone: d.alone,
		Await: func() *control.Spread { return nil }}, nil
}

func (d *desk) say(c changes.Change) {
	d.said = append([]changes.Change{c}, d.said...)
	slices.SortStableFunc(d.said,
		func(a, b changes.Change) int { return strings.Compare(a.Name, b.Name) })
	d.apply(time.Now())
}

func (d *desk) apply(now time.Time) {
	d.refused = edge.Modules{d.module}.Change(d.said, now, slog.New(slog.DiscardHandler))
}

// ask asks a route.
func (d *desk) ask(method, path, body string) (status int, answer string) {
	mux, api := http.NewServeMux(), &route.API{Edge: d.Admin, Order: d.order, View: d.look}
	for _, r := range d.module.Routes {
		mux.HandleFunc(r.Pattern, func(w http.ResponseWriter, q *http.Request) { r.Serve(api, w, q) })
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

// look is a PoP of this edge, one that does not try the rule, and one without the module.
func (d *desk) look(_ context.Context, question string) *view.PoP {
	p := new(view.PoP)
	for _, name := range []string{"here", "other", "without"} {
		part := &view.Part{Name: name}
		switch name {
		case "here":
			d.Answer(part, question, time.Now())
		case "other":
			edgetest.NewServer(d.t, edgetest.WithoutRules(d.t, "http://127.0.0.1:1"),
				edgetest.Using(try.Module())).Answer(part, question, time.Now())
		default:
			edgetest.NewServer(d.t, edgetest.WithoutRules(d.t, "http://127.0.0.1:1")).Answer(part,
				question, time.Now())
		}
		p.Parts = append(p.Parts, view.Seen{Edge: view.Edge{Name: name}, Part: part})
	}
	return p
}

// shown is a try as an operator sees it.
type shown struct {
	Name, Edge string
	Ended      bool
	Result     try.Result
	Edges      []view.Edge
}

func (d *desk) want(method, path, body string, status int, says string) (s shown) {
	d.t.Helper()
	got, answer := d.ask(method, path, body)
	if got != status || !strings.Contains(answer, says) {
		d.t.Errorf("%s %s: %d %s, want %d %s", method, path, got, answer, status, says)
	}
	_ = json.Unmarshal([]byte(answer), &s) // of what is refused there is none
	return s
}

// A rule is tried from the word of an operator on, and goes on through a reload, until he stops it.
// What it would have done is shown then too.
func TestTryOfEdge(t *testing.T) {
	d := newDesk(t, "rules: [{name: all, limit: 8, window: 1h, mitigation_timeout: 0}]")
	const rule = `{"for":"10m","rule":{"limit":2,"window":"1h","mitigation_timeout":"0s"}}`
	d.want("POST", "/v1/tries", rule, 200, `"name": "try-1"`)
	get := func(statuses ...int) {
		t.Helper()
		for _, want := range statuses {
			if resp, _ := d.Get("/"); resp.StatusCode != want {
				t.Errorf("%d, want %d", resp.StatusCode, want)
			}
		}
	}
	get(200, 200, 200, 200)
	edgetest.Must(t, d.Reload("rules: [{name: all, limit: 8, window: 1h, mitigation_timeout: 0}, "+
		"{name: more, limit: 100}]"))
	get(200, 200, 200, 200, 429)
	s := d.want("GET", "/v1/tries/try-1", "", 200, `"edge": "here"`)
	if r := s.Result; s.Ended || r.Requests != 8 || r.Refused != 6 || r.Moot != 1 || r.Known != 6 ||
		r.Well != 6 || r.Sources.N != 1 || r.RefusedSources.N != 1 {
		t.Errorf("%+v", s)
	}
	s = d.want("DELETE", "/v1/tries/try-1?scope=pop", "", 200, `"ended": true`)
	if s.Result.Refused != 6 || len(s.Edges) != 3 || s.Edges[0].Missing != "" ||
		!strings.Contains(s.Edges[1].Missing, "does not try this rule") ||
		!strings.Contains(s.Edges[2].Missing, "of another version") {
		t.Errorf("%+v", s)
	}
	d.want("DELETE", "/v1/tries/try-1", "", 404, "try: no such try runs: try-1")
	d.want("GET", "/v1/tries/other", "", 404, "try: no such try: other")
	get(429)
	if s = d.want("GET", "/v1/tries/try-1", "", 200, ""); s.Result.Moot != 1 {
		t.Errorf("it goes on: %+v", s)
	}
}

// A try ends by itself, and a configuration under which it cannot be is in force without it.
func TestTryEnds(t *testing.T) {
	countries := filepath.Join(t.TempDir(), "country.mmdb")
	geotest.Countries(t, countries, map[string]string{"127.0.0.0/8": "DE"})
	d := newDesk(t, "geo: {country: "+countries+"}\nrules: [{name: all, limit: 8}]")
	d.alone = true
	d.want("POST", "/v1/tries", `{"name":"short","for":"10m","rule":{"limit":2}}`, 200,
		"without pop.secret_file what is tried does not travel")
	d.want("POST", "/v1/tries", `{"name":"ours","for":"1h","rule":{"limit":2,"key":"country"}}`, 200,
		"ours")
	for body, want := range map[string]string{
		`{"for":"10m","rule":{"limit":0}}`:                                         "limit",
		`{"for":"200h","rule":{"limit":1}}`:                                        "want 1s to 168h",
		`{"for":"1m","rule":{"limit":1},"name":"` + strings.Repeat("n", 41) + `"}`: "at most 40",
	} {
		d.want("POST", "/v1/tries", body, 400, want)
	}
	seen := func(want ...int) {
		t.Helper()
		if resp, _ := d.Get("/"); resp.StatusCode != 200 {
			t.Errorf("%d", resp.StatusCode)
		}
		for i, name := range []string{"short", "ours"} {
			if s := d.want("GET", "/v1/tries/"+name, "", 200, ""); int(s.Result.Requests) != want[i] {
				t.Errorf("%s has seen %d requests, want %d", name, s.Result.Requests, want[i])
			}
		}
	}
	seen(1, 1)
	edgetest.Must(t, d.Reload("rules: [{name: all, limit: 8}]"))
	seen(2, 1)
	if d.apply(time.Now()); len(d.refused) != 1 || d.refused[0].Change.Name != "ours" {
		t.Errorf("refused: %v", d.refused)
	}
	seen(3, 1)
	d.apply(time.Now().Add(11 * time.Minute))
	seen(3, 1)
}

// Of two edges that begin one name in the same instant, or the last try that there is room for, one
// is told so, and its try does not begin later.
func TestTryBeaten(t *testing.T) {
	d := newDesk(t, "rules: [{name: all, limit: 8}]")
	const rule = `{"for":"10m","rule":{"limit":2}}`
	other := func(name string, version uint64) *changes.Change {
		c := changes.Read("try:"+name, version, 9, time.Now(), `{"does":"try","rule":{"limit":7},`+
			`"until":"2100-01-01T00:00:00Z","edge":"there"}`)
		return &c
	}
	d.also = other("same", 1)
	d.want("POST", "/v1/tries", `{"name":"same","for":"10m","rule":{"limit":2}}`, 409,
		"a try of that name runs already: choose another with --name, or stop it "+
			"(it was begun at there in the same instant)")
	d.also = other("try-1", 2) // of a name that nobody chose, another is taken
	d.want("POST", "/v1/tries", rule, 200, `"name": "try-2"`)
	for i := 3; i < try.MaxRuns-1; i++ {
		d.want("POST", "/v1/tries", rule, 200, fmt.Sprintf(`"name": "try-%d"`, i))
	}
	d.also = other("last", d.version) // it was first
	d.want("POST", "/v1/tries", `{"name":"mine","for":"10m","rule":{"limit":2}}`, 409,
		"8 tries run already")
	d.want("POST", "/v1/tries", rule, 409, "8 tries run already")
	d.want("DELETE", "/v1/tries/last", "", 200, `"ended": true`)
	d.want("DELETE", "/v1/tries/mine", "", 404, "no such try runs")
}

// While another module does not take the configuration that is in force, because a file of it is
// away, say, no try begins: whoever begins one is told so, as is an edge that hears of one. What runs
// ends all the same.
func TestTryBesideAWrongModule(t *testing.T) {
	var wrong error
	other := edge.Module{Name: "other",
		Prepare: func(*edge.Setup) (edge.Points, error) { return edge.Points{}, wrong }}
	d := newDesk(t, "rules: [{name: all, limit: 8}]", other)
	const rule = `"for":"10m","rule":{"limit":2}}`
	d.want("POST", "/v1/tries", `{"name":"runs",`+rule, 200, "runs")
	d.want("POST", "/v1/tries", `{"name":"ends",`+rule, 200, "ends")
	d.Get("/")
	wrong = errors.New("no such file")
	d.want("POST", "/v1/tries", `{"name":"late",`+rule, 400, "try: other: no such file")
	d.want("GET", "/v1/tries/late", "", 404, "no such try")
	d.say(changes.Read("try:theirs", 99, 9, time.Now(),
		`{"does":"try","rule":{"limit":7},"until":"2100-01-01T00:00:00Z","edge":"there"}`))
	if len(d.refused) != 1 || d.refused[0].Change.Name != "theirs" {
		t.Errorf("refused: %v", d.refused)
	}
	d.want("DELETE", "/v1/tries/ends", "", 200, `"ended": true`)
	d.Get("/")
	for name, want := range map[string]uint64{"runs": 2, "ends": 1} {
		if s := d.want("GET", "/v1/tries/"+name, "", 200, ""); s.Result.Requests != want {
			t.Errorf("%s has seen %d requests, want %d", name, s.Result.Requests, want)
		}
	}
	wrong = nil
	if d.apply(time.Now()); len(d.refused) != 0 {
		t.Errorf("refused: %v", d.refused)
	}
	d.want("GET", "/v1/tries/theirs", "", 200, `"ended": false`)
	d.want("GET", "/v1/tries/late", "", 404, "no such try")
}
