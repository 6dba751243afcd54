package rules_test

import (
	"strings"
	"testing"
	"time"

	"sluice/edge/control"
	"sluice/edge/edgetest"
)

// A source that is blocked whatever it asks for is refused before anything costly is found out about its request: which rules it falls under, by
// regular expressions, headers and keys. Those rules have not been asked then: the request counts under rules about everything alone. What refuses is
// told as ever, and of several rules about everything the longest wait.
func TestBlockedBeforeRulesAreMatched(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), `
rules:
- {name: export, match: {path: "~/export$"}, limit: 100, window: 1h}
- {name: keyed, match: {headers: {x-plan: gold}}, key: "header:X-Api-Key", limit: 100, window: 1h}
- {name: watched, limit: 1, window: 1h, mode: shadow}
- {name: all, limit: 2, window: 1m, mitigation_timeout: 1m}
- {name: hourly, limit: 2, window: 1h, mitigation_timeout: 10m}
`)
	c := e.Talk()
	ask := func(path, lines string) (int, string, string) {
		resp, body := c.Say("GET " + path + " HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n")
		return resp.StatusCode, resp.Header.Get("RateLimit"), body
	}
	const gold = "X-Plan: gold\r\nX-Api-Key: 1\r\n"
	for i, want := range []int{200, 200, 429} { // over the limit: all of them are asked
		if status, _, body := ask("/export", gold); status != want {
			t.Fatalf("request %d: %d %s", i, status, body)
		}
	}
	passed := func(m map[string]float64, rule string) float64 {
		return m["sluice_requests_total{rule="+rule+",verdict=pass}"]
	}
	before := e.Rest()
	for _, test := range []struct{ path, lines string }{
		{"/export", gold}, {"/", ""}, {"/" + strings.Repeat("x", 2000) + "/export", gold}, {"/export", gold + "X-Api-Key: 2\r\n"},
	} {
		status, told, body := ask(test.path, test.lines)
		if status != 429 || !strings.Contains(body, `"rule":"hourly"`) || !strings.HasPrefix(told, `"hourly";r=0;t=`) {
			t.Errorf("%.20s: %d %s %s, want a refusal by the rule with the longest wait", test.path, status, told, body)
		}
	}
	m := e.Rest()
	for _, rule := range []string{"export", "keyed"} {
		if passed(before, rule) != 3 || passed(m, rule) != 3 {
			t.Errorf("%s was asked about %v requests that were to be decided, and %v that were not", rule, passed(before, rule), passed(m, rule)-passed(before, rule))
		}
	}
	for name, want := range map[string]float64{
		"sluice_requests_total{rule=all,verdict=mitigated}": 4, "sluice_requests_total{rule=hourly,verdict=mitigated}": 4, "sluice_requests_total{rule=watched,verdict=shadow}": 6,
		"sluice_answers_total{code=429,from=limit}": 5,
	} {
		if m[name] != want {
			t.Errorf("%s %v, want %v", name, m[name], want)
		}
	}
	// Once the blocks are lifted all rules are asked again.
	if _, err := e.Lift(control.AllRules, "127.0.0.1", control.Operator{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if status, _, body := ask("/export", gold+"X-Api-Key: 2\r\n"); status != 400 {
		t.Errorf("%d %s, want 400 for two keys", status, body)
	}
}
