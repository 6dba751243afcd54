package config

import (
	"strings"
	"testing"

	"sluice/edge/rules"
)

// What does not go together is refused at its place, with what to do about it; what GET gives of a rule, PUT takes.
func TestAlgorithms(t *testing.T) {
	for rule, want := range map[string]string{
		"limit: 5, algorithm: fixed":                                           "",
		"limit: 100, algorithm: exact":                                         "",
		"limit: 60, algorithm: token_bucket, burst: 10":                        "",
		"limit: 60, algorithm: token_bucket, burst: 10, action: delay":         "",
		"limit: 60, algorithm: leaky_bucket":                                   "",
		"limit: 60, algorithm: leaky_bucket, burst: 30":                        "",
		"limit: 5, algorithm: token":                                           `algorithm: "token" is not possible: want sliding or fixed or token_bucket or leaky_bucket or exact`,
		"limit: 1000, algorithm: exact":                                        "",
		"limit: 1001, algorithm: exact":                                        "limit: algorithm: exact keeps the time of each request, of at most 1000: want 1 to that, or sliding",
		"limit: 1000, algorithm: exact, check: sync, on_store_failure: closed": "",
		"limit: 10, window: 2s, algorithm: exact, check: sync":                 "",
		"limit: 10, window: 1s, algorithm: exact":                              "",
		"limit: 10, window: 1999ms, algorithm: exact, check: sync": "window: check: sync with algorithm: exact needs clocks of edges that differ by at most a twentieth of the window, " +
			"and a twentieth of 1.999s is too little: want 2s or more, or algorithm: sliding or token_bucket, or check: async",
		"limit: 1001, algorithm: exact, check: sync":                        "limit: algorithm: exact keeps the time of each request, of at most 1000",
		"limit: 5, algorithm: exact, check: sync, count: {statuses: [401]}": "",
		"limit: 5, algorithm: exact, check: sync, count: {refused: true}":   "count: check: sync with algorithm: exact keeps what is admitted",
		"limit: 60, algorithm: token_bucket, burst: 10, check: sync":        "",
		"limit: 60, algorithm: token_bucket, check: sync, action: delay":    "action: check: sync admits a request or refuses it",
		"limit: 1001, window: 1s, algorithm: token_bucket, check: sync":     "limit: check: sync goes by milliseconds, and a request would drain in less than one: want at most 1000 in 1s",
		"limit: 60, algorithm: leaky_bucket, check: sync":                   "check: sync needs algorithm: exact or token_bucket, of which the tier keeps each request, and this is leaky_bucket",
		"limit: 60, algorithm: fixed, check: sync":                          "check: sync needs algorithm: exact or token_bucket, of which the tier keeps each request, and this is fixed",
		"limit: 60, algorithm: exact, check: sync, cost: 2":                 "check: sync has the tier keep one request",
		"limit: 5, burst: 3":                                           "burst: only algorithm: token_bucket and leaky_bucket have one",
		"limit: 5, algorithm: fixed, sub_windows: 4":                   "sub_windows: algorithm: fixed has none",
		"limit: 5, algorithm: exact, estimate: lower":                  "estimate: only algorithm: sliding has one",
		"limit: 5, action: delay":                                      "action: only a bucket has a queue with turns",
		"limit: 5, algorithm: leaky_bucket, burst: 1, action: delay":   "action: leaky_bucket delays anyway",
		"limit: 60, algorithm: leaky_bucket, burst: 31":                "burst: the last of 31 that wait would wait 31s: want at most 30s, so at most 30",
		"limit: 60, algorithm: token_bucket, burst: 31, action: delay": "burst: the last of 31 that wait would wait 31s",
		"limit: 60, algorithm: token_bucket, action: delay":            "burst: the last of 60 that wait would wait 1m: want",
		"limit: 60, algorithm: token_bucket, count: {refused: true}":   "count: a bucket into which refused requests go stays full",
		"limit: 60, algorithm: token_bucket, burst: 1000000":           "burst: 1000000 requests are those of 277h46m40s at this rate: want at most those of 24h",
	} {
		_, err := Parse("f.yaml", []byte("rules: [{name: r, "+rule+"}]\n"))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if want == "" && got != "" || want != "" && (!strings.Contains(got, want) || !strings.HasPrefix(got, "f.yaml:1:")) {
			t.Errorf("%s:\n got %s\nwant %s", rule, got, want)
		}
	}
	for _, a := range rules.Algorithms {
		c := rules.Default("r", 5)
		c.Algorithm = a
		set, err := rules.New([]rules.Config{c}, rules.Defaults{Estimate: 1}, func(string) *rules.Tally { return new(rules.Tally) })
		if err != nil {
			t.Fatal(err)
		}
		text := RuleJSON(set.All[0].Config)
		if again, err := ParseRule("r", []byte(text)); err != nil || RuleJSON(again) != text {
			t.Errorf("%s: %v", text, err)
		}
	}
}
