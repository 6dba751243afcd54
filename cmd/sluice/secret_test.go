//go:build system

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sluice/docs/pages"
	"sluice/edge/control"
	"sluice/pop/secret"
)

const otherKey = "nor can anybody guess this"

// A secretPoP is edges with a secret's file each, which may differ, and a state_dir each.
type secretPoP struct {
	t     *testing.T
	dir   string
	nodes string
	site  string
	edges []*lineage
}

func newSecretPoP(t *testing.T) *secretPoP {
	return &secretPoP{t: t, dir: t.TempDir(), nodes: startMemcached(t) + "," + startMemcached(t), site: origin(t)}
}

// give writes an edge's secret: lines, the new one first. None: the edge has no file.
func (s *secretPoP) give(edge int, lines ...string) {
	s.t.Helper()
	file, pop := filepath.Join(s.dir, fmt.Sprint("secret", edge)), "pop: {name: fra1}"
	if len(lines) > 0 {
		must(s.t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
		pop = "pop: {name: fra1, secret_file: " + file + "}"
	}
	state := filepath.Join(s.dir, fmt.Sprint("state", edge))
	must(s.t, os.MkdirAll(state, 0o700))
	must(s.t, os.WriteFile(filepath.Join(s.dir, fmt.Sprintf("edge%d.yaml", edge)), fmt.Appendf(nil, `edge_id: edge%d
state_dir: %s
%s
source: {trust: [127.0.0.0/8]}
rules:
- {name: login, match: {path: /login}, limit: 50, window: 1h, mitigation_timeout: 1h}
- {name: api, match: {path: /api}, key: "header:X-Api-Key", limit: 5, window: 1s, mitigation_timeout: 1s}
- {name: all, limit: 1000}
`, edge, state, pop), 0o600))
}

// start starts an edge, the next or one that has ended.
func (s *secretPoP) start(edge int) *lineage {
	s.t.Helper()
	l := startLineage(s.t, s.site, nil, "--config", filepath.Join(s.dir, fmt.Sprintf("edge%d.yaml", edge)), "--memcached", s.nodes)
	s.edges = append(s.edges[:edge], append([]*lineage{l}, s.edges[min(edge+1, len(s.edges)):]...)...)
	return l
}

func (s *secretPoP) all() (list []*process) {
	for _, l := range s.edges {
		list = append(list, l.process)
	}
	return list
}

// apart is how many edges an edge sees that are strangers, and that have a line of the secret in common.
func (p *process) apart() string {
	return p.metric(`sluice_tier_edges_apart\{why="stranger"\}`) + " and " + p.metric(`sluice_tier_edges_apart\{why="rotation"\}`)
}

// secret is what GET /v1/pop says of it.
func (p *process) secret() control.SecretStatus {
	p.t.Helper()
	var a struct{ Secret control.SecretStatus }
	_, text := p.admin("GET", "/v1/pop")
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		p.t.Fatalf("%v: %s", err, text)
	}
	return a.Secret
}

// Two PoPs that have one secret and one node are two: what operators say at one, and whom its limits block, is nothing to the other.
func TestPoPsOfOneSecret(t *testing.T) {
	t.Parallel()
	node, secret, site := startMemcached(t), write(t, popKey), origin(t)
	at := func(pop string) *process {
		return start(t, site, "--memcached", node, "--config", write(t, fmt.Sprintf("edge_id: %[1]s\nstate_dir: %[2]s\npop: {name: %[1]s, secret_file: %[3]s}\n"+
			"source: {trust: [127.0.0.0/8]}\nrules: [{name: all, limit: 5, window: 1h, mitigation_timeout: 1h}]\n", pop, t.TempDir(), secret)))
	}
	staging, second := at("staging"), (*process)(nil)
	production := at("production")
	second = start(t, site, "--memcached", node, "--config", write(t, fmt.Sprintf("edge_id: second\npop: {name: staging, secret_file: %s}\n"+
		"source: {trust: [127.0.0.0/8]}\nrules: [{name: all, limit: 5, window: 1h, mitigation_timeout: 1h}]\n", secret)))
	meet(staging, second)
	ask := func(p *process, source string) int {
		resp, _ := p.request("GET", p.front, "/", "", "X-Forwarded-For", source)
		return resp.StatusCode
	}
	for _, a := range []ruleAnswer{
		staging.api("PUT", "/v1/mitigations/all/192.0.2.1", `{"for":"1h"}`),
		staging.api("PUT", "/v1/deny/192.0.2.2/32", `{"for":"1h"}`),
		staging.api("PATCH", "/v1/rules/all", `{"limit":3}`),
	} {
		if a.status != 200 {
			t.Fatalf("%+v", a)
		}
	}
	for range 6 {
		ask(staging, "192.0.2.3")
	}
	for _, p := range []*process{staging, second} {
		p.until("refusing", func() bool {
			return ask(p, "192.0.2.1") == 429 && ask(p, "192.0.2.2") == 403 && ask(p, "192.0.2.3") == 429 && p.api("GET", "/v1/rules/all", "").Limit == 3
		})
	}
	// Its edges read their node many times a second: an order there that held here would have come with these.
	if a := production.api("PUT", "/v1/mitigations/all/192.0.2.9", `{"for":"1h"}`); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	production.until("reading twice", func() bool {
		return production.metric("sluice_tier_edges") == "1" && ask(production, "192.0.2.9") == 429
	})
	for source, want := range map[string]int{"192.0.2.1": 200, "192.0.2.2": 200, "192.0.2.3": 200} {
		if got := ask(production, source); got != want {
			t.Errorf("production answers %s with %d, want %d", source, got, want)
		}
	}
	if limit := production.api("GET", "/v1/rules/all", "").Limit; limit != 5 {
		t.Errorf("the limit at production is %d: staging's", limit)
	}
	if got := ask(staging, "192.0.2.9"); got != 200 {
		t.Errorf("a block at production holds at staging: %d", got)
	}
	for _, p := range []*process{staging, production} {
		if forged := p.metric("sluice_tier_forged_total"); forged != "0" {
			t.Errorf("%s values of the other PoP were read", forged)
		}
	}
}

// A token whose file is replaced is void, also on a connection that is open, and the new one holds; so by a symbolic link that is swapped, as
// Kubernetes does. A file that is empty, or gone, voids nothing, and the log says so.
func TestTokenIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, text := range []string{"the leaked one", "the second one", "the third one"} {
		must(t, os.MkdirAll(filepath.Join(dir, fmt.Sprint(i)), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i), "token"), []byte(text+"\n"), 0o600))
	}
	swap := func(i int) {
		t.Helper()
		must(t, os.Symlink(fmt.Sprint(i), filepath.Join(dir, "draft")))
		must(t, os.Rename(filepath.Join(dir, "draft"), filepath.Join(dir, "data")))
	}
	swap(0)
	programs := freePort(t)
	p := start(t, origin(t), "--config", write(t, fmt.Sprintf("admin_token_file: %[1]s/data/token\nlimit_api: {listen: %[2]q, token_file: %[1]s/data/token}\nrules: [{name: all, limit: 5}]\n", dir, programs)))
	status := func(token string) (both [2]int) {
		for i, at := range []string{p.back + "/v1/rules", programs + "/v1/openapi.json"} {
			r, err := http.NewRequest("GET", "http://"+at, nil)
			must(t, err)
			r.Header.Set("Authorization", "Bearer "+token)
			resp, err := http.DefaultClient.Do(r)
			must(t, err)
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			both[i] = resp.StatusCode
		}
		return both
	}
	good, bad := [2]int{200, 200}, [2]int{401, 401}
	p.until("serving", func() bool { return status("the leaked one") == good })
	swap(1)
	p.until("knowing the new token", func() bool { return status("the second one") == good && status("the leaked one") == bad })
	token := filepath.Join(dir, "1", "token")
	must(t, os.WriteFile(token, nil, 0o600))
	p.until("saying that the file is empty", func() bool { return strings.Count(p.log.String(), "the old token stays valid") == 2 })
	if got := status("the second one"); got != good || status("") != bad {
		t.Errorf("an empty file voids the token, or all: %v", got)
	}
	must(t, os.Remove(token))
	swap(2)
	if err := syscall.Kill(p.cmd.Process.Pid, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.until("knowing the third token", func() bool { return status("the third one") == good && status("the second one") == bad })
	must(t, os.Chmod(filepath.Join(dir, "2", "token"), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "2", "token"), []byte("the fourth one"), 0o644))
	p.until("warning of a file that all can read", func() bool { return strings.Contains(p.log.String(), "every user of this machine can read "+dir) })
	p.until("knowing the fourth token at both", func() bool { return status("the fourth one") == good })
}

// One edge of three with a secret of its own, or with none: it says so and is not ready; the others say so and go on. Once it has the right one all is well.
func TestWrongSecret(t *testing.T) {
	t.Parallel()
	for what, wrong := range map[string][]string{"another": {otherKey}, "none": nil} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newSecretPoP(t)
			for i := range 2 {
				s.give(i, popKey)
				s.start(i)
			}
			meet(s.all()...)
			s.give(2, wrong...)
			odd := s.start(2)
			calls := "digest " + secret.Of([]byte(otherKey)).At("fra1").Digests()[0]
			if wrong == nil {
				calls = "without pop.secret_file"
			}
			var why string
			odd.until("not ready", func() bool {
				var status int
				status, why = odd.admin("GET", "/readyz")
				return status == 503 && odd.apart() == "2 and 0"
			})
			right := secret.Of([]byte(popKey)).At("fra1").Digests()[0]
			if want := "this edge (" + calls + ") has met no other of PoP fra1 with its secret, and others share one: digest " + right + ": edge0 at " + s.edges[0].front + ", edge1 at " + s.edges[1].front; !strings.HasPrefix(why, want) {
				t.Errorf("/readyz: %s\nwant     %s…", why, want)
			}
			for _, l := range s.edges[:2] {
				l.until("warning", func() bool { return l.apart() == "1 and 0" && strings.Contains(l.text(), "count apart") })
				status, ready := l.admin("GET", "/readyz")
				said := l.secret()
				if status != 200 || said.Held || said.Digests[0] != right || len(said.Apart) != 1 || said.Apart[0].Name != "edge2" || !strings.Contains(said.Warning, calls) {
					t.Errorf("%d %s, and %+v", status, ready, said)
				}
				if _, page := l.admin("GET", "/v1/dashboard"); !strings.Contains(page, `"apart":"edges of PoP fra1`) {
					t.Errorf("the dashboard has no word of it: %s", page)
				}
				var out, wrong bytes.Buffer
				if code := run([]string{"status", "--admin", l.back}, &out, &wrong); code != 0 || !strings.Contains(out.String(), "secret    digest "+right+"; edges of PoP fra1 have another secret than this one") {
					t.Errorf("sluice status: exit %d: %s%s", code, out.String(), wrong.String())
				}
			}
			var out, said bytes.Buffer
			if code := run([]string{"status", "--admin", odd.back}, &out, &said); code != 1 || !strings.Contains(out.String(), "this edge ("+calls) {
				t.Errorf("sluice status of the odd one: exit %d: %s%s", code, out.String(), said.String())
			}
			odd.replace() // the process before it is no company, and says that it ends
			http.DefaultClient.CloseIdleConnections()
			odd.until("not ready again", func() bool {
				status, _ := odd.admin("GET", "/readyz")
				return status == 503 && odd.apart() == "2 and 0" && odd.metric("sluice_tier_edges") == "1"
			})
			if wrong != nil {
				s.give(2, popKey, otherKey) // what was said at it comes along
			} else {
				s.give(2, popKey)
				must(t, os.Remove(filepath.Join(s.dir, "state2", "words")))
			}
			odd.replace()
			http.DefaultClient.CloseIdleConnections()
			meet(s.all()...)
			for _, l := range s.edges {
				l.until("at one", func() bool {
					status, _ := l.admin("GET", "/readyz")
					return status == 200 && l.apart() == "0 and 0" && l.secret().Warning == ""
				})
			}
			for _, l := range s.edges[:2] {
				if n := strings.Count(l.text(), "level=WARN msg=\"edges of PoP fra1"); n != 1 {
					t.Errorf("%d warnings, want 1: %s", n, l.text())
				}
			}
		})
	}
}

// A secret changes as docs/operating/changing.md says, one edge after the other, while operators' words are in force, and while they say more at both
// sides. Nothing that they said is lost on any edge at any time, and neither is a block by a limit where the edge is replaced in place.
func TestSecretRotates(t *testing.T) {
	t.Parallel()
	s := newSecretPoP(t)
	for i := range 3 {
		s.give(i, popKey)
		s.start(i)
	}
	meet(s.all()...)
	n := 0
	refused := map[string]int{}             // by source: the status
	speak := func(first, second *lineage) { // a block is said at one edge, and what else at another
		t.Helper()
		n++
		source, denied := fmt.Sprint("192.0.2.", n), fmt.Sprint("198.51.100.", n)
		refused[source], refused[denied] = 429, 403
		for _, a := range []ruleAnswer{
			first.api("PUT", "/v1/mitigations/all/"+source, `{"for":"1h"}`),
			second.api("PUT", "/v1/deny/"+denied+"/32", `{"for":"1h"}`),
			second.api("PATCH", "/v1/rules/login", fmt.Sprintf(`{"limit":%d}`, 50-n)),
		} {
			if a.status != 200 {
				t.Fatalf("%+v", a)
			}
		}
	}
	ask := func(l *lineage, path, source string, header ...string) int {
		resp, _ := l.request("GET", l.front, path, "", append(header, "X-Forwarded-For", source)...)
		return resp.StatusCode
	}
	thief := "" // the digest of a key that an operator has blocked
	check := func(what string) {
		t.Helper()
		for i, l := range s.edges {
			l.until(fmt.Sprintf("obeying on edge %d, %s", i, what), func() bool {
				for source, want := range refused {
					if ask(l, "/", source) != want {
						return false
					}
				}
				return l.api("GET", "/v1/rules/login", "").Limit == 50-n && (thief == "" || ask(l, "/api", "203.0.113.99", "X-Api-Key", "a thief") == 429)
			})
		}
	}
	s.edges[0].until("blocking a key", func() bool {
		ask(s.edges[0], "/api", "203.0.113.99", "X-Api-Key", "a thief")
		_, text := s.edges[0].admin("GET", "/v1/mitigations")
		thief = regexp.MustCompile(`"#([0-9a-f]{32})"`).FindString(text)
		return thief != ""
	})
	thief = strings.Trim(thief, "\"#")
	if a := s.edges[0].api("PUT", "/v1/mitigations/api/%23"+thief, `{"for":"1h"}`); a.status != 200 {
		t.Fatalf("%+v", a)
	}
	speak(s.edges[1], s.edges[2])
	check("before")
	const crawler = "203.0.113.7"
	for range 60 {
		ask(s.edges[0], "/login", crawler)
	}
	if !everywhere(s.all(), func(p *process) bool { return p.blockedBy(crawler) != "" }) {
		t.Fatal("no limit blocks who crawls")
	}

	// No edge is asked to be replaced when its file changes, but it says that it wants to be.
	s.give(0, otherKey, popKey)
	if status, _ := s.edges[0].admin("POST", "/v1/reload"); status != 200 || !strings.Contains(s.edges[0].text(), "pop.secret_file has changed: this process goes on with what it had") {
		t.Errorf("%d: %s", status, s.edges[0].text())
	}
	waits := func(want string, changed, wrong string) {
		t.Helper()
		l := s.edges[0]
		l.until("saying how its file is", func() bool {
			return l.metric(`sluice_pop_secret_waiting\{why="changed"\}`) == changed && l.metric(`sluice_pop_secret_waiting\{why="wrong"\}`) == wrong
		})
		l.until("saying in its status: "+want, func() bool {
			var out, said bytes.Buffer
			run([]string{"status", "--admin", l.back}, &out, &said)
			return (want == "") != strings.Contains(out.String(), "pop.secret_file") && strings.Contains(out.String(), want)
		})
	}
	waits("pop.secret_file has changed: this process goes on with what it had until it is replaced in place (SIGUSR2) or restarted", "1", "0")
	for _, wrong := range []string{"", "short\n"} {
		must(t, os.WriteFile(filepath.Join(s.dir, "secret0"), []byte(wrong), 0o600))
		waits("pop.secret_file is wrong: this process goes on with what it had", "0", "1")
	}
	must(t, os.Remove(filepath.Join(s.dir, "secret0")))
	waits("no such file", "0", "1")
	check("with a wrong file")
	s.give(0, otherKey, popKey)
	waits("pop.secret_file has changed", "1", "0")
	s.give(0, popKey)
	waits("", "0", "0")
	if status, _ := s.edges[0].admin("POST", "/v1/reload"); status != 200 || strings.Count(s.edges[0].text(), "pop.secret_file has changed") != 1 ||
		!strings.Contains(s.edges[0].text(), "pop.secret_file has what this process goes on with again") {
		t.Errorf("the file is as it was: %d: %s", status, s.edges[0].text())
	}
	step := func(what string, lines ...string) {
		t.Helper()
		for i, l := range s.edges {
			s.give(i, lines...)
			l.replace()
			http.DefaultClient.CloseIdleConnections()
			check(fmt.Sprintf("%s, with %d replaced", what, i+1))
			if ask(l, "/login", crawler) != 429 {
				t.Errorf("%s: edge %d admits whom a limit had blocked", what, i)
			}
			if i == 2 {
				break // nobody is at the other side any more
			}
			speak(s.edges[2*i], s.edges[2-2*i])
			check(fmt.Sprintf("%s, with %d replaced, and more said", what, i+1))
			if len(lines) == 2 {
				l.until("seeing that others count apart", func() bool { return l.apart() != "0 and 0" })
			}
		}
		meet(s.all()...)
		for _, l := range s.edges {
			l.until("at one", func() bool { return l.apart() == "0 and 0" })
			if status, why := l.admin("GET", "/readyz"); status != 200 || l.metric("sluice_tier_forged_total") != "0" {
				t.Errorf("%s: %d %s, forged %s", what, status, why, l.metric("sluice_tier_forged_total"))
			}
			if strings.Contains(l.text(), "have another secret") {
				t.Errorf("%s: an edge takes another for a stranger: %s", what, l.text())
			}
		}
	}
	step("both lines", otherKey, popKey)

	// What is sealed under the old one is read, and written anew.
	for i := range s.edges {
		state := filepath.Join(s.dir, fmt.Sprint("state", i), "words")
		s.edges[i].until("sealing its state anew", func() bool {
			text, err := os.ReadFile(state)
			_, ok := secret.Of([]byte(otherKey)).At("fra1").Open(secret.OperatorList, text)
			return err == nil && ok
		})
	}
	// What clients send has another digest under the new line alone, so who is blocked by it must be blocked anew.
	if a := s.edges[0].api("DELETE", "/v1/mitigations/api/%23"+thief, ""); a.status != 200 {
		t.Errorf("%+v", a)
	}
	thief = ""
	step("the new line", otherKey)

	// And every process may end.
	for _, l := range s.edges {
		l.signal(syscall.SIGTERM)
	}
	for i, l := range s.edges {
		pids := l.pids()
		l.until("ended", func() bool { return syscall.Kill(pids[len(pids)-1], 0) != nil })
		s.start(i)
	}
	check("after a restart of all")
}

// The commands that docs/operating/rotation.md has for a token give an edge that runs a new one, which its owner alone can read.
func TestRotationPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operating/rotation.md")
	must(t, err)
	blocks := slices.DeleteFunc(pages.Blocks(string(text)), func(b pages.Block) bool { return b.Kind != "sh" })
	if len(blocks) == 0 || !strings.Contains(blocks[0].Text, "/etc/sluice/admin.token.new") {
		t.Fatalf("the page has no commands for a token: %+v", blocks)
	}
	dir := t.TempDir()
	token := filepath.Join(dir, "admin.token")
	must(t, os.WriteFile(token, []byte("the leaked one\n"), 0o600))
	p := start(t, origin(t), "--config", write(t, "admin_token_file: "+token+"\nrules: [{name: all, limit: 5}]\n"))
	status := func(token string) int {
		r, err := http.NewRequest("GET", "http://"+p.back+"/v1/rules", nil)
		must(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		must(t, err)
		resp.Body.Close()
		return resp.StatusCode
	}
	p.until("serving", func() bool { return status("the leaked one") == 200 })
	if out, err := exec.Command("sh", "-e", "-c", strings.ReplaceAll(blocks[0].Text, "/etc/sluice", dir)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	about, err := os.Stat(token)
	must(t, err)
	fresh, err := os.ReadFile(token)
	must(t, err)
	if about.Mode().Perm() != 0o600 || len(fresh) < 40 {
		t.Errorf("the new token has mode %v and %d bytes", about.Mode(), len(fresh))
	}
	p.until("knowing the new token", func() bool { return status(strings.TrimSpace(string(fresh))) == 200 && status("the leaked one") == 401 })
}
