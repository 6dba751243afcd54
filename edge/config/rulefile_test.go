package config

import (
	"strings"
	"testing"
)

func TestParseRule(t *testing.T) {
	r, err := ParseRule("a", []byte(`{"limit": 5, "window": "2m"}`))
	if err != nil || r.Name != "a" || r.Limit != 5 || r.Window.String() != "2m" {
		t.Errorf("%+v %v", r, err)
	}
	for text, want := range map[string]string{
		`{`: "not a JSON object", `[]`: "not a JSON object", `null`: "not a JSON object", `{"limit":0}`: "limit: 0 is out of range",
		`{"limit":1,"color":"red"}`: "unknown field color", `{"name":"b","limit":1}`: "make them agree", `{}`: "every rule needs",
	} {
		if _, err := ParseRule("a", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
