//go:build system

package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/edge/events"
	"sluice/edge/plans"
	"sluice/edge/plans/store/storetest"
)

// writePlans writes what edges of a PoP with plans are started with.
func writePlans(t *testing.T, edges int, plans string) (files []string) {
	t.Helper()
	for _, file := range writePoP(t, edges) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		more := fmt.Sprintf("plans: {key: \"header:X-API-Key\", default: free, refresh: 100ms, %s}\n", plans) +
			"- {name: api, key: \"header:X-API-Key\", limit: 2, plans: {free: 3, pro: {limit: 6}}, window: 1h, mitigation_timeout: 10m}\n" +
			"- {name: paying, match: {path: /paid, plans: [pro]}, key: \"header:X-API-Key\", limit: 100, window: 1h}\n" +
			"- {name: unpaid, match: {path: /paid, not: {plans: [pro]}}, key: \"header:X-API-Key\", limit: 1, window: 1h, mitigation_timeout: 0}\n"
		top, rules, _ := strings.Cut(more, "\n")
		file := filepath.Join(t.TempDir(), "edge.yaml")
		if err := os.WriteFile(file, []byte(top+"\n"+string(text)+rules), 0o400); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// as sends a request with a key, and tells the status and the limit that the answer names.
func (p *process) as(key, path string) string {
	p.t.Helper()
	req, err := http.NewRequest("GET", "http://"+p.front+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("X-API-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode == 429 && resp.Header.Get("Cache-Control") != "no-store" {
		p.t.Errorf("a refusal may be cached: %v", resp.Header)
	}
	return fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("RateLimit-Policy"), " ", resp.Header.Get("X-RateLimit-Limit"))
}

// Clients of a PoP of two edges, with real nodes and a real PostgreSQL: each has the limit of its plan on both, and what operators say of it
// at one edge holds at the other, block and all; and while the store is away everything goes on.
func TestPlans(t *testing.T) {
	t.Parallel()
	db := storetest.Start(t)
	nodes, site := startMemcached(t), origin(t)
	files := writePlans(t, 2, "store: \""+db.URL+"\"")
	one := start(t, site, "--config", files[0], "--memcached", nodes)
	two := start(t, site, "--config", files[1], "--memcached", nodes)
	meet(one, two)

	// The plan of whom nothing was said: three, over both edges.
	want := func(p *process, key, path, want string) {
		t.Helper()
		if got := p.as(key, path); got != want {
			t.Errorf("%s %s: %s, want %s", key, path, got, want)
		}
	}
	const free, pro, refused = `200 "api";q=3;w=3600 3`, `200 "api";q=6;w=3600 6`, `429 "api";q=3;w=3600 3`
	for range 3 {
		want(one, "a", "/", free)
	}
	want(one, "a", "/", refused)
	two.until("told by the other", func() bool { return strings.HasPrefix(two.as("a", "/"), "429") })
	if _, list := two.admin("GET", "/v1/mitigations?rule=api"); !strings.Contains(list, `"limit": 3`) {
		t.Errorf("the block does not tell its limit: %s", list)
	}
	if _, text := one.admin("GET", "/metrics"); !strings.Contains(text, `sluice_mitigations_active{mode="enforce",rule="api"} 1`) || strings.Contains(text, "#") && strings.Contains(text, `source="#`) {
		t.Error("the block is not counted under its rule")
	}
	want(one, "", "/paid", `200 "unpaid";q=1;w=3600 1`)

	// A better plan: counted afresh, and not blocked for what was too much before.
	if a := one.api("PUT", "/v1/quotas/a", `{"plan":"pro"}`); a.status != 200 || !strings.Contains(a.text, `"plan": "pro"`) || !strings.Contains(a.text, `"state": "in force"`) {
		t.Fatalf("%d %s", a.status, a.text)
	}
	for path, said := range map[string]string{ // here by whom, and at the other edge where that was
		"/v1/quotas/a":         `"state": "in force",\s*"updated_at": "20[^"]*",\s*"updated_by": "127\.0\.0\.1:`,
		"/v1/quotas/a/history": `"does": "set",\s*"rule": "",\s*"plan": "pro",\s*"from": "127\.0\.0\.1:\d+",\s*"edge": "`,
	} {
		p := one
		if strings.HasSuffix(path, "history") {
			p = two
		}
		p.until(path+": "+said, func() bool { // once the store's history is read again
			a := p.api("GET", path, "")
			return a.status == 200 && regexp.MustCompile(said).MatchString(a.text)
		})
	}
	want(one, "a", "/", pro)
	two.until("told of the plan", func() bool { return strings.HasPrefix(two.as("a", "/paid"), "200") })
	want(two, "b", "/", free) // another client is as before
	one.until("counting both edges' requests", func() bool {
		_, text := one.admin("GET", "/v1/usage/a")
		return strings.Contains(text, `"used": 2`) && strings.Contains(text, `"limit": 6`) && strings.Contains(text, `"remaining": 4`) && strings.Contains(text, `"asked": true`)
	})
	if _, text := one.admin("GET", "/metrics"); !strings.Contains(text, `sluice_requests_total{rule="paying",verdict="pass"} 0`) {
		t.Error("the rule for those who pay has counted others")
	}

	// A limit of its own, for a while, seen at the other edge when it begins and when it ends.
	limit := func(p *process, key string) string {
		_, text := p.admin("GET", "/v1/usage/"+key)
		_, after, _ := strings.Cut(text, `"limit": `)
		n, _, _ := strings.Cut(after, ",")
		return n
	}
	in := func(d time.Duration) string { return time.Now().Add(d).Format(time.RFC3339Nano) }
	if a := one.api("PUT", "/v1/quotas/later", fmt.Sprintf(`{"rule":"api","limit":50,"effective_at":%q}`, in(time.Hour))); a.status != 200 || !strings.Contains(a.text, `"state": "to come"`) {
		t.Fatalf("%d %s", a.status, a.text)
	}
	two.until("told of the limit to come", func() bool {
		_, text := two.admin("GET", "/v1/quotas/later")
		return strings.Contains(text, `"state": "to come"`)
	})
	if got := limit(two, "later"); got != "3" {
		t.Errorf("limit %s before it is effective", got)
	}
	for _, q := range []string{`{"rule":"api","limit":9}`, fmt.Sprintf(`{"rule":"api","limit":50,"effective_at":%q,"expires_at":%q}`, in(200*time.Millisecond), in(4*time.Second))} {
		if a := one.api("PUT", "/v1/quotas/c", q); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.text)
		}
	}
	two.until("at the limit that is lent", func() bool { return limit(two, "c") == "50" })
	if _, text := two.admin("GET", "/v1/quotas/c"); !strings.Contains(text, `"state": "suspended"`) {
		t.Errorf("what comes back is not told: %s", text)
	}
	two.until("at the limit from before", func() bool { return limit(two, "c") == "9" })
	if a := one.api("PUT", "/v1/quotas/c", fmt.Sprintf(`{"rule":"api","limit":9,"expires_at":%q}`, in(time.Second))); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.text)
	}
	two.until("at the limit of the plan again", func() bool { return limit(two, "c") == "3" })

	// What operators say of a client under the rule holds whatever its limit, on both edges, and a lift ends it.
	_, list := one.admin("GET", "/v1/events")
	_, after, _ := strings.Cut(list, `"#`)
	digest, _, _ := strings.Cut(after, `"`)
	if strings.Contains(list, `"c"`) || len(digest) != 32 {
		t.Fatalf("the events have no digest, or a key: %s", list)
	}
	for _, what := range []string{`"field": "plan",`, `"from": "free",`, `"to": "pro"`, `"field": "quotas.api",`, `"to": "limit 50 from 20`} {
		if !strings.Contains(list, what) {
			t.Errorf("the events do not tell %s: %s", what, list)
		}
	}
	digest = "%23" + digest // of c, the latest
	if a := two.api("PUT", "/v1/mitigations/api/"+digest, `{"for":"10m"}`); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.text)
	}
	one.api("PUT", "/v1/quotas/c", `{"plan":"pro"}`)
	want(one, "c", "/", `429 "api";q=6;w=3600 6`)
	if a := two.api("DELETE", "/v1/mitigations/api/"+digest, ""); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.text)
	}
	for range 6 {
		want(one, "c", "/", pro)
	}
	want(one, "c", "/", `429 "api";q=6;w=3600 6`)
	if a := two.api("DELETE", "/v1/mitigations/api/"+digest, ""); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.text)
	}
	one.until("lifted under its plan", func() bool { return one.as("c", "/") == pro })

	// The store goes away.
	db.Stop()
	one.until("told that the store is away", func() bool { return one.metric("sluice_plans_up") == "0" })
	if a := one.api("PUT", "/v1/quotas/a", `{"plan":"free"}`); a.status != 503 {
		t.Errorf("%d %s", a.status, a.text)
	}
	want(one, "a", "/", pro)
	if a := one.api("GET", "/v1/quotas/a", ""); a.status != 200 || !strings.Contains(a.text, `"plan": "pro"`) {
		t.Errorf("%d %s", a.status, a.text)
	}
	for _, path := range []string{"/v1/quotas/a/history", "/v1/quotas"} {
		if a := one.api("GET", path, ""); a.status != 503 {
			t.Errorf("%s: %d %s", path, a.status, a.text)
		}
	}
	if status, _ := one.admin("GET", "/readyz"); status != 200 {
		t.Error("not ready for a store that nobody waits for")
	}
	one.eventTexts("the store of the plans does not answer")
	one.stop(syscall.SIGTERM) // which writes the copy
	again := start(t, site, "--config", files[0], "--memcached", nodes)
	if got := again.as("a", "/"); got != pro {
		t.Errorf("after a start from the copy: %s", got)
	}
	code, _, stderr := sluice("--config", write(t, "listen: \"127.0.0.1:0\"\nadmin: \"127.0.0.1:0\"\nplans: {key: \"header:a\", store: \""+db.URL+"\"}"), "--origin", site)
	if code != 1 || !strings.Contains(stderr, "plans.store: ") || !strings.Contains(stderr, "start the store first") {
		t.Errorf("without a copy it starts: %d %s", code, stderr)
	}
	must(t, db.Run())
	again.until("back", func() bool { return again.metric("sluice_plans_up") == "1" })
	if a := again.api("DELETE", "/v1/quotas/a", ""); a.status != 200 || !strings.Contains(a.text, `"deleted": 1`) {
		t.Errorf("%d %s", a.status, a.text)
	}
	want(again, "d", "/", free)
	if got := limit(again, "a"); got != "3" {
		t.Errorf("limit %s of whom nothing is said any more", got)
	}
	again.stop(syscall.SIGTERM)
	two.stop(syscall.SIGTERM)
}

// A store in a file, with no key in it, and operators' commands.
// What an event says that a change of quotas has changed is what it has, though another edge has changed more, of which this one has not read yet.
func TestQuotaEvents(t *testing.T) {
	t.Parallel()
	file := "sqlite:" + filepath.Join(t.TempDir(), "plans.db")
	var edges []*process
	for _, config := range writePlans(t, 2, "store: \""+file+"\"") {
		text, err := os.ReadFile(config)
		must(t, err)
		edges = append(edges, start(t, origin(t), "--config", write(t, strings.Replace(string(text), "refresh: 100ms", "refresh: 5m", 1))))
	}
	for _, d := range []struct {
		edge              int
		method, body, who string
		want              []events.Field
	}{
		{0, "PUT", `{"plan":"pro"}`, "ada", []events.Field{{Field: "plan", From: "free", To: "pro"}, {Field: "quotas", From: "", To: "plan pro"}}},
		{1, "PUT", `{"rule":"api","limit":4}`, "bob", []events.Field{{Field: "quotas.api", From: "", To: "limit 4"}}},
		{0, "DELETE", "", "ada", []events.Field{{Field: "plan", From: "pro", To: "free"}, {Field: "quotas", From: "plan pro", To: ""}, {Field: "quotas.api", From: "limit 4", To: ""}}},
	} {
		p := edges[d.edge]
		if a := p.api(d.method, "/v1/quotas/k-4711", d.body, "X-Operator", d.who); a.status != 200 {
			t.Fatalf("%s %s: %d %s", d.method, d.body, a.status, a.text)
		}
		var happened []events.Event
		must(t, json.Unmarshal([]byte(p.api("GET", "/v1/events", "").text), &happened))
		if e := happened[0]; e.Who != d.who || !slices.Equal(e.Changed, d.want) {
			t.Errorf("%s %s: %s by %s: %+v, want %+v", d.method, d.body, e.Text, e.Who, e.Changed, d.want)
		}
	}
	for _, p := range edges {
		p.stop(syscall.SIGTERM)
	}
}

// Lists of keys have the plan of who has one beside what they show of the key, here and over the PoP.
func TestPlanOfKeys(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(writePlans(t, 1, "store: \"sqlite:"+filepath.Join(t.TempDir(), "plans.db")+"\"")[0])
	must(t, err)
	p := start(t, origin(t), "--config", write(t, strings.Replace(string(text), "limit: 2, plans", "limit: 2, show_key: 4, plans", 1)))
	if code, out, errs := sluice("quota", "set", "k-4711-of-a-client", "--plan", "pro", "--admin", p.back); code != 0 {
		t.Fatal(out, errs)
	}
	p.until("on plan pro", func() bool { return strings.HasSuffix(p.as("k-4711-of-a-client", "/"), " 6") })
	for range 7 {
		p.as("k-4711-of-a-client", "/")
	}
	for _, command := range []string{"top --kind key", "top --kind key --pop", "top --kind key --by refused", "blocked", "blocked --pop"} {
		if code, out, errs := sluice(append(strings.Fields(command), "--admin", p.back)...); code != 0 || !strings.Contains(out, " k-47… · pro ") {
			t.Errorf("%s: %d %s%s", command, code, out, errs)
		}
	}
	for _, path := range []string{"/v1/dashboard", "/v1/dashboard?scope=pop"} {
		if a := p.api("GET", path, ""); strings.Count(a.text, `"key_start":"k-47","plan":"pro"`)+strings.Count(a.text, `"unpaid"],"plan":"pro"`) != map[string]int{"/v1/dashboard": 3, "/v1/dashboard?scope=pop": 6}[path] {
			t.Errorf("%s: want it by requests, by refusals, and blocked; over the PoP as well: %s", path, a.text)
		}
	}
}

func TestQuotaCommands(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "plans.db")
	p := start(t, origin(t), "--config", writePlans(t, 1, "store: \"sqlite:"+file+"\", secret_keys: true")[0])
	const key = "k 4711/x?y" // with what a path must escape
	now := regexp.MustCompile(`20[0-9-]+ [0-9:]+Z`)
	for _, c := range []struct{ args, want string }{
		{"quota get KEY", "# is on plan free\n"},
		{"quota set KEY --plan pro", "# is on plan pro\nRULE PLAN LIMIT FROM UNTIL STATE\nall pro - - - in force\n"},
		{"quota set KEY --rule api --limit 4 --until 2100-01-02T03:04:05Z", "# is on plan pro\nRULE PLAN LIMIT FROM UNTIL STATE\nall pro - - - in force\napi - 4 NOW 2100-01-02 03:04:05Z in force\n"},
		{"quota set KEY --plan free --until 2100-01-02T03:04:05Z", "# is on plan free\nRULE PLAN LIMIT FROM UNTIL STATE\nall pro - - - suspended\nall free - NOW 2100-01-02 03:04:05Z in force\n"},
		{"quota set KEY --plan pro", "# is on plan pro\nRULE PLAN LIMIT FROM UNTIL STATE\nall pro - - - in force\napi"},
		{"quota set KEY --rule api --limit 9 --from 2100-01-02T03:04:05Z", "api - 9 2100-01-02 03:04:05Z - to come\n"},
		{"usage KEY", "# is on plan pro\nRULE PLAN USED LIMIT LEFT RESET\napi pro 0 4 4 "},
		{"quota delete KEY --rule api", "2 quotas of KEY are deleted\n"},
		{"quota delete KEY", "a quota of KEY is deleted\n"},
		{"quota delete KEY", "KEY has no such quota\n"},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			if args[i] == "KEY" {
				args[i] = key
			}
		}
		code, stdout, stderr := sluice(append(args, "--admin", p.back)...)
		got := now.ReplaceAllString(squeezed(stdout), "NOW")
		if i := strings.Index(got, "# is on"); i < 0 && strings.HasPrefix(got, "#") {
			got = "#" + got[33:]
		}
		if code != 0 || !strings.Contains(got, strings.ReplaceAll(c.want, "KEY", key)) {
			t.Errorf("%s: %d %s\n%s, want %s", c.args, code, stderr, got, c.want)
		}
	}
	code, stdout, stderr := sluice("quota", "history", key, "--admin", p.back)
	lines := regexp.MustCompile(`(?m)^NOW \S+ \S+ `).ReplaceAllString(now.ReplaceAllString(squeezed(stdout), "NOW"), "") // which operator, at which edge
	if want := "WHEN WHO AT EDGE WHAT RULE PLAN LIMIT FROM UNTIL\ndeleted all - - - - -\ndeleted api - - - -\nset api - 9 2100-01-02 03:04:05Z -\nset all pro - - -\n"; code != 0 || !strings.HasPrefix(lines, want) {
		t.Errorf("%d %s%s", code, stderr, lines)
	}
	for args, want := range map[string]string{
		"quota set k":                          "nothing is to be set",
		"quota set k --limit 4":                "--limit is under one rule",
		"quota set k --plan pro --from monday": `--from "monday": want a time`,
		"quota get k --plan pro":               "takes none of",
		"quota history k --rule api":           "only delete takes --rule",
		"quota put k":                          `no form "put"`,
		"quota list k":                         "quota get k is about that client",
		"quota list --rule api":                "takes none of --by, --rule",
		"quota list -n 0":                      "--number 0: want 1 to 1000",
		"quota get":                            "whose? want quota get KEY",
		"quota get k -n 3":                     "are for list",
	} {
		if code, _, stderr := sluice(append(strings.Fields(args), "--admin", p.back)...); code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: %d %s", args, code, stderr)
		}
	}
	if code, _, stderr := sluice("quota", "set", "k", "--plan", "gold", "--admin", p.back); code != 1 || !strings.Contains(stderr, `no rule knows the plan "gold": there is [free pro]`) {
		t.Errorf("%d %s", code, stderr)
	}
	for i := range plans.MaxQuotas + 1 {
		a := p.api("PUT", "/v1/quotas/k-4711", fmt.Sprintf(`{"plan":"pro","effective_at":"2100-01-02T03:04:05.%03dZ"}`, i))
		if i < plans.MaxQuotas && a.status != 200 || i == plans.MaxQuotas && (a.status != 409 || !strings.Contains(a.text, "the client has 100 quotas in force or to come: delete them")) {
			t.Fatalf("quota %d: %d %s", i, a.status, a.text)
		}
	}
	p.stop(syscall.SIGTERM)
	for _, name := range []string{file, file + "-wal"} {
		if text, err := os.ReadFile(name); err == nil && strings.Contains(string(text), "4711") {
			t.Errorf("%s has the key", name)
		}
	}
}

// quota list has each client once, page by page, with what it has used at all edges, and no more of a key than is anybody's business.
func TestQuotaList(t *testing.T) {
	t.Parallel()
	for name, secret := range map[string]bool{"keys": false, "digests": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes, site := startMemcached(t), origin(t)
			plans := fmt.Sprintf("store: \"sqlite:%s\", secret_keys: %v", filepath.Join(t.TempDir(), "plans.db"), secret)
			var edges []*process
			for _, file := range writePlans(t, 2, plans) {
				text, err := os.ReadFile(file)
				must(t, err)
				file = write(t, strings.Replace(string(text), "limit: 2, plans", "limit: 2, show_key: 4, plans", 1))
				edges = append(edges, start(t, site, "--config", file, "--memcached", nodes))
			}
			one, two := edges[0], edges[1]
			meet(one, two)
			list := func(args ...string) string {
				t.Helper()
				code, stdout, stderr := sluice(append([]string{"quota", "list", "--admin", one.back}, args...)...)
				if code != 0 {
					t.Fatalf("%q: %d %s", args, code, stderr)
				}
				return regexp.MustCompile(`#[0-9a-f]{32}`).ReplaceAllString(squeezed(stdout), "#")
			}
			if got := list(); got != "no client has a quota of that kind\n" {
				t.Error(got)
			}
			for i := range 5 {
				two.api("PUT", fmt.Sprint("/v1/quotas/client-", i), `{"plan":"pro"}`)
			}
			two.api("PUT", "/v1/quotas/client-3", `{"plan":"free"}`)
			two.api("PUT", "/v1/quotas/client-3", `{"rule":"api","limit":50,"effective_at":"2100-01-01T00:00:00Z"}`)
			two.until("on plan pro", func() bool { return strings.HasSuffix(two.as("client-1", "/"), " 6") })
			want := "client-1 pro api 1 6 5 plan pro\n"
			if secret {
				one.until("told of the plan", func() bool { return strings.HasSuffix(one.as("client-1", "/"), " 6") })
				want = "# clie… pro api 2 6 4 plan pro\n"
			}
			one.until("told what is used at the other", func() bool { return strings.Contains(list(), want) })
			text := list()
			if !strings.HasPrefix(text, "KEY PLAN RULE USED LIMIT LEFT SAID OF IT\n") || strings.Count(text, " api ") != 5 || strings.Contains(text, "client-") == secret {
				t.Error(text)
			}
			if !strings.Contains(text, " free api 0 3 3 plan free; limit 50 from 2100-01-01T00:00:00Z\n") {
				t.Errorf("what is to come is not told: %s", text)
			}
			if text := list("--plan", "pro"); strings.Count(text, " pro api ") != 4 || strings.Contains(text, "free") {
				t.Error(text)
			}
			// Page by page: each client once, and no key in what stands in a URL.
			var seen []string
			for after := ""; ; {
				a := one.api("GET", "/v1/quotas?n=2&after="+after, "")
				var page struct {
					Clients []struct{ Key string }
					Next    string
				}
				must(t, json.Unmarshal([]byte(a.text), &page))
				for _, c := range page.Clients {
					seen = append(seen, c.Key)
				}
				if after = page.Next; after == "" || len(seen) > 10 {
					break
				}
				if whole, err := base64.RawURLEncoding.DecodeString(after); err != nil || strings.Contains(string(whole), "client") {
					t.Errorf("%s has the key", after)
				}
			}
			if n := len(seen); n != 5 || len(slices.Compact(slices.Sorted(slices.Values(seen)))) != 5 {
				t.Errorf("pages had %q", seen)
			}
			if text := list("-n", "4"); !strings.Contains(text, "there are more: sluice quota list --after ") {
				t.Error(text)
			}
			for _, p := range edges {
				p.stop(syscall.SIGTERM)
			}
		})
	}
}

// A request counts for its user and for his organisation: each has its own plan, limit and usage, on both edges, and the tighter limit decides.
func TestOrganisations(t *testing.T) {
	t.Parallel()
	file := "sqlite:" + filepath.Join(t.TempDir(), "plans.db")
	rules := "- {name: organisation, key: \"header:X-Organisation\", limit: 2, plans: {large: 4}, window: 1h, mitigation_timeout: 0}\n"
	var edges []*process
	for _, config := range writePlans(t, 2, "also: [\"header:X-Organisation\"], store: \""+file+"\"") {
		text, err := os.ReadFile(config)
		if err != nil {
			t.Fatal(err)
		}
		edges = append(edges, start(t, origin(t), "--config", write(t, string(text)+rules)))
	}
	one, two := edges[0], edges[1]
	admitted := func(p *process, user, organisation string, want int) {
		t.Helper()
		for n := 0; ; n++ {
			req, _ := http.NewRequest("GET", "http://"+p.front+"/", nil)
			req.Header.Set("X-API-Key", user)
			req.Header.Set("X-Organisation", organisation)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode == 429 || n > 20 {
				if n != want {
					t.Errorf("%d requests of %s in %s were admitted, want %d", n, user, organisation, want)
				}
				return
			}
		}
	}
	quota := func(args ...string) {
		t.Helper()
		if code, _, stderr := sluice(append(append([]string{"quota", "set"}, args...), "--admin", one.back)...); code != 0 {
			t.Fatalf("%q: %d %s", args, code, stderr)
		}
	}
	admitted(one, "u1", "small", 2)
	quota("acme", "--by", "header:x-organisation", "--plan", "large")
	admitted(one, "u2", "acme", 3) // the user's own limit
	admitted(one, "u3", "acme", 1) // with u2, the organisation's four
	admitted(one, "acme", "other", 2)
	quota("acme", "--by", "header:X-Organisation", "--rule", "organisation", "--limit", "7")
	admitted(one, "u4", "acme", 3)
	if code, stdout, stderr := sluice("usage", "acme", "--by", "header:X-Organisation", "--admin", one.back); code != 0 || !strings.Contains(squeezed(stdout), "acme is on plan large\nRULE PLAN USED LIMIT LEFT RESET\norganisation large 3 7 4 ") {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := sluice("quota", "get", "acme", "--admin", one.back); code != 0 || stdout != "acme is on plan free\n" {
		t.Errorf("the user of that name: %d %s%s", code, stdout, stderr)
	}
	two.until("told of the organisation's limit", func() bool {
		_, text := two.admin("GET", "/v1/usage/acme?by=header:X-Organisation")
		return strings.Contains(text, `"limit": 7`) && strings.Contains(text, `"by": "header:x-organisation"`)
	})
	for args, want := range map[string]string{
		"acme --rule organisation --limit 9":                     "rule organisation knows clients by header:x-organisation, and not by header:x-api-key: say whom it is about, with by=header:x-organisation",
		"acme --by header:x-organisation --rule api --limit 9":   "with by=header:x-api-key",
		"acme --by header:x-org --plan large":                    `no client is known by "header:x-org": want header:x-api-key, or one of plans.also`,
		"acme --by header:x-organisation --rule gone --limit 10": "gone",
	} {
		if code, _, stderr := sluice(append(append([]string{"quota", "set"}, strings.Fields(args)...), "--admin", one.back)...); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: %d %s", args, code, stderr)
		}
	}
	if code, stdout, stderr := sluice("quota", "delete", "acme", "--by", "header:X-Organisation", "--admin", one.back); code != 0 || stdout != "2 quotas of acme are deleted\n" {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
	two.until("told that it is gone", func() bool {
		_, text := two.admin("GET", "/v1/quotas/acme?by=header:X-Organisation")
		return strings.Contains(text, `"quotas": []`)
	})
}
