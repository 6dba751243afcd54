package ratelimit

import (
	"strings"
	"testing"

	"sluice/edge"
	"sluice/edge/config"
)

// Nobody asks about descriptors where nobody can: that is said.
func TestRulesThatNoProxyCalls(t *testing.T) {
	const rules = "rules: [{name: a, limit: 1, match: {descriptors: {domain: d, entries: [{key: k}]}}}]\n"
	for text, want := range map[string]bool{rules: true, rules + "rate_limit_service: {listen: \"127.0.0.1:1\"}\n": false, strings.Replace(rules, "limit: 1", "limit: 1, mode: off", 1): false} {
		c, err := (config.Parser{Modules: edge.Modules{Module()}.Config()}).Parse("f.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(c.Warnings(), "\n"), "no proxy can send any here"); got != want {
			t.Errorf("%s warns: %t", text, got)
		}
	}
}
