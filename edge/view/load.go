package view

import (
	"cmp"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"

	"sluice/edge/control"
)

// Load is how much an edge does, or several together: what its metrics say of that. Counts go up
// from the start of the process.
type Load struct {
	Started float64 `json:"started,omitempty"` // Unix seconds
	Version string  `json:"version,omitempty"`
	// It should share a tier, and counts alone
	Alone       bool    `json:"alone,omitempty"`
	Received    float64 `json:"received"`
	HTTP2       float64 `json:"http2,omitempty"` // of those received
	Connections float64 `json:"connections"`
	// By the list deny, which is no rule
	Denied float64 `json:"denied,omitempty"`
	// Refused during maintenance, which is none either
	Maintained float64 `json:"maintained,omitempty"`
	Edges      float64 `json:"edges,omitempty"` // that share the tier
	// Of sluice_request_seconds, as those of an origin
	Seconds [][2]float64            `json:"seconds,omitempty"`
	Answers map[string]float64      `json:"answers"` // by who made them
	Rules   map[string]*RuleLoad    `json:"rules"`
	Origins []*OriginLoad           `json:"origins"`
	Nodes   map[string][][2]float64 `json:"nodes,omitempty"` // of sluice_tier_operation_seconds
}

// RuleLoad is what a rule does.
type RuleLoad struct {
	Verdicts map[string]float64 `json:"verdicts"`
	Active   float64            `json:"active"` // mitigations in force
	// Of a rule with a concurrency: requests here that hold a place
	InFlight float64 `json:"in_flight,omitempty"`
	// Of the heaviest sources, the one that has used most of its limit
	Nearest *control.SourceState `json:"nearest,omitempty"`
	// That the edge itself began, but for those that refuse nobody
	Blocks float64 `json:"blocks,omitempty"`
}

// OriginLoad is how an origin answers.
type OriginLoad struct {
	Name    string             `json:"name"`
	Up      bool               `json:"up"`
	Active  float64            `json:"active"` // requests under way
	Answers map[string]float64 `json:"answers"`
	// Upper bound and count up to it, of sluice_origin_seconds
	Seconds [][2]float64 `json:"seconds,omitempty"`
}

// NewLoad reads metrics.
func NewLoad(families []*dto.MetricFamily) Load {
	l := Load{Answers: make(map[string]float64), Rules: make(map[string]*RuleLoad),
		Origins: []*OriginLoad{}, Nodes: make(map[string][][2]float64)}
	for _, f := range families {
		for _, m := range f.Metric {
			l.take(f.GetName(), m)
		}
	}
	return l
}

// Rule is what a rule of that name does, which may be nothing yet.
func (l *Load) Rule(name string) *RuleLoad {
	r := l.Rules[name]
	if r == nil {
		r = &RuleLoad{Verdicts: make(map[string]float64)}
		l.Rules[name] = r
	}
	return r
}

func (l *Load) origin(name string) *OriginLoad {
	i := slices.IndexFunc(l.Origins, func(o *OriginLoad) bool { return o.Name == name })
	if i < 0 {
		i = len(l.Origins)
		l.Origins = append(l.Origins, &OriginLoad{Name: name, Answers: make(map[string]float64)})
	}
	return l.Origins[i]
}

func (l *Load) take(name string, m *dto.Metric) {
	label := func(name string) string {
		for _, l := range m.Label {
			if l.GetName() == name {
				return l.GetValue()
			}
		}
		return ""
	}
	switch name {
	case "process_start_time_seconds":
		l.Started = m.GetGauge().GetValue()
	case "sluice_build_info":
		l.Version = label("version")
	case "sluice_tier_alone":
		l.Alone = m.GetGauge().GetValue() > 0
	case "sluice_tier_edges":
		l.Edges = m.GetGauge().GetValue()
	case "sluice_request_seconds":
		l.Seconds = buckets(m.GetHistogram())
	case "sluice_received_total":
		l.Received = m.GetCounter().GetValue()
	case "sluice_http2_requests_total":
		l.HTTP2 = m.GetCounter().GetValue()
	case "sluice_connections":
		l.Connections = m.GetGauge().GetValue()
	case "sluice_answers_total":
		l.Answers[label("from")] += m.GetCounter().GetValue()
	case "sluice_requests_total":
		switch n, verdict := m.GetCounter().GetValue(), label("verdict"); {
		case label("rule") != "":
			l.Rule(label("rule")).Verdicts[verdict] = n
		case verdict == "denied":
			l.Denied = n
		case verdict == "maintenance":
			l.Maintained = n
		}
	case "sluice_mitigations_active":
		l.Rule(label("rule")).Active = m.GetGauge().GetValue()
	case "sluice_mitigations_started_total":
		if label("by") == "edge" && label("mode") == "enforce" {
			l.Rule(label("rule")).Blocks = m.GetCounter().GetValue()
		}
	case "sluice_in_flight":
		l.Rule(label("rule")).InFlight = m.GetGauge().GetValue()
	case "sluice_origin_up":
		l.origin(label("origin")).Up = m.GetGauge().GetValue() > 0
	case "sluice_origin_active":
		l.origin(label("origin")).Active = m.GetGauge().GetValue()
	case "sluice_origin_requests_total":
		l.origin(label("origin")).Answers[label("code")] = m.GetCounter().GetValue()
	case "sluice_origin_seconds":
		l.origin(label("origin")).Seconds = buckets(m.GetHistogram())
	case "sluice_tier_operation_seconds":
		l.Nodes[label("node")] = buckets(m.GetHistogram())
	}
}

// buckets lists a histogram's. The last one, which has no bound, is left out of JSON, which has no
// infinity, but for its count: it stands under the bound -1.
func buckets(h *dto.Histogram) [][2]float64 {
	list := make([][2]float64, 0, len(h.GetBucket())+1)
	for _, b := range h.GetBucket() {
		if bound := b.GetUpperBound(); bound <= 1e9 {
			list = append(list, [2]float64{bound, float64(b.GetCumulativeCount())})
		}
	}
	return append(list, [2]float64{-1, float64(h.GetSampleCount())})
}

// Sum is what several do together. What cannot be added is that of the first, this edge: when it
// started, its version. A rule's nearest is the nearest anywhere, and its blocks are the most that
// anybody knows, because each knows those of all. An origin is up that answers anybody.
func Sum(loads ...Load) Load {
	all := NewLoad(nil)
	for i, l := range loads {
		if i == 0 {
			all.Started, all.Version, all.Alone = l.Started, l.Version, l.Alone
		}
		all.Edges = max(all.Edges, l.Edges)
		all.Received = add(all.Received, l.Received)
		all.HTTP2 = add(all.HTTP2, l.HTTP2)
		all.Connections = add(all.Connections, l.Connections)
		all.Denied = add(all.Denied, l.Denied)
		all.Maintained = add(all.Maintained, l.Maintained)
		all.Seconds = addBuckets(all.Seconds, l.Seconds)
		addCounts(all.Answers, l.Answers)
		for name, r := range l.Rules {
			if r != nil {
				all.Rule(name).add(r)
			}
		}
		for _, o := range l.Origins {
			if o != nil {
				to := all.origin(o.Name)
				to.Up = to.Up || o.Up
				to.Active = add(to.Active, o.Active)
				addCounts(to.Answers, o.Answers)
				to.Seconds = addBuckets(to.Seconds, o.Seconds)
			}
		}
		for node, b := range l.Nodes {
			all.Nodes[node] = addBuckets(all.Nodes[node], b)
		}
	}
	slices.SortStableFunc(all.Origins, func(a, b *OriginLoad) int {
		return cmp.Compare(a.Name, b.Name)
	})
	return all
}

func (r *RuleLoad) add(o *RuleLoad) {
	addCounts(r.Verdicts, o.Verdicts)
	r.Active = max(r.Active, o.Active)
	r.InFlight = add(r.InFlight, o.InFlight)
	r.Blocks = add(r.Blocks, o.Blocks)
	if n := o.Nearest; n != nil && n.Limit > 0 && (r.Nearest == nil ||
		n.Estimate/float64(n.Limit) > r.Nearest.Estimate/float64(r.Nearest.Limit)) {
		r.Nearest = n
	}
}

// add adds counts, which may be those of a forged part: JSON has no infinity.
func add(a, b float64) float64 { return min(max(a+b, -math.MaxFloat64), math.MaxFloat64) }

func addCounts(to, more map[string]float64) {
	for name, n := range more {
		to[name] = add(to[name], n)
	}
}

// addBuckets adds histograms that may have other bounds, as those of edges of several versions:
// then the first stays as it is.
func addBuckets(to, more [][2]float64) [][2]float64 {
	switch {
	case to == nil:
		return slices.Clone(more)
	case len(to) != len(more):
		return to
	}
	for i := range to {
		if to[i][0] != more[i][0] {
			return to
		}
	}
	for i := range to {
		to[i][1] = add(to[i][1], more[i][1])
	}
	return to
}

// Refused is how many requests the rule has refused.
func (r *RuleLoad) Refused() (n float64) {
	for _, v := range []string{"limited", "mitigated", "closed"} {
		n += r.Verdicts[v]
	}
	return n
}

// Short is the load without how long things took.
func (l Load) Short() Load {
	l.Seconds, l.Nodes = nil, nil
	origins := make([]*OriginLoad, 0, len(l.Origins))
	for _, o := range l.Origins {
		if o != nil { // as in a part that no edge has made
			short := *o
			short.Seconds = nil
			origins = append(origins, &short)
		}
	}
	l.Origins = origins
	return l
}
