// Package admin is the operators' side of an edge: health, metrics and a small API, on a listener
// of its own.
//
// It speaks plain HTTP and trusts whoever reaches it, but not pages in their browsers: a request
// must name this host, and one that comes from another origin is refused, so that neither a name
// rebound to 127.0.0.1 nor a foreign form can use it. With a token, the API wants it as well.
// Health and metrics are for machines, which name hosts as they please and have no token; metrics
// can be made to want both.
package admin

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice/counter"
	"sluice/counter/member"
	"sluice/edge"
	"sluice/edge/bearer"
	"sluice/edge/changes"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/plans"
	"sluice/edge/route"
	"sluice/edge/rules"
	"sluice/edge/seen"
	"sluice/edge/view"
)

// Options is what the API is about.
type Options struct {
	Edge    *edge.Server
	Metrics prometheus.Gatherer
	// Overlay is what has been changed of the rules, and Edit changes one of them; both or none.
	Overlay func() *changes.Overlay
	Edit    func(changes.Edit) (Edited, error)
	Order   route.Order               // of changes that are no rule's
	Self    func() control.EdgeStatus // this edge, where it counts alone
	Etcd    func() control.EtcdStatus // nil: changes of rules do not travel over etcd
	State   func() control.State      // what is not as it should be; nil: nobody knows
	// What the file says and waits for a restart; nil: nobody knows
	Waiting func() []config.Wait
	// Reads the configuration again; its error goes to the operator
	Reload func() (control.Reloaded, error)
	// View is the whole PoP, with what its edges say to a question (view.AskSource); nil: nobody
	// can be asked.
	View route.View
	// Names under which this listener may be addressed, beside localhost and its own addresses
	Hosts   []string
	Address string        // where it listens
	Token   *bearer.Token // nil: none wanted
	// MetricsToken makes /metrics want the token, and a Host of this listener, as the API does.
	MetricsToken bool
	Plans        *plans.Loader // keeps what operators say of clients; nil: there is no store
	// Vouch is told of requests that have the token; nil: nobody wants to know. Without a token
	// there is nobody to vouch for.
	Vouch func(*http.Request)
}

// metricsAtOnce is how many may ask for metrics at a time; more get 503. It takes no token, and
// takes long while many are blocked.
const metricsAtOnce = 4

type api struct{ Options }

// New returns the handler.
func New(o Options) http.Handler {
	a := api{o}
	private, mux := http.NewServeMux(), http.NewServeMux()
	for pattern, handler := range a.private() {
		private.HandleFunc(pattern, handler)
	}
	for _, r := range o.Edge.Routes() {
		private.HandleFunc(r.Pattern, func(w http.ResponseWriter, q *http.Request) {
			r.Serve(&route.API{Edge: o.Edge.Admin, View: o.View, Order: o.Order}, w, q)
		})
	}
	for pattern, handler := range a.public() {
		mux.Handle(pattern, handler)
	}
	mux.Handle("/", a.authorized(private))
	return a.local(mux)
}

// private are the routes that want the token.
func (a api) private() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /v1/openapi.json":                      openAPI(),
		"GET /v1/rules":                             a.rules,
		"GET /v1/rules/{name}":                      a.rule,
		"GET /v1/mitigations":                       a.mitigations,
		"PUT /v1/mitigations/{rule}/{source...}":    a.block,
		"DELETE /v1/mitigations/{rule}/{source...}": a.lift,
		"GET /v1/allow":                             a.listed(control.Allow),
		"PUT /v1/allow/{prefix...}":                 a.list(control.Allow),
		"DELETE /v1/allow/{prefix...}":              a.unlist(control.Allow),
		"GET /v1/deny":                              a.listed(control.Deny),
		"PUT /v1/deny/{prefix...}":                  a.list(control.Deny),
		"DELETE /v1/deny/{prefix...}":               a.unlist(control.Deny),
		"GET /v1/sources/{address}":                 a.source,
		"POST /v1/sources":                          a.lookKey,
		"POST /v1/mitigations":                      a.blockKey,
		"POST /v1/mitigations/lift":                 a.liftKey,
		"GET /v1/nodes":                             a.nodes,
		"GET /v1/origins":                           a.origins,
		"POST /v1/reload":                           a.reload,
		"POST /v1/drain":                            a.drain,
		"POST /v1/undrain":                          a.undrain,
		"PUT /v1/rules/{name}":                      a.edit(changes.Put),
		"PATCH /v1/rules/{name}":                    a.edit(changes.Patch),
		"DELETE /v1/rules/{name}":                   a.edit(changes.Delete),
		"POST /v1/rules/{name}/rollback":            a.edit(changes.Rollback),
		"GET /v1/rules/{name}/history":              a.history,
		"GET /v1/config":                            a.config,
		"GET /v1/pop":                               a.pop,
		"GET /v1/status":                            a.state,
		"GET /v1/top":                               a.top,
		"GET /v1/events":                            a.events,
		"GET /v1/dashboard":                         a.summary,
		"GET /v1/quotas":                            a.ofStore(a.listQuotas()),
		"GET /v1/quotas/{key}":                      a.quotas,
		"PUT /v1/quotas/{key}":                      a.ofStore(a.quota),
		"DELETE /v1/quotas/{key}":                   a.ofStore(a.unquota),
		"GET /v1/quotas/{key}/history":              a.ofStore(a.quotaHistory),
		"GET /v1/usage/{key}":                       a.usage,
	}
}

// public are the others: for machines, and the dashboard, which asks for the token itself.
func (a api) public() map[string]http.Handler {
	metrics := promhttp.HandlerFor(a.Metrics,
		promhttp.HandlerOpts{MaxRequestsInFlight: metricsAtOnce})
	if a.MetricsToken {
		metrics = a.authorized(metrics)
	}
	return map[string]http.Handler{
		"GET /healthz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			text(w, http.StatusOK, "ok\n")
		}),
		"GET /readyz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if why := a.Edge.Unready(); why != "" {
				text(w, http.StatusServiceUnavailable, why+"\n")
				return
			}
			// Balancers send requests all the same: the proofs for certificates are among them
			words := "ready\n"
			var state control.State
			if a.State != nil {
				state = a.State()
			}
			for _, c := range state.Certificates {
				if why := c.Waiting(); why != "" {
					words += why + "\n"
				}
			}
			// Clients shall see that, and not a balancer's own error
			if m := state.Maintenance; m != nil {
				words += "maintenance is on until " + m.Until.UTC().Format(time.RFC3339) +
					": send requests all the same, they get 503\n"
			}
			text(w, http.StatusOK, words)
		}),
		"GET /metrics":       metrics,
		"GET /{$}":           page("dashboard.html", "text/html"),
		"GET /dashboard.css": page("dashboard.css", "text/css"),
		"GET /dashboard.js":  page("dashboard.js", "text/javascript"),
	}
}

// local refuses requests for another host or from another origin. Load balancers, which get nothing
// but a word, and Prometheus, which gets numbers, name hosts as they please.
func (a api) local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		metrics := r.URL.Path == "/metrics"
		if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" {
			if (!metrics || a.MetricsToken) && !a.ours(r.Host) {
				route.Fail(w, http.StatusForbidden,
					"the Host is not one of this listener's: add it to admin_hosts")
				return
			}
			if origin := r.Header.Get("Origin"); origin != "" {
				if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
					route.Fail(w, http.StatusForbidden, "requests from other origins are refused")
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

// authorized wants the token.
func (a api) authorized(next http.Handler) http.Handler {
	if !a.Token.Wanted() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.Token.Has(w, r) {
			route.Fail(w, http.StatusUnauthorized, "this API wants a token: Authorization: Bearer TOKEN")
			return
		}
		if a.Vouch != nil {
			a.Vouch(r)
		}
		next.ServeHTTP(w, r)
	})
}

// topMost bounds what one answer shows.
const topMost = 1000

// most reads how many sources are to be shown. If it is wrong, the answer says so.
func most(w http.ResponseWriter, r *http.Request, standard int) (n int, ok bool) {
	text := r.URL.Query().Get("n")
	if text == "" {
		return standard, true
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > topMost {
		route.Fail(w, http.StatusBadRequest, "n is not a number of sources: want 1 to 1000")
		return 0, false
	}
	return n, true
}

func (a api) top(w http.ResponseWriter, r *http.Request) {
	n, ok := most(w, r, 20)
	if !ok {
		return
	}
	q := r.URL.Query()
	all, ok := a.View.OfPoP(w, r)
	if !ok {
		return
	}
	by, known := map[string]seen.Kind{"": seen.Requests, "requests": seen.Requests,
		"refused": seen.Refused, "shadow": seen.NotEnforced}[q.Get("by")]
	switch kind := q.Get("kind"); {
	case !known:
		route.Fail(w, http.StatusBadRequest, "by is not possible: want requests, refused or shadow")
	case kind == "key":
		list, err := a.Edge.TopKeys(by, n, q.Get("rule"))
		if all && err == nil {
			p := a.View.Look(r, "")
			route.Reply(w, listOfPoP[view.HeavyKey]{p.Edges(), p.TopKeys(cmp.Or(q.Get("by"), "requests"),
				n, q.Get("rule"))})
			return
		}
		route.Answer(w, list, err)
	case kind != "" && kind != "address":
		route.Fail(w, http.StatusBadRequest, "kind is not possible: want address or key")
	case q.Get("rule") != "":
		route.Fail(w, http.StatusBadRequest, "rule is about keys: want kind=key with it")
	case all:
		p := a.View.Look(r, "")
		route.Reply(w, listOfPoP[view.Heavy]{p.Edges(), p.Top(cmp.Or(q.Get("by"), "requests"), n)})
	case by == seen.Refused:
		route.Reply(w, a.Edge.TopRefused(n))
	case by == seen.NotEnforced:
		route.Reply(w, a.Edge.TopShadow(n))
	default:
		route.Reply(w, a.Edge.TopRequests(n))
	}
}

// events shows what has happened after ?since=, the number of an event or a time (RFC 3339); the
// newest first.
func (a api) events(w http.ResponseWriter, r *http.Request) {
	since := cmp.Or(r.URL.Query().Get("since"), "0")
	if all, ok := a.View.OfPoP(w, r); !ok {
		return
	} else if all {
		a.eventsOfPoP(w, r, since)
		return
	}
	if n, err := strconv.ParseUint(since, 10, 64); err == nil {
		route.Reply(w, a.Edge.Events().Since(n))
	} else if t, err := time.Parse(time.RFC3339, since); err == nil {
		route.Reply(w, a.Edge.Events().After(t))
	} else {
		route.Fail(w, http.StatusBadRequest,
			"since is not possible: want the number of an event, or a time such as 2026-05-04T14:05:00Z")
	}
}

// mitigations shows those in force, or of them those with ?rule=, ?source=, ?mode=, ?by= and ?q=
// (see control.Filter), or the first ?n= of these (see control.Extract). All of them may be a
// million, of which each is written as it is found.
func (a api) mitigations(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f := control.Filter{Rule: q.Get("rule"), Mode: rules.Mode(q.Get("mode")), By: q.Get("by"),
		Text: q.Get("q")}
	var err error
	if source := q.Get("source"); source != "" {
		f.Source, err = counter.ParseSource(source)
	}
	wrong := ""
	switch {
	case err != nil:
		wrong = "source is not possible: want an address, a prefix, or # and 32 hexadecimal digits"
	case f.Rule != "" && f.Rule != control.AllRules && a.find(f.Rule) == nil:
		route.Failed(w, fmt.Errorf("%w: %s", config.ErrNoRule, f.Rule))
		return
	case f.Mode != "" && f.Mode != rules.Enforce && f.Mode != rules.Shadow:
		wrong = "mode is not possible: want enforce or shadow"
	case f.By != "" && f.By != "edge" && f.By != "pop" && f.By != "admin" && f.By != "peer":
		wrong = "by is not possible: want edge, pop, admin or peer"
	}
	if wrong != "" {
		route.Fail(w, http.StatusBadRequest, wrong)
		return
	}
	n, ok := most(w, r, 0)
	all, possible := a.View.OfPoP(w, r)
	switch {
	case !ok || !possible:
	case all:
		a.mitigationsOfPoP(w, r, f, cmp.Or(n, topMost))
	case n > 0:
		o := a.Edge.Overview(n, f.Matches, time.Now())
		list := append(o.Blocked.List, o.Shadow.List...)
		route.Reply(w, list[:min(n, len(list))])
	default:
		stream(w, func(yield func(control.Mitigation) bool) {
			for m := range a.Edge.EachMitigation(time.Now()) {
				if f.Matches(&m) && !yield(m) {
					return
				}
			}
		})
	}
}

func (a api) block(w http.ResponseWriter, r *http.Request) {
	d, reason, ok := route.ReadTerm(w, r)
	if !ok {
		return
	}
	rule, source := r.PathValue("rule"), r.PathValue("source")
	if digest, is := digestOf(source); is && rule == control.AllRules {
		a.blockDigest(w, r, digest, d, reason)
		return
	}
	m, err := a.Edge.Block(rule, source, d, reason, route.Operator(r), time.Now())
	route.Answer(w, m, err)
}

// listed shows a list of prefixes, list puts one on it, and unlist takes it off.
func (a api) listed(list string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		route.Reply(w, a.Edge.Listed(list, time.Now()))
	}
}

func (a api) list(list string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		d, reason, ok := route.ReadTerm(w, r)
		if !ok {
			return
		}
		l, err := a.Edge.List(list, r.PathValue("prefix"), d, reason, route.Operator(r), time.Now())
		route.Answer(w, l, err)
	}
}

func (a api) unlist(list string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		lifted, err := a.Edge.Unlist(list, r.PathValue("prefix"), route.Operator(r), time.Now())
		route.Answer(w, lifted, err)
	}
}

func (a api) lift(w http.ResponseWriter, r *http.Request) {
	lifted, err := a.Edge.Lift(r.PathValue("rule"), r.PathValue("source"), route.Operator(r),
		time.Now())
	route.Answer(w, lifted, err)
}

// tierTime is how long an operator waits for what the tier knows of a source: many round trips.
const tierTime = 500 * time.Millisecond

func (a api) source(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), tierTime)
	defer cancel()
	all, ok := a.View.OfPoP(w, r)
	if !ok {
		return
	}
	var looked control.Looked
	text := r.PathValue("address")
	digest, is := digestOf(text)
	addr, err := netip.ParseAddr(text)
	switch {
	case is:
		text, looked = digest.String(), a.Edge.LookDigest(ctx, digest)
	case err == nil:
		addr = counter.Plain(addr)
		text, looked = addr.String(), a.Edge.Look(ctx, addr)
	default:
		route.Fail(w, http.StatusBadRequest, "that is not an address, nor # and 32 hexadecimal digits")
		return
	}
	if all {
		a.sourceOfPoP(w, r, text, looked)
		return
	}
	route.Reply(w, looked)
}

func (a api) nodes(w http.ResponseWriter, _ *http.Request) {
	route.Reply(w, append([]member.Node{}, a.Edge.Nodes()...))
}

func (a api) reload(w http.ResponseWriter, r *http.Request) {
	done, err := a.Reload()
	if err != nil {
		route.Fail(w, http.StatusBadRequest, err.Error())
		return
	}
	a.did(r, events.Event{Text: "reloaded the configuration"})
	route.Reply(w, done)
}

func (a api) origins(w http.ResponseWriter, _ *http.Request) {
	route.Reply(w, a.Edge.Origins(time.Now()))
}

// stream is reply for a list that is not made first. It ends with the operator.
func stream[T any](w http.ResponseWriter, list iter.Seq[T]) {
	route.Begin(w, "application/json")
	b := bufio.NewWriterSize(w, 32<<10) // the first error stays, and Flush returns it
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	e.SetIndent("  ", "  ")
	before := "[\n  "
	for v := range list {
		_, _ = b.WriteString(before)
		if e.Encode(v) != nil {
			return
		}
		before = "  ,"
	}
	if before == "[\n  " {
		_, _ = b.WriteString("[")
	}
	_, _ = b.WriteString("]\n")
	_ = b.Flush()
}

func text(w http.ResponseWriter, status int, s string) {
	route.Begin(w, "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(s))
}
