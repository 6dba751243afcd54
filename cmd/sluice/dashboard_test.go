//go:build system

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var (
	screenshots = flag.Bool("screenshots", false, "write docs/img/dashboard-*.png")
	viewerCost  = flag.Bool("viewer", false, "measure what an open dashboard costs an idle edge: two minutes")
)

// row is an expression for the row of a table that has these texts in it.
func row(table string, texts ...string) string {
	want, _ := json.Marshal(texts)
	return `[...document.querySelectorAll("#` + table + ` tbody tr")].find(r => ` + string(want) + `.every(text => r.textContent.includes(text)))`
}

const hostile = `<img src=x onerror="document.title='taken'"><script>document.title='taken'</script>`

// startViewed starts two edges of a PoP and traffic, until the test ends. Operators need the token "right".
func startViewed(t *testing.T) (edges [2]*process) {
	token := write(t, "right")
	node := startMemcached(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/login" && r.Header.Get("X-Wrong") != "" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprint(w, "hello")
	}))
	t.Cleanup(server.Close)
	config := write(t, fmt.Sprintf(`
pop: {name: fra1, memcached: [%q], secret_file: %s}
admin_token_file: %s
limits: {connections: 1000}
source: {trust: [127.0.0.0/8]}
origins: [{servers: [%q], shedding: {min: 20}}]
rules:
  - {name: site, limit: 600, window: 1m}
  - {name: login, match: {path: /login, methods: [POST]}, limit: 5, window: 1m, mitigation_timeout: 10m}
  - {name: api, match: {path: /api/*}, limit: 120, window: 1m, mitigation_timeout: 2m, share: 60}
  - {name: api-stricter, match: {path: /api/*}, limit: 60, window: 1m, mitigation_timeout: 5m, mode: shadow}
  - {name: odd, match: {path: %q}, limit: 5}
  - {name: reports, match: {path: /reports, headers: {user-agent: "bot*"}, not: {cookies: {session: "*"}}}, concurrency: 7, priority: sheddable}
  - {name: search, match: {path: /search}, algorithm: token_bucket, limit: 60, burst: 20, action: delay, mitigation_timeout: 0}
  - {name: export, match: {path: /export}, limit: 5, cost: 3, action: tag, escalate: [10m]}
`, node, write(t, "a secret of this PoP alone"), token, server.URL, "/"+strings.ReplaceAll(hostile, " ", "")))
	for i, name := range []string{"fra1-a", "fra1-b"} {
		edges[i] = start(t, "", "--config", withEdgeID(t, config, name))
	}
	ctx, stop := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	t.Cleanup(func() { stop(); sending.Wait() })
	for i := range 12 {
		sending.Go(func() { // people, a scraper, and who guesses passwords
			tick := time.NewTicker([]time.Duration{300 * time.Millisecond, 40 * time.Millisecond, 100 * time.Millisecond}[i%3])
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				method, path := "GET", "/"
				switch i % 3 {
				case 1:
					path = "/api/items"
				case 2:
					method, path = "POST", "/login"
				}
				source := fmt.Sprintf("203.0.113.%d", 10+i)
				if i%4 == 3 {
					source = fmt.Sprintf("2001:db8:%d::7", i)
				}
				ask(method, "http://"+edges[n%2].front+path, source)
			}
		})
	}
	return edges
}

func withEdgeID(t *testing.T, config, id string) string {
	text, err := os.ReadFile(config)
	must(t, err)
	return write(t, "edge_id: "+id+"\n"+string(text))
}

// ask makes a request for a source, and returns the answer's status.
func ask(method, url, source string) int {
	req, _ := http.NewRequest(method, url, nil)
	req.Header.Set("X-Forwarded-For", source)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is used again
	resp.Body.Close()
	return resp.StatusCode
}

func (p *process) asOperator(path string, into any) {
	p.t.Helper()
	resp, text := p.request("GET", p.back, path, "", "Authorization", "Bearer right")
	if err := json.Unmarshal([]byte(text), into); err != nil {
		p.t.Fatalf("%s: %d %v", path, resp.StatusCode, err)
	}
}

// An operator at work, by keyboard alone: who is blocked, block, look, lift, change a rule.
func TestDashboard(t *testing.T) {
	t.Parallel()
	edges := startViewed(t)
	b := browse(t)
	b.open("http://" + edges[0].back + "/#edge")

	// The token is asked for, and a wrong one again.
	b.until(`document.querySelector("#d-operator").open`)
	b.keys("wrong", kb.Enter)
	b.until(`document.querySelector("#d-operator .wrong").textContent.includes("does not take the token")`)
	b.keys("right", kb.Tab, "ada", kb.Enter)
	b.until(`!document.querySelector("#d-operator").open && document.querySelector("#state").textContent === "live"`)
	b.until(row("edges", "fra1-b") + ` && document.querySelector("#where").textContent.includes("devel")`)
	if where := eval[string](b, `document.querySelector("#where").textContent`); !strings.Contains(where, "PoP fra1 of 2 edges · this is edge fra1-a · devel") || !strings.Contains(where, "up ") {
		t.Errorf("where: %s", where)
	}

	// The traffic: who guesses passwords is blocked, a scraper would be, and the plot has a line for each verdict.
	b.until(row("blocked", "203.0.113.12", "login", "more than 5 in 1m"))
	b.until(row("shadow", "203.0.113.11"))
	b.until(`/^\d+ sources are blocked under rules? .*login.*; [\d.]+ requests a second refused\./.test(document.querySelector("#says").textContent)`)
	b.until(`document.querySelectorAll("#plot path").length >= 3 && document.querySelectorAll("#plot text").length >= 6`)
	b.until(row("origins", "http://", "up"))
	b.until(row("nodes", "127.0.0.1", "up"))
	b.until(row("rules", "api", "/api/*, of 60 % of sources"))
	b.until(row("rules", "site") + `?.querySelector("meter")`)
	b.until(row("rules", "reports", "7 in flight (0 here)", "/reports header user-agent=bot* not cookie session=*, priority sheddable"))
	b.until(row("rules", "search", "/search, algorithm token_bucket, burst 20, action delay"))
	b.until(row("rules", "export", "/export, cost 3, blocked for 1m, then 10m, action tag"))
	b.until(row("shedding", "all hosts", "has room", "100"))
	for range 2 {
		ask("GET", "http://"+edges[0].front+"/export", "203.0.113.99")
	}
	b.until(row("blocked", "203.0.113.99", "export", "more than 5 in 1m (its requests are tagged and pass)"))
	b.until(`document.querySelector("#legend .tagged")`)
	b.until(`/blocked under rules? .*login.*; 1 is tagged and passes; /.test(document.querySelector("#says").textContent)`)
	b.until(`document.querySelector("#legend .mitigated").textContent.startsWith("refused: source is blocked ")`)

	// Block, with a reason that would be markup.
	b.focus("#block")
	b.keys(kb.Enter)
	b.until(`document.querySelector("#d-block").open`)
	b.keys(kb.Escape)
	b.until(`!document.querySelector("#d-block").open && document.activeElement.id === "block"`)
	b.keys(kb.Enter)
	b.until(`document.querySelector("#d-block").open`)
	b.keys("nobody", kb.Enter)
	b.until(`document.querySelector("#d-block .wrong").textContent.includes("nobody")`)
	b.set("#d-block [name=source]", "198.51.100.7")
	b.set("#d-block [name=reason]", hostile)
	if rule := eval[string](b, `document.querySelector("#d-block [name=rule]").value`); rule != "*" {
		t.Errorf("without a choice it blocks under %s", rule)
	}
	b.set("#d-block [name=rule]", "site")
	b.keys(kb.Enter)
	b.until(row("blocked", "198.51.100.7"))
	b.until(row("events", "blocked for", "<script>")) // before others push it out
	if first := eval[string](b, `document.querySelector("#blocked tbody tr").textContent`); !strings.Contains(first, "198.51.100.7site"+"an operator"+hostile) {
		t.Errorf("the first row is not what an operator has blocked: %s", first)
	}
	for i, p := range edges {
		p.until("blocked on both edges", func() bool { return ask("GET", "http://"+p.front+"/", "198.51.100.7") == 429 })
		if got := ask("GET", "http://"+p.front+"/", "198.51.100.8"); got != 200 {
			t.Errorf("edge %d: another source gets %d", i, got)
		}
	}
	b.until(`document.querySelector("#notice").textContent.match(/Blocked 198.51.100.7 under site, on .*of 2 edges/)`)

	// Find, and the story of one source.
	eval[bool](b, `document.activeElement.blur() === undefined`)
	b.press("/")
	b.keys("198.51.100.7")
	b.until(`document.querySelectorAll("#blocked tbody tr").length === 1 && ` + row("blocked", "198.51.100.7"))
	b.focus("#blocked button.link")
	b.keys(kb.Enter)
	b.until(`document.querySelector("#d-source").open && ` + row("s-blocked", "site") + ` && ` + row("s-rules", "site") + ` && ` + row("s-events", "by ada"))
	b.keys(kb.Escape)
	b.until(`!document.querySelector("#d-source").open`)

	// Lift.
	b.focus("#blocked td.act button")
	b.keys(kb.Enter)
	b.until(`!` + row("blocked", "198.51.100.7") + ` && document.querySelector("#notice").textContent.startsWith("Lifted 198.51.100.7 under site")`)
	for _, p := range edges {
		p.until("lifted on both edges", func() bool { return ask("GET", "http://"+p.front+"/", "198.51.100.7") == 200 })
	}
	b.set("#find", "")

	// A rule: what is wrong is told, what is right is in force, and what was not named stays.
	b.focus(`#rules button[aria-label="Edit the rule login"]`)
	b.keys(kb.Enter)
	b.until(`document.querySelector("#d-rule").open && document.querySelector("#d-rule [name=limit]").value === "5"`)
	b.set("#d-rule [name=window]", "1y")
	b.keys(kb.Enter)
	b.until(`document.querySelector("#d-rule .wrong").textContent.includes("1y")`)
	b.set("#d-rule [name=window]", "2m")
	b.set("#d-rule [name=limit]", "7")
	b.set("#d-rule [name=mode]", "shadow")
	b.keys(kb.Enter)
	b.until(`!document.querySelector("#d-rule").open && ` + row("rules", "login", "7 in 2m"))
	var rule struct {
		Limit             int
		Window, Mode      string
		MitigationTimeout string `json:"mitigation_timeout"`
		Match             struct{ Path string }
	}
	edges[0].asOperator("/v1/rules/login", &rule)
	if rule.Limit != 7 || rule.Window != "2m" || rule.Mode != "shadow" || rule.MitigationTimeout != "10m" || rule.Match.Path != "/login" {
		t.Errorf("the rule is now %+v", rule)
	}
	edges[1].until("changed on the other edge", func() bool { edges[1].asOperator("/v1/rules/login", &rule); return rule.Limit == 7 })
	b.until(row("events", "changed a rule", "limit: 5 → 7"))
	b.until(`/^Last change \d+ s ago by ada: changed a rule.* \(under login\)\.$/.test(document.querySelector("#changed").textContent)`)

	// Roll back: to what the file says.
	b.focus(`#rules button[aria-label="Edit the rule login"]`)
	b.keys(kb.Enter)
	b.until(`document.querySelector("#d-rule").open && ` + row("versions", "in force", "limit: 5 → 7") + ` && ` + row("versions", "the file"))
	b.focus(`#versions button[aria-label="Roll login back to version 0"]`)
	b.keys(kb.Enter)
	b.until(`!document.querySelector("#d-rule").open && ` + row("rules", "login", "5 in 1m") + ` && ` + row("rules", "login", "enforce"))
	b.until(row("edges", "fra1-b", "the same"))

	// Deny and allow: on both edges, with what is wrong told, and taken back; from a source's story as well.
	statuses := func(what, source string, want int) {
		t.Helper()
		for _, p := range edges {
			p.until(what, func() bool { return ask("GET", "http://"+p.front+"/", source) == want })
		}
	}
	b.until(row("lists", "Nobody."))
	b.focus("#deny")
	b.keys(kb.Enter)
	b.until(`document.querySelector("#d-list").open && document.querySelector("#t-list").textContent === "Deny a source"`)
	b.keys("0.0.0.0/0", kb.Enter)
	b.until(`document.querySelector("#d-list .wrong").textContent.includes("too wide")`)
	b.set("#d-list [name=source]", "192.0.2.0/24")
	b.set("#d-list [name=for]", "1h")
	b.set("#d-list [name=reason]", hostile)
	b.keys(kb.Enter)
	b.until(`!document.querySelector("#d-list").open && ` + row("lists", "192.0.2.0/24", "always refused", "<img", "59 min"))
	b.until(`document.querySelector("#notice").textContent.includes("192.0.2.0/24 is denied, on 2 of 2 edges")`)
	statuses("denied on both edges", "192.0.2.7", 403)
	b.focus("#allow")
	b.keys(kb.Enter)
	b.until(`document.querySelector("#d-list").open && document.querySelector("#t-list").textContent === "Allow a source"`)
	b.keys("192.0.2.9", kb.Enter)
	b.until(row("lists", "192.0.2.9", "never limited") + ` && document.querySelector("#notice").textContent.includes("192.0.2.9 is allowed, on 2 of 2 edges")`)
	statuses("allowed among the denied", "192.0.2.9", 200)
	b.focus(`#lists button[aria-label^="192.0.2.0/24 is denied"]`)
	b.keys(kb.Enter)
	b.until(`!` + row("lists", "192.0.2.0/24") + ` && document.querySelector("#notice").textContent.startsWith("192.0.2.0/24 is denied no more")`)
	statuses("denied no more", "192.0.2.7", 200)
	b.focus(`#lists button[aria-label^="192.0.2.9 is allowed"]`)
	b.keys(kb.Enter)
	b.until(row("lists", "Nobody."))
	b.until(row("events", "denied no more", "by ada"))
	b.set("#find", "203.0.113.12")
	b.until(`document.querySelectorAll("#blocked tbody tr").length === 1 && ` + row("blocked", "203.0.113.12", "login"))
	b.focus("#blocked button.link")
	b.keys(kb.Enter)
	b.until(`document.querySelector("#d-source").open`)
	b.focus("#s-allow")
	b.keys(kb.Enter)
	b.until(`document.querySelector("#d-list").open && document.querySelector("#d-list [name=source]").value === "203.0.113.12"`)
	b.keys(kb.Enter)
	b.until(row("lists", "203.0.113.12", "never limited"))
	statuses("allowed on both edges", "203.0.113.12", 200)
	b.set("#find", "")

	// A prefix under all rules.
	b.focus("#block")
	b.keys(kb.Enter)
	b.set("#d-block [name=source]", "198.51.100.0/24")
	b.set("#d-block [name=for]", "1d")
	b.keys(kb.Enter)
	b.until(row("blocked", "198.51.100.0/24", "all rules"))
	b.focus("#blocked td.act button")
	b.keys(kb.Enter)
	b.until(`!` + row("blocked", "198.51.100.0/24"))

	// Maintenance, from the other edge: why, since when, by whom, until when; and it is over.
	order, _ := json.Marshal(map[string]any{"for": "2h", "allow": []string{"198.51.100.0/24"}, "message": hostile})
	if resp, text := edges[1].request("PUT", edges[1].back, "/v1/maintenance", string(order), "Authorization", "Bearer right", "X-Operator", "grace"); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	b.until(`!document.querySelector("#maintenance").hidden`)
	var closed struct{ Since, Until time.Time }
	edges[0].asOperator("/v1/maintenance", &closed)
	clock := func(at time.Time) string { // with the date where it is another day
		return `(\d{4}-\d\d-\d\d )?` + at.UTC().Format("15:04:05Z")
	}
	says := eval[string](b, `document.querySelector("#maintenance").textContent`)
	want := regexp.MustCompile(`^Maintenance: every request gets 503, but those of 198\.51\.100\.0/24, with “` + regexp.QuoteMeta(hostile) + `”\. On since ` + clock(closed.Since) + ` by grace from .+; it ends by itself at ` + clock(closed.Until) + `\.$`)
	if !want.MatchString(says) {
		t.Errorf("during maintenance the page says %q, want %s", says, want)
	}
	edges[1].request("DELETE", edges[1].back, "/v1/maintenance", "", "Authorization", "Bearer right")
	b.until(`document.querySelector("#maintenance").hidden`)

	// Nothing that came from the API is markup.
	b.until(row("rules", "odd", "<imgsrc=x"))
	if n := eval[int](b, `document.querySelectorAll("img, main script, dialog script").length`); n != 0 || eval[string](b, `document.title`) != "Sluice" {
		t.Errorf("%d elements were made of what came from the API; the title is %s", n, eval[string](b, `document.title`))
	}

	// Nobody looks: nobody asks. That a page is hidden is not for a test to bring about, so it is said to be.
	const hide = `(async () => {
		const real = window.setTimeout; let asked = 0;
		while (asking) await new Promise(r => real(r, 10));
		window.setTimeout = (f, ...rest) => { if (f === poll) asked++; return real(f, ...rest); };
		Object.defineProperty(document, "hidden", {value: %v, configurable: true});
		document.dispatchEvent(new Event("visibilitychange"));
		if (%[1]v) await poll();
		while (asking) await new Promise(r => real(r, 10));
		window.setTimeout = real;
		return asked;
	})()`
	if n := eval[int](b, fmt.Sprintf(hide, true)); n != 0 {
		t.Errorf("a hidden page asks again %d times", n)
	}
	if n := eval[int](b, fmt.Sprintf(hide, false)); n != 1 {
		t.Errorf("a page that is seen again asks again %d times, want 1", n)
	}

	// After a slow answer a rate is of the time since the one before it, not 0.
	if !eval[bool](b, `(() => {
		const real = samples;
		samples = [{at: nowAt - 57e3, summary: "before"}, {at: nowAt, summary: "now"}];
		const {first, seconds} = since(recent);
		samples = real;
		return first === "before" && seconds === 57;
	})()`) {
		t.Error("a slow answer shows as no traffic")
	}

	// As it looks.
	eval[bool](b, `(scrollTo(0, 0), document.activeElement.blur(), true)`)
	if *screenshots {
		eval[bool](b, `ask("v1/mitigations/site/198.51.100.23", {method: "PUT", body: {for: "2h", reason: "scraper, ticket 4711"}}).then(() => (notice(""), poll(), true))`)
		for _, seconds := range []string{"25", "45"} {
			b.until(`points.length > 1 && nowAt - points[0].at > 1000 * ` + seconds)
		}
	}
	for _, look := range []struct {
		name, scheme  string
		width, height int64
	}{{"light", "light", 1180, 760}, {"dark", "dark", 1180, 760}, {"phone", "light", 390, 844}} {
		err := chromedp.Do(b.ctx, chromedp.EmulateViewport(look.width, look.height))
		if err == nil {
			_, err = chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look.scheme}}})
		}
		if err != nil {
			b.fatal(look.name, err)
		}
		b.until(fmt.Sprintf(`innerWidth === %d && Math.round(document.querySelector("#plot").getBoundingClientRect().width) > 250`, look.width))
		const beyond = `(d => [...d.querySelectorAll("*")].filter(e => e.checkVisibility() && !e.closest("thead") && e.getBoundingClientRect().width &&
			(e.getBoundingClientRect().right > innerWidth + 0.5 || e.getBoundingClientRect().left < -0.5 || e.clientWidth && e.scrollWidth > e.clientWidth + 1 && !/^(INPUT|SELECT|TEXTAREA|path|svg)$/.test(e.tagName)))
			.map(e => e.tagName + "#" + e.id + "." + e.className + ": " + e.textContent.slice(0, 60)).slice(0, 5))(document)`
		for _, open := range []string{`notice("")`, `openList("deny", "2001:db8:aaaa:bbbb::/64")`, `(document.querySelector("#d-list").close(), openSource("203.0.113.12"))`} {
			eval[bool](b, open+` === undefined`)
			if cut := eval[[]string](b, beyond); len(cut) > 0 {
				t.Errorf("%s: %s: cut off: %q", look.name, open, cut)
			}
		}
		eval[bool](b, `document.querySelector("#d-source").close() === undefined`)
		bright := eval[int](b, `getComputedStyle(document.body).backgroundColor.match(/\d+/g).slice(0, 3).reduce((n, c) => n + Number(c), 0)`)
		if (bright > 382) != (look.scheme == "light") {
			t.Errorf("%s: the page's colours add up to %d", look.name, bright)
		}
		if *screenshots {
			shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
			if err != nil {
				b.fatal(look.name, err)
			}
			if _, err := png.Decode(bytes.NewReader(shot)); err != nil || len(shot) > 150_000 {
				t.Errorf("%s: %d bytes: %v", look.name, len(shot), err)
			}
			must(t, os.WriteFile(filepath.Join("..", "..", "docs", "img", "dashboard-"+look.name+".png"), shot, 0o644))
		}
	}
	if wrong := b.errors(); len(wrong) > 0 {
		t.Errorf("the browser says: %q", wrong)
	}
}

// TestViewerCost measures what a dashboard that somebody looks at costs an idle edge, in processor time, and what the edge takes without.
func TestViewerCost(t *testing.T) {
	if !*viewerCost {
		t.Log("-viewer measures; it takes two minutes")
		return
	}
	p := start(t, origin(t))
	spent := func() time.Duration {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		must(t, err)
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')'):])) // utime and stime are the 14th and 15th of the line
		user, _ := strconv.Atoi(fields[12])
		system, _ := strconv.Atoi(fields[13])
		return time.Duration(user+system) * 10 * time.Millisecond
	}
	minute := func() time.Duration {
		before := spent()
		time.Sleep(time.Minute) // what is measured is a minute
		return spent() - before
	}
	without := minute()
	b := browse(t)
	b.open("http://" + p.back + "/")
	b.until(`document.querySelector("#state").textContent === "live"`)
	seen := minute()
	t.Logf("a minute with a viewer takes %v of processor time, without %v: a viewer costs %v, in %d looks", seen, without, seen-without, eval[int](b, `turn`))
}
