package rules_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/edge/edgetest"
)

// What clients and operators are told of a rule with several limits: the rule by its name, and which of its limits it was.
func TestSeveralLimitsInHeaders(t *testing.T) {
	e := edgetest.StartWithEvents(t, edgetest.SeveralLimits)
	f := func(source string, want ...string) {
		t.Helper()
		resp, body := e.Get("/", "X-Forwarded-For: "+source)
		got := fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("RateLimit"), " ", resp.Header.Get("X-Ratelimit-Limit"), " ", resp.Header.Get("Sluice-Verdict"), " ", body)
		for _, part := range append(want, strings.Split(`200 "r`, " ")[1]) {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %s, want %s", source, got, part)
			}
		}
		policy := `"r";q=4;w=3600, "r/20m";q=3;w=1200, "r/24";q=6;w=3600, "r/24/20m";q=5;w=1200`
		if strings.Contains(source, ":") {
			policy = `"r";q=4;w=3600, "r/20m";q=3;w=1200`
		}
		if got := resp.Header.Get("RateLimit-Policy"); got != policy {
			t.Errorf("%s, want %s", got, policy)
		}
	}
	f("192.0.2.1", `200 "r/20m";r=2;t=1200 3 pass;`, `;rule="r";policy="r/20m"`)
	f("192.0.2.1", `200 "r/20m";r=1;t=1200 3`)
	f("192.0.2.1", `200 "r/20m";r=0;t=1200 3`)
	f("192.0.2.1", `429 "r/20m";r=0;t=`, `"rule":"r","limit":3,"window":1200,"scope":"source/32","message"`, ` 3 limited;`, `;rule="r";policy="r/20m"`)
	f("192.0.2.2", `200 "r/24/20m";r=1;t=1200 5 pass;`)
	f("192.0.2.3", `200 "r/24/20m";r=0;t=1200 5 pass;`)
	f("192.0.2.4", `429 "r/24/20m";r=0`, `"rule":"r","limit":5,"window":1200,"scope":"source/24","message"`, ` 5 limited;`)
	f("2001:db8::1", `200 "r/20m";r=2;t=1200 3 pass;`)

	const both = "r r/20m 192.0.2.1, r r/24/20m 192.0.2.0/24"
	if got := e.Blocked(); got != both {
		t.Errorf("%s, want %s", got, both)
	}
	m := e.Rest()
	for name, want := range map[string]float64{
		"sluice_requests_total{rule=r,verdict=pass}": 6, "sluice_requests_total{rule=r,verdict=limited}": 2,
		"sluice_mitigations_active{mode=enforce,rule=r}": 2, "sluice_mitigations_started_total{by=edge,mode=enforce,rule=r}": 2,
	} {
		if m[name] != want {
			t.Errorf("%s is %v, want %v", name, m[name], want)
		}
	}
	list := e.Events().Since(0)
	if len(list) != 2 || list[0].Rule != "r" || list[0].Policy != "r/24/20m" || list[1].Policy != "r/20m" || list[1].Limit != 3 ||
		!strings.Contains(list[0].Text, "6 requests in 20m, 5 are allowed") || list[0].Source != "192.0.2.0/24" {
		t.Errorf("%+v", list)
	}
	var stands []string
	for _, st := range e.Look(t.Context(), netip.MustParseAddr("192.0.2.2")).Rules {
		stands = append(stands, fmt.Sprint(st.Rule, " ", st.Policy, " ", st.Source, " ", st.Estimate, "/", st.Limit, " ", st.Until != nil, " ", st.Block != nil))
	}
	const want = "r  192.0.2.2 1/4 false false, r r/20m 192.0.2.2 1/3 false false, r r/24 192.0.2.0/24 5/6 false false, r r/24/20m 192.0.2.0/24 5/5 true true"
	if got := strings.Join(stands, ", "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if near := e.Nearest(9, time.Now())["r"]; near.Policy != "r/24" || near.Estimate != 5 {
		t.Errorf("%+v", near)
	}
	if n := len(e.Counted()); n != 4 {
		t.Errorf("%d limits count", n)
	}

	// The next process on this edge's place takes blocks for what they are, and leaves out those of limits that are gone.
	for yaml, want := range map[string]string{edgetest.SeveralLimits: both, strings.Replace(edgetest.SeveralLimits, ", {prefix: 24, limit: 6}", "", 1): "r r/20m 192.0.2.1"} {
		next := edgetest.StartWithEvents(t, yaml)
		for m := range e.InForce(time.Now()) {
			next.Adopt(m, time.Now())
		}
		if got := next.Blocked(); got != want {
			t.Errorf("adopted %s, want %s", got, want)
		}
	}
}
