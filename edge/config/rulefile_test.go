package config

import (
	"strings"
	"testing"

	"sluice/edge/rules"
)

func TestEditRules(t *testing.T) {
	const file = `# the edge
listen: ":8081" # ours
origins: [{servers: ["http://a:1"]}]
rules:
  # logins
  - name: login   # careful
    match: {path: /login}
    limit: 5
    # inside

  # everything
  - limit: 100
    name: all

# the end
table: {counters: 5000}
`
	three := rules.Default("all", 3)
	api := rules.Default("api", 7)
	api.Match = rules.Match{Hosts: []string{"*.example.com"}, Path: "~^/v[0-9]+\"/", Methods: []string{"GET"}}
	api.Key, api.Window, api.Count = []string{"source", "header:X-Key"}, rules.Duration(90e9), rules.Count{Statuses: []int{401, 403}}
	api.Response.Body = "no: \"#\"\n"
	const written = `  - name: api
    match: {hosts: ["*.example.com"], path: "~^/v[0-9]+\"/", methods: [GET]}
    key: [source, "header:X-Key"]
    limit: 7
    window: 1m30s
    count: {statuses: [401, 403]}
    response: {status: 429, content_type: application/json, body: "no: \"#\"\n"}
`
	for _, test := range []struct {
		what, text, name string
		rule             *rules.Config
		old, new         string // what is replaced
	}{
		{"change the last", file, "all", &three, "  - limit: 100\n    name: all\n", "  - name: all\n    limit: 3\n"},
		{"remove the last", file, "all", nil, "  - limit: 100\n    name: all\n", ""},
		{"remove the first", file, "login", nil, "  - name: login   # careful\n    match: {path: /login}\n    limit: 5\n    # inside\n", ""},
		{"add", file, "api", &api, "    name: all\n", "    name: all\n" + written},
		{"no rules yet", "listen: \":1\"", "api", &api, "\"", "\""},
		{"one line", "rules: [{name: all, limit: 1}] # few\ntable: {counters: 5000}\n", "all", &three, "[{name: all, limit: 1}] # few\n", "\n  - name: all\n    limit: 3\n"},
		{"the only one", "rules:\n- name: all\n  limit: 1\n", "all", nil, "rules:\n- name: all\n  limit: 1\n", "rules: []\n"},
		{"no indentation", "rules:\n- name: all\n  limit: 1\n- name: b\n  limit: 1\n", "all", &three, "  limit: 1\n- name: b", "  limit: 3\n- name: b"},
	} {
		t.Run(test.what, func(t *testing.T) {
			got, err := EditRules("f.yaml", []byte(test.text), test.name, test.rule)
			want := strings.Replace(test.text, test.old, test.new, 1)
			switch test.what {
			case "no rules yet":
				want = "listen: \":1\"\nrules:\n" + written
			case "one line":
				want = "rules:\n  - name: all\n    limit: 3\ntable: {counters: 5000}\n"
			}
			if err != nil || string(got) != want {
				t.Errorf("%v\n%s\nwant\n%s", err, got, want)
			}
		})
	}
	for what, text := range map[string]string{
		"written as JSON":   `{"listen": ":1", "rules": [{"name": "all", "limit": 1}]}`,
		"an anchor is lost": "rules:\n  - &a {name: all, limit: 1}\n  - *a\n",
	} {
		if got, err := EditRules("f.yaml", []byte(text), "all", &three); err == nil {
			t.Errorf("%s: became %s", what, got)
		}
	}
	if _, err := EditRules("f.yaml", []byte(file), "none", nil); err == nil {
		t.Error("a rule was removed that is not there")
	}
}

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
