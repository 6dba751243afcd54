//go:build system

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"sluice/edge/changes/etcd/etcdtest"
	"sluice/edge/control"
	"sluice/pop/operatorlog"
	"sluice/pop/secret"
)

// etcdClient asks an etcd past all edges, as an operator with its own tools would.
func etcdClient(t *testing.T, n *etcdtest.Node) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{n.Endpoint}, Logger: zap.NewNop(), DialTimeout: patience})
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// site is edges of several PoPs that share an etcd.
type site struct {
	t     *testing.T
	etcd  *etcdtest.Node
	files []string
	nodes []string // of each edge's PoP
	edges []*process
}

// startSite starts PoPs of two edges each, with a memcached node and a secret of their own.
func startSite(t *testing.T, pops ...string) *site {
	t.Helper()
	s := &site{t: t, etcd: etcdtest.Start(t)}
	dir := t.TempDir()
	for _, pop := range pops {
		key := filepath.Join(dir, pop+".secret")
		must(t, os.WriteFile(key, []byte(popKey+pop), 0o600))
		node := startMemcached(t)
		for i := range 2 {
			name := fmt.Sprint(pop, i)
			state := filepath.Join(dir, name)
			must(t, os.Mkdir(state, 0o700))
			file := filepath.Join(dir, name+".yaml")
			text := fmt.Sprintf("edge_id: %s\nstate_dir: %s\npop: {name: %s, secret_file: %s}\netcd: {endpoints: [%q]}\n%s", name, state, pop, key, s.etcd.Endpoint, rulesFile)
			must(t, os.WriteFile(file, []byte(text), 0o600))
			s.files, s.nodes, s.edges = append(s.files, file), append(s.nodes, node), append(s.edges, nil)
			s.start(len(s.edges) - 1)
		}
	}
	s.know(len(s.edges))
	return s
}

func (s *site) start(i int) *process {
	s.t.Helper()
	s.edges[i] = start(s.t, origin(s.t), "--config", s.files[i], "--memcached", s.nodes[i])
	return s.edges[i]
}

func (s *site) stop(i int) {
	s.t.Helper()
	begin := time.Now()
	s.edges[i].stop(syscall.SIGTERM)
	if took := time.Since(begin); took > 20*time.Second {
		s.t.Errorf("edge %d ended after %v", i, took)
	}
}

// know returns when all edges know of so many.
func (s *site) know(n int) {
	s.t.Helper()
	for _, p := range s.edges {
		p.until("knowing the others over etcd", func() bool { return len(p.pop().Etcd.Edges) == n })
	}
}

func (s *site) up(up string) {
	s.t.Helper()
	for _, p := range s.edges {
		p.until("etcd up "+up, func() bool { return p.metric("sluice_etcd_up") == up })
	}
}

// have reports whether all edges soon have a limit, and with it the same rules.
func (s *site) have(limit int) bool {
	return everywhere(s.edges, func(p *process) bool {
		return p.api("GET", "/v1/rules/login", "").Limit == limit && p.metric("sluice_config_hash") == s.edges[0].metric("sluice_config_hash")
	})
}

func (s *site) must(limit int) {
	s.t.Helper()
	if s.have(limit) {
		return
	}
	for _, p := range s.edges {
		s.t.Errorf("want %d everywhere: %s", limit, p.api("GET", "/v1/config", "").text)
	}
	s.t.FailNow()
}

func (s *site) set(at, limit int, header ...string) ruleAnswer {
	return s.edges[at].api("PATCH", "/v1/rules/login", fmt.Sprintf(`{"limit":%d}`, limit), header...)
}

type popAnswer struct {
	Edges []control.EdgeStatus
	Etcd  *control.EtcdStatus
}

func (p *process) pop() (a popAnswer) {
	p.t.Helper()
	must(p.t, json.Unmarshal([]byte(p.api("GET", "/v1/pop", "").text), &a))
	return a
}

// A rule that is changed at any edge of any PoP is so at all, and everybody can tell.
func TestRulesOverEtcd(t *testing.T) {
	t.Parallel()
	s := startSite(t, "fra", "ams")
	for n := range 8 {
		a := s.set(n%4, 100+n, "X-Operator", "ada")
		if a.status != 200 || a.Limit != 100+n || a.Origin != "etcd" || a.Version == 0 || len(a.Warnings) != 0 || a.Edges == nil || a.Edges.Known != 4 || a.Edges.Have != 4 || a.Edges.PoPs != 2 {
			t.Fatalf("%+v %+v", a, a.Edges)
		}
		s.must(100 + n)
	}
	first := s.edges[0].api("GET", "/v1/rules/login", "")
	if !everywhere(s.edges, func(p *process) bool { return p.api("GET", "/v1/rules/login", "").tag == first.tag }) {
		t.Error("tags differ")
	}

	// Two editors, and neither is overwritten in silence.
	if a := s.set(1, 7, "If-Match", `"1-0"`); a.status != 412 {
		t.Errorf("%+v", a)
	}
	var both sync.WaitGroup
	var done [4]ruleAnswer
	for i := range done {
		both.Go(func() { done[i] = s.set(i, 500+i, "If-Match", first.tag) })
	}
	both.Wait()
	won := -1
	for i, a := range done {
		switch {
		case a.status == 200 && won < 0:
			won = i
		case a.status != 412:
			t.Errorf("edge %d: %d %s", i, a.status, a.text)
		}
	}
	if won < 0 {
		t.Fatal("nobody has changed the rule")
	}
	s.must(500 + won)
	for i := range done {
		both.Go(func() { done[i] = s.set(i, 600+i) })
	}
	both.Wait()
	wins := 0
	for i, a := range done {
		if a.status == 503 { // etcd was late: the edge cannot tell, and says that one may ask again
			s.edges[i].until("told by etcd", func() bool { a = s.set(i, 600+i); return a.status != 503 })
		}
		if a.status != 200 && a.status != 409 {
			t.Errorf("edge %d: %d %s", i, a.status, a.text)
		} else if a.status == 200 {
			wins++
		}
	}
	if wins == 0 {
		t.Error("nobody has changed the rule")
	}

	// A rule that goes, one that comes, and the way back; by another PoP's edge.
	if a := s.edges[3].api("DELETE", "/v1/rules/all", ""); a.status != 200 || !a.Deleted || a.Edges.Have != 4 {
		t.Errorf("%+v", a)
	}
	if a := s.edges[0].api("PUT", "/v1/rules/new", `{"limit":9}`); a.status != 200 || a.Edges.Have != 4 {
		t.Errorf("%+v", a)
	}
	if a := s.edges[2].api("POST", "/v1/rules/login/rollback", fmt.Sprintf(`{"to":%d}`, first.versionIn(t, s.edges[2]))); a.status != 200 || a.Limit != 107 {
		t.Errorf("%+v", a)
	}
	s.must(107)
	if !everywhere(s.edges, func(p *process) bool {
		return p.api("GET", "/v1/rules/new", "").Limit == 9 && p.api("GET", "/v1/rules/all", "").status == 404
	}) {
		t.Error("a rule that went, or one that came, is not so everywhere")
	}

	// Who asks any edge sees all of them, whoever they count with.
	if !everywhere(s.edges, func(p *process) bool {
		a := p.pop()
		same := a.Etcd != nil && a.Etcd.Up && len(a.Etcd.Edges) == 4 && len(a.Edges) == 2
		for i := 0; same && i < 4; i++ {
			e := a.Etcd.Edges[i]
			same = e.ConfigHash == a.Etcd.Edges[0].ConfigHash && e.Generation == a.Etcd.Edges[0].Generation && e.PoP != "" && e.Address != ""
		}
		return same
	}) {
		t.Errorf("%s", s.edges[0].api("GET", "/v1/pop", "").text)
	}
	for _, what := range []string{`"kind": "rule"`, `"who": "ada"`, " at fra0"} {
		s.edges[3].eventTexts(what)
	}
	// An edge that has nothing of its own yet has it all from the start: nothing is news to it.
	state := strings.TrimSuffix(s.files[3], ".yaml")
	s.stop(3)
	must(t, os.RemoveAll(state))
	must(t, os.Mkdir(state, 0o700))
	p := s.start(3)
	s.know(4)
	s.must(107)
	if a := p.api("GET", "/v1/events", ""); strings.Contains(a.text, `"kind": "rule"`) {
		t.Errorf("%s", a.text)
	}
	// Blocks stay in their PoP.
	if status, _ := s.edges[0].say("PUT", "login/198.51.100.7", `{"for":"1h"}`); status != 200 {
		t.Errorf("block: %d", status)
	}
	s.edges[1].until("told of the block", func() bool { return s.edges[1].blockedBy("198.51.100.7") == "admin" })
	for _, p := range s.edges[2:] {
		if by := p.blockedBy("198.51.100.7"); by != "" {
			t.Errorf("another PoP has the block, by %s", by)
		}
	}
	for i := range s.edges {
		s.stop(i)
	}
}

// With etcd away edges serve with what they have, say so, and change nothing; an edge that starts then has what it kept; and all take up
// again when etcd is back, also where that has forgotten everything.
func TestEtcdAway(t *testing.T) {
	t.Parallel()
	s := startSite(t, "fra", "ams")
	if a := s.set(0, 50); a.status != 200 || a.Edges.Have != 4 {
		t.Fatalf("%+v", a)
	}
	s.etcd.Kill()
	s.up("0")
	if a := s.set(2, 60); a.status != 503 || !strings.Contains(a.Error.Message, "etcd does not answer") {
		t.Errorf("%d %s", a.status, a.text)
	}
	s.edges[1].eventTexts("etcd does not answer: rules stay as they are")
	if a := s.edges[1].pop(); a.Etcd == nil || a.Etcd.Up || a.Etcd.Error == "" {
		t.Errorf("%+v", a.Etcd)
	}
	s.stop(1)
	s.stop(3)
	s.start(1)
	s.start(3)
	s.must(50)
	if a := s.edges[3].api("GET", "/v1/rules/login", ""); a.Limit != 50 {
		t.Errorf("%+v", a)
	}
	if a := s.edges[3].api("GET", "/v1/config", ""); !strings.Contains(a.text, `"origin": "etcd"`) {
		t.Errorf("%s", a.text)
	}
	s.etcd.Run()
	s.up("1")
	s.know(4)
	before := etcdClient(t, s.etcd)
	for i := range 100 { // so that revisions of this etcd are higher than those of the next
		if _, err := before.Put(t.Context(), "/other", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if a := s.set(3, 70); a.status != 200 || a.Edges.Have != 4 {
		t.Errorf("%+v %+v", a, a.Edges)
	}
	s.must(70)

	// Another etcd in its place, which knows nothing: the edges know.
	s.etcd.Kill()
	s.up("0")
	s.etcd.Forget()
	s.etcd.Run()
	s.up("1")
	c := etcdClient(t, s.etcd)
	s.edges[0].until("written again", func() bool {
		answer, err := c.Get(t.Context(), "/sluice/rules/login")
		return err == nil && len(answer.Kvs) == 1 && strings.Contains(string(answer.Kvs[0].Value), `"limit":70`) && strings.Contains(string(answer.Kvs[0].Value), `"limit":50`)
	})
	s.know(4)
	s.must(70)
	pause(t, s.edges[3].cmd.Process)
	if a := s.set(0, 80); a.status != 200 || a.Edges == nil || a.Edges.Have != 3 || len(a.Edges.Missing) != 1 || a.Edges.Missing[0] != "ams/ams1" {
		t.Errorf("%d %s", a.status, a.text)
	}
	must(t, s.edges[3].cmd.Process.Signal(syscall.SIGCONT))
	s.must(80)
	s.etcd.Signal(syscall.SIGSTOP) // it takes connections, and says nothing: nobody waits for it at the end
	s.up("0")
	s.stop(0)
	s.start(0)
	s.must(80)
	for i := range s.edges {
		s.stop(i)
	}
}

// A process that takes the place of another has the rules of that, though etcd is away and nothing is on the disk.
func TestRulesOverEtcdAfterAnUpgrade(t *testing.T) {
	t.Parallel()
	n := etcdtest.Start(t)
	l := startLineage(t, origin(t), nil, "--config", write(t, fmt.Sprintf("etcd: {endpoints: [%q]}\n%s", n.Endpoint, rulesFile)))
	l.until("with etcd", func() bool { return l.metric("sluice_etcd_up") == "1" })
	if a := l.api("PATCH", "/v1/rules/login", `{"limit":70}`); a.status != 200 || a.Origin != "etcd" || a.Edges == nil || a.Edges.Have != 1 || len(a.Warnings) != 0 {
		t.Errorf("%+v", a)
	}
	n.Kill()
	l.replace()
	http.DefaultClient.CloseIdleConnections()
	l.until("as it was changed", func() bool { return l.api("GET", "/v1/rules/login", "").Limit == 70 })
}

// With etcd the PoP's list has no say in rules: what it has of them is dropped, and that is told.
func TestRulesLeftInThePoP(t *testing.T) {
	t.Parallel()
	file := writePoP(t, 1)[0]
	var list operatorlog.List
	if _, err := list.Add(operatorlog.Order{Rule: "login", Kind: operatorlog.Change, Start: time.Now(), Text: `{"does":"set","rule":{"limit":50}}`}, 7, 0, time.Now()); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(filepath.Dir(file), "state0", "words")
	// Versions before 0.2.0 sealed it without the PoP's name.
	must(t, os.WriteFile(state, list.Encode(secret.Of([]byte(popKey)), time.Now()), 0o600))
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.Chmod(file, 0o600)
	}
	if err == nil {
		err = os.WriteFile(file, fmt.Appendf(text, "etcd: {endpoints: [%q]}\n", etcdtest.Start(t).Endpoint), 0o600)
	}
	must(t, err)
	p := start(t, origin(t), "--config", file, "--memcached", startMemcached(t))
	if a := p.api("GET", "/v1/rules/login", ""); a.Limit != 5 {
		t.Errorf("%s", a.text)
	}
	// Else the PoP would wait for them to be in force, and with them for what operators say after.
	if status, m := p.say("PUT", "login/198.51.100.7", `{"for":"1h"}`); status != 200 || m.Edges == nil || m.Edges.Have != 1 {
		t.Errorf("%d %+v", status, m.Edges)
	}
	if a := p.api("GET", "/v1/events", ""); !strings.Contains(a.text, "changes of rules in the PoP's list are dropped") || !strings.Contains(a.text, "rules=login") {
		t.Errorf("%s", a.text)
	}
	p.stop(syscall.SIGTERM)
}

// What is wrong in etcd changes nothing, and is told; what comes after it counts.
func TestWrongValuesInEtcd(t *testing.T) {
	t.Parallel()
	s := startSite(t, "fra")
	if a := s.set(0, 50); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	c := etcdClient(t, s.etcd)
	get := func() string {
		t.Helper()
		answer, err := c.Get(t.Context(), "/sluice/rules/login")
		if err != nil || len(answer.Kvs) != 1 {
			t.Fatal(answer, err)
		}
		return string(answer.Kvs[0].Value)
	}
	put := func(text string) {
		t.Helper()
		if _, err := c.Put(t.Context(), "/sluice/rules/login", text); err != nil {
			t.Fatal(err)
		}
	}
	wrong := func(n string) {
		t.Helper()
		for _, p := range s.edges {
			p.until("with wrong values: "+n, func() bool { return p.metric("sluice_etcd_wrong_values") == n })
		}
	}
	good := get()
	put("{")
	wrong("1")
	s.must(50)
	if a := s.edges[1].pop(); a.Etcd == nil || a.Etcd.Wrong["login"] == "" {
		t.Errorf("%+v", a.Etcd)
	}
	s.edges[1].eventTexts("what etcd has of a rule cannot be read: what was stays")
	if get() != "{" {
		t.Errorf("what somebody has put there was replaced by %s", get())
	}
	put(good)
	wrong("0")

	// A rule that no edge takes, said by one that knows more: it is among what is refused, and the one before it stands.
	newer := strings.Replace(good, `{"changes":[`, fmt.Sprintf(`{"changes":[{"version":%d,"edge_id":"00000000000000aa","at":"2026-01-01T00:00:00Z","change":{"does":"set","rule":{"limit":5,"colour":"red"},"after":0}},`, uint64(1)<<50), 1)
	put(newer)
	wrong("1")
	s.must(50)
	s.edges[0].eventTexts("unknown field colour")
	if a := s.edges[0].api("GET", "/v1/rules/login/history", ""); !strings.Contains(a.text, `"refused": "`) {
		t.Errorf("%s", a.text)
	}
	// An operator's word is newer than all that, and what is older does not come back.
	if a := s.set(1, 90); a.status != 409 {
		t.Errorf("a part of what this edge does not understand: %+v", a)
	}
	if a := s.edges[1].api("PUT", "/v1/rules/login?replace=true", `{"limit":90}`); a.status != 200 || a.Edges.Have != 2 {
		t.Errorf("%+v %+v", a, a.Edges)
	}
	s.must(90)
	wrong("0")
	put(good)
	s.edges[0].until("with the newest in etcd again", func() bool { return strings.Contains(get(), `"limit":90`) })
	s.must(90)
	if _, err := c.Delete(t.Context(), "/sluice/rules/login"); err != nil {
		t.Fatal(err)
	}
	s.edges[0].until("with the newest in etcd again", func() bool {
		answer, err := c.Get(t.Context(), "/sluice/rules/login")
		return err == nil && len(answer.Kvs) == 1
	})
	s.must(90)
	// A value that is broken is replaced by an operator.
	put("[]")
	wrong("1")
	if a := s.set(0, 95); a.status != 200 {
		t.Errorf("%+v", a)
	}
	wrong("0")
	s.must(95)
	for i := range s.edges {
		s.stop(i)
	}
}
