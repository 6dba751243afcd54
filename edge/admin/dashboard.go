package admin

import (
	"embed"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/counter/member"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/route"
	"sluice/edge/rules"
	"sluice/edge/seen"
	"sluice/edge/top"
	"sluice/edge/upstream"
	"sluice/edge/view"
)

// The dashboard is three files that ask the API for everything else. They hold nothing secret, so
// they are served without a token; the page asks the operator for one if the API does.
//
//go:embed dashboard.html dashboard.css dashboard.js
var pages embed.FS

// page serves a file of the dashboard. No text can become a script or a style there: both come from
// files alone.
func page(file, kind string) http.HandlerFunc {
	content, err := pages.ReadFile(file)
	if err != nil {
		panic(err) // it is embedded
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		route.Begin(w, kind+"; charset=utf-8")
		h := w.Header()
		h.Set("Content-Security-Policy",
			"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "+
				"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		_, _ = w.Write(content)
	}
}

// A summary is all that the dashboard shows at a glance. Counts go up from the start of the
// process; the page makes rates of them.
type summary struct {
	view.Load
	Time    time.Time `json:"time"`
	PoP     string    `json:"pop"`
	Edge    string    `json:"edge,omitempty"`
	Unready string    `json:"unready,omitempty"`
	// Which edges count under another secret
	Apart string `json:"apart,omitempty"`
	// Settings of the file that wait for a restart
	Waiting []config.Wait         `json:"waiting,omitempty"`
	Failed  *control.FailedReload `json:"failed_reload,omitempty"`
	// Nil: the PoP serves requests
	Maintenance *control.MaintenanceStatus `json:"maintenance,omitempty"`
	// Rules that challenge all that come under them
	Everybody   []control.Mitigation   `json:"everybody,omitempty"`
	Rules       []ruleLoad             `json:"rules"`
	Shedding    []upstream.GroupStatus `json:"shedding,omitempty"` // the origins that shed load
	Wall        *control.Wall          `json:"wall,omitempty"`
	Nodes       []nodeLoad             `json:"nodes"`
	Blocked     control.Extract        `json:"blocked"`
	Shadow      control.Extract        `json:"shadow"`
	Allow       []control.Listed       `json:"allow"`
	Deny        []control.Listed       `json:"deny"`
	Requests    []top.Heavy            `json:"requests"`
	Refused     []top.Heavy            `json:"refused"`
	Keys        []control.HeavyKey     `json:"keys"` // by requests
	RefusedKeys []control.HeavyKey     `json:"refused_keys"`
	Events      []events.Event         `json:"events"` // after ?since=, at most eventsShown
	// Whole is what stands in place of some of these where all edges are asked for; then the load
	// is that of all as well. nil: they are not.
	Whole *popSummary `json:"whole,omitempty"`
}

type ruleLoad struct {
	rules.Config
	*view.RuleLoad
}

func (r ruleLoad) MarshalJSON() ([]byte, error) { return joined(r.Config, r.RuleLoad) }

type nodeLoad struct {
	member.Node
	Seconds [][2]float64 `json:"seconds,omitempty"` // of sluice_tier_operation_seconds
}

const (
	blockedShown = 100
	eventsShown  = 100
	topShown     = 10
	nearestOf    = 50 // heaviest sources, of which the nearest to its limit is shown
)

// summary answers GET /v1/dashboard?q=&since=&scope=: mitigations that have q in them, and events
// after the one of that number.
func (a api) summary(w http.ResponseWriter, r *http.Request) {
	since, err := strconv.ParseUint(r.FormValue("since"), 10, 64)
	if err != nil && r.FormValue("since") != "" {
		route.Fail(w, http.StatusBadRequest, "since is not possible: want the number of an event")
		return
	}
	all, ok := a.View.OfPoP(w, r)
	if !ok {
		return
	}
	families, err := a.Metrics.Gather()
	if families == nil && err != nil {
		route.Fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	now, c := time.Now(), a.Edge.Config()
	s := summary{
		Time: now, PoP: c.PoP.Name, Edge: c.EdgeID, Unready: a.Edge.Unready(), Waiting: a.waiting(),
		Load:  view.NewLoad(families),
		Rules: []ruleLoad{}, Nodes: []nodeLoad{},
		Requests: a.Edge.TopRequests(topShown), Refused: a.Edge.TopRefused(topShown),
		Events: a.Edge.Events().Since(since),
	}
	s.Keys, _ = a.Edge.TopKeys(seen.Requests, topShown, "") // of no rule, which could be absent
	s.RefusedKeys, _ = a.Edge.TopKeys(seen.Refused, topShown, "")
	if a.State != nil {
		state := a.State()
		s.Failed, s.Maintenance, s.Wall = state.Failed, state.Maintenance, state.Wall
	}
	s.Everybody = a.Edge.OnEverybody(now)
	s.Events = s.Events[:min(len(s.Events), eventsShown)]
	// Else it is why the edge is not ready
	if secret := a.Edge.Secret(); secret != nil && !secret.Held {
		s.Apart = secret.Warning
	}
	var match func(*control.Mitigation) bool
	if f := (control.Filter{Text: strings.TrimSpace(r.FormValue("q"))}); f.Text != "" {
		match = f.Matches
	}
	o := a.Edge.Overview(blockedShown, match, now)
	s.Blocked, s.Shadow, s.Allow, s.Deny = o.Blocked, o.Shadow, firstListed(o.Allowed),
		firstListed(o.Denied)
	for rule, n := range a.Edge.Nearest(nearestOf, now) {
		s.Load.Rule(rule).Nearest = &n
	}
	if all {
		s.Load = a.overPoP(r, &s, match, now)
	}
	for _, rule := range a.Edge.Rules() {
		s.Rules = append(s.Rules, ruleLoad{rule, s.Load.Rule(rule.Name)})
	}
	for _, group := range a.Edge.Origins(now) {
		if group.Shedding != nil {
			s.Shedding = append(s.Shedding, group)
		}
	}
	for _, n := range a.Edge.Nodes() {
		s.Nodes = append(s.Nodes, nodeLoad{n, s.Load.Nodes[n.Address]})
	}
	route.Begin(w, "application/json")
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // the operator is gone: nobody to tell
}

// firstListed is the newest of a list, so many as are shown of mitigations.
func firstListed(list []control.Listed) []control.Listed {
	slices.SortFunc(list, func(a, b control.Listed) int { return b.Start.Compare(a.Start) })
	return list[:min(len(list), blockedShown)]
}
