package config

import (
	"strings"
	"testing"

	"sluice/counter/algorithm"
	"sluice/edge/rules"
)

// What does not go with a concurrency is refused at its place, with what to do about it; what GET gives of a rule, PUT takes.
func TestConcurrency(t *testing.T) {
	for rule, want := range map[string]string{
		"concurrency: 1":       "",
		"concurrency: 1000000": "",
		"concurrency: 5, match: {path: /a}, key: global, mode: shadow, share: 10, action: close, response: {status: 503}, on_store_failure: closed, priority: critical, queue: 1s": "",
		"concurrency: 5, check: async": "",
		"concurrency: 5, mode: off":    "",
		"concurrency: 5, match: {path: /a}, action: redirect, response: {location: /x}": "",
		"concurrency: 5, limit: 9, window: 10s, mitigation_timeout: 0":                  "",
		"concurrency: 5, limit: 9, count: {statuses: [401]}":                            "",
		"concurrency: 5, limit: 9, first_sight: wait":                                   "",
		"concurrency: 5, limit: 9, algorithm: token_bucket, burst: 3":                   "",
		"concurrency: 0, limit: 9, algorithm: exact, check: sync":                       "",

		"concurrency: 0":                           "rule: no limit: every rule needs a name and a limit, or instead a concurrency, a priority or a queue",
		"concurrency: -1":                          "concurrency: -1 is out of range: want 0 to 1000000",
		"concurrency: 1000001, limit: 9":           "concurrency: 1000001 is out of range: want 0 to 1000000",
		"concurrency: 1.5, limit: 9":               "concurrency: 1.5 is not a whole number: want 0 to 1000000",
		"concurrency: many, limit: 9":              "concurrency: many is not a whole number: want 0 to 1000000",
		"concurrency: [5], limit: 9":               "concurrency: ",
		"concurrency: , limit: 9":                  "concurrency: ",
		"concurrency: 5, limit: 0":                 "limit: 0 is out of range: want 1 to 1000000000",
		"concurrency: 5, window: 10s":              "window: the rule has no limit, so this has no effect: give it a limit, or remove window",
		"concurrency: 5, mitigation_timeout: 0":    "mitigation_timeout: the rule has no limit, so this has no effect",
		"concurrency: 5, first_sight: wait":        "first_sight: the rule has no limit, so this has no effect",
		"concurrency: 5, algorithm: fixed":         "algorithm: the rule has no limit, so this has no effect",
		"concurrency: 5, estimate: lower":          "estimate: the rule has no limit, so this has no effect",
		"concurrency: 5, sub_windows: 4":           "sub_windows: the rule has no limit, so this has no effect",
		"concurrency: 5, escalate: [2m]":           "escalate: the rule has no limit, so this has no effect",
		"concurrency: 5, count: {statuses: [401]}": "count: the rule has no limit, so this has no effect",
		"concurrency: 5, tag: {header: X-A}":       "tag: ",
		"concurrency: 5, burst: 4":                 "burst: the rule has no limit, so this has no effect",

		"concurrency: 5, action: tag":                                                "action: a request waits for its slot, and action: tag refuses no request",
		"concurrency: 5, limit: 9, action: tag":                                      "action: a request waits for its slot, and action: tag refuses no request",
		"concurrency: 5, limit: 9, algorithm: token_bucket, burst: 3, action: delay": "concurrency: a request holds its slot while it waits for its turn",
		"concurrency: 5, limit: 9, algorithm: leaky_bucket":                          "concurrency: a request holds its slot while it waits for its turn",
		"concurrency: 5, limit: 9, algorithm: exact, check: sync":                    "check: concurrency reads the tier before each decision already",
		"concurrency: 5, check: sync":                                                "check: concurrency reads the tier before each decision already",
		"concurrency: 5, limit: 9, windows: [{limit: 3, window: 1s}]":                "windows: requests in flight have no window",
		"concurrency: 5, windows: [{limit: 3, window: 1s}]":                          "windows: requests in flight have no window",
		"concurrency: 5, limit: 9, prefixes: [24]":                                   "prefixes: concurrency counts by the rule's key alone",
		"concurrency: 5, limit: 9, cost: 2":                                          "cost: a request holds one slot whatever it costs",
		"concurrency: 5, limit: 9, count: {refused: true}":                           "count: a request that finds no slot is counted under other rules, not under this",
		"concurrency: 5, match: {descriptors: [{key: a}]}":                           "concurrency: no proxy reports when a request ends: remove it",
	} {
		c, err := Parse("f.yaml", []byte("rules: [{name: r, "+rule+"}]\n"))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if want == "" && got != "" || want != "" && (!strings.Contains(got, ": "+want) || !strings.HasPrefix(got, "f.yaml:1:")) {
			t.Errorf("%s:\n got %s\nwant %s", rule, got, want)
		}
		if err != nil {
			continue
		}
		set, err := rules.New(c.Rules, rules.Defaults{Estimate: algorithm.Lower}, func(string) *rules.Tally { return new(rules.Tally) })
		if err != nil {
			t.Fatal(err)
		}
		shown := plain(set.All[0].Config)
		shown["estimate"] = set.All[0].Config.Estimate.String() // as GET does
		if again, err := ParseRule("r", []byte(text(shown))); err != nil || RuleJSON(again) != RuleJSON(set.All[0].Config) {
			t.Errorf("%s: %v", text(shown), err)
		}
	}
}
