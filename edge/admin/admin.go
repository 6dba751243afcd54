// Package admin is the operators' side of an edge: health, metrics and a small API, on a listener of its own.
//
// It speaks plain HTTP and trusts whoever reaches it, but not pages in their browsers: a request must name this host, and
// one that comes from another origin is refused, so that neither a name rebound to 127.0.0.1 nor a foreign form can use
// it. With a token, the API and the metrics want it as well.
package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/events"
	"sluice/edge/rules"
)

// Options is what the API is about.
type Options struct {
	Edge    *edge.Server
	Metrics prometheus.Gatherer
	// Edit puts a rule in the place of the one of that name, or takes that out if rule is nil: in force and in the file. It
	// may be nil. edge.ErrNoRule says that there is none, ErrNotSaved that the file could not be written.
	Edit    func(name string, rule *rules.Config) error
	Reload  func() error // reads the configuration again; its error goes to the operator
	Hosts   []string     // names under which this listener may be addressed, beside localhost and its own addresses
	Address string       // where it listens
	Token   string       // "": none wanted
}

// ErrNotSaved says that a change is in force but could not be written to the file.
var ErrNotSaved = errors.New("the change is in force but not in the file: it is lost at the next reload")

// maxBody bounds what the API reads.
const maxBody = 1 << 20

type api struct{ Options }

// New returns the handler.
func New(o Options) http.Handler {
	a := api{o}
	private := http.NewServeMux()
	private.Handle("GET /metrics", promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{}))
	private.HandleFunc("GET /v1/rules", a.rules)
	private.HandleFunc("GET /v1/rules/{name}", a.rule)
	private.HandleFunc("GET /v1/mitigations", a.mitigations)
	private.HandleFunc("PUT /v1/mitigations/{rule}/{source...}", a.block)
	private.HandleFunc("DELETE /v1/mitigations/{rule}/{source...}", a.lift)
	private.HandleFunc("GET /v1/sources/{address}", a.source)
	private.HandleFunc("GET /v1/nodes", a.nodes)
	private.HandleFunc("POST /v1/reload", a.reload)
	private.HandleFunc("PUT /v1/rules/{name}", a.putRule)
	private.HandleFunc("DELETE /v1/rules/{name}", a.deleteRule)
	private.HandleFunc("GET /v1/top", a.top)
	private.HandleFunc("GET /v1/events", a.events)
	private.HandleFunc("GET /v1/dashboard", a.summary)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := o.Edge.Unready(); why != "" {
			text(w, http.StatusServiceUnavailable, why+"\n")
			return
		}
		text(w, http.StatusOK, "ready\n")
	})
	mux.HandleFunc("GET /{$}", page("dashboard.html", "text/html"))
	mux.HandleFunc("GET /dashboard.css", page("dashboard.css", "text/css"))
	mux.HandleFunc("GET /dashboard.js", page("dashboard.js", "text/javascript"))
	mux.Handle("/", a.authorized(private))
	return a.local(mux)
}

// local refuses requests for another host or from another origin. Health is for load balancers, which name hosts as they
// please and get nothing but a word.
func (a api) local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" {
			if !a.ours(r.Host) {
				fail(w, http.StatusForbidden, "the Host is not one of this listener's: add it to admin_hosts")
				return
			}
			if origin := r.Header.Get("Origin"); origin != "" {
				if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
					fail(w, http.StatusForbidden, "requests from other origins are refused")
					return
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (a api) ours(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	own, _, _ := net.SplitHostPort(a.Address)
	switch name {
	case "":
		return false
	case "localhost", "127.0.0.1", "::1", strings.ToLower(own):
		return true
	}
	for _, h := range a.Hosts {
		if h == name || h == strings.ToLower(host) {
			return true
		}
	}
	return false
}

// authorized wants the token, as Authorization: Bearer TOKEN. Digests are compared, so that time tells nothing.
func (a api) authorized(next http.Handler) http.Handler {
	if a.Token == "" {
		return next
	}
	want := sha256.Sum256([]byte("Bearer " + a.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			fail(w, http.StatusUnauthorized, "this API wants a token: Authorization: Bearer TOKEN")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (a api) rules(w http.ResponseWriter, _ *http.Request) { reply(w, edgeRules(a.Edge)) }

func (a api) rule(w http.ResponseWriter, r *http.Request) {
	for _, rule := range edgeRules(a.Edge) {
		if rule.Name == r.PathValue("name") {
			reply(w, rule)
			return
		}
	}
	fail(w, http.StatusNotFound, "no such rule")
}

// ruleJSON shows a rule with the name of its estimate.
type ruleJSON struct {
	rules.Config
	Estimate string `json:"estimate"`
}

func edgeRules(s *edge.Server) []ruleJSON {
	list := []ruleJSON{}
	for _, r := range s.Rules() {
		list = append(list, ruleJSON{r, r.Estimate.String()})
	}
	return list
}

func (a api) putRule(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		fail(w, http.StatusBadRequest, "the body could not be read: "+err.Error())
		return
	}
	rule, err := config.ParseRule(r.PathValue("name"), text)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if a.edit(w, rule.Name, &rule) {
		a.rule(w, r)
	}
}

func (a api) deleteRule(w http.ResponseWriter, r *http.Request) {
	if a.edit(w, r.PathValue("name"), nil) {
		reply(w, map[string]bool{"deleted": true})
	}
}

func (a api) edit(w http.ResponseWriter, name string, rule *rules.Config) bool {
	if a.Edit == nil {
		fail(w, http.StatusNotImplemented, "rules cannot be changed here")
		return false
	}
	err := a.Edit(name, rule)
	switch {
	case errors.Is(err, ErrNotSaved):
		fail(w, http.StatusInternalServerError, err.Error())
	case err != nil:
		failed(w, err)
	}
	return err == nil
}

// topMost bounds what one answer shows.
const topMost = 1000

func (a api) top(w http.ResponseWriter, r *http.Request) {
	n := 20
	if text := r.URL.Query().Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > topMost {
			fail(w, http.StatusBadRequest, "n is not a number of sources: want 1 to 1000")
			return
		}
	}
	switch r.URL.Query().Get("by") {
	case "requests", "":
		reply(w, a.Edge.TopRequests(n))
	case "refused":
		reply(w, a.Edge.TopRefused(n))
	default:
		fail(w, http.StatusBadRequest, "by is not possible: want requests or refused")
	}
}

// events shows what has happened after ?since=, the number of an event or a time (RFC 3339); the newest first.
func (a api) events(w http.ResponseWriter, r *http.Request) {
	since := r.URL.Query().Get("since")
	if since == "" {
		since = "0"
	}
	if n, err := strconv.ParseUint(since, 10, 64); err == nil {
		reply(w, a.Edge.Events().Since(n))
	} else if t, err := time.Parse(time.RFC3339, since); err == nil {
		reply(w, a.Edge.Events().After(t))
	} else {
		fail(w, http.StatusBadRequest, "since is not possible: want the number of an event, or a time such as 2026-05-04T14:05:00Z")
	}
}

// did keeps an operator's action among the events: who he says he is (X-Operator), and where he came from.
func (a api) did(r *http.Request, e events.Event) {
	e.Time, e.Kind, e.From = time.Now(), events.Operator, r.RemoteAddr
	if e.Who = r.Header.Get("X-Operator"); len(e.Who) > 64 {
		e.Who = e.Who[:64]
	}
	a.Edge.Events().Add(e)
}

func (a api) mitigations(w http.ResponseWriter, _ *http.Request) {
	reply(w, a.Edge.Mitigations(time.Now()))
}

func (a api) block(w http.ResponseWriter, r *http.Request) {
	var body struct {
		For    string `json:"for"`
		Reason string `json:"reason"`
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil {
		fail(w, http.StatusBadRequest, `the body is not what it should be: want {"for":"10m","reason":"..."}`)
		return
	}
	d, err := time.ParseDuration(body.For)
	if err != nil {
		fail(w, http.StatusBadRequest, `"for" is not a time with a unit: want one such as 10m`)
		return
	}
	if len(body.Reason) > 256 {
		fail(w, http.StatusBadRequest, `"reason" is too long: want at most 256 bytes`)
		return
	}
	m, err := a.Edge.Block(r.PathValue("rule"), r.PathValue("source"), d, body.Reason, time.Now())
	if err != nil {
		failed(w, err)
		return
	}
	a.did(r, events.Event{Text: "blocked for " + d.String() + ": " + body.Reason, Rule: m.Rule, Source: m.Source})
	reply(w, m)
}

func (a api) lift(w http.ResponseWriter, r *http.Request) {
	lifted, err := a.Edge.Lift(r.PathValue("rule"), r.PathValue("source"), time.Now())
	if err != nil {
		failed(w, err)
		return
	}
	a.did(r, events.Event{Text: "lifted", Rule: r.PathValue("rule"), Source: r.PathValue("source")})
	reply(w, lifted)
}

func (a api) source(w http.ResponseWriter, r *http.Request) {
	addr, err := netip.ParseAddr(r.PathValue("address"))
	if err != nil {
		fail(w, http.StatusBadRequest, "that is not an address")
		return
	}
	reply(w, a.Edge.Standings(addr, time.Now()))
}

func (a api) nodes(w http.ResponseWriter, _ *http.Request) {
	nodes := a.Edge.Nodes()
	if nodes == nil {
		nodes = []edge.NodeStatus{}
	}
	reply(w, nodes)
}

func (a api) reload(w http.ResponseWriter, r *http.Request) {
	if err := a.Reload(); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	a.did(r, events.Event{Text: "reloaded the configuration"})
	reply(w, map[string]bool{"reloaded": true})
}

func failed(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	switch {
	case errors.Is(err, config.ErrNoRule):
		status = http.StatusNotFound
	case errors.Is(err, edge.ErrFull):
		status = http.StatusConflict
	}
	fail(w, status, err.Error())
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // the operator is gone: nobody to tell
}

func fail(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": message}})
}

func text(w http.ResponseWriter, status int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(s))
}
