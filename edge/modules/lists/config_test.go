package lists

import (
	"encoding/json"
	"testing"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/rules/match"
)

func parsed(text string) (*config.Config, error) {
	return config.Parser{Modules: edge.Modules{Module(true)}.Config()}.Parse("f.yaml", []byte(text))
}

// A list is spoken of by its name, which is no key. One that is wrong is wrong where it is, and not where it is spoken of.
func TestSpokenOf(t *testing.T) {
	for text, want := range map[string]string{
		"rules: [{name: a, limit: 1, match: {lists: [l, l], not: {lists: [m]}}}]\nlists: [{name: l, file: /l}]": "f.yaml:1:48: match.lists: the list l is there twice: remove one\n" +
			`f.yaml:1:66: match.not.lists: lists: there is no list "m": want l`,
		"lists: [{name: l, url: 'ftp://a'}, {name: b, file: /b}]\nallow: ['list:l', 'list:x']": `f.yaml:1:24: lists.url: "ftp://a" is no URL of a list: want one such as https://lists.example/partners.txt` + "\n" +
			`f.yaml:2:19: allow: lists: there is no list "x": want b or l`,
		"lists: [{name: l, file: ''}]\ndeny: ['list:']":                             "f.yaml:1:25: lists.file: it is empty: give the path of a file\n" + `f.yaml:2:8: deny: lists: there is no list "": want l`,
		"lists: [{name: l, file: /l, refresh: 1s}]":                                 "f.yaml:1:38: lists.refresh: 1s is out of range: want 5s to 168h",
		"lists: [{name: l, file: /l, max_entries: 0}]":                              "f.yaml:1:42: lists.max_entries: 0 is out of range: want 1 to 20000000",
		"lists: [{name: l, file: /l, max_bytes: 1}]":                                "f.yaml:1:40: lists.max_bytes: 1 is out of range: want 1024 to 1073741824 bytes",
		"lists: [{name: l, file: /l, column: '0'}]":                                 `f.yaml:1:37: lists.column: "0" is no column: want its name in the first row, or its number, from 1`,
		"lists: [{name: '..', file: /l}, {name: l, file: /l}, {name: l, url: 'x'}]": `f.yaml:1:16: lists.name: ".." is not possible: want 1 to 64 letters, digits, dots, dashes or underscores` + "\n" + "f.yaml:1:61: lists.name: l is the name of the list at line 1 already: choose another\n" + `f.yaml:1:69: lists.url: "x" is no URL of a list: want one such as https://lists.example/partners.txt`,
		"lists: [{name: l, file: /l}]\nrules: [{name: a, limit: 1, key: list}]":     `f.yaml:2:34: key: "list" is not possible: want source, header:NAME, cookie:NAME, query:NAME, host, path, path:SEGMENTS or global`,
		"lists: [{name: l, file: /l}]\nplans: {key: list}":                          `f.yaml:2:14: plans.key: "list" is not possible: want source, header:NAME, cookie:NAME, query:NAME, host, path, path:SEGMENTS or global`,
	} {
		if _, err := parsed(text); err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
}

// Operators see what is in force, without passwords, and whom a rule is about. By what JSON has of a rule its counters are found.
func TestShown(t *testing.T) {
	c, err := parsed("lists:\n- {name: l, url: 'https://u:secret@a/l?key=secret', column: 2, max_bytes: 1KiB}\n- {name: m, file: /m, refresh: 5s}\n" +
		"deny: [192.0.2.1, 'list:l']\nrules: [{name: a, limit: 1, match: {headers: {x: y}, lists: [m, l], sources: [192.0.2.0/24], not: {lists: [l]}}}]")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*config.Config{c, config.Running(config.Default(), c)} {
		shown := config.Shown(c)
		text, _ := json.Marshal([]any{shown["lists"], shown["deny"], shown["allow"]})
		const want = `[[{"column":"2","max_bytes":1024,"max_entries":1000000,"name":"l","refresh":"5m0s","url":"https://u:xxxxx@a/l?…"},` +
			`{"file":"/m","max_bytes":33554432,"max_entries":1000000,"name":"m","refresh":"5s"}],["192.0.2.1/32","list:l"],[]]`
		if string(text) != want {
			t.Errorf("%s, want %s", text, want)
		}
	}
	m := &c.Rules[0].Match
	for _, one := range []struct {
		of   match.Config
		want string
	}{{*m, `{"sources":["192.0.2.0/24"],"lists":["m","l"],"headers":{"x":"y"},"not":{"lists":["l"]}}`},
		{m.Plainly(), `{"sources":["192.0.2.0/24"],"lists":["l","m"],"headers":{"x":"y"},"not":{"lists":["l"]}}`}} {
		if text, err := one.of.MarshalJSON(); err != nil || string(text) != one.want {
			t.Errorf("%s %v, want %s", text, err, one.want)
		}
	}
	text, _ := json.Marshal(m.Others(config.Facts(c.Modules)...))
	if want := `["from 192.0.2.0/24","on list m or l","header x=y","not on list l"]`; string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
}
