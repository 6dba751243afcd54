//go:build system

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/counter/member"
	"sluice/edge/control"
	"sluice/pop/operatorlog"
	"sluice/pop/secret"
)

const rulesFile = `rules:
- {name: login, match: {path: /login}, limit: 5, mitigation_timeout: 10m}
- {name: all, limit: 1000}
`

// ruleAnswer is what the API says of a rule that was changed.
type ruleAnswer struct {
	status   int
	tag      string
	text     string
	Limit    int
	Match    struct{ Path string }
	Version  uint64
	Origin   string
	Deleted  bool
	Edges    *control.Spread
	Warnings []string
	Error    struct{ Message string }
}

// api asks the operators' listener, with headers by name and value.
func (p *process) api(method, path, body string, header ...string) (a ruleAnswer) {
	p.t.Helper()
	resp, text := p.request(method, p.back, path, body, header...)
	_ = json.Unmarshal([]byte(text), &a) // what is a list is read from the text
	a.status, a.tag, a.text = resp.StatusCode, resp.Header.Get("ETag"), text
	return a
}

// eventTexts returns when the edge's events tell something.
func (p *process) eventTexts(what string) {
	p.t.Helper()
	p.until("telling of "+what, func() bool { return strings.Contains(p.api("GET", "/v1/events", "").text, what) })
}

// metric is the value of a metric without labels.
func (p *process) metric(name string) string {
	_, body := p.admin("GET", "/metrics")
	if m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(body); m != nil {
		return m[1]
	}
	return ""
}

// meet returns when all edges know of each other.
func meet(edges ...*process) {
	for _, p := range edges {
		p.until("meeting the others", func() bool { return p.metric("sluice_tier_edges") == fmt.Sprint(len(edges)) })
	}
}

// everywhere reports whether all edges soon say so.
func everywhere(edges []*process, ok func(*process) bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	i := 0
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		for i < len(edges) && ok(edges[i]) {
			i++
		}
		if i == len(edges) {
			return true
		}
	}
	return false
}

// writePoP writes what edges of a PoP with a secret are started with: a file each, and a state_dir.
func writePoP(t *testing.T, edges int) (files []string) {
	t.Helper()
	dir := t.TempDir()
	key := filepath.Join(dir, "secret")
	must(t, os.WriteFile(key, []byte(popKey), 0o600))
	for i := range edges {
		state := filepath.Join(dir, fmt.Sprint("state", i))
		must(t, os.Mkdir(state, 0o700))
		file := filepath.Join(dir, fmt.Sprintf("edge%d.yaml", i))
		must(t, os.WriteFile(file, fmt.Appendf(nil, "edge_id: edge%d\nstate_dir: %s\npop: {secret_file: %s}\n%s", i, state, key, rulesFile), 0o400))
		files = append(files, file)
	}
	return files
}

// startPoP starts an edge for each file, over the same nodes, and waits until they have met.
func startPoP(t *testing.T, files []string, nodes string) (edges []*process) {
	t.Helper()
	site := origin(t)
	for _, file := range files {
		edges = append(edges, start(t, site, "--config", file, "--memcached", nodes))
	}
	meet(edges...)
	return edges
}

const popKey = "nobody can guess this"

// Rules that are changed at one edge are so on all, by whichever edge, and stay so when every process of the PoP has ended.
func TestRulesOverThePoP(t *testing.T) {
	t.Parallel()
	files := writePoP(t, 3)
	startAll := func() []*process { return startPoP(t, files, startMemcached(t)+","+startMemcached(t)) }
	edges := startAll()
	for n := range 10 {
		limit := 100 + n
		a := edges[n%3].api("PATCH", "/v1/rules/login", fmt.Sprintf(`{"limit":%d}`, limit), "X-Operator", "ada")
		if a.status != 200 || a.Limit != limit || a.Match.Path != "/login" || a.Origin != "pop" || a.Version == 0 || len(a.Warnings) != 0 {
			t.Fatalf("%+v", a)
		}
		if a.Edges == nil || a.Edges.Known != 3 || a.Edges.Have != 3 || len(a.Edges.Missing) != 0 {
			t.Errorf("change %d: %+v", n, a.Edges)
		}
		if !everywhere(edges, func(p *process) bool {
			got := p.api("GET", "/v1/rules/login", "")
			return got.Limit == limit && got.tag == a.tag
		}) {
			t.Fatalf("change %d is not everywhere", n)
		}
	}
	hash, first := edges[0].metric("sluice_config_hash"), edges[0].api("GET", "/v1/rules/login", "")
	if hash == "" || !everywhere(edges, func(p *process) bool { return p.metric("sluice_config_hash") == hash }) {
		t.Errorf("hashes differ: %s and %s", hash, edges[1].metric("sluice_config_hash"))
	}

	// What is refused changes nothing, and says why.
	for _, test := range []struct {
		method, path, body, match, says string
		want                            int
	}{
		{"PUT", "/v1/rules/login", `{"name":"login","limit":300}`, "", "match.path, mitigation_timeout", 409},
		{"PATCH", "/v1/rules/login", `{"limit":0}`, "", "limit: 0 is out of range", 400},
		{"PATCH", "/v1/rules/login", `{"colour":1}`, "", "unknown field colour", 400},
		{"PATCH", "/v1/rules/login", `{"limit":7}`, `"1-0"`, first.tag[1 : len(first.tag)-1], 412},
		{"PATCH", "/v1/rules/login", `{"response":{"body":"` + strings.Repeat("x", 5000) + `"}}`, "", "too long", 409},
		{"DELETE", "/v1/rules/none", "", "", "no such rule", 404},
	} {
		if a := edges[1].api(test.method, test.path, test.body, "If-Match", test.match); a.status != test.want || !strings.Contains(a.Error.Message, test.says) {
			t.Errorf("%s %s %.60s: %d %s", test.method, test.path, test.body, a.status, a.text)
		}
	}
	if a := edges[2].api("GET", "/v1/rules/login", ""); a.tag != first.tag {
		t.Errorf("what was refused has changed the rule: %s", a.text)
	}

	// Two edges at once end the same, and so does the third.
	var both sync.WaitGroup
	for i := range 2 {
		both.Go(func() { edges[i].api("PATCH", "/v1/rules/login", fmt.Sprintf(`{"limit":%d}`, 500+i)) })
	}
	both.Wait()
	if !everywhere(edges, func(p *process) bool {
		a, b := p.api("GET", "/v1/rules/login", ""), edges[2].api("GET", "/v1/rules/login", "")
		return a.tag == b.tag && a.Limit >= 500
	}) {
		t.Error("two edges have changed a rule at once, and do not agree")
	}

	// A rule of the file goes, a new one comes, the first goes back.
	if a := edges[0].api("DELETE", "/v1/rules/all", ""); a.status != 200 || !a.Deleted || a.Edges.Have != 3 {
		t.Errorf("%+v", a)
	}
	if a := edges[1].api("PUT", "/v1/rules/new", `{"limit":9}`); a.status != 200 || a.Edges.Have != 3 {
		t.Errorf("%+v", a)
	}
	if a := edges[2].api("POST", "/v1/rules/login/rollback", fmt.Sprintf(`{"to":%d}`, first.versionIn(t, edges[2]))); a.status != 200 || a.Limit != 109 {
		t.Errorf("%+v", a)
	}
	check := func(edges []*process) {
		t.Helper()
		if !everywhere(edges, func(p *process) bool {
			return p.api("GET", "/v1/rules/login", "").Limit == 109 && p.api("GET", "/v1/rules/new", "").Limit == 9 && p.api("GET", "/v1/rules/all", "").status == 404
		}) {
			for _, p := range edges {
				t.Errorf("%s", p.api("GET", "/v1/config", "").text)
			}
		}
	}
	check(edges)
	hash = edges[0].metric("sluice_config_hash")

	// Each edge tells of all of them, and what others have done.
	var pop struct {
		Edges []control.EdgeStatus
		Nodes []member.Node
	}
	if !everywhere(edges, func(p *process) bool {
		pop.Edges = nil
		must(t, json.Unmarshal([]byte(p.api("GET", "/v1/pop", "").text), &pop))
		same := len(pop.Edges) == 3
		for _, e := range pop.Edges {
			same = same && fmt.Sprint(float64(e.ConfigHash)) == hash && e.Generation == pop.Edges[0].Generation && e.Address != "" && e.Version != "" && !e.Since.Before(e.Started)
		}
		return same && pop.Edges[0].Name == edges[0].name(p, edges) && len(pop.Nodes) == 2 && pop.Nodes[0].Up
	}) {
		t.Errorf("%s: %+v", hash, pop)
	}
	for _, what := range []string{`"kind": "rule"`, `"who": "ada"`, " at edge0"} {
		edges[1].eventTexts(what)
	}
	if a := edges[0].api("GET", "/v1/config", ""); !strings.Contains(a.text, `"origin": "pop"`) || !strings.Contains(a.text, `"edge_id": "edge0"`) {
		t.Errorf("%s", a.text)
	}

	for _, p := range edges {
		p.stop(syscall.SIGTERM)
	}
	edges = startAll() // with all nodes new
	check(edges)
	if got := edges[1].metric("sluice_config_hash"); got != hash {
		t.Errorf("the hash was %s and is %s", hash, got)
	}
	if a := edges[2].api("POST", "/v1/rules/all/rollback", `{"to":0}`); a.status != 200 || a.Limit != 1000 || a.Origin != "file" || a.Edges.Have != 3 {
		t.Errorf("%+v", a)
	}
	if !everywhere(edges, func(p *process) bool { return p.api("GET", "/v1/rules/all", "").Limit == 1000 }) {
		t.Error("the file's rule is not back everywhere")
	}
	for i, file := range files {
		if text, _ := os.ReadFile(file); !strings.HasSuffix(string(text), rulesFile) {
			t.Errorf("the file of edge %d was written: %s", i, text)
		}
	}
	for _, p := range edges {
		p.stop(syscall.SIGTERM)
	}
}

// versionIn is the rule's version as another edge's history has it, by what it says.
func (a ruleAnswer) versionIn(t *testing.T, p *process) uint64 {
	t.Helper()
	var list []struct {
		Version uint64
		New     struct{ Limit int }
	}
	must(t, json.Unmarshal([]byte(p.api("GET", "/v1/rules/login/history", "").text), &list))
	for _, past := range list {
		if past.New.Limit == a.Limit {
			return past.Version
		}
	}
	t.Fatalf("no version with a limit of %d: %+v", a.Limit, list)
	return 0
}

// name is what the edge is called that p is among others.
func (p *process) name(of *process, edges []*process) string {
	for i := range edges {
		if edges[i] == of {
			return fmt.Sprint("edge", i)
		}
	}
	return ""
}

// Without a secret changes of rules stay on their edge, which says so; they outlive the process with a state_dir, and its replacement without.
func TestRulesStayWithoutASecret(t *testing.T) {
	t.Parallel()
	nodes, dir := startMemcached(t), t.TempDir()
	file := write(t, "state_dir: "+dir+"\n"+rulesFile)
	kept := start(t, origin(t), "--config", file, "--memcached", nodes)
	l := startLineage(t, origin(t), nil, "--config", write(t, rulesFile), "--memcached", nodes)
	meet(kept, l.process)
	a := kept.api("PATCH", "/v1/rules/login", `{"limit":70}`)
	if a.status != 200 || a.Edges != nil || a.Origin != "overlay" || len(a.Warnings) != 1 || !strings.Contains(a.Warnings[0], "this edge only") {
		t.Errorf("%+v", a)
	}
	b := l.api("PATCH", "/v1/rules/login", `{"limit":80}`)
	if b.status != 200 || len(b.Warnings) != 2 || !strings.Contains(strings.Join(b.Warnings, " "), "in memory only") {
		t.Errorf("%+v", b)
	}
	l.replace()
	http.DefaultClient.CloseIdleConnections()
	l.until("as it was changed", func() bool { return l.api("GET", "/v1/rules/login", "").Limit == 80 })
	kept.stop(syscall.SIGTERM)
	kept = start(t, origin(t), "--config", file, "--memcached", nodes)
	if got := kept.api("GET", "/v1/rules/login", ""); got.tag != a.tag || got.Limit != 70 {
		t.Errorf("%+v, was %+v", got, a)
	}
	kept.stop(syscall.SIGTERM)
}

// A change that this edge does not understand leaves in force what it understood last, and everybody is told. A change of the file under
// what an operator has changed is not in force either.
func TestRuleOfAnotherVersion(t *testing.T) {
	t.Parallel()
	file := writePoP(t, 1)[0]
	var list operatorlog.List
	now := time.Now()
	for _, text := range []string{`{"does":"set","rule":{"limit":50}}`, `{"does":"set","rule":{"limit":60,"colour":"red"}}`} {
		if _, err := list.Add(operatorlog.Order{Rule: "login", Kind: operatorlog.Change, Start: now, Text: text}, 7, 0, now); err != nil {
			t.Fatal(err)
		}
	}
	state := filepath.Join(filepath.Dir(file), "state0", "words")
	must(t, os.WriteFile(state, list.Encode(secret.Of([]byte(popKey)).At("local"), now), 0o600))
	p := start(t, origin(t), "--config", file, "--memcached", startMemcached(t))
	if a := p.api("GET", "/v1/rules/login", ""); a.Limit != 50 {
		t.Errorf("%s", a.text)
	}
	if a := p.api("GET", "/v1/events", ""); !strings.Contains(a.text, `"kind": "warning"`) || !strings.Contains(a.text, "unknown field colour") {
		t.Errorf("%s", a.text)
	}
	if a := p.api("GET", "/v1/pop", ""); !strings.Contains(a.text, `"refused": 1`) {
		t.Errorf("%s", a.text)
	}
	if a := p.api("GET", "/v1/rules/login/history", ""); !strings.Contains(a.text, `"refused": "`) {
		t.Errorf("%s", a.text)
	}
	// An operator's word at this edge would be newer, so it must not undo by the way what he does not see. Said on purpose, it stands.
	if a := p.api("PATCH", "/v1/rules/login", `{"window":"2m"}`); a.status != 409 || !strings.Contains(a.Error.Message, "colour") {
		t.Errorf("%+v", a)
	}
	if a := p.api("PUT", "/v1/rules/login?replace=true", `{"window":"2m","limit":50}`); a.status != 200 || a.Limit != 50 || a.Edges.Have != 1 {
		t.Errorf("%+v", a)
	}
	text, _ := os.ReadFile(file)
	must(t, os.Chmod(file, 0o600))
	must(t, os.WriteFile(file, []byte(strings.Replace(strings.Replace(string(text), "limit: 5,", "limit: 6,", 1), "limit: 1000", "limit: 1001", 1)), 0o600))
	p.until("with the file's other rule", func() bool { return p.api("GET", "/v1/rules/all", "").Limit == 1001 })
	if a := p.api("GET", "/v1/rules/login", ""); a.Limit != 50 {
		t.Errorf("%s", a.text)
	}
	if a := p.api("POST", "/v1/rules/login/rollback", `{"to":0}`); a.status != 200 || a.Limit != 6 || a.Origin != "file" || a.Version != 0 {
		t.Errorf("%+v", a)
	}
	p.stop(syscall.SIGTERM)
	for _, says := range []string{"unknown field colour", "the file has changed a rule"} {
		if !strings.Contains(p.log.String(), says) {
			t.Errorf("it did not say %q: %s", says, p.log)
		}
	}
}
