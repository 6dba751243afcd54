package control_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/edge/control"
	"sluice/edge/edgetest"
	"sluice/edge/rules"
)

// What operators see of a candidate: counts, who, and what happened. Its clients see nothing.
func TestCandidateForOperators(t *testing.T) {
	const yaml = "source: {trust: [127.0.0.1]}\nrules: [{name: r, limit: 4, window: 1h, candidate: {limit: 2, mitigation_timeout: 30m}}]"
	e := edgetest.StartWithEvents(t, yaml)
	from := func(source string) int {
		resp, _ := e.Get("/", "X-Forwarded-For: "+source)
		if resp.StatusCode == 200 && resp.Header.Get("X-Ratelimit-Limit") != "4" {
			t.Errorf("the client is told of %v", resp.Header)
		}
		return resp.StatusCode
	}
	for i, want := range []int{200, 200, 200, 200, 429, 429} {
		if got := from("192.0.2.1"); got != want {
			t.Errorf("request %d: %d, want %d", i, got, want)
		}
	}
	from("192.0.2.2")
	m := e.Rest()
	for name, want := range map[string]float64{
		"sluice_candidate_requests_total{rule=r,verdict=pass}": 3, "sluice_candidate_requests_total{rule=r,verdict=limited}": 1,
		"sluice_candidate_requests_total{rule=r,verdict=mitigated}": 3, "sluice_candidate_alone_total{rule=r}": 2,
		"sluice_mitigations_active{mode=candidate,rule=r}": 1, "sluice_mitigations_active{mode=enforce,rule=r}": 1,
		"sluice_mitigations_started_total{by=edge,mode=candidate,rule=r}": 1, "sluice_requests_total{rule=r,verdict=pass}": 5,
	} {
		if m[name] != want {
			t.Errorf("%s is %v, want %v", name, m[name], want)
		}
	}
	if top := e.TopShadow(9); len(top) != 1 || top[0].Source != "192.0.2.1" || top[0].Count != 2 {
		t.Errorf("%+v", top)
	}
	seen := func(s *edgetest.Edge) (list []string) {
		for _, m := range s.Mitigations(time.Now()) {
			list = append(list, fmt.Sprint(m.Rule, " ", m.Source, " ", m.Mode))
		}
		slices.Sort(list)
		return list
	}
	const both = "[r 192.0.2.1 candidate r 192.0.2.1 enforce]"
	if got := fmt.Sprint(seen(e)); got != both {
		t.Errorf("%v", got)
	}
	if o := e.Overview(9, nil, time.Now()); o.Blocked.InForce != 1 || o.Shadow.InForce != 1 || o.Shadow.List[0].Mode != rules.Tried {
		t.Errorf("%+v", o)
	}
	list := e.Events().Since(0)
	if len(list) != 2 || list[0].Limit != 4 || list[1].Limit != 2 || list[1].Estimate != 3 || !strings.HasSuffix(list[1].Text, "3 requests in 1h, 2 are allowed (candidate: nobody is refused)") {
		t.Errorf("%+v", list)
	}

	// The next process on this edge's place takes it for what it is.
	next := edgetest.StartWithEvents(t, yaml)
	for m := range e.InForce(time.Now()) {
		next.Adopt(m, time.Now())
	}
	if got := fmt.Sprint(seen(next)); got != both {
		t.Errorf("adopted: %v", got)
	}
	without := edgetest.StartWithEvents(t, strings.Replace(yaml, ", candidate: {limit: 2, mitigation_timeout: 30m}", "", 1))
	for m := range e.InForce(time.Now()) {
		without.Adopt(m, time.Now())
	}
	if got := fmt.Sprint(seen(without)); got != "[r 192.0.2.1 enforce]" {
		t.Errorf("adopted without a candidate: %v", got)
	}

	if _, err := e.Lift("r", "192.0.2.1", control.Operator{}, time.Now()); err != nil || len(seen(e)) != 0 {
		t.Errorf("%v: lifted, and still %v", err, seen(e))
	}
}
