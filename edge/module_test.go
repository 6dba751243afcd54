package edge_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/edge"
	"sluice/edge/changes"
	"sluice/edge/changes/rulelist"
	"sluice/edge/config"
	"sluice/edge/edgetest"
	"sluice/edge/limiter"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
	"sluice/edge/view"
)

// A tea is the settings of a module for tests: of the section, and of the field of a rule.
type tea struct {
	Pot   string         `json:"pot" want:"file"`
	Steep rules.Duration `json:"steep" want:"1s to 5m"`
}

// teaModule has all points. Its fact is what a ticket says, its action offers tea instead of a
// refusal to who has none, and its handshake is the name that the client asks for.
func teaModule() edge.Module {
	ticket := &key.Fact{Name: "ticket", Match: "tickets",
		Find: func(buf []byte, v *key.View) []byte {
			return append(buf, v.Request.Head.First("x-ticket")...)
		}}
	name := &key.Fact{Name: "server_name", Find: func(buf []byte, v *key.View) []byte {
		for _, h := range v.Request.Hello {
			if name, is := h.(string); is {
				return append(buf, name...)
			}
		}
		return buf
	}}
	return edge.Module{Name: "tea",
		Config: config.Module{Settings: func() any { return &tea{Steep: rules.Duration(time.Minute)} },
			Rule: func() any { return new(tea) },
			Actions: []rules.OwnAction{{Name: "offer", Apart: "ticket",
				Limit: func(*rules.Config) uint32 { return 3 }}},
			Facts: []*key.Fact{ticket, name}},
		Prepare: func(s *edge.Setup) (edge.Points, error) {
			settings, _ := s.Config.Settings["tea"].(*tea)
			if settings != nil && settings.Pot == "/broken" {
				return edge.Points{}, errors.New("the pot is broken")
			}
			return edge.Points{Facts: []*key.Fact{ticket, name},
				Hello: func(h *tls.ClientHelloInfo) any { return h.ServerName },
				Actions: map[rules.Action]func(*edge.Exchange, *rules.Rule) bool{
					"offer": func(x *edge.Exchange, r *rules.Rule) bool {
						own, _ := r.Config.Own["tea"].(*tea)
						if own == nil {
							return false
						}
						room := x.Room()
						*room = append(append(*room, "tea in "...), own.Steep.String()...)
						x.Begin(http.StatusTeapot, "text/plain", *room)
						return true
					}}}, nil
		}}
}

func withTea(t *testing.T, yaml string) *edgetest.Edge {
	t.Helper()
	use := edge.Modules{teaModule()}
	c, err := (config.Parser{Modules: use.Config()}).Parse("f", []byte(yaml))
	edgetest.Must(t, err)
	c.Origins = edgetest.WithoutRules(t, edgetest.StartRecorder(t, edgetest.Hello).URL()).Origins
	return edgetest.Serve(t, edgetest.NewServer(t, c, edgetest.Using(use...)))
}

// Who is over a rule with an action of a module gets what the action answers. Requests that have
// the fact are counted by it, each apart, and refused over that like any other.
func TestActionAndKeyOfModule(t *testing.T) {
	e := withTea(t, `
rules:
- {name: all, key: host, limit: 1, window: 1h, action: offer, tea: {steep: 2m}}
- {name: each, key: ticket, limit: 2, window: 1h, match: {not: {tickets: [gold]}}}
`)
	for i, test := range []struct {
		ticket string
		want   int
		body   string
	}{{"", 200, "hello"}, {"", 418, "tea in 2m"}, {"a", 200, "hello"}, {"a", 200, "hello"},
		{"a", 429, `"rule":"each"`}, {"b", 200, "hello"}, {"gold", 200, "hello"},
		{"gold", 200, "hello"}, {"gold", 200, "hello"}, {"gold", 429, `"scope":"ticket"`},
		{"", 418, "tea"}} {
		header := []string{"X-Other: x"}
		if test.ticket != "" {
			header = []string{"X-Ticket: " + test.ticket}
		}
		resp, body := e.Get("/", header...)
		if resp.StatusCode != test.want || !strings.Contains(body, test.body) {
			t.Errorf("%d, ticket %q: %d %s, want %d", i, test.ticket, resp.StatusCode, body, test.want)
		}
		if test.want == 418 && (resp.Header.Get("RateLimit") == "" ||
			resp.Header.Get("Retry-After") == "" ||
			resp.Header.Get("Cache-Control") != "no-store") {
			t.Errorf("%d: %v", i, resp.Header)
		}
	}
}

// What a module finds out of a ClientHello is known of each request of the connection, in both
// protocols.
func TestHelloOfModule(t *testing.T) {
	e := withTea(t, "rules: [{name: r, key: server_name, limit: 1, window: 1h}]")
	folder := t.TempDir()
	edgetest.WriteCertificate(t, filepath.Join(folder, "a"), "a.example")
	at := e.OverTLS(edgetest.CertificatesIn(t, folder))
	for _, by2 := range []bool{false, true} {
		for _, name := range []string{"a.example", "b.example"} {
			tr := &http.Transport{ForceAttemptHTTP2: by2, TLSClientConfig: &tls.Config{
				InsecureSkipVerify: true, ServerName: name + map[bool]string{true: ".2"}[by2]}}
			defer tr.CloseIdleConnections()
			for _, want := range []int{200, 429} {
				resp, err := (&http.Client{Transport: tr}).Get("https://" + at + "/")
				edgetest.Must(t, err)
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != want || (resp.ProtoMajor == 2) != by2 {
					t.Errorf("%s, %s: %d, want %d", name, resp.Proto, resp.StatusCode, want)
				}
			}
		}
	}
}

// A configuration that a module cannot prepare changes nothing.
func TestModuleKeepsConfiguration(t *testing.T) {
	e := withTea(t, "tea: {pot: /good}\nrules: [{name: r, limit: 1, window: 1h}]")
	parse := func(yaml string) error {
		c, err := (config.Parser{Modules: edge.Modules{teaModule()}.Config()}).Parse("f", []byte(yaml))
		edgetest.Must(t, err)
		c.Origins = e.Config().Origins
		return e.Apply(c)
	}
	const want = "tea: the pot is broken"
	if err := parse("tea: {pot: /broken}\nrules: [{name: other, limit: 1}]"); err == nil ||
		err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if pot := e.Config().Settings["tea"].(*tea).Pot; pot != "/good" || e.Rules()[0].Name != "r" {
		t.Errorf("%s and %s are in force", pot, e.Rules()[0].Name)
	}
	edgetest.Must(t, parse("tea: {pot: /new}\nrules: [{name: other, limit: 1}]"))
	if pot := e.Config().Settings["tea"].(*tea).Pot; pot != "/new" || e.Rules()[0].Name != "other" {
		t.Errorf("%s and %s are in force", pot, e.Rules()[0].Name)
	}
}

// statuses is told statuses of origins' answers.
type statuses chan int

func (s statuses) Answered(status int) { s <- status }

// What rules have decided about a request is told before it goes to the origin, and what the origin
// answers only if it does. A question to all edges is answered by the module whose it is.
func TestDecidedAndAnswered(t *testing.T) {
	told, decided := make(statuses, 9), make(chan limiter.Verdict, 9)
	module := edge.Module{Name: "m",
		Prepare: func(*edge.Setup) (edge.Points, error) {
			return edge.Points{Observers: []edge.Observer{{Decided: func(d *rules.Decision, _ time.Time,
				to []edge.Told) []edge.Told {
				decided <- d.Verdict
				return append(to, told)
			}}}}, nil
		},
		Answer: func(p *view.Part, question string, _ time.Time) bool {
			if question != "is it tea" {
				return false
			}
			p.Answer(question, json.RawMessage(`"yes"`))
			return true
		}}
	e := edgetest.StartUsing(t, edgetest.StartRecorder(t, edgetest.Hello).URL(),
		"rules: [{name: r, limit: 2, window: 1h, mitigation_timeout: 0}]", module)
	for _, want := range []int{200, 200, 429} {
		if resp, _ := e.Get("/"); resp.StatusCode != want {
			t.Errorf("%d, want %d", resp.StatusCode, want)
		}
	}
	for _, want := range []limiter.Verdict{limiter.Passed, limiter.Passed, limiter.Limited} {
		if got := <-decided; got != want {
			t.Errorf("decided %v, want %v", got, want)
		}
	}
	if len(told) != 2 || <-told != 200 || <-told != 200 {
		t.Error("what is told is not 200 twice")
	}
	part := new(view.Part)
	e.Answer(part, "is it tea", time.Now())
	e.Answer(part, "is it coffee", time.Now())
	if string(part.Answers["is it tea"]) != `"yes"` || string(part.Answers["is it coffee"]) == `"yes"` {
		t.Errorf("%s", part.Answers)
	}
}

// Rules of a module are tried beside those in force: they refuse nobody, are shown nowhere, and an
// observer is told what they say. Where the module wants others, they are others from then on, while
// those in force go on counting. One that cannot be tried keeps nothing else from being in force.
func TestTrials(t *testing.T) {
	tally, limit := rules.NewTally(), uint32(1)
	results := make(chan rules.TrialResult, 9)
	e := edgetest.StartUsing(t, edgetest.StartRecorder(t, edgetest.Hello).URL(),
		"rules: [{name: r, limit: 4, window: 1h, mitigation_timeout: 0}]",
		edge.Module{Name: "m", Prepare: func(s *edge.Setup) (edge.Points, error) {
			if limit == 0 {
				return edge.Points{}, nil
			}
			tried, err := rules.Triable(rules.Default("m:a", limit))
			never := tried
			never.Name, never.Key = "m:b", []string{"no such key"}
			return edge.Points{Trials: []rules.Trial{{Config: never}, {Config: tried, Tally: tally}},
				Observers: []edge.Observer{{Decided: func(d *rules.Decision, _ time.Time,
					to []edge.Told) []edge.Told {
					for r := range d.Trials {
						results <- r
					}
					return to
				}}}}, err
		}})
	for i, test := range []struct {
		limit         uint32
		status        int
		refuses, moot bool
	}{{1, 200, false, false}, {1, 200, true, false}, {9, 200, false, false}, {0, 200, false, false},
		{9, 429, false, true}} {
		if limit != test.limit {
			limit = test.limit
			edgetest.Must(t, e.Renew())
		}
		resp, _ := e.Get("/")
		if policy := resp.Header.Get("RateLimit-Policy"); resp.StatusCode != test.status ||
			strings.Contains(policy, "m:") {
			t.Errorf("%d: %d, want %d; policy %q", i, resp.StatusCode, test.status, policy)
		}
		switch len(results) {
		case 0:
			if limit != 0 {
				t.Errorf("%d: nothing is tried", i)
			}
		case 1:
			if r := <-results; limit == 0 || r.Tally != tally || r.Refuses != test.refuses ||
				r.Moot != test.moot {
				t.Errorf("%d: %+v", i, r)
			}
		}
	}
	if len(e.Rules()) != 1 || e.Metrics()["sluice_rules_generation"] != 1 {
		t.Errorf("%v are in force, after %v", e.Rules(), e.Metrics())
	}
}

// What operators change that is no rule's goes to the module whose name is its kind, and is refused
// where no module has it.
func TestChangesOfModules(t *testing.T) {
	var got []string
	of := func(name string) edge.Module {
		return edge.Module{Name: name, Changes: &edge.Changes{
			Apply: func(list []changes.Change, _ time.Time, _ *slog.Logger) (no []changes.Refused) {
				for _, c := range list {
					got = append(got, name+" "+c.Name)
					if c.Name == "bad" {
						no = append(no, changes.Refused{Change: c, Err: errors.New("it is bad")})
					}
				}
				return no
			},
			Text: func(c *changes.Change) string { return name + " was told of " + c.Name }}}
	}
	use := edge.Modules{of("tea"), {Name: "milk"}, of("cake")}
	var list []changes.Change
	for i, subject := range []string{"cake:bad", "cake:plum", "login", "milk:warm", "tea:green",
		"water:cold"} {
		list = append(list, changes.Read(subject, uint64(i), 1, time.Now(), `{"does":"pour"}`))
		if s := list[i].Subject(); s != subject {
			t.Errorf("%s travels as %s", subject, s)
		}
	}
	var refused []string
	for _, r := range use.Change(list, time.Now(), slog.New(slog.DiscardHandler)) {
		refused = append(refused, r.Change.Subject()+": "+r.Err.Error())
	}
	const unknown = `: it does what this edge does not know: "pour"`
	if diff := cmp.Diff([]string{"milk:warm" + unknown, "water:cold" + unknown,
		"cake:bad: it is bad"}, refused); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"tea green", "cake bad", "cake plum"}, got); diff != "" {
		t.Error(diff)
	}
	if text := use.ChangeText(&list[4]); text != "tea was told of green" {
		t.Error(text)
	}
}

// Changes of rules are kept by the first module that keeps any under a configuration.
func TestRulesOfModules(t *testing.T) {
	of := func(name string) edge.Module {
		return edge.Module{Name: name, Rules: func(c *config.Config) *rulelist.Place {
			if c.EdgeID != name {
				return nil
			}
			return &rulelist.Place{File: name}
		}}
	}
	use := edge.Modules{{Name: "milk"}, of("tea"), of("cake")}
	for _, name := range []string{"tea", "cake"} {
		if at := use.Rules(&config.Config{EdgeID: name}); at == nil || at.File != name {
			t.Errorf("%s: %+v", name, at)
		}
	}
	if at := use.Rules(&config.Config{EdgeID: "milk"}); at != nil {
		t.Errorf("%+v", at)
	}
}

// A Server is small enough to be read: what belongs together is one field, and a feature has none.
func TestServerFields(t *testing.T) {
	if n := reflect.TypeFor[edge.Server]().NumField(); n > 15 {
		t.Errorf("edge.Server has %d fields, want at most 15", n)
	}
}

// A configuration that a later module refuses, or that no rule set can be made of, leaves the earlier
// ones as they were.
func TestLaterModuleRefuses(t *testing.T) {
	type settings struct {
		Answer string `json:"answer"`
	}
	var told []string
	module := func(name string) edge.Module {
		return edge.Module{Name: name,
			Config: config.Module{Settings: func() any { return new(settings) }},
			Prepare: func(s *edge.Setup) (edge.Points, error) {
				answer := config.SettingsOf[settings](s.Config, name).Answer
				if answer == "broken" {
					return edge.Points{}, errors.New("it is broken")
				}
				return edge.Points{InForce: func() { told = append(told, name+" "+answer) },
					Gates: []edge.Gate{{Phase: edge.Own, Answer: func(x *edge.Exchange) bool {
						if string(x.Path) != "/"+name {
							return false
						}
						x.Begin(http.StatusOK, "text/plain", []byte(answer))
						return true
					}}}}, nil
			}}
	}
	use := edge.Modules{module("first"), module("second")}
	const before = "first: {answer: a}\nsecond: {answer: b}\nrules: [{name: r, limit: 1, window: 1h}]"
	e := edgetest.StartUsing(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), before, use...)
	is := func(first, second, rule string, tells ...string) {
		t.Helper()
		for path, want := range map[string]string{"/first": first, "/second": second} {
			if _, body := e.Get(path); body != want {
				t.Errorf("%s is %q, want %q", path, body, want)
			}
		}
		if r := e.Rules()[0].Name; r != rule || !slices.Equal(told, tells) {
			t.Errorf("the rule is %s, want %s; they were told of %q, want %q", r, rule, told, tells)
		}
	}
	is("a", "b", "r", "first a", "second b")
	for yaml, want := range map[string]string{
		"first: {answer: c}\nsecond: {answer: broken}\nrules: [{name: s, limit: 1}]": "second: it is broken",
		"first: {answer: broken}\nsecond: {answer: c}\nrules: [{name: s, limit: 1}]": "first: it is broken",
	} {
		if err := e.Reload(yaml); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		is("a", "b", "r", "first a", "second b")
	}
	edgetest.Must(t, e.Reload("first: {answer: c}\nsecond: {answer: d}\nrules: [{name: s, limit: 1}]"))
	is("c", "d", "s", "first a", "second b", "first c", "second d")
}

// What modules do beside requests goes on while the edge is watched over, and ends before that, the
// last of them first.
func TestModulesRun(t *testing.T) {
	var mu sync.Mutex
	var happened []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		happened = append(happened, what)
	}
	running := make(chan bool)
	module := func(name string) edge.Module {
		return edge.Module{Name: name, Run: func(ctx context.Context) {
			running <- true
			<-ctx.Done()
			note(name + " is stopped")
			note(name + " has ended")
		}}
	}
	s := edgetest.NewServer(t, edgetest.WithoutRules(t, "http://127.0.0.1:1"),
		edgetest.Using(module("a"), edge.Module{Name: "idle"}, module("b"), module("c")))
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan bool)
	go func() {
		defer close(watched)
		s.Watch(ctx)
	}()
	for range 3 {
		<-running
	}
	cancel()
	<-watched
	want := []string{"c is stopped", "c has ended", "b is stopped", "b has ended", "a is stopped",
		"a has ended"}
	if !slices.Equal(happened, want) {
		t.Errorf("%q, want %q", happened, want)
	}
}

// observed has an edge tell of each request, once its answer is made.
func observed(told func(*edge.Outcome)) func(*edge.Options) {
	return edgetest.Using(edge.Module{Name: "observes",
		Prepare: func(*edge.Setup) (edge.Points, error) {
			return edge.Points{Observers: []edge.Observer{{
				Answered: func(_ *edge.Exchange, o *edge.Outcome) { told(o) }}}}, nil
		}})
}

// A watcher writes down what it is told.
type watcher struct {
	name  string
	notes *[]string
}

func (w watcher) note(format string, args ...any) {
	*w.notes = append(*w.notes, w.name+" "+fmt.Sprintf(format, args...))
}

func (w watcher) Attempt(server string) { w.note("attempt at %s", server) }
func (w watcher) Unreachable(error)     { w.note("unreachable") }
func (w watcher) Failed(error)          { w.note("failed") }
func (w watcher) Answered(status int)   { w.note("answered %d", status) }
func (w watcher) AppendHead(b []byte) []byte {
	return append(append(b, "\r\nX-Watched: "...), w.name...)
}
func (w watcher) Ended(o *edge.Outcome, failed bool) {
	w.note("ended %d %s %s, failed %t", o.Status, o.From, o.Verdict, failed)
}

// Those who watch a request are told of it in the order of modules: of its attempts at origins, if
// there are any, and of its end. Who watches some requests is told of no other.
func TestWatchers(t *testing.T) {
	var notes []string
	watching := func(name, path string) edge.Module {
		return edge.Module{Name: name, Prepare: func(*edge.Setup) (edge.Points, error) {
			return edge.Points{Observers: []edge.Observer{{
				Watch: func(x *edge.Exchange) edge.Watcher {
					if string(x.Path) != path {
						return nil
					}
					return watcher{name, &notes}
				}}}}, nil
		}}
	}
	var watched []string
	s := before(t, "deny: [198.51.100.0/24]", func(_ http.ResponseWriter, r *http.Request) {
		watched = append(watched, strings.Join(r.Header.Values("X-Watched"), ", "))
	}, edgetest.Using(watching("first", "/a"), watching("second", "/a"), watching("third", "/b")))
	at := s.Upstreams().All[0].Name
	denied := edgetest.NewExchange("GET", "/b")
	denied.From = netip.MustParseAddr("198.51.100.1")
	for _, e := range []*edgetest.Exchange{edgetest.NewExchange("GET", "/a"),
		edgetest.NewExchange("GET", "/c"), denied} {
		s.Handle(e)
	}
	want := []string{"first attempt at " + at, "second attempt at " + at, "first answered 200",
		"second answered 200", "first ended 200 origin , failed false",
		"second ended 200 origin , failed false", "third ended 403 edge denied, failed false"}
	if diff := cmp.Diff(want, notes); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"first, second", ""}, watched); diff != "" {
		t.Error(diff)
	}
}
