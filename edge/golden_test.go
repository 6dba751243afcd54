package edge_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/edgetest"
	"sluice/edge/edgetest/golden"
	"sluice/edge/listen"
)

// A claim is one thing that wants a say in the answer to a request: a setting, a rule, an operator's word, or how the request is.
type claim struct {
	name     string
	settings string // of the configuration, a line
	rule     string
	before   func(*edgetest.Edge) error // what an operator says
	redirect bool                       // the listener without TLS redirects
	change   func(*wish)
}

// A wish is a request.
type wish struct {
	method, path, body string
	header             [][2]string
}

// The three clients of a claim: two that connect themselves, and one behind a proxy that the edge trusts.
const (
	plainClient   = "127.0.0.1"
	tlsClient     = "127.0.0.2"
	trustedProxy  = "127.0.0.3"
	proxiedClient = "192.0.2.1"
)

var claimants = []string{plainClient, tlsClient, proxiedClient}

// ordered has an operator say something of each client.
func ordered(say func(e *edgetest.Edge, client string) error) func(*edgetest.Edge) error {
	return func(e *edgetest.Edge) error {
		for _, client := range claimants {
			if err := say(e, client); err != nil {
				return err
			}
		}
		return nil
	}
}

func adds(name, value string) func(*wish) {
	return func(w *wish) { w.header = append(w.header, [2]string{name, value}) }
}

// claims are all of them. Paths come together: what begins one goes before what ends it.
func claims(folder, origin string) []claim {
	by := control.Operator{Who: "anna"}
	clients := "[" + strings.Join(claimants, ", ") + "]"
	return []claim{
		{name: "form", change: func(w *wish) { w.path += strings.Repeat("/", 70) }},
		{name: "health path", change: func(w *wish) { w.path += "healthz" }},
		{name: "proof", change: func(w *wish) { w.path = strings.Replace(w.path, "/", "/.well-known/acme-challenge/token/", 1) }},
		{name: "check", settings: "check_path: /check/*", change: func(w *wish) { w.path = "/check" + w.path }},
		{name: "deny", settings: "deny: " + clients},
		{name: "deny, operator", before: ordered(func(e *edgetest.Edge, client string) error {
			_, err := e.List(control.Deny, client, time.Hour, "", by, time.Now())
			return err
		})},
		{name: "redirect", redirect: true},
		{name: "maintenance", before: func(e *edgetest.Edge) error {
			_, err := e.Maintain(time.Hour, nil, "", by, time.Now())
			return err
		}},
		{name: "allow", settings: "allow: " + clients},
		{name: "allow, operator", before: ordered(func(e *edgetest.Edge, client string) error {
			_, err := e.List(control.Allow, client, time.Hour, "", by, time.Now())
			return err
		})},
		{name: "block", rule: "{name: blocked, limit: 1000}", before: ordered(func(e *edgetest.Edge, client string) error {
			_, err := e.Block("blocked", client, time.Hour, "", by, time.Now())
			return err
		})},
		{name: "limit", rule: "{name: limited, limit: 1, window: 1h}"},
		{name: "limit that redirects", rule: "{name: away, limit: 1, window: 1h, action: redirect, response: {location: 'https://busy.example/'}}"},
		{name: "limit that closes", rule: "{name: closes, limit: 1, window: 1h, action: close}"},
		{name: "limit with a body", rule: "{name: own, limit: 1, window: 1h, response: {content_type: text/plain, body: own}}"},
		{name: "no tier", rule: "{name: closed, limit: 1000, on_store_failure: closed}"},
		{name: "key twice", rule: "{name: keyed, limit: 1000, key: 'header:x-key'}", change: func(w *wish) {
			adds("X-Key", "a")(w)
			adds("X-Key", "b")(w)
		}},
		{name: "token twice", settings: "jwt: {keys_file: " + folder + "/hs256, algorithms: [HS256], header: x-token}", rule: "{name: tokens, limit: 1000, key: 'jwt:sub'}", change: func(w *wish) {
			adds("X-Token", "a")(w)
			adds("X-Token", "b")(w)
		}},
		{name: "page", settings: "pages: [{status: [400, 403, 413, 421, 429, 503], type: text/html, file: " + folder + "/page.html}]", change: adds("Accept", "text/html")},
		{name: "shed", settings: "shed: connection"},
		{name: "body too large", settings: "limits: {body_bytes: 1}", change: func(w *wish) { w.method, w.body = "POST", "too much" }},
		{name: "gRPC", change: adds("Content-Type", "application/grpc")},
		{name: "preflight", change: func(w *wish) {
			w.method = "OPTIONS"
			adds("Origin", "https://b.example")(w)
			adds("Access-Control-Request-Method", "PUT")(w)
		}},
		{name: "no origin", settings: "origins: [{hosts: [other.example], servers: ['" + origin + "']}]"},
	}
}

// TestWhoAnswers holds the answer to a request that two claims are about: three requests, one after the other on a connection, as long as it
// stays open. The table has status and code, whether the origin has answered,
// whether the headers of a limit are there, and whether the connection ends.
func TestWhoAnswers(t *testing.T) {
	folder := t.TempDir()
	edgetest.Must(t, os.WriteFile(filepath.Join(folder, "hs256"), []byte(strings.Repeat("k", 32)), 0o600))
	edgetest.Must(t, os.WriteFile(filepath.Join(folder, "page.html"), []byte("<page>"), 0o600))
	certificates := edgetest.CertificatesIn(t, folder)
	origin := edgetest.StartRecorder(t, edgetest.Hello).URL()
	all := claims(folder, origin)
	var table strings.Builder
	row := func(what string, cells [3]string) {
		answers := slices.Compact(slices.Clone(cells[:]))
		if len(answers) == 2 {
			answers = cells[:]
		}
		fmt.Fprintf(&table, "%-42s  %s\n", what, strings.Join(answers, " | "))
	}
	table.WriteString("# HTTP/1.1 | HTTP/2 over TLS | HTTP/2 from a trusted proxy; or the one answer that all get\n")
	for i := range all {
		for j := i; j < len(all); j++ {
			pair := all[i : i+1]
			what := all[i].name
			if i != j {
				pair, what = []claim{all[i], all[j]}, what+" + "+all[j].name
			}
			t.Run(what, func(t *testing.T) { row(what, answersTo(t, origin, certificates, pair)) })
		}
	}
	golden.Check(t, "who-answers.txt", []byte(table.String()))
}

// answersTo is what each of the clients gets.
func answersTo(t *testing.T, origin string, certificates *listen.Certificates, claims []claim) (cells [3]string) {
	settings, rules, redirect := []string{"source: {trust: [" + trustedProxy + "]}", "http2: {cleartext: true}"}, []string(nil), uint16(0)
	w := wish{method: "GET", path: "/"}
	down := false
	for _, c := range claims {
		if c.settings != "" {
			settings = append(settings, c.settings)
		}
		if c.rule != "" {
			rules = append(rules, c.rule)
		}
		if c.redirect {
			redirect = 443
		}
		if c.change != nil {
			c.change(&w)
		}
		down = down || c.name == "no tier"
	}
	yaml := strings.Join(settings, "\n") + "\nrules: [" + strings.Join(rules, ", ") + "]\n"
	if !strings.Contains(yaml, "origins:") {
		yaml += "origins: [{servers: ['" + origin + "']}]\n"
	}
	c, err := config.Parse("claims.yaml", []byte(yaml))
	edgetest.Must(t, err)
	s := edgetest.NewServer(t, c, func(o *edge.Options) {
		o.Proof = func(host, path string) []byte { return []byte("proof") }
		if down {
			o.Tier.Up = func(counter.Source) bool { return false }
		}
	})
	e := edgetest.Serve(t, s)
	for _, c := range claims {
		if c.before != nil {
			edgetest.Must(t, c.before(e))
		}
	}
	plain, secure := e.Addr, e.OverTLS(certificates)
	if redirect != 0 {
		plain = redirecting(t, e, redirect)
	}
	over := func(from string, change func(*http.Transport)) *http.Transport {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Minute}
		tr := &http.Transport{DialContext: d.DialContext, DisableCompression: true, Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		change(tr)
		t.Cleanup(tr.CloseIdleConnections)
		return tr
	}
	cells[0] = w.three(over(plainClient, func(tr *http.Transport) { tr.Protocols.SetHTTP1(true) }), "http://"+plain)
	cells[1] = w.three(over(tlsClient, func(tr *http.Transport) { tr.Protocols.SetHTTP2(true) }), "https://"+secure)
	w.header = append(slices.Clone(w.header), [2]string{"X-Forwarded-For", proxiedClient})
	cells[2] = w.three(over(trustedProxy, func(tr *http.Transport) { tr.Protocols.SetUnencryptedHTTP2(true) }), "http://"+plain)
	return cells
}

// three is what becomes of three requests, with equal ones together.
func (w *wish) three(tr *http.Transport, url string) string {
	var list []string
	for range 3 {
		list = append(list, w.answer(tr, url))
	}
	return strings.Join(slices.Compact(list), ", ")
}

func (w *wish) answer(tr *http.Transport, url string) string {
	r, err := http.NewRequest(w.method, url+w.path, strings.NewReader(w.body))
	if err != nil {
		return err.Error()
	}
	r.Host = "a.example"
	for _, line := range w.header {
		r.Header.Add(line[0], line[1])
	}
	resp, err := tr.RoundTrip(r)
	if err != nil {
		return "none"
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "broken off"
	}
	said := fmt.Sprint(resp.StatusCode)
	var own struct{ Error struct{ Code, Rule string } }
	switch text := string(body); {
	case json.Unmarshal(body, &own) == nil:
		said += " " + own.Error.Code
	case text == "hello":
		said += " origin"
	case text == "<page>":
		said += " page"
	case text != "":
		said += " " + text
	}
	if code := resp.Header.Get("Grpc-Status"); code != "" {
		said += " grpc " + code
	}
	if to := resp.Header.Get("Location"); to != "" {
		said += " to " + to
	}
	if resp.Header.Get("RateLimit") != "" {
		said += " (limit)"
	}
	if resp.Close {
		said += " close"
	}
	return said
}
