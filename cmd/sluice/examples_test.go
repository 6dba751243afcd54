//go:build system

package main

import (
	"bytes"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials/insecure"

	"sluice/edge/modules/geo/geotest"
)

// The examples are whole files: sluice check has nothing against them, and an edge with each admits the request that it is about, under the
// rule that it is about. What belongs to another machine (nodes, secret, folders, who is trusted) is that of the test.
func TestExamples(t *testing.T) {
	t.Parallel()
	const root = "../../examples"
	type example struct {
		request string // the first line, without its version, and headers; or GRPC, a domain, and descriptors
		policy  string // the rule whose policy the answer tells; "": none
		shows   string // what the operators' listener says then at this path, after a space
	}
	examples := map[string]example{
		"acme.yaml":                     {"GET /", "everything", `/readyz waiting for a certificate for example.com`},
		"https.yaml":                    {"GET /", "everything", `/v1/status "field": "listen_tls"`},
		"protect-an-origin.yaml":        {"GET /search?q=x", "search", `/v1/sources/127.0.0.1 "remaining": 29`},
		"behind-a-balancer.yaml":        {"GET /|X-Forwarded-For: 198.51.100.7", "everything", `/v1/top "source": "198.51.100.7"`},
		"login.yaml":                    {"POST /login", "login", `/v1/rules/login "first_sight": "wait"`},
		"api-keys.yaml":                 {"GET /v1/x|X-Api-Key: k|Host: api.example.com", "api-key", `/metrics sluice_requests_total{rule="everything",verdict="pass"} 1`},
		"shadow-first.yaml":             {"GET /", "", `/metrics sluice_requests_total{rule="everything",verdict="pass"} 1`},
		"try-a-change.yaml":             {"GET /", "everything", `/metrics sluice_requests_total{rule="stricter",verdict="pass"} 1`},
		"check-for-nginx.yaml":          {"GET /check|X-Original-URI: /login|X-Original-Method: POST|X-Forwarded-For: 198.51.100.7", "login", `/v1/top "source": "198.51.100.7"`},
		"who-comes-back.yaml":           {"GET /", "everything", `/v1/rules/everything "escalate_within": "2h"`},
		"busy-page.yaml":                {"GET /shop/1", "shop", `/v1/rules/api "jitter": "10%"`},
		"error-pages.yaml":              {"GET /", "everything", `/v1/config "file": "`},
		"match.yaml":                    {"GET /search?x=y&%64eep=1|User-Agent: curl/8", "costly-search", `/metrics sluice_requests_total{rule="scripts",verdict="pass"} 1`},
		"lists.yaml":                    {"GET /", "partners", `/metrics sluice_list_entries{list="partners"} 2`},
		"shedding.yaml":                 {"GET /search|Sec-Purpose: prefetch", "everything", `/v1/origins "limit": 100`},
		"traces.yaml":                   {"GET /", "everything", `/v1/config "endpoint": "http://127.0.0.1:4318"`},
		"keys.yaml":                     {"GET /v1/users/7?tenant=a", "tenant", `/metrics sluice_requests_total{rule="source-and-part",verdict="pass"} 1`},
		"geo.yaml":                      {"GET /|X-Forwarded-For: 192.0.2.1", "hosting", `/v1/sources/192.0.2.1 "asn": 64500`},
		"windows-and-prefixes.yaml":     {"GET /", "everything", `/v1/sources/127.0.0.1 "policy": "everything/24/1s"`},
		"tokens.yaml":                   {"GET /|Authorization: Bearer " + newSigner(t).sign("anna"), "user", `/metrics sluice_token_verifications_total 1`},
		"costs.yaml":                    {"GET /export/1", "export", `/v1/sources/127.0.0.1 "remaining": 80`},
		"scraper.yaml":                  {"GET /search?q=x", "each", `/metrics sluice_requests_total{rule="page",verdict="pass"} 1`},
		"tag.yaml":                      {"GET /", "", `/metrics sluice_requests_total{rule="everything",verdict="tagged"} 0`},
		"peers.yaml":                    {"GET /", "everything", `/metrics sluice_peer_blocks_received_total{peer="lhr1",result="imposed"} 0`},
		"algorithms.yaml":               {"GET /api/x", "api", `/v1/rules/reports "algorithm": "leaky_bucket"`},
		"exactly-once.yaml":             {"POST /pay|X-Account: 7", "pay", `/v1/rules/pay "check": "sync"`},
		"concurrency.yaml":              {"GET /reports/1|X-Account: 7", "everything", `/metrics sluice_in_flight{rule="report"} 0`},
		"plans.yaml":                    {"GET /v1/x|X-Api-Key: k-4711", "api", `/v1/usage/k-4711 "plan": "free"`},
		"organisations.yaml":            {"GET /v1/x|X-Api-Key: k-4711|X-Organisation: acme", "user", `/metrics sluice_requests_total{rule="organisation",verdict="pass"} 1`},
		"envoy-rate-limit-service.yaml": {"GRPC web|remote_address=198.51.100.7|path=/login?next=/ remote_address=198.51.100.7|plan=gold api_key=k", "login", `/v1/top "source": "198.51.100.7"`},
		"limit-api.yaml":                {`LIMIT {"rule":"exports","key":"alice","cost":3}|{"rule":"per-address","key":"192.0.2.7"}`, "", `/metrics sluice_requests_total{rule="exports",verdict="pass"} 1`},
		"two-pops/fra1.yaml":            {"GET /", "everything", `/v1/pop "name": "fra1"`},
		"two-pops/ams1.yaml":            {"GET /", "everything", `/v1/pop "name": "ams1"`},
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		name, _ := filepath.Rel(root, path)
		x, known := examples[name]
		if !known {
			t.Errorf("%s: say here what it is about", name)
			return nil
		}
		delete(examples, name)
		t.Run(name, func(t *testing.T) {
			asks := freePort(t)
			file, args := here(t, path, "127.0.0.1:8082", asks)
			var stdout, stderr bytes.Buffer
			if code := examine(file).print(&stdout, &stderr); code != 0 {
				t.Fatalf("check: %d: %s", code, stderr.String())
			}
			for line := range strings.Lines(stderr.String()) {
				if !strings.Contains(line, "the port is in use") { // by another program, perhaps
					t.Error(line)
				}
			}
			p := start(t, "", append(args, "--config", file)...)
			lines := strings.Split(x.request, "|")
			method, target, _ := strings.Cut(lines[0], " ")
			if method == "GRPC" {
				a, err := dialService(t, asks, insecure.NewCredentials()).ask(describe(target, lines[1:]...))
				must(t, err)
				for i, s := range a.Statuses {
					if s.Code != within || s.CurrentLimit == nil {
						t.Errorf("%s: %v", lines[i+1], s)
					}
				}
				header := make(http.Header)
				for _, h := range a.ResponseHeadersToAdd {
					header.Set(h.Key, h.Value)
				}
				see(t, p, header, x.policy, x.shows)
				return
			}
			if method == "LIMIT" {
				for _, body := range append([]string{target}, lines[1:]...) {
					if resp, text := p.request("POST", asks, "/v1/limit", body, "Content-Type", "application/json"); resp.StatusCode != 200 || !strings.Contains(text, `"allowed":true`) {
						t.Errorf("%s: %d %s", body, resp.StatusCode, text)
					}
				}
				see(t, p, nil, x.policy, x.shows)
				return
			}
			req, err := http.NewRequest(method, "http://"+p.front+target, nil)
			must(t, err)
			for _, l := range lines[1:] {
				name, value, _ := strings.Cut(l, ": ")
				if req.Header.Set(name, value); name == "Host" {
					req.Host = value
				}
			}
			var resp *http.Response
			p.until("admitting", func() bool { // one that asks the tier for each request refuses where the answer comes late
				if resp, err = http.DefaultClient.Do(req); err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				return resp.StatusCode != 503
			})
			if resp.StatusCode != 200 {
				t.Errorf("status %d, want 200", resp.StatusCode)
			}
			see(t, p, resp.Header, x.policy, x.shows)
		})
		return nil
	})
	must(t, err)
	for name := range examples {
		t.Errorf("%s: there is no such example", name)
	}
}

// see holds what a client and operators were told against what an example says.
func see(t *testing.T, p *process, received http.Header, rule, shows string) {
	t.Helper()
	policy, _, _ := strings.Cut(received.Get("RateLimit-Policy"), ";")
	if strings.Trim(policy, `"`) != rule {
		t.Errorf("under %s, want %q", policy, rule)
	}
	at, want, _ := strings.Cut(shows, " ")
	p.until("saying "+want+" at "+at, func() bool { // a place comes free after the answer's last byte
		_, body := p.admin("GET", at)
		return strings.Contains(body, want)
	})
}

// here is a configuration as this machine can have it, and the flags that it takes for that.
func here(t *testing.T, path string, others ...string) (file string, args []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	dir := t.TempDir()
	folder, err := filepath.Abs(filepath.Dir(path))
	must(t, err)
	secret := filepath.Join(dir, "secret")
	must(t, os.WriteFile(secret, []byte(strings.Repeat("x", 32)), 0o600))
	cert, key := newAuthority(t).issue(t, "site")
	geotest.Countries(t, filepath.Join(dir, "country.mmdb"), map[string]string{"192.0.2.0/24": "DE"})
	geotest.Systems(t, filepath.Join(dir, "asn.mmdb"), map[string]uint32{"192.0.2.0/24": 64500})
	others = append(others, "/var/lib/GeoIP/GeoLite2-Country.mmdb", filepath.Join(dir, "country.mmdb"), "/var/lib/GeoIP/GeoLite2-ASN.mmdb", filepath.Join(dir, "asn.mmdb"))
	others = append(others, "/etc/sluice/partners.txt", write(t, "192.0.2.0/24 # a partner\n127.0.0.0/8\n"), "/etc/sluice/unwanted.txt", write(t, "198.51.100.7\n"))
	with := strings.NewReplacer(append(others, "agree: true", "agree: true\n  directory: https://127.0.0.1:1/", "/etc/sluice/site.crt", cert, "/etc/sluice/site.key", key, ":443\"", freePort(t)+"\"", "\":80\"", "\""+freePort(t)+"\"", "/etc/sluice/pop.secret", secret, "/etc/sluice/peers.secret", secret, ":8082\"", freePort(t)+"\"", "/etc/sluice/jwt.pem", newSigner(t).file, "/var/lib/sluice", dir,
		"file: pages/", "file: "+folder+"/pages/", "trust: [10.0.0.0/8]", "trust: [127.0.0.0/8]", "http://127.0.0.1:3000", origin(t))...).Replace(string(text))
	if !strings.Contains(string(text), "http://127.0.0.1:3000") { // it answers checks alone, or its origins are other machines
		args = append(args, "--origin", origin(t))
	}
	if strings.Contains(with, "memcached:") {
		args = append(args, "--memcached", startMemcached(t))
	}
	return write(t, with), slices.Clip(args)
}
