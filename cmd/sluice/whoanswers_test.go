//go:build !minimal

package main

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
	"sluice/edge/modules/geo/geotest"
	"sluice/edge/modules/maintenance"
)

// A claim is one thing that wants a say in the answer to a request: a setting, a rule, an
// operator's order, or the form of the request.
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
	header             []string
}

// The three clients of a claim: two connect themselves, one is behind a proxy that the edge trusts.
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

func adds(lines ...string) func(*wish) {
	return func(w *wish) { w.header = append(w.header, lines...) }
}

func begins(path string) func(*wish) { return func(w *wish) { w.path = path + w.path } }

// claims are all of them. Paths come together: what begins one goes before what ends it.
func claims(folder, origin, bad string) []claim {
	by, secret := control.Operator{Who: "anna"}, folder+"/hs256"
	clients := "[" + strings.Join(claimants, ", ") + "]"
	countries := "geo: {country: " + folder + "/country.mmdb}"
	return []claim{
		{name: "form", change: func(w *wish) { w.path += strings.Repeat("/", 70) }},
		{name: "health path", change: func(w *wish) { w.path += "healthz" }},
		{name: "proof", change: begins("/.well-known/acme-challenge/token"),
			settings: "acme: {hosts: [a.example], agree: true}\nlisten_tls: ':0'\nstate_dir: unused"},
		{name: "check", settings: "check_path: /check/*", change: begins("/check")},
		{name: "deny", settings: "deny: " + clients},
		{name: "deny, operator", before: ordered(func(e *edgetest.Edge, client string) error {
			_, err := e.List(control.Deny, client, time.Hour, "", by, time.Now())
			return err
		})},
		{name: "deny by country", settings: countries + "\ndeny: ['country:DE']"},
		{name: "redirect", redirect: true},
		{name: "maintenance", before: func(e *edgetest.Edge) error {
			_, err := maintenance.Start(e.Admin, time.Hour, nil, "", by, time.Now())
			return err
		}},
		{name: "allow", settings: "allow: " + clients},
		{name: "allow, operator", before: ordered(func(e *edgetest.Edge, client string) error {
			_, err := e.List(control.Allow, client, time.Hour, "", by, time.Now())
			return err
		})},
		{name: "allow by country", settings: countries + "\nallow: ['country:DE']"},
		{name: "block", rule: "{name: blocked, limit: 1000}",
			before: ordered(func(e *edgetest.Edge, client string) error {
				_, err := e.Block("blocked", client, time.Hour, "", by, time.Now())
				return err
			})},
		{name: "block of all", before: ordered(func(e *edgetest.Edge, client string) error {
			_, err := e.Block("*", client, time.Hour, "", by, time.Now())
			return err
		})},
		{name: "limit", rule: "{name: limited, limit: 1, window: 1h}"},
		{name: "limit that redirects", rule: "{name: away, limit: 1, window: 1h, " +
			"action: redirect, response: {location: 'https://busy.example/'}}"},
		{name: "limit that closes", rule: "{name: closes, limit: 1, window: 1h, action: close}"},
		{name: "limit with a body", rule: "{name: own, limit: 1, window: 1h, " +
			"response: {content_type: text/plain, body: own}}"},
		{name: "limit that challenges", rule: "{name: asks, limit: 1, window: 1h, key: path, " +
			"action: challenge}", change: adds("Accept: text/html")},
		{name: "limit that tags", rule: "{name: tags, limit: 1, window: 1h, action: tag, " +
			"tag: {header: x-over, value: tags}}"},
		{name: "no tier", rule: "{name: closed, limit: 1000, on_store_failure: closed}"},
		{name: "key twice", rule: "{name: keyed, limit: 1000, key: 'header:x-key'}",
			change: adds("X-Key: a", "X-Key: b")},
		{name: "token twice", rule: "{name: tokens, limit: 1000, key: 'jwt:sub'}",
			settings: "jwt: {algorithms: [HS256], header: x-token, keys_file: " + secret + "}",
			change:   adds("X-Token: a", "X-Token: b")},
		{name: "page", change: adds("Accept: text/html"),
			settings: "pages: [{status: [400, 403, 413, 421, 429, 502, 503], type: text/html, " +
				"file: " + folder + "/page.html}]"},
		{name: "shed", settings: "shed: connection"},
		{name: "body too large", settings: "limits: {body_bytes: 1}", change: func(w *wish) {
			w.method, w.body = "POST", "too much"
		}},
		{name: "gRPC", change: adds("Content-Type: application/grpc")},
		{name: "preflight", change: func(w *wish) {
			w.method = "OPTIONS"
			adds("Origin: https://b.example", "Access-Control-Request-Method: PUT")(w)
		}},
		{name: "cors", settings: "cors: {origins: ['https://b.example']}", change: func(w *wish) {
			if !slices.Contains(w.header, "Origin: https://b.example") {
				adds("Origin: https://b.example")(w)
			}
		}},
		{name: "no origin", settings: "origins: [{hosts: [b], servers: ['" + origin + "']}]"},
		{name: "bad answer", settings: "origins: [{servers: ['" + bad + "']}]"},
	}
}

// together are three claims that have a say in one answer.
var together = []string{
	"preflight + cors + deny", "preflight + cors + deny by country", "preflight + cors + redirect",
	"preflight + cors + maintenance", "preflight + cors + block", "preflight + cors + limit",
	"preflight + cors + limit that redirects", "preflight + cors + limit that challenges",
	"preflight + cors + check", "proof + maintenance + limit that challenges",
	"proof + redirect + maintenance", "deny by country + page + cors", "redirect + allow + cors",
	"maintenance + allow by country + page", "limit that challenges + page + cors",
	"limit that challenges + block + page", "limit that challenges + allow by country + check",
	"limit that challenges + limit that tags + shed", "limit that redirects + page + cors",
}

// TestWhoAnswers holds the answer to a request that two claims are about, or three: to three requests, one
// after the other on a connection, as long as it stays open. The table has status and code, whether
// the origin has answered, whether a limit's headers are there, and whether the connection ends.
func TestWhoAnswers(t *testing.T) {
	folder := t.TempDir()
	files := map[string]string{"hs256": strings.Repeat("k", 32), "page.html": "<page>"}
	for name, text := range files {
		edgetest.Must(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	geotest.Countries(t, folder+"/country.mmdb",
		map[string]string{"127.0.0.0/8": "DE", proxiedClient + "/32": "DE"})
	certificates := edgetest.CertificatesIn(t, folder)
	origin := edgetest.StartRecorder(t, edgetest.Hello).URL()
	all := claims(folder, origin, edgetest.StartRecorder(t, func(int, string) string { return "nonsense" }).URL())
	var table strings.Builder
	row := func(what string, cells [3]string) {
		answers := slices.Compact(slices.Clone(cells[:]))
		if len(answers) == 2 {
			answers = cells[:]
		}
		fmt.Fprintf(&table, "%-42s  %s\n", what, strings.Join(answers, " | "))
	}
	table.WriteString("# HTTP/1.1 | HTTP/2 over TLS | HTTP/2 from a trusted proxy, or all alike\n")
	for i := range all {
		for j := i; j < len(all); j++ {
			pair := all[i : i+1]
			what := all[i].name
			if i != j && sameSection(all[i].settings, all[j].settings) {
				continue // a configuration has it once
			}
			if i != j {
				pair, what = []claim{all[i], all[j]}, what+" + "+all[j].name
			}
			t.Run(what, func(t *testing.T) { row(what, answersTo(t, origin, certificates, pair)) })
		}
	}
	for _, names := range together {
		var several []claim
		for name := range strings.SplitSeq(names, " + ") {
			i := slices.IndexFunc(all, func(c claim) bool { return c.name == name })
			several = append(several, all[i])
		}
		t.Run(names, func(t *testing.T) { row(names, answersTo(t, origin, certificates, several)) })
	}
	golden.Check(t, "who-answers.txt", []byte(table.String()))
}

// sameSection reports whether two settings are in one section of a configuration.
func sameSection(a, b string) bool {
	for line := range strings.Lines(a) {
		name, _, _ := strings.Cut(line, ":")
		if name != "" && strings.Contains("\n"+b, "\n"+name+":") {
			return true
		}
	}
	return false
}

// proves has what looks like a question for a proof answered, whichever it is for.
func proves(*edge.Setup) (edge.Points, error) {
	asks := func(x *edge.Exchange) bool {
		return !x.Front().Secure() && strings.HasPrefix(string(x.Target), "/.well-known/acme-")
	}
	answers := func(x *edge.Exchange) bool {
		if asks(x) {
			x.Begin(http.StatusOK, "text/plain", []byte("proof"))
		}
		return asks(x)
	}
	return edge.Points{Gates: []edge.Gate{{Phase: edge.Proof, Waits: asks, Answer: answers}}}, nil
}

// answersTo is what each of the clients gets.
func answersTo(t *testing.T, origin string, over *listen.Certificates, of []claim) [3]string {
	settings := []string{"source: {trust: [" + trustedProxy + "]}", "http2: {cleartext: true}"}
	var rules []string
	redirects, down, proof := false, false, false
	w := wish{method: "GET", path: "/"}
	for _, c := range of {
		if c.settings != "" {
			settings = append(settings, c.settings)
		}
		if c.rule != "" {
			rules = append(rules, c.rule)
		}
		if c.change != nil {
			c.change(&w)
		}
		redirects, down = redirects || c.redirect, down || c.name == "no tier"
		proof = proof || c.name == "proof"
	}
	yaml := strings.Join(settings, "\n") + "\nrules: [" + strings.Join(rules, ", ") + "]\n"
	if !strings.Contains("\n"+yaml, "\norigins:") {
		yaml += "origins: [{servers: ['" + origin + "']}]\n"
	}
	use := modules(true, nil)
	for i := range use {
		if proof && use[i].Name == "acme" {
			use[i].Prepare = proves
		}
	}
	c, err := (config.Parser{Modules: use.Config()}).Parse("claims.yaml", []byte(yaml))
	edgetest.Must(t, err)
	s := edgetest.NewServer(t, c, func(o *edge.Options) {
		o.Use = use
		if down {
			o.Tier.Up = func(counter.Source) bool { return false }
		}
	})
	e := edgetest.Serve(t, s)
	for _, c := range of {
		if c.before != nil {
			edgetest.Must(t, c.before(e))
		}
	}
	plain, secure := e.Addr, e.OverTLS(over)
	if redirects {
		plain = e.Redirecting(443)
	}
	from := func(from string, speak func(*http.Protocols, bool)) *http.Transport {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: time.Minute}
		tr := &http.Transport{DialContext: d.DialContext, DisableCompression: true,
			Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		speak(tr.Protocols, true)
		t.Cleanup(tr.CloseIdleConnections)
		return tr
	}
	var cells [3]string
	cells[0] = w.three(from(plainClient, (*http.Protocols).SetHTTP1), "http://"+plain)
	cells[1] = w.three(from(tlsClient, (*http.Protocols).SetHTTP2), "https://"+secure)
	adds("X-Forwarded-For: " + proxiedClient)(&w)
	cells[2] = w.three(from(trustedProxy, (*http.Protocols).SetUnencryptedHTTP2), "http://"+plain)
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
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
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
	case strings.Contains(text, "data-question="):
		said += " challenge page"
	case strings.Contains(text, "What you sent has not been accepted"):
		said += " challenge page for what cannot be sent again"
	case text != "":
		said += " " + text
	}
	if code := resp.Header.Get("Grpc-Status"); code != "" {
		said += " grpc " + code
	}
	if to := resp.Header.Get("Location"); to != "" {
		said += " to " + to
	}
	if resp.Header.Get("Access-Control-Allow-Origin") != "" {
		said += " readable"
	}
	if resp.Header.Get("RateLimit") != "" {
		said += " (limit)"
	}
	if resp.Close {
		said += " close"
	}
	return said
}
