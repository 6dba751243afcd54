//go:build system

package main

import (
	"bytes"
	"context"
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

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// An inspector asks edges, and holds what they answer against their document.
type inspector struct {
	t    *testing.T
	doc  *openapi3.T
	seen map[string]bool // method, path and status
}

func newInspector(t *testing.T, p *process) *inspector {
	t.Helper()
	a := p.api("GET", "/v1/openapi.json", "", "Authorization", "Bearer right")
	doc, err := openapi3.NewLoader().LoadFromData([]byte(a.text))
	if err != nil {
		t.Fatalf("%d %s: %v", a.status, a.text, err)
	}
	if err := doc.Validate(context.Background()); err != nil || doc.OpenAPI != "3.1.0" {
		t.Fatalf("OpenAPI %s: %v", doc.OpenAPI, err)
	}
	for _, kind := range []string{"text/html", "text/css", "text/javascript"} {
		openapi3filter.RegisterBodyDecoder(kind, openapi3filter.PlainBodyDecoder)
	}
	return &inspector{t, doc, make(map[string]bool)}
}

// route finds the operation of a path. Only sources and prefixes have a slash.
func (i *inspector) route(method, path string) *routers.Route {
	for template, item := range i.doc.Paths.Map() {
		pattern := regexp.MustCompile(`\\\{(\w+)\\\}`).ReplaceAllStringFunc(regexp.QuoteMeta(template), func(name string) string {
			if strings.Contains(name, "source") || strings.Contains(name, "prefix") {
				return ".+"
			}
			return "[^/]+"
		})
		if operation := item.GetOperation(method); operation != nil && regexp.MustCompile("^"+pattern+"$").MatchString(path) {
			return &routers.Route{Spec: i.doc, Path: template, PathItem: item, Method: method, Operation: operation}
		}
	}
	i.t.Fatalf("the document has no %s %s", method, path)
	return nil
}

// ask asks an edge, and returns what it answers, once that is as the document says. A request that the edge takes must be one that the
// document allows.
func (i *inspector) ask(p *process, method, path, body string, want int, header ...string) string {
	i.t.Helper()
	req, err := http.NewRequest(method, "http://"+p.back+path, strings.NewReader(body))
	must(i.t, err)
	req.Header.Set("Authorization", "Bearer right")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for n := 0; n < len(header); n += 2 {
		req.Header.Set(header[n], header[n+1])
		if header[n] == "Host" {
			req.Host = header[n+1]
		}
	}
	resp, err := http.DefaultClient.Do(req)
	must(i.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(i.t, err)
	what := fmt.Sprintf("%s %s %.60s: %d %.3000s", method, path, body, resp.StatusCode, text)
	if resp.StatusCode != want {
		i.t.Errorf("%s: want %d", what, want)
	}
	route := i.route(method, req.URL.EscapedPath())
	i.seen[fmt.Sprint(method, " ", route.Path, " ", resp.StatusCode)] = true
	req.Body = io.NopCloser(strings.NewReader(body))
	asked := &openapi3filter.RequestValidationInput{Request: req, Route: route, PathParams: make(map[string]string),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	for _, name := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(route.Path, -1) {
		asked.PathParams[name[1]] = "given"
	}
	if resp.StatusCode == 200 {
		if err := openapi3filter.ValidateRequest(context.Background(), asked); err != nil {
			i.t.Errorf("%s: the edge takes what the document does not allow: %v", what, err)
		}
	}
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{RequestValidationInput: asked, Status: resp.StatusCode, Header: resp.Header,
		Body: io.NopCloser(bytes.NewReader(text)), Options: asked.Options})
	if err != nil {
		i.t.Errorf("%s: not as the document says: %v", what, err)
	}
	return string(text)
}

// Every route of real edges, asked well and ill, answers as the document says: nothing that it does not have, and all of its statuses.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	files, nodes, site := writePoP(t, 2), startMemcached(t), origin(t)
	token := write(t, "right")
	database := filepath.Join(t.TempDir(), "plans.db")
	startEdge := func(file string, args ...string) *process {
		text, err := os.ReadFile(file)
		must(t, err)
		text = append(text, "- {name: trial, limit: 1, mode: shadow, count: {refused: true}}\n- {name: asleep, limit: 9, mode: off, key: [source, \"header:X-Tenant\"], count: {statuses: [401]}}\n- {name: api, key: \"header:X-API-Key\", limit: 3, plans: {pro: 9}}\n"...)
		text = append(text, fmt.Sprintf("admin_token_file: %s\nmetrics_token: true\nsource: {trust: [127.0.0.0/8]}\nlists: [{name: robots, file: %s}]\nallow: [192.0.2.200]\ndeny: [192.0.2.201, 'list:robots']\n", token, write(t, "198.51.100.0/24\n"))...)
		text = append(text, "plans: {key: \"header:X-API-Key\", store: \"sqlite:"+database+"\"}\n"...)
		return start(t, site, append(args, "--config", write(t, string(text)), "--memcached", nodes)...)
	}
	p := startEdge(files[0])
	i := newInspector(t, p)
	for range 12 {
		ask("GET", "http://"+p.front+"/login", "192.0.2.1") // of which a rule allows 5
		ask("GET", "http://"+p.front+"/", "192.0.2.201")
	}

	const ten = `{"for":"10m","reason":"scraper"}`
	digest := "%23" + strings.Repeat("0", 32)
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", "/v1/openapi.json", "", 200},
		{"GET", "/v1/rules", "", 200},
		{"GET", "/v1/rules/login", "", 200},
		{"GET", "/v1/rules/none", "", 404},
		{"PUT", "/v1/rules/new", `{"limit":9,"match":{"hosts":["a.example"],"path":"/x/*","methods":["GET"]},"key":["header:x-tenant"],"window":"90s","response":{"status":503}}`, 200},
		{"PUT", "/v1/rules/new", `{"limit":9}`, 409},
		{"PUT", "/v1/rules/new?replace=true", `{"limit":9}`, 200},
		{"PUT", "/v1/rules/new?replace=yes", `{"limit":9}`, 400},
		{"PUT", "/v1/rules/new", `{"limit":0}`, 400},
		{"PATCH", "/v1/rules/login", `{"limit":30,"window":null,"name":"login"}`, 200},
		{"PATCH", "/v1/rules/trial", `{"share":50}`, 200},
		{"PATCH", "/v1/rules/login", `{"colour":"red"}`, 400},
		{"PATCH", "/v1/rules/none", `{"limit":30}`, 404},
		{"PATCH", "/v1/rules/login", `{"response":{"body":"` + strings.Repeat("x", 5000) + `"}}`, 409},
		{"GET", "/v1/rules/login/history", "", 200},
		{"GET", "/v1/rules/none/history", "", 404},
		{"POST", "/v1/rules/login/rollback", `{"to":0}`, 200},
		{"POST", "/v1/rules/login/rollback", `{"to":"x"}`, 400},
		{"POST", "/v1/rules/login/rollback", `{"to":7}`, 404},
		{"GET", "/v1/rules/login/history", "", 200},
		{"GET", "/v1/rules/login/suggestion", "", 200},
		{"GET", "/v1/rules/login/suggestion?scope=pop&refuse=0.02", "", 200},
		{"GET", "/v1/rules/login/suggestion?refuse=2", "", 400},
		{"GET", "/v1/rules/asleep/suggestion", "", 400},
		{"GET", "/v1/rules/none/suggestion", "", 404},
		{"DELETE", "/v1/rules/new", "", 200},
		{"DELETE", "/v1/rules/new", "", 404},
		{"GET", "/v1/config", "", 200},
		{"PUT", "/v1/mitigations/login/198.51.100.7", ten, 200},
		{"PUT", "/v1/mitigations/trial/198.51.100.0/24", ten, 200},
		{"PUT", "/v1/mitigations/*/198.51.100.0%2F24", `{"for":"1.5h"}`, 200},
		{"PUT", "/v1/mitigations/*/192.0.2.200", ten, 200}, // allowed: with a warning
		{"PUT", "/v1/mitigations/login/nobody", ten, 400},
		{"PUT", "/v1/mitigations/login/198.51.100.7", `{"for":"10"}`, 400},
		{"PUT", "/v1/mitigations/none/198.51.100.7", ten, 404},
		{"PUT", "/v1/mitigations/asleep/" + digest, ten, 409},
		{"GET", "/v1/mitigations", "", 200},
		{"GET", "/v1/mitigations?mode=shadow&by=admin&q=198.51.100.7", "", 200},
		{"GET", "/v1/mitigations?rule=*&source=198.51.100.0/25", "", 200},
		{"GET", "/v1/mitigations?mode=shadow&n=10", "", 200},
		{"GET", "/v1/mitigations?n=0", "", 400},
		{"GET", "/v1/mitigations?rule=none", "", 404},
		{"GET", "/v1/mitigations?source=nobody", "", 400},
		{"GET", "/v1/mitigations?mode=off", "", 400},
		{"GET", "/v1/mitigations?by=me", "", 400},
		{"DELETE", "/v1/mitigations/login/198.51.100.7", "", 200},
		{"DELETE", "/v1/mitigations/*/198.51.100.7", "", 200}, // whose prefix is blocked: with a warning
		{"DELETE", "/v1/mitigations/login/nobody", "", 400},
		{"DELETE", "/v1/mitigations/none/198.51.100.7", "", 404},
		{"DELETE", "/v1/mitigations/asleep/198.51.100.7", "", 409},
		{"GET", "/v1/sources/192.0.2.1", "", 200},
		{"GET", "/v1/sources/2001:db8::7", "", 200},
		{"GET", "/v1/sources/nobody", "", 400},
		{"GET", "/v1/sources/" + digest, "", 200},
		{"POST", "/v1/sources", `{"key":"header:x-api-key","value":"k-4711"}`, 200},
		{"POST", "/v1/sources", `{"parts":[{"key":"header:x-api-key","value":"k=1"}]}`, 200},
		{"POST", "/v1/sources", `{"key":"header:x-api-key"}`, 400},
		{"POST", "/v1/sources", `{"key":"header:X-Tenant","value":"k-4711"}`, 404},
		{"POST", "/v1/mitigations", `{"key":"header:X-Api-Key","value":"k-4711","for":"10m","reason":"scraper"}`, 200},
		{"POST", "/v1/mitigations", `{"key":"header:X-Api-Key","value":"k-4711","rule":"api","for":"10m"}`, 200},
		{"POST", "/v1/mitigations", `{"key":"header:X-Api-Key","value":"k-4711"}`, 400},
		{"POST", "/v1/mitigations", `{"key":"header:X-Api-Key","value":"k-4711","rule":"none","for":"10m"}`, 404},
		{"POST", "/v1/mitigations", `{"key":"header:X-Api-Key","value":"k-4711","rule":"asleep","for":"10m"}`, 409},
		{"POST", "/v1/sources", `{"key":"header:x-api-key","value":"k-4711"}`, 200},
		{"POST", "/v1/mitigations/lift", `{"key":"header:X-Api-Key","value":"k-4711"}`, 200},
		{"POST", "/v1/mitigations/lift", `{"key":"header:X-Api-Key","value":"k-4711","by":"me"}`, 400},
		{"POST", "/v1/mitigations/lift", `{"key":"cookie:sid","value":"1"}`, 404},
		{"POST", "/v1/mitigations/lift", `{"key":"header:X-Api-Key","value":"k-4711","rule":"asleep"}`, 409},
		{"POST", "/v1/tries", `{"for":"10m","rule":{"limit":5,"key":["header:X-Api-Key"]}}`, 200},
		{"POST", "/v1/tries", `{"name":"try-1","for":"10m","rule":{"limit":5}}`, 409},
		{"POST", "/v1/tries", `{"for":"10m","rule":{"limt":5}}`, 400},
		{"GET", "/v1/tries", "", 200},
		{"GET", "/v1/tries/try-1", "", 200},
		{"GET", "/v1/tries/try-1?scope=pop", "", 200},
		{"GET", "/v1/tries/try-1?scope=all", "", 400},
		{"GET", "/v1/tries/none", "", 404},
		{"DELETE", "/v1/tries/try-1?scope=all", "", 400},
		{"DELETE", "/v1/tries/try-1?scope=pop", "", 200},
		{"DELETE", "/v1/tries/none", "", 404},
		{"GET", "/v1/top", "", 200},
		{"GET", "/v1/top?by=refused&n=1", "", 200},
		{"GET", "/v1/top?by=shadow", "", 200},
		{"GET", "/v1/top?by=size", "", 400},
		{"GET", "/v1/top?kind=key", "", 200},
		{"GET", "/v1/top?kind=key&rule=api&by=refused", "", 200},
		{"GET", "/v1/top?kind=key&rule=login", "", 400},
		{"GET", "/v1/top?kind=key&rule=none", "", 404},
		{"GET", "/v1/top?kind=name", "", 400},
		{"GET", "/v1/top?n=1001", "", 400},
		{"PUT", "/v1/quotas/k-4711", `{"plan":"pro"}`, 200},
		{"PUT", "/v1/quotas/k%2F4711", `{"rule":"api","limit":500,"plan":"pro","effective_at":"2026-05-04T14:05:00Z","expires_at":"2100-05-04T14:05:00+02:00"}`, 200},
		{"PUT", "/v1/quotas/k-4711", `{"plan":"gold"}`, 400},
		{"PUT", "/v1/quotas/k-4711", `{"limit":5}`, 400},
		{"PUT", "/v1/quotas/k-4711", `{"plan":"pro","colour":"red"}`, 400},
		{"PUT", "/v1/quotas/k-4711", `{"plan":"pro","expires_at":"2001-05-04T14:05:00Z"}`, 400},
		{"PUT", "/v1/quotas/k-4711", `{"rule":"login","limit":5}`, 400},
		{"PUT", "/v1/quotas/k-4711", `{"rule":"none","limit":5}`, 404},
		{"PUT", "/v1/quotas/%C3%A4", `{"plan":"pro"}`, 400},
		{"GET", "/v1/quotas/k-4711", "", 200},
		{"GET", "/v1/quotas?n=1", "", 200},
		{"GET", "/v1/quotas?plan=pro", "", 200},
		{"GET", "/v1/quotas?after=k-4711", "", 400},
		{"GET", "/v1/quotas?n=0", "", 400},
		{"GET", "/v1/quotas/%20", "", 400},
		{"GET", "/v1/quotas/k-4711/history", "", 200},
		{"GET", "/v1/quotas/%20/history", "", 400},
		{"GET", "/v1/usage/k%2F4711", "", 200},
		{"GET", "/v1/usage/%20", "", 400},
		{"PUT", "/v1/rules/planned", `{"limit":9,"key":["header:X-API-Key"],"plans":{"pro":{"limit":90},"free":9},"match":{"plans":["pro"],"not":{"plans":["free"]}}}`, 200},
		{"PUT", "/v1/rules/planned", `{"limit":9,"plans":{"pro":90}}`, 409},
		{"PATCH", "/v1/rules/planned", `{"plans":{"pro":{"limit":100},"free":null}}`, 200},
		{"DELETE", "/v1/rules/planned", "", 200},
		{"DELETE", "/v1/quotas/k-4711?rule=api", "", 200},
		{"DELETE", "/v1/quotas/k-4711", "", 200},
		{"DELETE", "/v1/quotas/%20", "", 400},
		{"GET", "/v1/quotas/k%2F4711/history", "", 200},
		{"GET", "/v1/quotas/k-4711/history", "", 200},
		{"GET", "/v1/events", "", 200},
		{"GET", "/v1/events?since=3", "", 200},
		{"GET", "/v1/events?since=2026-05-04T14:05:00Z", "", 200},
		{"GET", "/v1/events?since=yesterday", "", 400},
		{"GET", "/v1/events?scope=pop&since=3", "", 400},
		{"GET", "/v1/status?scope=all", "", 400},
		{"GET", "/v1/nodes", "", 200},
		{"GET", "/v1/origins", "", 200},
		{"GET", "/v1/lists", "", 200},
		{"GET", "/v1/pop", "", 200},
		{"GET", "/v1/dashboard", "", 200},
		{"GET", "/v1/dashboard?q=198.51.100.7&since=2", "", 200},
		{"GET", "/v1/dashboard?since=x", "", 400},
		{"GET", "/", "", 200},
		{"GET", "/dashboard.css", "", 200},
		{"GET", "/dashboard.js", "", 200},
		{"PUT", "/v1/maintenance", `{"for":"2h","allow":["203.0.113.0/24"],"message":"Moving house"}`, 200},
		{"PUT", "/v1/maintenance", `{}`, 200}, // in place of the first: with a warning
		{"PUT", "/v1/maintenance", `{"allow":["203.0.113.0/33"]}`, 400},
		{"GET", "/v1/maintenance", "", 200},
		{"GET", "/readyz", "", 200},
		{"GET", "/v1/status", "", 200},
		{"GET", "/v1/mitigations", "", 200},
		{"GET", "/v1/dashboard", "", 200},
		{"DELETE", "/v1/maintenance", "", 200},
		{"DELETE", "/v1/maintenance", "", 200},
		{"GET", "/v1/maintenance", "", 200},
		{"POST", "/v1/drain", "", 200},
		{"GET", "/readyz", "", 503},
		{"GET", "/v1/status", "", 200},
		{"POST", "/v1/undrain", "", 200},
		{"GET", "/healthz", "", 200},
		{"GET", "/readyz", "", 200},
		{"GET", "/metrics", "", 200},
	} {
		i.ask(p, c.method, c.path, c.body, c.want, "X-Operator", "ada")
	}
	for _, list := range []string{"allow", "deny"} {
		i.ask(p, "PUT", "/v1/"+list+"/203.0.113.0/24", ten, 200)
		i.ask(p, "PUT", "/v1/"+list+"/203.0.113.0%2f25", ten, 200)
		i.ask(p, "PUT", "/v1/"+list+"/203.0.113.0/24", `{"for":"10m","until":"x"}`, 400)
		i.ask(p, "GET", "/v1/"+list, "", 200)
		i.ask(p, "DELETE", "/v1/"+list+"/203.0.113.0/24", "", 200)
		i.ask(p, "DELETE", "/v1/"+list+"/nobody", "", 400)
	}
	i.ask(p, "PUT", "/v1/allow/192.0.2.201", ten, 200) // denied: with a warning
	for _, method := range []string{"PUT", "PATCH", "DELETE"} {
		i.ask(p, method, "/v1/rules/login", `{"limit":9}`, 412, "If-Match", `"1-0"`)
	}
	i.ask(p, "POST", "/v1/rules/login/rollback", `{"to":0}`, 412, "If-Match", `"1-0"`)
	long := `{"response":{"body":"` + strings.Repeat("x", 100<<10) + `"}}`
	i.ask(p, "PUT", "/v1/rules/login", long, 413)
	i.ask(p, "PATCH", "/v1/rules/login", long, 413)
	i.ask(p, "POST", "/v1/rules/login/rollback", long, 413)
	i.ask(p, "POST", "/v1/reload", "", 200)

	// With another edge of the PoP, which hears of some of this, and on one that counts alone, with what flags say.
	second := startEdge(files[1], "--notice", "30s")
	p.until("meeting the other", func() bool { return strings.Contains(i.ask(p, "GET", "/metrics", "", 200), "\nsluice_tier_edges 2\n") })
	for range 12 {
		ask("GET", "http://"+second.front+"/login", "192.0.2.2")
	}
	p.until("told by the PoP", func() bool { return strings.Contains(i.ask(p, "GET", "/v1/mitigations?by=pop", "", 200), "192.0.2.2") })
	i.ask(p, "PUT", "/v1/mitigations/login/198.51.100.8", ten, 200)
	i.ask(second, "PATCH", "/v1/rules/login", `{"limit":8}`, 200)
	alone := start(t, site)
	alone.get()
	for _, other := range []*process{p, second, alone} {
		for _, path := range []string{"/v1/rules", "/v1/mitigations", "/v1/events", "/v1/nodes", "/v1/origins", "/v1/lists", "/v1/pop", "/v1/status", "/v1/config", "/v1/dashboard", "/v1/sources/192.0.2.1", "/v1/top", "/v1/allow",
			"/v1/mitigations?scope=pop", "/v1/events?scope=pop", "/v1/status?scope=pop", "/v1/dashboard?scope=pop", "/v1/sources/192.0.2.1?scope=pop", "/v1/top?scope=pop"} {
			i.ask(other, "GET", path, "", 200)
		}
	}
	i.ask(alone, "PUT", "/v1/mitigations/default/198.51.100.7", ten, 200)
	i.ask(alone, "DELETE", "/v1/mitigations/default/198.51.100.7", "", 200)
	i.ask(alone, "PATCH", "/v1/rules/default", `{"limit":7}`, 200)
	i.ask(alone, "DELETE", "/v1/rules/default", "", 200)
	i.ask(alone, "PUT", "/v1/deny/203.0.113.0/24", ten, 200)

	i.ask(alone, "GET", "/v1/quotas", "", 409)
	i.ask(alone, "GET", "/v1/quotas/k", "", 409)
	i.ask(alone, "PUT", "/v1/quotas/k", `{"plan":"pro"}`, 409)
	i.ask(alone, "DELETE", "/v1/quotas/k", "", 409)
	i.ask(alone, "GET", "/v1/quotas/k/history", "", 409)
	i.ask(alone, "GET", "/v1/usage/k", "", 409)

	// Without the token, and for another host, whatever is asked.
	for template, item := range i.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			path := strings.NewReplacer("{name}", "login", "{rule}", "login", "{source}", "192.0.2.7", "{prefix}", "192.0.2.0/24", "{address}", "192.0.2.7", "{key}", "k").Replace(template)
			if operation.Responses.Status(401) != nil {
				i.ask(p, method, path, "", 401, "Authorization", "Bearer wrong")
			}
			if operation.Responses.Status(403) != nil {
				i.ask(p, method, path, "", 403, "Host", "evil.example")
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()

	// A file that cannot be, and an edge that leaves.
	file := second.cmd.Args[slices.Index(second.cmd.Args, "--config")+1]
	must(t, os.WriteFile(file, []byte("rules: none\n"), 0o600))
	i.ask(second, "POST", "/v1/reload", "", 400)
	i.ask(second, "GET", "/v1/events", "", 200)
	must(t, second.cmd.Process.Signal(syscall.SIGTERM))
	second.until("leaving", func() bool { return second.api("GET", "/readyz", "").status == 503 })
	i.ask(second, "GET", "/readyz", "", 503)

	unseen := map[string]string{ // what a real edge cannot be brought to in a test like this, and why
		"PUT /v1/allow/{prefix} 409":         "a full list: TestWords in edge/admin",
		"DELETE /v1/allow/{prefix} 409":      "a full list",
		"PUT /v1/deny/{prefix} 409":          "a full list",
		"DELETE /v1/deny/{prefix} 409":       "a full list",
		"PUT /v1/maintenance 409":            "a full list",
		"DELETE /v1/maintenance 409":         "a full list",
		"DELETE /v1/rules/{name} 409":        "a full list",
		"POST /v1/rules/{name}/rollback 409": "a full list",
		"GET /v1/dashboard 500":              "metrics that fail",
		"GET /metrics 503":                   "five at a time",
		"PUT /v1/quotas/{key} 503":           "a store that stops: TestPlans",
		"GET /v1/quotas 503":                 "a store that stops: TestPlans",
		"DELETE /v1/quotas/{key} 503":        "a store that stops",
		"GET /v1/quotas/{key}/history 503":   "a store that stops: TestPlans",
	}
	for template, item := range i.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for status := range operation.Responses.Map() {
				if what := method + " " + template + " " + status; i.seen[what] == (unseen[what] != "") {
					t.Errorf("%s is in the document; it was answered: %v; excused: %q", what, i.seen[what], unseen[what])
				}
			}
		}
	}
	alone.stop(syscall.SIGTERM)
	p.stop(syscall.SIGTERM)
}
