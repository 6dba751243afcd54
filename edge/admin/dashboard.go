package admin

import (
	"embed"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"sluice/counter/member"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/seen"
	"sluice/edge/top"
	"sluice/edge/upstream"
)

// The dashboard is three files that ask the API for everything else. They hold nothing secret, so they are served without a token; the
// page asks the operator for one if the API does.
//
//go:embed dashboard.html dashboard.css dashboard.js
var pages embed.FS

// page serves a file of the dashboard. No text can become a script or a style there: both come from files alone.
func page(file, kind string) http.HandlerFunc {
	content, err := pages.ReadFile(file)
	if err != nil {
		panic(err) // it is embedded
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		begin(w, kind+"; charset=utf-8")
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "+
			"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		_, _ = w.Write(content)
	}
}

// A summary is all that the dashboard shows at a glance. Counts go up from the start of the process; the page makes rates of them.
type summary struct {
	Time        time.Time              `json:"time"`
	PoP         string                 `json:"pop"`
	Edge        string                 `json:"edge,omitempty"`
	Version     string                 `json:"version,omitempty"`
	Started     float64                `json:"started,omitempty"` // Unix seconds
	Unready     string                 `json:"unready,omitempty"`
	Alone       bool                   `json:"alone,omitempty"`   // it should share a tier, and counts alone
	Apart       string                 `json:"apart,omitempty"`   // which edges count under another secret
	Waiting     []config.Wait          `json:"waiting,omitempty"` // settings of the file that wait for a restart
	Failed      *control.FailedReload  `json:"failed_reload,omitempty"`
	Received    float64                `json:"received"`
	HTTP2       float64                `json:"http2,omitempty"` // of them
	Connections float64                `json:"connections"`
	Denied      float64                `json:"denied,omitempty"`  // by the list deny, which is no rule
	Edges       float64                `json:"edges,omitempty"`   // that share the tier
	Seconds     [][2]float64           `json:"seconds,omitempty"` // of sluice_request_seconds, as those of an origin
	Answers     map[string]float64     `json:"answers"`           // by who made them
	Rules       []ruleLoad             `json:"rules"`
	Origins     []*originLoad          `json:"origins"`
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
}

type ruleLoad struct {
	ruleJSON
	Verdicts map[string]float64   `json:"verdicts"`
	Active   float64              `json:"active"`              // mitigations in force
	InFlight float64              `json:"in_flight,omitempty"` // of a rule with a concurrency: requests here that hold a place
	Nearest  *control.SourceState `json:"nearest,omitempty"`   // of the heaviest sources, the one that has used most of its limit
}

type originLoad struct {
	Name    string             `json:"name"`
	Up      bool               `json:"up"`
	Active  float64            `json:"active"` // requests under way
	Answers map[string]float64 `json:"answers"`
	Seconds [][2]float64       `json:"seconds,omitempty"` // upper bound and count up to it, of sluice_origin_seconds
}

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

// summary answers GET /v1/dashboard?q=&since=: mitigations that have q in them, and events after the one of that number.
func (a api) summary(w http.ResponseWriter, r *http.Request) {
	since, err := strconv.ParseUint(r.FormValue("since"), 10, 64)
	if err != nil && r.FormValue("since") != "" {
		fail(w, http.StatusBadRequest, "since is not possible: want the number of an event")
		return
	}
	families, err := a.Metrics.Gather()
	if families == nil && err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	now, c := time.Now(), a.Edge.Config()
	s := summary{
		Time: now, PoP: c.PoP.Name, Edge: c.EdgeID, Unready: a.Edge.Unready(), Waiting: a.waiting(), Wall: a.Edge.Wall(), Answers: make(map[string]float64),
		Rules: []ruleLoad{}, Origins: []*originLoad{}, Nodes: []nodeLoad{},
		Requests: a.Edge.TopRequests(topShown), Refused: a.Edge.TopRefused(topShown), Events: a.Edge.Events().Since(since),
	}
	s.Keys, _ = a.Edge.TopKeys(seen.Requests, topShown, "") // of no rule, which could be absent
	s.RefusedKeys, _ = a.Edge.TopKeys(seen.Refused, topShown, "")
	if a.State != nil {
		s.Failed = a.State().Failed
	}
	s.Events = s.Events[:min(len(s.Events), eventsShown)]
	if secret := a.Edge.Secret(); secret != nil && !secret.Held { // else it is why the edge is not ready
		s.Apart = secret.Warning
	}
	var match func(*control.Mitigation) bool
	if f := (control.Filter{Text: strings.TrimSpace(r.FormValue("q"))}); f.Text != "" {
		match = f.Matches
	}
	o := a.Edge.Overview(blockedShown, match, now)
	s.Blocked, s.Shadow, s.Allow, s.Deny = o.Blocked, o.Shadow, firstListed(o.Allowed), firstListed(o.Denied)
	nearest := a.Edge.Nearest(nearestOf, now)
	for _, rule := range edgeRules(a.Edge) {
		load := ruleLoad{ruleJSON: rule, Verdicts: make(map[string]float64)}
		if n, there := nearest[rule.Name]; there {
			load.Nearest = &n
		}
		s.Rules = append(s.Rules, load)
	}
	for _, group := range a.Edge.Origins(now) {
		if group.Shedding != nil {
			s.Shedding = append(s.Shedding, group)
		}
	}
	for _, n := range a.Edge.Nodes() {
		s.Nodes = append(s.Nodes, nodeLoad{Node: n})
	}
	for _, f := range families {
		for _, m := range f.Metric {
			s.take(f.GetName(), m)
		}
	}
	begin(w, "application/json")
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // the operator is gone: nobody to tell
}

// take takes over from a metric what the dashboard shows.
func (s *summary) take(name string, m *dto.Metric) {
	label := func(name string) string {
		for _, l := range m.Label {
			if l.GetName() == name {
				return l.GetValue()
			}
		}
		return ""
	}
	rule := func() *ruleLoad {
		if i := slices.IndexFunc(s.Rules, func(r ruleLoad) bool { return r.Name == label("rule") }); i >= 0 {
			return &s.Rules[i]
		}
		return &ruleLoad{Verdicts: make(map[string]float64)} // it has gone meanwhile
	}
	origin := func() *originLoad {
		i := slices.IndexFunc(s.Origins, func(o *originLoad) bool { return o.Name == label("origin") })
		if i < 0 {
			i = len(s.Origins)
			s.Origins = append(s.Origins, &originLoad{Name: label("origin"), Answers: make(map[string]float64)})
		}
		return s.Origins[i]
	}
	switch name {
	case "process_start_time_seconds":
		s.Started = m.GetGauge().GetValue()
	case "sluice_build_info":
		s.Version = label("version")
	case "sluice_tier_alone":
		s.Alone = m.GetGauge().GetValue() > 0
	case "sluice_tier_edges":
		s.Edges = m.GetGauge().GetValue()
	case "sluice_request_seconds":
		s.Seconds = buckets(m.GetHistogram())
	case "sluice_received_total":
		s.Received = m.GetCounter().GetValue()
	case "sluice_http2_requests_total":
		s.HTTP2 = m.GetCounter().GetValue()
	case "sluice_connections":
		s.Connections = m.GetGauge().GetValue()
	case "sluice_answers_total":
		s.Answers[label("from")] += m.GetCounter().GetValue()
	case "sluice_requests_total":
		if label("rule") == "" {
			s.Denied = m.GetCounter().GetValue()
		} else {
			rule().Verdicts[label("verdict")] = m.GetCounter().GetValue()
		}
	case "sluice_mitigations_active":
		rule().Active = m.GetGauge().GetValue()
	case "sluice_in_flight":
		rule().InFlight = m.GetGauge().GetValue()
	case "sluice_origin_up":
		origin().Up = m.GetGauge().GetValue() > 0
	case "sluice_origin_active":
		origin().Active = m.GetGauge().GetValue()
	case "sluice_origin_requests_total":
		origin().Answers[label("code")] = m.GetCounter().GetValue()
	case "sluice_origin_seconds":
		origin().Seconds = buckets(m.GetHistogram())
	case "sluice_tier_operation_seconds":
		if i := slices.IndexFunc(s.Nodes, func(n nodeLoad) bool { return n.Address == label("node") }); i >= 0 {
			s.Nodes[i].Seconds = buckets(m.GetHistogram())
		}
	}
}

// buckets lists a histogram's. The last one, which has no bound, is left out of JSON, which has no infinity, but for its count: it
// stands under the bound -1.
func buckets(h *dto.Histogram) [][2]float64 {
	list := make([][2]float64, 0, len(h.GetBucket())+1)
	for _, b := range h.GetBucket() {
		if bound := b.GetUpperBound(); bound <= 1e9 {
			list = append(list, [2]float64{bound, float64(b.GetCumulativeCount())})
		}
	}
	return append(list, [2]float64{-1, float64(h.GetSampleCount())})
}

// firstListed is the newest of a list, so many as are shown of mitigations.
func firstListed(list []control.Listed) []control.Listed {
	slices.SortFunc(list, func(a, b control.Listed) int { return b.Start.Compare(a.Start) })
	return list[:min(len(list), blockedShown)]
}
