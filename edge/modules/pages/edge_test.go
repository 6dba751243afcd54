package pages_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/edgetest"
	"sluice/edge/modules/pages"
)

// paged is an edge with pages of a folder: files are their texts by name.
func paged(t *testing.T, origin, yaml string, files map[string]string) *edgetest.Edge {
	t.Helper()
	c, err := parse(pageFile(t, files), yaml)
	edgetest.Must(t, err)
	c.Origins = edgetest.WithoutRules(t, origin).Origins
	return edgetest.Serve(t, edgetest.NewServer(t, c, edgetest.Using(pages.Module())))
}

func parse(file, yaml string) (*config.Config, error) {
	return config.Parser{Modules: edge.Modules{pages.Module()}.Config()}.Parse(file, []byte(yaml))
}

// wrong is an origin whose answers are none: clients get 502.
func wrong(t *testing.T) string {
	return edgetest.StartRecorder(t, func(int, string) string { return "nonsense" }).URL()
}

func pageFile(t *testing.T, files map[string]string) (configuration string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		edgetest.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		edgetest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return filepath.Join(dir, "sluice.yaml")
}

const pagesYAML = `
source: {trust: [127.0.0.1]}
deny: [192.0.2.66]
limits: {body_bytes: 10}
rules:
- {name: r, match: {path: /limited}, limit: 1, window: 1h}
- {name: own, match: {path: /own}, limit: 1, window: 1h, response: {status: 429, content_type: text/plain, body: mine}}
pages:
- {status: [429, 403, 413], type: text/html, file: pages/any.html}
- {status: [429, 502], type: text/plain, file: pages/any.txt}
- {status: [502], type: application/json, file: pages/502.json}
`

var pageFiles = map[string]string{
	"pages/any.html": "<h1>{{status}}</h1><p>{{retry_after}} {{request_id}} {{other}}",
	"pages/any.txt":  "plain {{status}} {{request_id}}\n",
	"pages/502.json": `{"code":{{status}},"id":"{{request_id}}"}`,
}

const browser = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// Which answer a client gets: by status, by Accept; and the header stays that of the answer.
func TestPages(t *testing.T) {
	e := paged(t, wrong(t), pagesYAML, pageFiles)
	e.Get("/limited")
	e.Get("/own")
	const json = `{"error"`
	for _, test := range []struct{ name, path, lines, status, kind, body string }{
		{"a browser", "/limited", browser, "429", "text/html; charset=utf-8", "<h1>429</h1><p>RETRY ID {{other}}"},
		{"no Accept", "/limited", "", "429", "application/json", json},
		{"anything", "/limited", "Accept: */*", "429", "application/json", json},
		{"JSON", "/limited", "Accept: application/json", "429", "application/json", json},
		{"all text: the first", "/limited", "Accept: text/*", "429", "text/html; charset=utf-8", "<h1>429"},
		{"weights", "/limited", "Accept: text/*;q=0.5, text/html;q=0.1, application/json;q=0.2", "429", "text/plain; charset=utf-8", "plain 429 ID"},
		{"two lines", "/limited", "Accept: image/png\r\nAccept: text/plain", "429", "text/plain; charset=utf-8", "plain 429"},
		{"refused in all types", "/limited", "Accept: text/html;q=0", "429", "application/json", json},
		{"none that there is", "/limited", "Accept: image/png", "429", "application/json", json},
		{"an empty one", "/limited", "Accept:", "429", "application/json", json},
		{"a rule's own body", "/own", browser, "429", "text/plain", "mine"},
		{"denied", "/", browser + "\r\nX-Forwarded-For: 192.0.2.66", "403", "text/html; charset=utf-8", "<h1>403</h1><p> ID"},
		{"too large", "/", browser + "\r\nContent-Length: 11", "413", "text/html; charset=utf-8", "<h1>413</h1>"},
		{"no origin, and JSON of one's own", "/", "Accept: */*", "502", "application/json", `{"code":502,"id":"ID"}`},
		{"no origin, no Accept", "/", "", "502", "application/json", json},
		{"no page for the status", "/", browser + "\r\nX Y", "400", "application/json", json},
		{"a name that a proxy gave", "/limited", browser + "\r\nX-Request-Id: <b>\"&", "429", "text/html; charset=utf-8", "<p>RETRY &lt;b&gt;&#34;&amp; {{"},
		{"the same in JSON", "/", "Accept: */*\r\nX-Request-Id: a\"\\", "502", "application/json", `"id":"a\"\\"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			lines := test.lines
			if lines != "" {
				lines += "\r\n"
			}
			resp, body := e.Talk().Say("GET " + test.path + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + lines + "\r\n")
			want := strings.NewReplacer("RETRY", resp.Header.Get("Retry-After"), "ID", resp.Header.Get("X-Request-Id")).Replace(test.body)
			if fmt.Sprint(resp.StatusCode) != test.status || resp.Header.Get("Content-Type") != test.kind || !strings.Contains(body, want) {
				t.Errorf("%d %q\n%s\nwant %s %q\n%s", resp.StatusCode, resp.Header.Get("Content-Type"), body, test.status, test.kind, want)
			}
			if resp.Header.Get("Content-Length") != fmt.Sprint(len(body)) || resp.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%d bytes: %v", len(body), resp.Header)
			}
			vary := "Accept"
			if test.path == "/own" || test.status == "400" {
				vary = ""
			}
			if got := strings.Join(resp.Header.Values("Vary"), "|"); got != vary {
				t.Errorf("Vary: %q, want %q", got, vary)
			}
			if limited := test.path == "/limited"; limited != (resp.Header.Get("Retry-After") != "" && test.path != "/own" && resp.Header.Get("RateLimit") != "") && test.path != "/own" {
				t.Errorf("%v", resp.Header)
			}
		})
	}
}

// A HEAD has the head of the page, over either protocol, and a call of gRPC has none of it.
func TestPagesInOtherTerms(t *testing.T) {
	e := paged(t, wrong(t), pagesYAML, pageFiles)
	e.Get("/limited")
	resp, _ := e.Talk().Say("HEAD /limited HTTP/1.1\r\nHost: a\r\n" + browser + "\r\nConnection: close\r\n\r\n")
	if h := resp.Header; resp.StatusCode != 429 || h.Get("Content-Type") != "text/html; charset=utf-8" || h.Get("Content-Length") == "0" {
		t.Errorf("%d %v", resp.StatusCode, h)
	}
	accepts := func(kind string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Accept", kind) }
	}
	tr, url := edgetest.OverHTTP2(t), "https://"+e.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))+"/limited"
	if resp, body := edgetest.Ask2(t, tr, "GET", url, nil, accepts("text/html")); resp.StatusCode != 429 || !strings.Contains(body, "<h1>429</h1>") || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	if resp, body := edgetest.Ask2(t, tr, "HEAD", url, nil, accepts("text/html")); resp.StatusCode != 429 || body != "" || resp.Header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	resp, body := edgetest.Ask2(t, tr, "POST", url, strings.NewReader("x"), accepts("text/html"), func(r *http.Request) { r.Header.Set("Content-Type", "application/grpc") })
	if h := resp.Header; resp.StatusCode != 200 || body != "" || h.Get("Grpc-Status") != "8" || h.Get("Content-Type") != "application/grpc" || h.Get("Vary") != "" {
		t.Errorf("%d %v %s", resp.StatusCode, h, body)
	}
}

// A page of the largest size, with placeholders, goes out whole to a client of HTTP/2 that takes it in pieces.
func TestLargePage(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 4095)
	e := paged(t, wrong(t), pagesYAML, map[string]string{"pages/any.html": long + "{{status}}", "pages/any.txt": "", "pages/502.json": ""})
	e.Get("/limited")
	tr, url := edgetest.OverHTTP2(t), "https://"+e.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))+"/limited"
	for range 3 { // answers of one connection, and buffers that are used again
		if _, body := edgetest.Ask2(t, tr, "GET", url, nil, func(r *http.Request) { r.Header.Set("Accept", "text/html") }); body != long+"429" {
			t.Fatalf("%d bytes", len(body))
		}
	}
}

// Pages are read when the configuration is, and are in force from then on.
func TestPagesReload(t *testing.T) {
	e := paged(t, wrong(t), "", nil)
	says := func() string {
		_, body := e.Get("/", browser)
		return body
	}
	if body := says(); !strings.HasPrefix(body, `{"error"`) {
		t.Error(body)
	}
	file := pageFile(t, map[string]string{"a.html": "first"})
	reload := func() {
		t.Helper()
		c, err := parse(file, "pages: [{status: [502], type: text/html, file: a.html}]")
		edgetest.Must(t, err)
		c.Origins = e.Config().Origins
		edgetest.Must(t, e.Apply(c))
	}
	reload()
	edgetest.Must(t, os.WriteFile(filepath.Join(filepath.Dir(file), "a.html"), []byte("second"), 0o600))
	if body := says(); body != "first" {
		t.Error(body)
	}
	if reload(); says() != "second" {
		t.Error(says())
	}
	edgetest.Must(t, e.Reload("rules: []"))
	if body := says(); !strings.HasPrefix(body, `{"error"`) {
		t.Error(body)
	}
}
