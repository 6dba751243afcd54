package challenge_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/edgetest"
	"sluice/edge/modules/challenge"
	"sluice/edge/rules"
)

// A site is an edge whose rules may challenge, with its origin.
type site struct {
	*edgetest.Edge
	origin *edgetest.Recorder
}

var secret = [][16]byte{{1, 2, 3}}

func start(t *testing.T, yaml string) *site {
	t.Helper()
	use := edge.Modules{challenge.Module(secret), challenge.WhenModule()}
	c, err := (config.Parser{Modules: use.Config()}).Parse("f",
		[]byte("source: {trust: [127.0.0.1]}\n"+yaml))
	edgetest.Must(t, err)
	o := edgetest.StartRecorder(t, edgetest.Hello)
	c.Origins = edgetest.WithoutRules(t, o.URL()).Origins
	return &site{edgetest.Serve(t, edgetest.NewServer(t, c, edgetest.Using(use...))), o}
}

const (
	html = "Accept: text/html,application/xhtml+xml,*/*;q=0.8"
	rule = `rules:
- name: pages
  match: {path: /search}
  key: path
  limit: 2
  window: 1h
  action: challenge
  challenge: {difficulty: 6, pass_limit: 3}
`
)

func from(addr string) string { return "X-Forwarded-For: " + addr }

var asked = regexp.MustCompile(`data-question="([^"]+)" data-bits=(\d+) data-path=(\S+) `)

// ask is a request, at example.com unless a header names another host.
func (s *site) ask(method, path string, header ...string) (*http.Response, string) {
	s.T.Helper()
	c := s.Talk()
	defer c.Close()
	host := "Host: example.com"
	if i := slices.IndexFunc(header, func(h string) bool { return strings.HasPrefix(h, "Host:") }); i >= 0 {
		host, header = header[i], slices.Delete(slices.Clone(header), i, i+1)
	}
	if method == http.MethodPost {
		header = append(slices.Clone(header), "Content-Length: 0")
	}
	return c.Say(method + " " + path + " HTTP/1.1\r\n" + edgetest.Lines(append([]string{host},
		header...)) + "\r\n")
}

// question is what a page asks.
func question(t *testing.T, page string) (text string, bits int) {
	t.Helper()
	found := asked.FindStringSubmatch(page)
	if found == nil || found[3] != challenge.Path {
		t.Fatalf("no question in\n%s", page)
	}
	bits, err := strconv.Atoi(found[2])
	edgetest.Must(t, err)
	return found[1], bits
}

// solve answers what a page asks as its script does, and returns the cookie.
func (s *site) solve(page string) (cookie string) {
	s.T.Helper()
	text, bits := question(s.T, page)
	return s.send(text + "." + string(challenge.Solve([]byte(text), bits)))
}

func (s *site) send(answer string, header ...string) (cookie string) {
	s.T.Helper()
	resp, body := s.ask(http.MethodPost, challenge.Path,
		append(header, challenge.AnswerHeader+": "+answer)...)
	if set := resp.Cookies(); resp.StatusCode == http.StatusNoContent && len(set) == 1 &&
		set[0].HttpOnly && set[0].SameSite == http.SameSiteLaxMode && !set[0].Secure &&
		resp.Header.Get("Cache-Control") == "no-store" {
		return "Cookie: " + set[0].Name + "=" + set[0].Value
	}
	s.T.Logf("answer: %d %v %s", resp.StatusCode, resp.Header, body)
	return ""
}

// over has others bring the path over its limit.
func (s *site) over() {
	s.T.Helper()
	for i := range 3 {
		s.ask(http.MethodGet, "/search", from("192.0.2."+strconv.Itoa(i)))
	}
}

func (s *site) want(name string, status int, text, path string, header ...string) (http.Header,
	string) {
	s.T.Helper()
	resp, body := s.ask(http.MethodGet, path, header...)
	if resp.StatusCode != status || !strings.Contains(body, text) {
		s.T.Errorf("%s: %d %s; want %d, %q", name, resp.StatusCode, body, status, text)
	}
	return resp.Header, body
}

func TestWhoIsOverIsChallenged(t *testing.T) {
	s := start(t, rule)
	s.want("within the limit", 200, "hello", "/search", html)
	s.over()
	h, page := s.want("a browser", 429, "One moment", "/search?q=a", html, from("192.0.2.77"))
	for name, want := range map[string]string{"Cache-Control": "no-store",
		"Content-Type": "text/html; charset=utf-8", "RateLimit-Policy": `"pages";q=2;w=3600`,
		"Vary": "Accept, Accept-Language, Cookie"} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if h.Get("Retry-After") == "" || !strings.Contains(h.Get("Content-Security-Policy"),
		"worker-src blob:") {
		t.Errorf("header %v", h)
	}
	s.want("a German", 429, "Einen Moment", "/search", html, "Accept-Language: de-AT, en;q=0.5")
	s.want("a program", 429, `{"error":{"code":"challenge","rule":"pages","message":"`, "/search")
	s.want("a program", 429, `later.","retry_after":3`, "/search")
	s.want("another page", 200, "hello", "/", html)
	if resp, body := s.ask(http.MethodPost, "/search", html); resp.StatusCode != 429 ||
		strings.Contains(body, "<script") || !strings.Contains(body, "send it once more") {
		t.Errorf("a form: %d %s", resp.StatusCode, body)
	}
	pass := s.solve(page)
	if pass == "" {
		t.Fatal("the answer makes no pass")
	}
	s.want("with a pass", 200, "hello", "/search?q=a", html, pass)
	s.want("from elsewhere", 200, "hello", "/search", pass, from("203.0.113.5"))
	s.want("a third time", 200, "hello", "/search", "Cookie: a=b; "+pass[len("Cookie: "):]+"; c=d")
	_, body := s.want("over its own limit", 429, `"code":"rate_limited"`, "/search", html, pass)
	if !strings.Contains(body, `"scope":"pass"`) {
		t.Errorf("over its own limit: %s", body)
	}
	s.want("without", 429, "One moment", "/search", html)
	if last := s.origin.LastRequest(); !strings.Contains(last, "Cookie: a=b; c=d\r\n") {
		t.Errorf("the origin sees %s", last)
	}
	if all := strings.Join(s.origin.Requests(), ""); strings.Contains(all, "sluice_pass") {
		t.Errorf("the origin sees a pass:\n%s", all)
	}
	m := s.Rest()
	for labels, want := range map[string]float64{"result=shown,rule=pages": 8,
		"result=solved,rule=pages": 1, "result=passed,rule=pages": 4,
		"result=refused,rule=pages": 0, "result=refused,rule=": 0} {
		if got := m["sluice_challenges_total{"+labels+"}"]; got != want {
			t.Errorf("%s: %v, want %v", labels, got, want)
		}
	}
}

// Answering again makes the same pass, under the same limit.
func TestReplayedAndForgedAnswers(t *testing.T) {
	s := start(t, rule)
	s.over()
	_, page := s.want("a browser", 429, "One moment", "/search", html)
	text, bits := question(t, page)
	answer := text + "." + string(challenge.Solve([]byte(text), bits))
	first := s.send(answer)
	if again := s.send(answer, from("203.0.113.9")); first == "" || again != first {
		t.Errorf("the same answer makes %q, then %q", first, again)
	}
	for name, answer := range map[string]string{"nothing": "", "a question": text,
		"a wrong number": text + ".x", "a forged question": "A" + text[1:] + answer[len(text):]} {
		if got := s.send(answer); got != "" {
			t.Errorf("%s makes %s", name, got)
		}
	}
	if got := s.send(answer, "Host: other.example"); got != "" {
		t.Errorf("an answer for another host makes %s", got)
	}
	s.want("a pass at another host", 429, "One moment", "/search", html, first,
		"Host: other.example")
	s.want("a forged pass", 429, "One moment", "/search", html, first[:len(first)-1]+"_")
	check := func(name string, status int, header ...string) {
		t.Helper()
		if resp, _ := s.ask(http.MethodGet, challenge.Path, header...); resp.StatusCode != status {
			t.Errorf("%s: %d, want %d", name, resp.StatusCode, status)
		}
	}
	check("the pass came back", 204, first)
	check("it did not", 403)
	if resp, _ := s.ask(http.MethodPut, challenge.Path); resp.StatusCode != 405 {
		t.Errorf("PUT: %d", resp.StatusCode)
	}
	if n := len(s.origin.Requests()); n != 2 {
		t.Errorf("the origin saw %d requests, want those within the limit", n)
	}
}

// A proxy that asks for a verdict sends on what gets a success, so what would be an answer to a
// challenge, or shows a pass, is judged by the rules as all else is.
func TestCheckOfAnAnswer(t *testing.T) {
	s := start(t, "check_path: /check/*\n"+rule+"- {name: all, limit: 8, window: 1h}\n")
	s.over()
	_, page := s.ask(http.MethodGet, "/search", html, from("192.0.2.7"))
	pass := s.solve(page)
	text, bits := question(t, page)
	answer := challenge.AnswerHeader + ": " + text + "." + string(challenge.Solve([]byte(text), bits))
	for i := range 9 {
		want := http.StatusOK
		if i == 8 {
			want = http.StatusTooManyRequests
		}
		for client, check := range map[string][2]string{"192.0.2.8": {http.MethodGet, pass},
			"192.0.2.9": {http.MethodPost, answer}} {
			if resp, _ := s.ask(check[0], "/check"+challenge.Path, check[1], from(client)); resp.StatusCode != want {
				t.Errorf("%d. check of a %s: %d, want %d", i, check[0], resp.StatusCode, want)
			}
		}
	}
}

// What other rules refuse stays refused, with a pass or without.
func TestOtherRulesRefuse(t *testing.T) {
	s := start(t, rule+`- {name: each, limit: 4, window: 1h}
`)
	s.over()
	_, page := s.want("a browser", 429, "One moment", "/search", html, from("203.0.113.1"))
	pass := s.solve(page)
	for range 4 {
		s.want("other pages", 200, "hello", "/", from("203.0.113.1"))
	}
	s.want("over the limit of each", 429, `"rule":"each"`, "/", html, from("203.0.113.1"))
	s.want("blocked by each", 429, `"rule":"each"`, "/search", html, from("203.0.113.1"))
	s.want("with a pass", 429, `"rule":"each"`, "/search", html, pass, from("203.0.113.1"))
	s.want("another", 429, "One moment", "/search", html, from("203.0.113.2"))
}

// What an operator has blocked is refused, with a pass as well.
func TestOperatorsBlocksHold(t *testing.T) {
	s := start(t, rule)
	s.over()
	_, page := s.want("a browser", 429, "One moment", "/search", html, from("203.0.113.1"))
	pass := s.solve(page)
	s.want("with a pass", 200, "hello", "/search", html, pass, from("203.0.113.1"))
	path := s.Mitigations(time.Now())[0].Source
	_, err := s.Block("pages", path, time.Hour, "", control.Operator{}, time.Now())
	edgetest.Must(t, err)
	s.want("blocked", 429, `"code":"blocked"`, "/search", html)
	s.want("blocked with a pass", 429, `"code":"blocked"`, "/search", html, pass)
}

// One source, however hard it tries, brings nobody under a challenge where its own limit is lower.
func TestOneSourceIsNoWeapon(t *testing.T) {
	s := start(t, `rules:
- {name: pages, match: {path: /search}, key: path, limit: 20, window: 1h, action: challenge}
- {name: each, limit: 5, window: 1h, mitigation_timeout: 1h}
`)
	for range 200 {
		s.ask(http.MethodGet, "/search", html, from("203.0.113.1"))
	}
	s.want("a visitor", 200, "hello", "/search", html, from("203.0.113.2"))
}

// A shadow challenges nobody, and a pass is no part of it.
func TestShadowChallengesNobody(t *testing.T) {
	s := start(t, strings.Replace(rule, "  action", "  mode: shadow\n  action", 1))
	s.over()
	s.want("a browser", 200, "hello", "/search", html)
	if n := s.Rest()["sluice_challenges_total{result=shown,rule=pages}"]; n != 0 {
		t.Errorf("%v are asked", n)
	}
}

// A rule by pass counts each pass, and who has none by source.
func TestKeyPass(t *testing.T) {
	s := start(t, rule+`- {name: each, match: {path: /search}, key: pass, limit: 2, window: 1h}
`)
	s.over()
	_, page := s.want("a browser", 429, "One moment", "/search", html, from("203.0.113.1"))
	pass := s.solve(page)
	s.want("first", 200, "hello", "/search", pass, from("203.0.113.1"))
	s.want("second", 200, "hello", "/search", pass, from("203.0.113.2"))
	s.want("third", 429, `"rule":"each"`, "/search", pass, from("203.0.113.3"))
}

func TestOwnPageAndStatus(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.html")
	edgetest.Must(t, os.WriteFile(file, []byte("<!doctype html><title>Our shop</title>{{challenge}}"), 0o600))
	s := start(t, strings.Replace(rule, "difficulty: 6",
		"difficulty: 6, status: 503, bind: network, page: "+file+", contact: 'Call 555-0100.'", 1))
	s.over()
	_, page := s.want("a browser", 503, "Our shop", "/search", html, from("203.0.113.1"))
	if !strings.Contains(page, "Call 555-0100.") {
		t.Errorf("no contact:\n%s", page)
	}
	pass := s.send(func() string {
		text, bits := question(t, page)
		return text + "." + string(challenge.Solve([]byte(text), bits))
	}(), from("203.0.113.77"))
	s.want("in its network", 200, "hello", "/search", pass, from("203.0.113.200"))
	s.want("in another", 503, "Our shop", "/search", html, pass, from("198.51.100.1"))
}

// check says how few sources it takes to have everybody challenged.
func TestFewSourcesAreAWarning(t *testing.T) {
	use := edge.Modules{challenge.Module(secret)}
	const page = "rules:\n- {name: page, match: {path: /search}, key: path, limit: 120, action: challenge}\n"
	for name, test := range map[string]struct{ more, want string }{
		"none by source": {"", "one source can bring it there"},
		"a shadow":       {"- {name: each, limit: 3, mode: shadow}\n", "one source can bring it there"},
		"a limit above":  {"- {name: each, limit: 200}\n", "no more than 1 sources at their limit (rule each)"},
		"a few":          {"- {name: each, limit: 40}\n", "no more than 4 sources at their limit (rule each)"},
		"in seconds":     {"- {name: each, limit: 1, window: 1s}\n", "no more than 3 sources at their limit (rule each)"},
		"of several the lowest": {"- {name: each, limit: 100}\n" +
			"- {name: search, match: {path: /search}, limit: 40}\n", "no more than 4 sources at their limit (rule search)"},
		"many": {"- {name: each, limit: 12}\n", ""},
		"nothing but forms": {"- {name: form, match: {methods: [POST]}, limit: 9, action: challenge}\n",
			"rule form challenges POST alone"},
	} {
		c, err := (config.Parser{Modules: use.Config()}).Parse("f", []byte(page+test.more))
		edgetest.Must(t, err)
		got := strings.Join(c.Warnings(), "\n")
		if test.want == "" {
			test.want = "challenges all clients"
			if strings.Contains(got, test.want) {
				t.Errorf("%s: %s", name, got)
			}
		} else if !strings.Contains(got, test.want) {
			t.Errorf("%s: %q; want %q", name, got, test.want)
		}
	}
}

func TestWrongConfigurations(t *testing.T) {
	use := edge.Modules{challenge.Module(secret), challenge.WhenModule()}
	for name, c := range map[string]struct{ yaml, want string }{
		"without the action": {"rules: [{name: r, limit: 1, challenge: {difficulty: 9}}]",
			"only action: challenge asks"},
		"a status": {"rules: [{name: r, limit: 1, action: challenge, challenge: {status: 404}}]",
			"want 429, 403 or 503"},
		"a guessable secret": {"pop: {memcached: [\"10.0.0.1:11211\"]}\n" +
			"rules: [{name: r, limit: 1, action: challenge}]", "give pop.secret_file"},
		"an algorithm": {"rules: [{name: r, limit: 1, algorithm: token_bucket, action: challenge}]",
			"sliding or fixed windows"},
		"two secrets": {"rules: [{name: r, limit: 1, action: challenge}, {name: s, limit: 1, action: challenge, challenge: {secret_file: a}}]",
			"give both the same"},
		"a concurrency": {"rules: [{name: r, limit: 1, concurrency: 1, action: challenge}]",
			"requests in flight"},
		"when of another action": {"rules: [{name: r, limit: 1, when: {origin_latency_p95: 1s}}]",
			"it is about action: challenge"},
		"a key that nobody has": {"rules: [{name: r, key: pass, limit: 1}, {name: s, limit: 1, action: challenge, mode: \"off\"}]",
			"24: key: nobody has a pass"},
		"when of nothing": {"rules: [{name: r, limit: 1, action: challenge, when: {}}]",
			"give origin_latency_p95"},
		"a difficulty": {"rules: [{name: r, limit: 1, action: challenge, challenge: {difficulty: 21}}]",
			"1 to 20"},
	} {
		parsed, err := (config.Parser{Modules: use.Config()}).Parse("f",
			[]byte("origins: [{servers: [\"http://127.0.0.1:1\"]}]\n"+c.yaml))
		if err == nil {
			err = parsed.Check()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// While one secret of passes replaces another, passes of both are good.
func TestSecretFileHasTwoLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	write := func(lines ...string) {
		edgetest.Must(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	}
	old, newer := strings.Repeat("a", 32), strings.Repeat("b", 32)
	write(old)
	yaml := strings.Replace(rule, "difficulty: 6", "difficulty: 6, secret_file: "+file, 1)
	s := start(t, yaml)
	s.over()
	_, page := s.want("a browser", 429, "One moment", "/search", html)
	pass := s.solve(page)
	reload := func(lines ...string) {
		t.Helper()
		write(lines...)
		edgetest.Must(t, s.Apply(s.Config()))
	}
	s.want("with a pass", 200, "hello", "/search", html, pass)
	reload(newer, old)
	s.want("after the first step", 200, "hello", "/search", html, pass)
	reload(newer)
	s.want("after the second", 429, "One moment", "/search", html, pass)
	write("short")
	if err := s.Apply(s.Config()); err == nil || !strings.Contains(err.Error(), "5 bytes") {
		t.Errorf("a short secret: %v", err)
	}
}

// A pass that may be shown from two networks ends with the third.
func TestPassOfManyNetworks(t *testing.T) {
	s := start(t, strings.Replace(rule, "pass_limit: 3", "pass_limit: 30, networks: 2", 1))
	s.over()
	_, page := s.want("a browser", 429, "One moment", "/search", html, from("203.0.113.1"))
	pass := s.solve(page)
	s.want("at home", 200, "hello", "/search", html, pass, from("203.0.113.1"))
	s.want("its neighbour", 200, "hello", "/search", html, pass, from("203.0.113.9"))
	s.want("under way", 200, "hello", "/search", html, pass, from("2001:db8::1"))
	s.want("at home again", 200, "hello", "/search", html, pass, from("203.0.113.1"))
	s.want("in a third network", 429, "One moment", "/search", html, pass, from("198.51.100.1"))
	s.want("it has ended", 429, "One moment", "/search", html, pass, from("203.0.113.1"))
	_, page = s.want("a new one", 429, "One moment", "/search", html, from("203.0.113.1"))
	s.want("with it", 200, "hello", "/search", html, s.solve(page), from("203.0.113.1"))
	m := s.Rest()
	if got := m["sluice_challenges_total{result=refused,rule=pages}"]; got != 2 {
		t.Errorf("%v passes are refused, want 2", got)
	}
}

// A cookie with the pass's name in it is none, and is for the origin.
func TestOtherCookies(t *testing.T) {
	s := start(t, rule)
	s.want("another cookie", 200, "hello", "/", "Cookie: my_sluice_pass=1; a=sluice_pass")
	if last := s.origin.LastRequest(); !strings.Contains(last, "my_sluice_pass=1; a=sluice_pass\r\n") {
		t.Errorf("the origin sees %s", last)
	}
	if n := s.Rest()["sluice_challenges_total{result=refused,rule=}"]; n != 0 {
		t.Errorf("%v passes are refused", n)
	}
}

// A site under the same domain can set as many cookies as a browser takes of one domain, and its
// longer paths have them sent first. A pass that is good is found behind all of them.
func TestNeighboursCookiesLockNobodyOut(t *testing.T) {
	s := start(t, rule)
	s.over()
	_, page := s.want("a browser", 429, "One moment", "/search", html)
	_, mine, _ := strings.Cut(s.solve(page), ": ")
	_, value, _ := strings.Cut(mine, "=")
	for _, junk := range []string{"sluice_pass=x; ", "sluice_pass=" + value[:len(value)-1] + "_; "} {
		many := "Cookie: " + strings.Repeat(junk, 179) + mine
		s.want("behind others", 200, "hello", "/search", html, many)
		if last := s.origin.LastRequest(); strings.Contains(last, "sluice_pass") {
			t.Errorf("the origin sees %s", last)
		}
	}
}

// Over TLS the cookie's name is one that only the host itself can set, so that a neighbour's pass is
// no visitor's: he would share its limit with whoever else shows it.
func TestNeighboursPassIsNotTakenOverTLS(t *testing.T) {
	s := start(t, rule)
	client, at := edgetest.OverHTTP2(t), s.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))
	s.over()
	ask := func(method, path string, header ...string) (*http.Response, string) {
		t.Helper()
		return edgetest.Ask2(t, client, method, "https://"+at+path, nil, func(r *http.Request) {
			r.Host = "example.com"
			for i := 0; i < len(header); i += 2 {
				r.Header.Set(header[i], header[i+1])
			}
		})
	}
	_, page := ask("GET", "/search", "Accept", "text/html")
	text, bits := question(t, page)
	resp, _ := ask("POST", challenge.Path, challenge.AnswerHeader,
		text+"."+string(challenge.Solve([]byte(text), bits)))
	set := resp.Cookies()
	if len(set) != 1 || set[0].Name != "__Host-sluice_pass" || !set[0].Secure ||
		set[0].Path != "/" || set[0].Domain != "" {
		t.Fatalf("cookies %v", set)
	}
	for cookie, want := range map[string]int{
		"__Host-sluice_pass=" + set[0].Value:                          200,
		"sluice_pass=" + set[0].Value:                                 429,
		"sluice_pass=" + set[0].Value + "; a=b":                       429,
		"sluice_pass=x; __Host-sluice_pass=" + set[0].Value + "; a=b": 200,
	} {
		resp, body := ask("GET", "/search", "Accept", "text/html", "Cookie", cookie)
		if resp.StatusCode != want {
			t.Errorf("%s: %d %.100s, want %d", cookie, resp.StatusCode, body, want)
		}
		if last := s.origin.LastRequest(); strings.Contains(last, "sluice_pass") {
			t.Errorf("the origin sees %s", last)
		}
	}
}

// By hand a rule challenges everybody, over its limit or not, until that is ended.
func TestEverybodyIsChallengedByHand(t *testing.T) {
	s := start(t, strings.Replace(rule, "limit: 2", "limit: 100", 1)+
		"- {name: each, limit: 50, window: 1h}\n")
	put := func(rule, source string) error {
		_, err := s.Block(rule, source, time.Hour, "", control.Operator{Who: "ann"}, time.Now())
		return err
	}
	s.want("before", 200, "hello", "/search", html)
	edgetest.Must(t, put("pages", "*"))
	_, page := s.want("a browser", 429, "One moment", "/search", html)
	s.want("another", 429, "One moment", "/search", html, from("192.0.2.1"))
	s.want("a program", 429, `"code":"challenge"`, "/search")
	s.want("another page", 200, "hello", "/", html)
	pass := s.solve(page)
	s.want("with a pass", 200, "hello", "/search", html, pass)
	if on := s.OnEverybody(time.Now()); len(on) != 1 || on[0].Rule != "pages" ||
		on[0].Source != "*" || on[0].Who != "ann" {
		t.Errorf("in force against everybody: %+v", on)
	}
	if list := s.Mitigations(time.Now()); len(list) != 1 || list[0].Source != "*" {
		t.Errorf("blocks: %+v", list)
	}
	for _, rule := range []string{"each", "*"} {
		if err := put(rule, "*"); err == nil {
			t.Errorf("everybody is blocked under %s", rule)
		}
	}
	_, err := s.Lift("pages", "*", control.Operator{}, time.Now())
	edgetest.Must(t, err)
	s.want("after", 200, "hello", "/search", html, from("192.0.2.1"))
}

// A rule that no longer challenges refuses nobody because it had challenged everybody.
func TestChallengeOfEverybodyEndsWithTheAction(t *testing.T) {
	yaml := strings.Replace(rule, "limit: 2", "limit: 100", 1) +
		"- {name: other, match: {path: /other}, key: path, limit: 100, action: challenge}\n"
	s := start(t, yaml)
	_, err := s.Block("pages", "*", time.Hour, "", control.Operator{Who: "ann"}, time.Now())
	edgetest.Must(t, err)
	s.want("a browser", 429, "One moment", "/search", html)
	for change, on := range map[string]int{"action: refuse": 0, "action: close": 0,
		"action: challenge\n  mode: shadow": 1} {
		edgetest.Must(t, s.Reload("source: {trust: [127.0.0.1]}\n"+strings.Replace(yaml,
			"  action: challenge\n  challenge: {difficulty: 6, pass_limit: 3}\n",
			"  "+change+"\n", 1)))
		s.want(change, 200, "hello", "/search", html)
		o := s.Overview(9, nil, time.Now())
		if n, m, all := len(s.OnEverybody(time.Now())), len(s.Mitigations(time.Now())), o.Blocked.InForce+o.Shadow.InForce; n != on || m != on || all != on {
			t.Errorf("%s: %d rules challenge everybody, %d blocks are shown, and %d counted, want %d", change, n, m, all, on)
		}
	}
	edgetest.Must(t, s.Reload("source: {trust: [127.0.0.1]}\n"+yaml))
	s.want("it challenges again", 429, "One moment", "/search", html)
}

// A rule that challenges is tried as one that refuses: whom it would refuse it would challenge.
func TestChallengeIsTriedAsARefusal(t *testing.T) {
	s := start(t, rule)
	tried, err := s.Config().ParseRule("t", []byte(
		`{"limit": 1, "key": "path", "action": "challenge", "challenge": {"difficulty": 6}}`))
	edgetest.Must(t, err)
	tried, err = rules.Triable(tried)
	edgetest.Must(t, err)
	if tried.Action != rules.Refuse || tried.Mode != rules.Shadow {
		t.Errorf("tried with action %s, mode %s", tried.Action, tried.Mode)
	}
	defaults := s.Config().RuleDefaults()
	set, err := rules.New(nil, defaults, nil)
	edgetest.Must(t, err)
	edgetest.Must(t, set.Try([]rules.Trial{{Config: tried}}, defaults))
	if len(set.Trials) != 1 || set.Trials[0].ForEverybody() {
		t.Errorf("%d rules are tried", len(set.Trials))
	}
}

// A connection whose client was refused is judged before its head is shown: questions and answers
// are the same there.
func TestChallengeOnAConnectionOfMany(t *testing.T) {
	s := start(t, rule+"- {name: each, match: {path: /other}, limit: 1, window: 1h}\n")
	s.over()
	c := s.Talk()
	defer c.Close()
	say := func(method, path string, header ...string) (int, string) {
		if method == http.MethodPost {
			header = append(header, "Content-Length: 0")
		}
		resp, body := c.Say(method + " " + path + " HTTP/1.1\r\n" + edgetest.Lines(append([]string{
			"Host: example.com", from("203.0.113.1")}, header...)) + "\r\n")
		if set := resp.Cookies(); len(set) > 0 {
			return resp.StatusCode, "Cookie: " + set[0].Name + "=" + set[0].Value
		}
		return resp.StatusCode, body
	}
	for range 3 {
		say(http.MethodGet, "/other")
	}
	_, page := say(http.MethodGet, "/search", html)
	text, bits := question(t, page)
	status, pass := say(http.MethodPost, challenge.Path, challenge.AnswerHeader+": "+text+"."+
		string(challenge.Solve([]byte(text), bits)))
	if status != http.StatusNoContent {
		t.Fatalf("an answer: %d %s", status, pass)
	}
	if status, body := say(http.MethodGet, "/search", html, pass); status != http.StatusOK {
		t.Errorf("with the pass: %d %s", status, body)
	}
}
