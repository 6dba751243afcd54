package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/loadgen/judge"
	"sluice/loadgen/report"
	"sluice/loadgen/whatif"
)

// someLog is an access log: a source that guesses passwords every two seconds, one that looks at three pages a second for ten
// seconds, and one of a kind.
func someLog(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	line := func(at time.Time, addr, request string, status int) {
		fmt.Fprintf(&b, "%s - - [%s] %q %d 0\n", addr, at.Format("02/Jan/2006:15:04:05 -0700"), request, status)
	}
	start := time.Date(2021, 3, 15, 7, 0, 0, 0, time.UTC)
	for s := range 60 {
		at := start.Add(time.Duration(s) * time.Second)
		if s%2 == 0 {
			line(at, "192.0.2.1", "POST /login HTTP/1.1", 401)
		}
		if s >= 20 && s < 30 {
			for range 3 {
				line(at, "198.51.100.2", "GET /page?n=1 HTTP/1.1", 200)
			}
		}
		if s%10 == 5 {
			line(at, "203.0.113.3", "POST /login HTTP/1.1", 200)
		}
	}
	name := filepath.Join(t.TempDir(), "access.log")
	must(t, os.WriteFile(name, []byte(b.String()), 0o666))
	return name
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "sluice.yaml")
	must(t, os.WriteFile(name, []byte(text), 0o666))
	return name
}

// asked is the part of the JSON that the tests look at.
type asked struct {
	Run     struct{ Notes []string }
	Figures struct {
		Requests, Refused, Malformed, Challenged uint64
		RefusedSources                           int `json:"refused_sources"`
		ChallengedSources                        int `json:"challenged_sources"`
	}
	Rules []struct {
		Name, About, Lacks                string
		Shadow, Challenges                bool
		Over                              int
		Delay                             judge.Quantiles
		Queue                             float64
		Requests, Refused, Blocks         uint64
		First, Last                       time.Time
		RefusedSources, MitigationTimeout float64
	}
	Refused []struct {
		Source, Rule string
		Challenged   bool
	}
	Good struct {
		Within, Called *whatif.Caught
		Refused        uint64 `json:"refused_answered"`
	}
	Curves []whatif.Curve
}

func TestWhatIfOfOneRule(t *testing.T) {
	var r asked
	runJSON(t, "what-if --limit 20 --window 30s --mitigation-timeout 10s --good 198.51.100.0/24 --trace "+someLog(t), &r)
	if f := r.Figures; f.Requests != 66 || f.Refused != 10 || f.RefusedSources != 1 {
		t.Errorf("%+v", f)
	}
	if len(r.Rules) != 1 || r.Rules[0].Name != "default" || r.Rules[0].Blocks != 1 || r.Rules[0].First.Second() != 26 || r.Rules[0].Last.Second() != 29 {
		t.Errorf("%+v", r.Rules)
	}
	if len(r.Refused) != 1 || r.Refused[0].Source != "198.51.100.2" {
		t.Errorf("%+v", r.Refused)
	}
	if r.Good.Within.Refused != 0 || r.Good.Within.Sources != 2 || r.Good.Called.Refused != 10 || r.Good.Refused != 10 {
		t.Errorf("%+v", r.Good)
	}
	if len(r.Curves) != 1 || len(r.Curves[0].Points) < 10 {
		t.Fatalf("%+v", r.Curves)
	}
	last := uint64(1 << 60)
	for _, p := range r.Curves[0].Points {
		if p.Limit == 20 && p.Refused != r.Figures.Refused || p.Refused > last {
			t.Errorf("at %d the curve has %d refused, after %d", p.Limit, p.Refused, last)
		}
		last = p.Refused
	}
}

func TestWhatIfOfAFile(t *testing.T) {
	config := writeConfig(t, `
rules:
  - {name: login, match: {path: /login, methods: [POST]}, limit: 5, window: 30s, mitigation_timeout: 0, count: {statuses: [401]}}
  - {name: trial, limit: 1, mode: shadow, key: "cookie:session", match: {path: /page}}
  - {name: gone, limit: 1, mode: "off"}
`)
	var r asked
	runJSON(t, "what-if --config "+config+" --trace "+someLog(t), &r)
	var got []string
	for _, o := range r.Rules {
		got = append(got, fmt.Sprintf("%s (%s, shadow %v): %d of %d", o.Name, o.About, o.Shadow, o.Refused, o.Requests))
	}
	want := []string{
		"login (POST /login answered with 401, shadow false): 20 of 36", // five pass in every half minute
		"trial (/page by cookie:session, shadow true): 29 of 30",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if r.Figures.Refused != 20 || r.Figures.RefusedSources != 1 || r.Good.Refused != 0 {
		t.Errorf("%+v", r)
	}
	if len(r.Curves) != 0 || len(r.Run.Notes) != 1 || !strings.Contains(r.Run.Notes[0], "no headers") {
		t.Errorf("%+v", r)
	}
	runJSON(t, "what-if --curve login --config "+config+" --trace "+someLog(t), &r)
	if len(r.Curves) != 1 || r.Curves[0].Rule != "login" {
		t.Errorf("%+v", r.Curves)
	}
}

// Everybody of a log is on the plan that the file says, or --plan: no store is read, and the report says so.
func TestWhatIfOfPlans(t *testing.T) {
	config := writeConfig(t, `
plans: {key: "header:X-Key", default: free}
rules:
  - {name: api, key: ["header:X-Key"], limit: 1, plans: {free: 5, pro: 20}, window: 30s, mitigation_timeout: 0, match: {path: /login}}
  - {name: paying, match: {path: /page, plans: [pro]}, limit: 20, window: 30s, mitigation_timeout: 0}
`)
	for args, want := range map[string]string{"": "api 20, paying 0 of 0", " --plan pro": "api 0, paying 10 of 30"} {
		var r asked
		runJSON(t, "what-if --config "+config+args+" --trace "+someLog(t), &r)
		if got := fmt.Sprintf("api %d, paying %d of %d", r.Rules[0].Refused, r.Rules[1].Refused, r.Rules[1].Requests); got != want {
			t.Errorf("what-if%s: %s refused, want %s", args, got, want)
		}
		if notes := strings.Join(r.Run.Notes, "\n"); !strings.Contains(notes, "no store of plans is read, so under rule paying everybody is on the plan ") {
			t.Errorf("what-if%s does not say whose plan it is: %s", args, notes)
		}
	}
	var b bytes.Buffer
	if code := program.Run(t.Context(), strings.Fields("what-if --plan gold --config "+config+" --trace "+someLog(t)), &b); code != 2 || !strings.Contains(b.String(), "knows that plan") {
		t.Errorf("%d %s", code, b.String())
	}
}

// What a log does not tell of tokens, of what requests cost, and of tags, the report says; a fixed cost is charged.
func TestWhatIfOfWhatALogHasNot(t *testing.T) {
	config := writeConfig(t, `
jwt: {keys_file: /nowhere}
rules:
  - {name: who, limit: 1000, key: "jwt:sub"}
  - {name: size, limit: 1000, cost: {bytes: 10KiB}}
  - {name: said, limit: 1000, cost: {header: X-Cost}}
  - {name: each, match: {path: /login}, limit: 10, window: 1h, mitigation_timeout: 0, cost: 3}
  - {name: soft, match: {path: /page}, limit: 2, window: 1h, action: tag}
`)
	var r asked
	runJSON(t, "what-if --config "+config+" --trace "+someLog(t), &r)
	notes := strings.Join(r.Run.Notes, "\n")
	for _, want := range []string{"no tokens, so that rule who, by jwt:sub, counts the source", "costs 1 under rule size, whose cost is by bytes:10240", "costs 1 under rule said, whose cost is by header:X-Cost",
		"each request costs 3 under rule each", "rule soft tags"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not say %q:\n%s", want, notes)
		}
	}
	if len(r.Run.Notes) != 5 || len(r.Rules) != 5 {
		t.Fatalf("%d rules, notes:\n%s", len(r.Rules), notes)
	}
	if each := r.Rules[3]; each.Refused != each.Requests-3-3 || each.Over != 2 || r.Good.Within.Refused != 0 { // three of each of the two sources, which both were over
		t.Errorf("%+v, %+v", each, r.Good.Within)
	}
	for i, lacks := range []string{"jwt:sub", "lengths of requests' bodies", "the header X-Cost of answers", "", ""} {
		if r.Rules[i].Lacks != lacks {
			t.Errorf("rule %s lacks %q, want %q", r.Rules[i].Name, r.Rules[i].Lacks, lacks)
		}
	}
	if soft := r.Rules[4]; !soft.Shadow || soft.Refused != soft.Requests-2 || r.Figures.Refused != r.Rules[3].Refused {
		t.Errorf("%+v of %+v", soft, r.Figures)
	}
}

// No log has TLS or passes: a rule that counts by TLS cannot be judged, and the report says so, and one that challenges can: whom it asks for a
// pass is refused by nobody.
func TestWhatIfOfChallenges(t *testing.T) {
	config := writeConfig(t, `
rules:
  - {name: each, match: {path: /login}, limit: 20, window: 1h, mitigation_timeout: 0}
  - {name: page, match: {path: /login}, key: path, limit: 10, window: 1h, action: challenge, challenge: {difficulty: 12, page: /nowhere}, mitigation_timeout: 1h}
  - {name: library, key: ja4, limit: 5, window: 1h, action: challenge, mode: shadow}
  - {name: chrome, match: {ja4: [t13d1516h2_8daaf6152771_e5627efa2ab1]}, limit: 1}
  - {name: others, match: {not: {ja4: [t13d1516h2_8daaf6152771_e5627efa2ab1], verified: [googlebot]}}, limit: 1000}
`)
	log := someLog(t)
	var r asked
	runJSON(t, "what-if --config "+config+" --trace "+log, &r)
	notes := strings.Join(r.Run.Notes, "\n")
	for _, want := range []string{"rule page challenges: whom it would ask for a pass", "no log has TLS, so that rule library, by ja4, cannot be judged: it counts the source",
		"no log has TLS, so that rule chrome, about ja4, cannot be judged: it is about no request", "no log has TLS and what DNS says of robots, so that rule others leaves out nobody by ja4 and verified"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not say %q:\n%s", want, notes)
		}
	}
	for i, want := range []string{"each: 36, challenges false, lacks ", "page: 36, challenges true, lacks ", "library: 66, challenges true, lacks TLS", "chrome: 0, challenges false, lacks TLS",
		"others: 66, challenges false, lacks TLS and what DNS says of robots"} {
		o := &r.Rules[i]
		if got := fmt.Sprintf("%s: %d, challenges %t, lacks %s", o.Name, o.Requests, o.Challenges, o.Lacks); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	// Of 36 logins of two sources ten are let in, and nobody is refused: the source that makes 30 is under its own limit, because what is challenged does not count
	if f := r.Figures; f.Refused != 0 || f.Challenged != 26 || f.ChallengedSources != 2 || r.Rules[1].Refused != 26 || r.Rules[1].Blocks != 1 {
		t.Errorf("%+v, %+v", f, r.Rules[1])
	}
	if r.Refused[0].Rule != "page" || !r.Refused[0].Challenged || r.Refused[len(r.Refused)-1].Rule != "library" {
		t.Errorf("%+v", r.Refused)
	}
	out := captured(t, &os.Stdout, func() { runJSON(t, "what-if --config "+config+" --trace "+log, &asked{}) })
	for _, want := range []string{"Would have refused 0 of 66 requests", "Would have challenged 26 of them (39.4 %), of 2 sources", "who would be refused or challenged", "page (challenge)", "library (challenge, shadow)"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	out = captured(t, &os.Stdout, func() { runJSON(t, "what-if --source 192.0.2.1 --config "+config+" --trace "+log, &asked{}) })
	if want := "0 would have been refused. 22 would have been challenged."; !strings.Contains(strings.ReplaceAll(out, "\n", " "), want) {
		t.Errorf("no %q in\n%s", want, out)
	}
}

// Who is over a bucket is told by the bucket, and who waits before one, and how long, is told.
func TestWhatIfOfBuckets(t *testing.T) {
	log := someLog(t)
	var r asked
	runJSON(t, "what-if --algorithm token_bucket --burst 2 --limit 60 --window 1m --mitigation-timeout 0 --trace "+log, &r)
	if o := r.Rules[0]; o.Refused == 0 || o.Over != 1 || r.Good.Within.Refused != 0 || o.Queue != 0 {
		t.Errorf("%+v, %+v", o, r.Good.Within) // three a second are over a bucket of two, and under 60 in a minute
	}
	r = asked{}
	runJSON(t, "what-if --algorithm leaky_bucket --burst 3 --limit 60 --window 1m --mitigation-timeout 0 --trace "+log, &r)
	if o := r.Rules[0]; o.Refused == 0 || o.Queue != 3 || o.Delay.N < 3 || o.Delay.Max <= 0 || o.Delay.Max > 3.01 {
		t.Errorf("%+v", o)
	}
	r = asked{}
	runJSON(t, "what-if --config "+writeConfig(t, "rules: [{name: even, algorithm: leaky_bucket, burst: 3, limit: 60, mode: shadow, mitigation_timeout: 0}]")+" --trace "+log, &r)
	if o, notes := r.Rules[0], strings.Join(r.Run.Notes, "\n"); r.Figures.Refused != 0 || o.Delay.N < 3 || !strings.Contains(notes, "even is a bucket, from which 60 drain in 1m") || !strings.Contains(notes, "whole seconds") {
		t.Errorf("%+v, %s", o, notes)
	}
}

// Rules about hosts see none in a log that has none, and the report says so; --host says which it was.
func TestWhatIfOfHosts(t *testing.T) {
	config, log := writeConfig(t, "rules: [{name: site, match: {hosts: [example.com]}, limit: 20, window: 30s}]"), someLog(t)
	var r asked
	runJSON(t, "what-if --config "+config+" --trace "+log, &r)
	if r.Rules[0].Lacks != "hosts" || r.Rules[0].Requests != 0 || len(r.Run.Notes) != 1 || !strings.Contains(r.Run.Notes[0], "66 of 66 requests have no host in the log, which rule site asks for") {
		t.Errorf("%+v: %q", r.Rules[0], r.Run.Notes)
	}
	r = asked{}
	runJSON(t, "what-if --host Example.com --config "+config+" --trace "+log, &r)
	if r.Rules[0].Lacks != "" || r.Rules[0].Refused == 0 || len(r.Run.Notes) != 0 {
		t.Errorf("%+v: %q", r.Rules[0], r.Run.Notes)
	}
}

// A log may have how clients call themselves, and then rules judge by it; of another header it has nothing, in a condition and in its opposite.
func TestWhatIfOfHeaders(t *testing.T) {
	log := filepath.Join(t.TempDir(), "access.log")
	var b strings.Builder
	for i := range 30 {
		fmt.Fprintf(&b, "192.0.2.1 - - [15/Mar/2021:07:00:%02d +0000] \"GET /?id=%d&id=7 HTTP/1.1\" 200 5 \"-\" \"%s\"\n", i, i, []string{"curl/8.1", "curl/8.2", "-"}[i%3])
	}
	b.WriteString("192.0.2.1 - - [15/Mar/2021:07:00:40 +0000] \"\\x16\\x03\" 400 5 \"-\" \"-\"\n")
	if err := os.WriteFile(log, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	var r asked
	runJSON(t, "what-if --trace "+log+" --config "+writeConfig(t, `
rules:
  - {name: curl, match: {methods: [GET], headers: {User-Agent: "curl/*"}}, limit: 5, mitigation_timeout: 0}
  - {name: each, key: "header:User-Agent", limit: 8, mitigation_timeout: 0}
  - {name: other, match: {headers: {X-Bot: "*"}}, limit: 5}
  - {name: spare, match: {not: {headers: {X-Good: "1"}}}, limit: 5, mode: shadow}
`), &r)
	for i, want := range []string{"curl: 15 of 20, lacks ", "each: 3 of 31, lacks ", "other: 0 of 0, lacks header x-bot=*", "spare: 26 of 31, lacks header x-good=1"} {
		o := &r.Rules[i]
		if got := fmt.Sprintf("%s: %d of %d, lacks %s", o.Name, o.Refused, o.Requests, o.Lacks); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, want := range []string{"rule other looks for header x-bot=* in vain, and is about no request", "rule spare leaves out nobody for header x-good=1",
		"1 requests have no method and path in the log, or none that make sense: rule curl takes them for GET /"} {
		if notes := strings.Join(r.Run.Notes, "\n"); !strings.Contains(notes, want) {
			t.Errorf("the notes do not say %q:\n%s", want, notes)
		}
	}
	// An edge answers 400 where origins may read what a rule asks of in two ways: here all but the one whose two are alike, and the one without.
	r = asked{}
	runJSON(t, "what-if --trace "+log+" --config "+writeConfig(t, `rules: [{name: id, match: {query: {id: "7"}}, limit: 5}]`), &r)
	if r.Figures.Malformed != 29 || r.Rules[0].Requests != 1 {
		t.Errorf("%+v, %+v", r.Figures, r.Rules[0])
	}
}

// Keys that tell more apart than sources have room for their counters.
func TestWhatIfOfManyKeys(t *testing.T) {
	const paths, each = 5000, 4
	log := filepath.Join(t.TempDir(), "access.log")
	var b strings.Builder
	for i := range paths * each {
		fmt.Fprintf(&b, "192.0.2.1 - - [15/Mar/2021:07:00:%02d +0000] \"GET /p%d HTTP/1.1\" 200 5\n", i*50/(paths*each), i%paths)
	}
	if err := os.WriteFile(log, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	var r asked
	runJSON(t, "what-if --trace "+log+" --config "+writeConfig(t, "rules: [{name: page, key: path, limit: 3, mitigation_timeout: 0}, {name: all, limit: 1000000}]"), &r)
	if r.Figures.Refused != paths || r.Rules[0].Over != paths || len(r.Run.Notes) != 0 {
		t.Errorf("%+v, %q", r.Rules[0], r.Run.Notes)
	}
}

// Who is good can be told by the origin's answers; a log of one day needs no date; one source has its story.
func TestWhatIfQuestions(t *testing.T) {
	log := someLog(t)
	var r asked
	runJSON(t, "what-if --limit 20 --window 30s --good answered=100% --trace "+log, &r)
	if r.Good.Called == nil || r.Good.Called.Sources != 2 || r.Good.Called.RefusedSources != 1 {
		t.Errorf("%+v", r.Good.Called)
	}
	for _, p := range r.Curves[0].Points {
		if p.Good == nil || p.GoodSources > 2 || (p.Limit < 30) != (p.GoodRefused > 0) {
			t.Errorf("at %d: %+v", p.Limit, p)
		}
	}
	runJSON(t, "what-if --limit 20 --window 30s --from 07:00:20 --to 07:00:30 --trace "+log, &r)
	if r.Figures.Requests != 36 {
		t.Errorf("%d requests in ten seconds", r.Figures.Requests)
	}
	var story struct {
		Story *struct {
			Requests, Refused uint64
			Blocks            []struct{ Before uint64 }
			whatif.Character
		}
		Curves []whatif.Curve
	}
	runJSON(t, "what-if --limit 20 --window 30s --mitigation-timeout 10s --source 198.51.100.2 --trace "+log, &story)
	if s := story.Story; s == nil || s.Requests != 30 || s.Refused != 10 || len(s.Blocks) != 1 || s.Blocks[0].Before != 20 || s.Paths[0].Name != "/page" || len(story.Curves) != 0 {
		t.Errorf("%+v", s)
	}
	f := func(flags string, code int, want string) {
		t.Helper()
		var stderr bytes.Buffer
		if got := program.Run(t.Context(), strings.Fields("what-if "+flags+" --trace "+log), &stderr); got != code || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit code %d, want %d: %s", flags, got, code, stderr.String())
		}
	}
	f("--source 192.0.2.99", 1, "192.0.2.99 made no request")
	f("--source nobody", 2, "want an address")
	f("--good answered=95", 2, "answered=95%")
	f("--good answered=0%", 2, "answered=95%")
	f("--good most", 2, "--good most")
	f("--from 07:00 --to 2021-03-16", 2, "both a date")
	f("--from 7pm", 2, "--from 7pm")
	f("--from 08:00", 1, "no request in the chosen time")
}

// The proxies of a configuration, or of --trust, are no clients of a log; its form is found, or said.
func TestWhatIfReadsLogsOfOthers(t *testing.T) {
	const listed = "203.0.113.9, 192.0.2.7, 10.1.2.3 - - [15/Mar/2021:12:00:00 +0000] \"GET / HTTP/1.1\" 200 1\n"
	const object = `{"at":1615809600.5,"peer":{"ip":"192.0.2.7"},"url":"/"}` + "\n"
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "a.log")
		must(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	config := writeConfig(t, "source: {trust: [10.0.0.0/8]}\nrules: [{name: a, limit: 1, window: 1m}]")
	for _, test := range []struct{ flags, log, source, said string }{
		{"--limit 1", strings.Repeat(listed, 2), "203.0.113.9", "2 requests name a list"},
		{"--limit 1 --trust 10.1.2.3", strings.Repeat(listed, 2), "192.0.2.7", "2 requests name a list"},
		{"--config " + config, strings.Repeat(listed, 2), "192.0.2.7", "2 requests name a list"},
		{"--limit 1 --skip", "what\n" + strings.Repeat(listed, 2), "203.0.113.9", `first line that is no request: line 1: "what": no time`},
		{"--limit 1 --fields time=at,client=peer.ip,path=url", strings.Repeat(object, 2), "192.0.2.7", "read as: JSON by --fields, 2 of 2 lines"},
	} {
		var r struct {
			Run     report.Run
			Figures struct{ Requests int }
			Refused []struct{ Source string }
		}
		runJSON(t, "what-if "+test.flags+" --trace "+file(test.log), &r)
		said := strings.Join(r.Run.ReadLines(), "\n")
		if r.Figures.Requests != 2 || len(r.Refused) != 1 || r.Refused[0].Source != test.source || !strings.Contains(said, test.said) {
			t.Errorf("%s: %+v\n%s", test.flags, r, said)
		}
	}
	for flags, want := range map[string]string{
		"--trust ten":          "--trust ten: want an address",
		"--format apache":      `no format "apache"`,
		"--limit 1":            "1 of 2 lines are no requests",
		"--fields client=peer": "want time and client",
	} {
		var stderr bytes.Buffer
		if code := program.Run(t.Context(), strings.Fields("what-if "+flags+" --trace "+file("what\n"+listed)), &stderr); code == 0 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit code %d: %s", flags, code, stderr.String())
		}
	}
}

// What a log cannot tell of rules is said.
func TestWhatIfNotes(t *testing.T) {
	var r asked
	runJSON(t, "what-if --config "+writeConfig(t, "rules: [{name: a, limit: 5, share: 50, algorithm: exact, check: sync}]")+" --trace "+someLog(t), &r)
	if n := r.Run.Notes; len(n) != 3 || !strings.Contains(n[0], "50 % of sources") || !strings.Contains(n[1], "counts by exact") || !strings.Contains(n[2], "check: sync, which changes nothing here") {
		t.Errorf("%q", r.Run.Notes)
	}
	r = asked{}
	runJSON(t, "what-if --config "+writeConfig(t, "origins: [{servers: ['http://a'], shedding: {}}]\nrules: [{name: b, priority: sheddable}, {name: a, limit: 5, queue: 1s}]")+" --trace "+someLog(t), &r)
	if len(r.Rules) != 1 || len(r.Run.Notes) != 3 || !strings.Contains(r.Run.Notes[0], "nobody is shed") || !strings.Contains(r.Run.Notes[1], "rule a: its priority and its queue are not asked") ||
		!strings.Contains(r.Run.Notes[2], "rule b has no limit") {
		t.Errorf("%q", r.Run.Notes)
	}
}

func TestWhatIfFilesThatMakeNoSense(t *testing.T) {
	f := func(text, flags string, code int, want ...string) {
		t.Helper()
		var stderr bytes.Buffer
		line := "what-if --workload steady --config " + writeConfig(t, text) + " " + flags
		if got := program.Run(t.Context(), strings.Fields(line), &stderr); got != code {
			t.Errorf("%q: exit code %d, want %d", text, got, code)
		}
		for _, w := range want {
			if !strings.Contains(stderr.String(), w) {
				t.Errorf("%q: it says %q, want something with %q", text, stderr.String(), w)
			}
		}
	}
	f("rules:\n  - {name: a, limit: 0}\n", "", 1, "sluice.yaml:2:", "limit")
	f("rules:\n  - {name: a, limit: 0, colour: red}\n", "", 1, "1 more")
	f("rules:\n  - {name: a, limit: 5, mode: \"off\"}\n", "", 1, "every rule is off")
	f("rules:\n  - {name: a, priority: sheddable}\n", "", 1, "no rule has a limit")
	f("rules:\n  - {name: a, limit: 5}\n", "--limit 7", 2, "--limit", "gives rules")
	f("rules:\n  - {name: a, limit: 5}\n", "--curve b", 2, "--curve b", "there is a")
}

// A log does not show how long requests took: the command says so, and lets other rules and limits judge.
func TestWhatIfOfConcurrency(t *testing.T) {
	var r asked
	runJSON(t, "what-if --config "+writeConfig(t, "rules:\n- {name: slow, concurrency: 2}\n- {name: all, limit: 20, window: 30s, concurrency: 1}\n")+" --trace "+someLog(t), &r)
	for _, want := range []string{"rule slow has no limit and is not asked, because a log does not show how long requests took",
		"rule all: its concurrency is not asked, because a log does not show how long requests took"} {
		if !slices.Contains(r.Run.Notes, want) {
			t.Errorf("%q, want %q among them", r.Run.Notes, want)
		}
	}
	if r.Figures.Refused == 0 {
		t.Error("the limit refused nobody")
	}
}

// A log has no descriptors: the command says so, and lets the others judge.
func TestWhatIfOfDescriptors(t *testing.T) {
	var r asked
	config := writeConfig(t, "rate_limit_service: {listen: \"127.0.0.1:1\"}\nrules:\n- {name: user, match: {descriptors: {domain: web, entries: [{key: user}]}}, limit: 1}\n- {name: all, limit: 20, window: 30s}\n")
	runJSON(t, "what-if --config "+config+" --trace "+someLog(t), &r)
	const want = "a log has requests, and no descriptors, so that rule user, about descriptor web user, judges nothing here"
	if !slices.Contains(r.Run.Notes, want) || r.Figures.Refused == 0 {
		t.Errorf("%q, %d refused", r.Run.Notes, r.Figures.Refused)
	}
}
