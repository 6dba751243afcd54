package edge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/edge/control"
	"sluice/edge/rules"
)

// What operators see of a candidate: counts, who, and what happened. Its clients see nothing.
func TestCandidateForOperators(t *testing.T) {
	const yaml = "source: {trust: [127.0.0.1]}\nrules: [{name: r, limit: 4, window: 1h, candidate: {limit: 2, mitigation_timeout: 30m}}]"
	e := startTold(t, yaml)
	from := func(source string) int {
		resp, _ := e.get("/", "X-Forwarded-For: "+source)
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
	m := e.rest()
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
	seen := func(s *edgeUnderTest) (list []string) {
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
	next := startTold(t, yaml)
	for m := range e.InForce(time.Now()) {
		next.Adopt(m, time.Now())
	}
	if got := fmt.Sprint(seen(next)); got != both {
		t.Errorf("adopted: %v", got)
	}
	without := startTold(t, strings.Replace(yaml, ", candidate: {limit: 2, mitigation_timeout: 30m}", "", 1))
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

// A candidate that is changed begins afresh, and its rule's blocks stay.
func TestCandidateReload(t *testing.T) {
	const yaml = "rules: [{name: r, limit: 4, window: 1h, mitigation_timeout: 1h, candidate: {limit: 2}}]"
	e := startEdge(t, startRecorder(t, hello).url(), yaml)
	for range 6 {
		e.get("/")
	}
	f := func(yaml string, want ...rules.Mode) {
		t.Helper()
		must(t, e.apply(yaml))
		var got []rules.Mode
		for m := range e.InForce(time.Now()) {
			got = append(got, m.Mode)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", yaml, got, want)
		}
	}
	f(strings.Replace(yaml, "name: r", "name: r, first_sight: wait", 1), rules.Tried, rules.Enforce)
	f(strings.Replace(yaml, "{limit: 2}", "{limit: 3}", 1), rules.Enforce)
	f(strings.Replace(yaml, ", candidate: {limit: 2}", "", 1), rules.Enforce)
}

// A rule for a share of sources is as if it were not there for the others.
func TestShareOfSources(t *testing.T) {
	e := startEdge(t, startRecorder(t, hello).url(), "source: {trust: [127.0.0.1]}\nrules: [{name: r, limit: 1, share: 30}]")
	limited := 0
	for i := range 100 {
		source := fmt.Sprintf("192.0.2.%d", i)
		first, _ := e.get("/", "X-Forwarded-For: "+source)
		second, _ := e.get("/", "X-Forwarded-For: "+source)
		is := second.StatusCode == 429
		if first.StatusCode != 200 || is != (first.Header.Get("RateLimit") != "") {
			t.Errorf("%s: %d %v, then %d", source, first.StatusCode, first.Header, second.StatusCode)
		}
		if st := e.Look(t.Context(), netip.MustParseAddr(source)).Rules[0]; st.OutsideShare == is {
			t.Errorf("%s: limited %v, and %+v", source, is, st)
		}
		if is {
			limited++
			continue
		}
		m, err := e.Block("r", source, time.Minute, "", control.Operator{}, time.Now())
		if err != nil || !strings.Contains(m.Warning, "not about this one") {
			t.Errorf("%+v, %v", m, err)
		}
	}
	if limited < 15 || limited > 45 {
		t.Errorf("%d of 100 sources are limited", limited)
	}
	if m, err := e.Block("r", "192.0.2.0/24", time.Minute, "", control.Operator{}, time.Now()); err != nil || m.Warning != "" {
		t.Errorf("%+v, %v", m, err)
	}
	if m := e.rest(); m["sluice_requests_total{rule=r,verdict=pass}"] != float64(limited) || m["sluice_counters"] != float64(limited) {
		t.Errorf("%d are limited, and %v", limited, m)
	}
}

// Connections are not closed at accept for a rule that is not about everybody.
func TestShareDoesNotShed(t *testing.T) {
	e := startEdge(t, startRecorder(t, hello).url(), "shed: connection\nrules: [{name: r, limit: 1, share: 99}]")
	if _, err := e.Block("r", "127.0.0.1", time.Minute, "", control.Operator{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if resp, _ := e.get("/"); resp.StatusCode != 200 && resp.StatusCode != 429 {
		t.Errorf("%d", resp.StatusCode)
	}
}
