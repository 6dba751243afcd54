package operator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sluice/edge/config"
)

// TestDifferencesSayAfresh: a limit that crosses what narrow counters hold is shown with what becomes of the rule, and no other change of a limit.
func TestDifferencesSayAfresh(t *testing.T) {
	parse := func(rule string) *config.Config {
		c, err := config.Parse("f.yaml", []byte("rules: [{name: a, "+rule+"}]\n"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, test := range []struct {
		runs, file string
		afresh     bool
	}{
		{"limit: 16000", "limit: 16001", true},
		{"limit: 20000", "limit: 9", true},
		{"limit: 100", "limit: 16000", false},
		{"limit: 20000", "limit: 30000", false},
		{"limit: 15700, cost: 200", "limit: 15900, cost: 200", true},
		{"limit: 1000, windows: [{limit: 15000, window: 1h}]", "limit: 1000, windows: [{limit: 17000, window: 1h}]", true},
		{"limit: 16000, algorithm: token_bucket", "limit: 16001, algorithm: token_bucket", false},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(map[string]any{"rules": []json.RawMessage{json.RawMessage(config.RuleJSON(parse(test.runs).Rules[0]))}}); err != nil {
				t.Error(err)
			}
		}))
		list, err := (&Client{Address: s.Listener.Addr().String()}).Differences(parse(test.file))
		s.Close()
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(list)
		if !strings.Contains(text, "rules.a.") || strings.Contains(text, "counters are wider above a limit of 16000, so it begins afresh, blocks included") != test.afresh {
			t.Errorf("%s → %s: %s", test.runs, test.file, text)
		}
	}
}
