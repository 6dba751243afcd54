package admin

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"sluice/edge/control"
	"sluice/edge/events"
	"sluice/edge/plans"
	"sluice/edge/route"
)

// ofStore serves what needs a store of plans. If there is none, the answer says so.
func (a api) ofStore(serve http.HandlerFunc) http.HandlerFunc {
	if a.Plans == nil {
		return func(w http.ResponseWriter, _ *http.Request) { route.Failed(w, control.ErrNoPlans) }
	}
	return serve
}

// client is the one that a request names.
func client(r *http.Request) control.Client {
	return control.Client{Key: r.PathValue("key"), By: r.URL.Query().Get("by")}
}

func (a api) quotas(w http.ResponseWriter, r *http.Request) {
	all, err := a.Edge.Quotas(client(r))
	if err != nil {
		route.Failed(w, err)
		return
	}
	if a.Plans != nil && a.Plans.Status().Up {
		ctx, cancel := context.WithTimeout(r.Context(), updatedTime)
		defer cancel()
		// If not, what is in force is told without it
		if list, err := a.Plans.History(ctx, all.Keys); err == nil {
			all.Updated(list)
		}
	}
	route.Reply(w, all)
}

// updatedTime is how long the store may take to say who set the quotas that are in force.
const updatedTime = time.Second

func (a api) quotaHistory(w http.ResponseWriter, r *http.Request) {
	all, err := a.Edge.Quotas(client(r))
	if err != nil {
		route.Failed(w, err)
		return
	}
	list, err := a.Plans.History(r.Context(), all.Keys)
	route.Answer(w, control.QuotaChanges(list), err)
}

// author is who asks, as the store keeps him.
func author(r *http.Request) plans.Author {
	by := route.Operator(r)
	return plans.Author{Who: by.Who, From: by.From}
}

// stored is what the store says of a client before something of it changes here.
func (a api) stored(r *http.Request) (control.Quotas, error) {
	all, err := a.Edge.Quotas(client(r))
	if err != nil {
		return all, err
	}
	if err := a.Plans.Look(r.Context()); err != nil {
		return all, err
	}
	return a.Edge.Quotas(client(r))
}

func (a api) quota(w http.ResponseWriter, r *http.Request) {
	var q control.Quota
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, route.MaxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&q); err != nil || q.State != "" || q.UpdatedAt != nil ||
		q.UpdatedBy != "" {
		route.Fail(w, http.StatusBadRequest,
			`the body is not what it should be: want {"rule":"api","limit":500,"plan":"pro","effective_at":"2026-05-04T14:05:00Z","expires_at":"..."}, of which rule, times and one of limit and plan may be left out`)
		return
	}
	q = q.UTC()
	before, err := a.stored(r)
	if err != nil {
		route.Failed(w, err)
		return
	}
	kept, err := a.Edge.CheckQuota(client(r), q, time.Now())
	if err == nil {
		err = a.Plans.Put(r.Context(), before.Keys, kept, author(r))
	}
	if err != nil {
		route.Failed(w, err)
		return
	}
	said, _ := json.Marshal(q)
	a.said(r, before, "quota: "+string(said), q.Rule)
	a.quotas(w, r)
}

func (a api) unquota(w http.ResponseWriter, r *http.Request) {
	before, err := a.stored(r)
	if err != nil {
		route.Failed(w, err)
		return
	}
	var rule *string
	if r.URL.Query().Has("rule") {
		name := r.URL.Query().Get("rule")
		rule = &name
	}
	n, err := a.Plans.Delete(r.Context(), before.Keys, rule, author(r))
	if err != nil {
		route.Failed(w, err)
		return
	}
	if n > 0 {
		a.said(r, before, "quotas deleted", r.URL.Query().Get("rule"))
	}
	route.Reply(w, map[string]int{"deleted": n})
}

// said keeps what was said of a client among the events: by its digest, because keys are nobody's
// business there.
func (a api) said(r *http.Request, before control.Quotas, text, rule string) {
	if before.By != "" {
		text += ", known by " + before.By
	}
	e := events.Event{Text: text, Rule: rule, Source: before.Source.String(), Old: before.String()}
	if now, err := a.Edge.Quotas(client(r)); err == nil { // what was said is in force here
		e.New, e.Changed = now.String(), quotaFields(before, now)
	}
	a.did(r, e)
}

// quotaFields are what has changed of a client: its plan, and what is said under each rule.
func quotaFields(before, now control.Quotas) (list []events.Field) {
	if before.Plan != now.Plan {
		list = append(list, events.Field{Field: "plan", From: before.Plan, To: now.Plan})
	}
	was, is := before.ByRule(), now.ByRule()
	names := slices.Concat(slices.Collect(maps.Keys(was)), slices.Collect(maps.Keys(is)))
	slices.Sort(names)
	for _, rule := range slices.Compact(names) {
		if was[rule] != is[rule] {
			list = append(list, events.Field{Field: strings.TrimSuffix("quotas."+rule, "."),
				From: was[rule], To: is[rule]})
		}
	}
	return list
}

func (a api) usage(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), tierTime)
	defer cancel()
	used, err := a.Edge.Usage(ctx, client(r))
	route.Answer(w, used, err)
}
