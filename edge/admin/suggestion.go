package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"sluice/edge/config"
	"sluice/edge/peaks"
	"sluice/edge/route"
	"sluice/edge/rules"
	"sluice/edge/tryout"
	"sluice/edge/view"
)

// suggestionJSON is what is suggested for a rule, beside what is in force.
type suggestionJSON struct {
	Rule    string         `json:"rule"`
	About   string         `json:"about"` // as it is in force
	InForce uint32         `json:"in_force"`
	Window  rules.Duration `json:"window"`
	Mode    rules.Mode     `json:"mode"`
	*peaks.Suggestion
	// Whose sources it rests on, with those that are missing
	Edges []view.Edge `json:"edges,omitempty"`
}

// suggestion answers with the limit that the sources of a rule suggest: of this edge, or of all.
func (a api) suggestion(w http.ResponseWriter, r *http.Request) {
	all, ok := a.View.OfPoP(w, r)
	if !ok {
		return
	}
	share := 0.01
	if text := r.URL.Query().Get("refuse"); text != "" {
		var err error
		if share, err = strconv.ParseFloat(text, 64); err != nil {
			route.Fail(w, http.StatusBadRequest,
				"refuse is not possible: want a share of sources, such as 0.01")
			return
		}
	}
	if err := peaks.CheckShare(share); err != nil {
		route.Failed(w, err)
		return
	}
	name, now := r.PathValue("name"), time.Now()
	on := a.Edge.Rules()
	i := slices.IndexFunc(on, func(c rules.Config) bool { return c.Name == name })
	if i < 0 {
		route.Failed(w, fmt.Errorf("%w: %s", config.ErrNoRule, name))
		return
	}
	rule := &on[i]
	own := a.Edge.Peaks(name, now)
	if err := rule.HasPeaks(); err != nil {
		route.Failed(w, fmt.Errorf("no limit can be suggested for rule %s: %w", name, err))
		return
	} else if own == nil {
		route.Failed(w,
			fmt.Errorf("no limit can be suggested for rule %s: its mode is off, so nothing is counted", name))
		return
	}
	said := suggestionJSON{Rule: name, About: tryout.About(rule), InForce: rule.Limit,
		Window: rule.Window, Mode: rule.Mode}
	parts := []*peaks.Part{own}
	if all {
		parts = nil
		question := view.AskPeaks(name)
		p := a.View.Look(r, question)
		said.Edges = p.EdgesTo(question)
		for _, answer := range view.Answers[peaks.Part](p, question) {
			if answer.Answer.Version == own.Version {
				parts = append(parts, &answer.Answer)
				continue
			}
			if i := slices.IndexFunc(said.Edges,
				func(e view.Edge) bool { return e.Name == answer.Edge }); i >= 0 {
				said.Edges[i].Missing = "it has another rule of that name, or is of an older version"
			}
		}
	}
	said.Suggestion = peaks.Suggest(parts, time.Duration(rule.Window), share, now)
	route.Reply(w, said)
}
