package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"sluice/edge/control"
	"sluice/edge/events"
)

// store reports whether there is a store of plans. If not, the answer says so.
func (a api) store(w http.ResponseWriter) bool {
	if a.Plans == nil {
		failed(w, control.ErrNoPlans)
		return false
	}
	return true
}

// client is the one that a request names.
func client(r *http.Request) control.Client {
	return control.Client{Key: r.PathValue("key"), By: r.URL.Query().Get("by")}
}

func (a api) quotas(w http.ResponseWriter, r *http.Request) {
	all, err := a.Edge.Quotas(client(r))
	if err != nil {
		failed(w, err)
		return
	}
	reply(w, all)
}

func (a api) quota(w http.ResponseWriter, r *http.Request) {
	if !a.store(w) {
		return
	}
	var q control.Quota
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&q); err != nil || q.State != "" {
		fail(w, http.StatusBadRequest, `the body is not what it should be: want {"rule":"api","limit":500,"plan":"pro","effective_at":"2026-05-04T14:05:00Z","expires_at":"..."}, of which rule, times and one of limit and plan may be left out`)
		return
	}
	before, err := a.Edge.Quotas(client(r))
	if err != nil {
		failed(w, err)
		return
	}
	kept, err := a.Edge.CheckQuota(client(r), q, time.Now())
	if err == nil {
		err = a.Plans.Put(r.Context(), before.Keys, kept)
	}
	if err != nil {
		failed(w, err)
		return
	}
	said, _ := json.Marshal(q)
	a.said(r, before, "quota: "+string(said), q.Rule)
	a.quotas(w, r)
}

func (a api) unquota(w http.ResponseWriter, r *http.Request) {
	if !a.store(w) {
		return
	}
	before, err := a.Edge.Quotas(client(r))
	if err != nil {
		failed(w, err)
		return
	}
	var rule *string
	if r.URL.Query().Has("rule") {
		name := r.URL.Query().Get("rule")
		rule = &name
	}
	n, err := a.Plans.Delete(r.Context(), before.Keys, rule)
	if err != nil {
		failed(w, err)
		return
	}
	what, under := "quotas deleted", ""
	if rule != nil {
		under = *rule
	}
	if n > 0 {
		a.said(r, before, what, under)
	}
	reply(w, map[string]int{"deleted": n})
}

// said keeps what was said of a client among the events: by its digest, because keys are nobody's business there.
func (a api) said(r *http.Request, before control.Quotas, text, rule string) {
	if before.By != "" {
		text += ", known by " + before.By
	}
	old := fmt.Sprintf("plan %s, %d quotas", before.Plan, len(before.Quotas))
	a.did(r, events.Event{Text: text, Rule: rule, Source: before.Source.String(), Old: old})
}

func (a api) usage(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), tierTime)
	defer cancel()
	used, err := a.Edge.Usage(ctx, client(r))
	if err != nil {
		failed(w, err)
		return
	}
	reply(w, used)
}
