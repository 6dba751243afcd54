package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"sluice/counter/member"
	"sluice/edge/changes"
	"sluice/edge/config"
	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/route"
	"sluice/edge/rules"
)

// Edited is what became of an edit.
type Edited struct {
	// Which edges say that this version is in force there; nil: there is this edge only
	Edges    *control.Spread
	Warnings []string // what an operator should know of it
	// Overtaken is what the operator has set and somebody else as well, at another edge at the same
	// moment, whose value stands.
	Overtaken []changes.Overtaken
	Now       *changes.Overlay // what Edges is about; nil: what is in force
}

// joined is the fields of a rule and those of another object as one object: what embeds a rule says
// so, because a rule's own MarshalJSON would be its own.
func joined(rule rules.Config, beside any) ([]byte, error) {
	text, err := rule.MarshalJSON()
	if err != nil {
		return nil, err
	}
	more, err := json.Marshal(beside)
	if err != nil || len(more) <= len("{}") || more[0] != '{' {
		return text, err
	}
	return append(append(text[:len(text)-1], ','), more[1:]...), nil
}

// A shownRule is a rule, and where it comes from.
type shownRule struct {
	rules.Config
	shownOrigin
}

type shownOrigin struct {
	Origin  changes.Origin `json:"origin"`
	Version uint64         `json:"version"`
}

func (r shownRule) MarshalJSON() ([]byte, error) { return joined(r.Config, r.shownOrigin) }

func (a api) rules(w http.ResponseWriter, _ *http.Request) {
	route.Reply(w, append([]rules.Config{}, a.Edge.Rules()...))
}

// find is a rule in force, or nil.
func (a api) find(name string) *rules.Config {
	for _, rule := range a.Edge.Rules() {
		if rule.Name == name {
			return &rule
		}
	}
	return nil
}

// overlay is what has been changed of the rules; what nobody can change are those of the file.
func (a api) overlay() *changes.Overlay {
	if a.Overlay == nil {
		return changes.Lay(a.Edge.Config(), changes.File, nil, changes.Local)
	}
	return a.Overlay()
}

func (a api) rule(w http.ResponseWriter, r *http.Request) {
	// The tag first: it may be older than the rule that is shown, and then an edit by it is
	// refused; but never newer.
	tag := a.overlay().ETag(r.PathValue("name"))
	rule := a.find(r.PathValue("name"))
	if rule == nil {
		route.Failed(w, fmt.Errorf("%w: %s", config.ErrNoRule, r.PathValue("name")))
		return
	}
	w.Header().Set("ETag", tag)
	route.Reply(w, rule)
}

// edit changes a rule as the request asks, and answers with the rule as it is then and where it is
// in force.
func (a api) edit(action changes.Action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, route.MaxBody))
		if tooLong := new(http.MaxBytesError); errors.As(err, &tooLong) {
			route.Fail(w, http.StatusRequestEntityTooLarge,
				"the body is too long: a rule that is changed here has a few kilobytes, put a longer one into the file")
			return
		} else if err != nil {
			route.Fail(w, http.StatusBadRequest, "the body could not be read: "+err.Error())
			return
		}
		by := route.Operator(r)
		e := changes.Edit{Name: r.PathValue("name"), Action: action, Body: body,
			IfMatch: r.Header.Get("If-Match"), Who: by.Who, From: by.From}
		switch replace := r.URL.Query().Get("replace"); {
		case action != changes.Put || replace == "" || replace == "false":
		case replace == "true":
			e.Replace = true
		default:
			route.Fail(w, http.StatusBadRequest, "replace is not possible: want true or false")
			return
		}
		if action == changes.Rollback {
			var to struct {
				To *uint64 `json:"to"`
			}
			if json.Unmarshal(body, &to) != nil || to.To == nil {
				route.Fail(w, http.StatusBadRequest,
					`the body is not what it should be: want {"to": VERSION}, one of the rule's history; 0 is what the file says`)
				return
			}
			e.To = *to.To
		}
		if a.Edit == nil {
			if _, _, err := a.overlay().Change(e); err != nil {
				route.Failed(w, err)
				return
			}
			route.Fail(w, http.StatusNotImplemented, "rules cannot be changed here")
			return
		}
		done, err := a.Edit(e)
		if err != nil {
			route.Failed(w, err)
			return
		}
		a.edited(w, e.Name, done)
	}
}

func (a api) edited(w http.ResponseWriter, name string, done Edited) {
	overlay := done.Now
	if overlay == nil {
		overlay = a.overlay()
	}
	inForce := overlay.InForce(name)
	o := outcome{Version: inForce.Version, Origin: inForce.Origin, Edges: done.Edges,
		Overtaken: done.Overtaken, Warnings: done.Warnings}
	rule := overlay.Rule(name)
	if rule == nil {
		o.Deleted = true
		route.Reply(w, o)
		return
	}
	w.Header().Set("ETag", overlay.ETag(name))
	route.Reply(w, editedRule{a.shown(*rule), o})
}

// An outcome is what became of an edit.
type outcome struct {
	Deleted   bool                `json:"deleted,omitempty"`
	Version   uint64              `json:"version"`
	Origin    changes.Origin      `json:"origin,omitempty"`
	Edges     *control.Spread     `json:"edges,omitempty"`
	Overtaken []changes.Overtaken `json:"overtaken,omitempty"`
	Warnings  []string            `json:"warnings,omitempty"`
}

// An editedRule is a rule, and what became of the edit.
type editedRule struct {
	rules.Config
	outcome
}

func (r editedRule) MarshalJSON() ([]byte, error) { return joined(r.Config, r.outcome) }

// shown is a rule of an overlay as those in force are shown.
func (a api) shown(r rules.Config) rules.Config {
	if r.Estimate == nil {
		r.Estimate = &a.Edge.Config().Estimate
	}
	return r
}

func (a api) history(w http.ResponseWriter, r *http.Request) {
	list, err := a.overlay().History(r.PathValue("name"))
	route.Answer(w, list, err)
}

// config shows what runs, where each rule comes from, and what the file says and waits for a
// restart.
func (a api) config(w http.ResponseWriter, _ *http.Request) {
	overlay, list := a.overlay(), []shownRule{}
	for _, r := range a.Edge.Rules() {
		s := overlay.InForce(r.Name)
		list = append(list, shownRule{r, shownOrigin{s.Origin, s.Version}})
	}
	all := config.Shown(a.Edge.Config())
	all["rules"] = list
	all["config_hash"], _ = a.Edge.RulesHash()
	all["waiting"] = a.waiting()
	route.Reply(w, all)
}

// waiting is what the file says and is not so before the next start.
func (a api) waiting() []config.Wait {
	if a.Waiting == nil {
		return []config.Wait{}
	}
	return a.Waiting()
}

func (a api) state(w http.ResponseWriter, r *http.Request) {
	if all, ok := a.View.OfPoP(w, r); !ok {
		return
	} else if all {
		a.statesOfPoP(w, r)
		return
	}
	if a.State == nil {
		route.Fail(w, http.StatusNotImplemented, "how the edge is is not known here")
		return
	}
	route.Reply(w, a.State())
}

func (a api) pop(w http.ResponseWriter, _ *http.Request) {
	all := control.PoPStatus{Name: a.Edge.Config().PoP.Name,
		Edges: append([]control.EdgeStatus{}, a.Edge.Edges()...),
		Nodes: append([]member.Node{}, a.Edge.Nodes()...), Secret: a.Edge.Secret()}
	if a.Etcd != nil {
		status := a.Etcd()
		all.Etcd = &status
	}
	if len(all.Edges) == 0 && a.Self != nil {
		all.Edges = append(all.Edges, a.Self())
	}
	route.Reply(w, all)
}

// did keeps an operator's action among the events.
func (a api) did(r *http.Request, e events.Event) {
	e.Time, e.Kind = time.Now(), events.Operator
	by := route.Operator(r)
	e.Who, e.From = by.Who, by.From
	a.Edge.Events().Add(e)
}
