package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/edge/config/compose"
)

// composed parses main.yaml among files, in a folder of their own.
func composed(t *testing.T, env map[string]string, files map[string]string) (*Config, *compose.Files, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := new(compose.Files)
	c, err := Parser{Files: read, Env: func(name string) (string, bool) { v, set := env[name]; return v, set }}.Parse("main.yaml", []byte(files["main.yaml"]))
	return c, read, err
}

// A composed file is the same configuration as one that is written out.
func TestComposed(t *testing.T) {
	for name, x := range map[string]struct {
		files map[string]string
		want  string
	}{
		"variables": {map[string]string{"main.yaml": "listen: ${LISTEN}\nlimits: {connections: \"${CONNECTIONS}\"}\nadmin_insecure: ${YES}\nadmin_hosts: [\"a${YES}\", \"${UNSET:-b}\", \"${EMPTY:-c}\"]\nedge_id: x${EMPTY}y\n"},
			"listen: \":81\"\nlimits: {connections: 7}\nadmin_insecure: true\nadmin_hosts: [atrue, b, c]\nedge_id: xy\n"},
		"escapes": {map[string]string{"main.yaml": "rules:\n  - name: a\n    limit: 1\n    response:\n      body: |\n        `$${x}` $5 $$ ${YES}\n"},
			"rules: [{name: a, limit: 1, response: {body: \"`$${x}` $5 $$ true\\n\"}}]"},
		"what a variable says is a value": {map[string]string{"main.yaml": "edge_id: a\nadmin_hosts: [\"${INNER}\", \"${NULL}\"]\n"}, "edge_id: a\nadmin_hosts: [\"$${YES}\", \"null\"]\n"},
		"a file's content": {map[string]string{"main.yaml": "include: conf.d/a.yaml\n", "conf.d/a.yaml": "rules:\n  - {name: a, limit: 1, response: {body: \"${file:../sorry.txt}!\"}}\n", "sorry.txt": "later\nplease\n"},
			"rules: [{name: a, limit: 1, response: {body: \"later\\nplease!\"}}]"},
		"anchors": {map[string]string{"main.yaml": "x-base: &base {limit: 5, window: 10s, match: {path: /a}}\nx-nets: &nets [192.0.2.0/24]\ndeny: *nets\nrules:\n  - {name: a, <<: *base}\n  - &b\n    <<: *base\n    name: b\n    limit: 6\n  - {<<: [{name: c, limit: 1}, *b]}\n"},
			"deny: [192.0.2.0/24]\nrules:\n  - {name: a, limit: 5, window: 10s, match: {path: /a}}\n  - {name: b, limit: 6, window: 10s, match: {path: /a}}\n  - {name: c, limit: 1, window: 10s, match: {path: /a}}\n"},
		"includes": {map[string]string{
			"main.yaml":       "include: [\"conf.d/*.yaml\", more/last.yaml, \"more/${NEXT}\"]\nlisten: \":81\"\nrules: [{name: main, limit: 1}]\n",
			"conf.d/b.yaml":   "rules: [{name: b, limit: 1}]\ndeny: [192.0.2.2]\n",
			"conf.d/a.yaml":   "rules: [{name: a, limit: 1}]\npop: {name: p, wait: 9ms}\ndeny: [192.0.2.1]\n",
			"conf.d/.#c.yaml": "listen: nothing that is read\n", "conf.d/empty.yaml": "# nothing yet\n",
			"more/last.yaml": "rules: [{name: last, limit: 1}]\n", "more/next.yaml": "origins: [{servers: [\"http://a\"]}]\n"},
			"listen: \":81\"\npop: {name: p, wait: 9ms}\ndeny: [192.0.2.1, 192.0.2.2]\norigins: [{servers: [\"http://a\"]}]\nrules: [{name: main, limit: 1}, {name: a, limit: 1}, {name: b, limit: 1}, {name: last, limit: 1}]\n"},
		"an include adds to one of two aliases": {map[string]string{"main.yaml": "include: a.yaml\ndeny: &l [192.0.2.1]\nallow: *l\n", "a.yaml": "deny: [192.0.2.2]\n"},
			"deny: [192.0.2.1, 192.0.2.2]\nallow: [192.0.2.1]\n"},
		"nothing but an include": {map[string]string{"main.yaml": "include: a.yaml\n", "a.yaml": "listen: \":81\"\n"}, "listen: \":81\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c, read, err := composed(t, map[string]string{"LISTEN": ":81", "CONNECTIONS": "7", "YES": "true", "EMPTY": "", "NULL": "null", "INNER": "${YES}", "NEXT": "next.yaml"}, x.files)
			if err != nil {
				t.Fatal(err)
			}
			want, err := Parse("want", []byte(x.want))
			if err != nil {
				t.Fatal(err)
			}
			c.Composed, want.Composed = Composed{}, Composed{}
			if d := cmp.Diff(text(Shown(want)), text(Shown(c))); d != "" {
				t.Error(d)
			}
			var list, wanted []string
			for _, r := range c.Rules {
				list = append(list, RuleJSON(r))
			}
			for _, r := range want.Rules {
				wanted = append(wanted, RuleJSON(r))
			}
			if d := cmp.Diff(wanted, list); d != "" {
				t.Error(d)
			}
			if read.Text() != read.Now() {
				t.Errorf("read again, nothing has changed, and it is %q, not %q", read.Now(), read.Text())
			}
		})
	}
}

// Files that a configuration names by ${file:} are read up to a bound.
func TestFilesAreBounded(t *testing.T) {
	files := map[string]string{"main.yaml": "x-all:\n" + strings.Repeat("  - ${file:much}\n", 17), "much": strings.Repeat("a", 1<<20)}
	const want = "main.yaml:18:5: ${file:much}: the files of this configuration that are named so have more than 16777216 bytes together: have fewer of them, or smaller ones"
	if _, _, err := composed(t, nil, files); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// A pattern that matches nothing is for files that may come.
func TestIncludeOfNothing(t *testing.T) {
	c, read, err := composed(t, nil, map[string]string{"main.yaml": "include: conf.d/*.yaml\n", "conf.d/README": ""})
	if err != nil || !slices.Contains(c.Warnings(), "include: conf.d/*.yaml matches no file") {
		t.Errorf("%v, %q", err, c.Warnings())
	}
	if err := os.WriteFile("conf.d/a.yaml", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if read.Text() == read.Now() {
		t.Error("a file that the pattern matches now is not seen")
	}
}

// What is from a file is shown as it is written, in values and in lists, and a change of the file is seen.
func TestWhatIsFromAFileIsNotShown(t *testing.T) {
	c, read, err := composed(t, nil, map[string]string{"store": "postgres://sluice:hush@db/sluice\n", "host": "hush.example", "net": "192.0.2.0/24", "ca": "hush.pem",
		"main.yaml": "x-store: &store ${file:store}\nplans: {key: \"header:A\", store: *store}\nadmin_hosts: [a, \"${file:host}\"]\ndeny: [\"${file:net}\"]\ntls: {certificate: \"x/${file:ca}\", key: a}\n"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Plans.Store != "postgres://sluice:hush@db/sluice" || c.Deny[0].String() != "192.0.2.0/24" {
		t.Errorf("%+v", c)
	}
	for _, shown := range []string{text(Shown(c)), text(Shown(Running(Default(), c)))} {
		if strings.Contains(shown, "hush") || strings.Contains(shown, "192.0.2.0") {
			t.Error(shown)
		}
	}
	shown := text(Shown(c))
	for _, want := range []string{`"store":"${file:store}"`, `"admin_hosts":["a","${file:host}"]`, `"deny":["${file:net}"]`, `"certificate":"x/${file:ca}"`} {
		if !strings.Contains(shown, want) {
			t.Errorf("%s is not in %s", want, shown)
		}
	}
	if err := os.WriteFile("net", []byte("192.0.2.0/25"), 0o600); err != nil {
		t.Fatal(err)
	}
	if read.Text() == read.Now() {
		t.Error("a change of the file is not seen")
	}
}

// A rule that comes over the API reads neither the environment nor files of the edge.
func TestRuleOfTheAPIIsAsWritten(t *testing.T) {
	r, err := ParseRule("a", []byte(`{"limit": 1, "response": {"body": "${HOME} ${file:/etc/hostname}"}}`))
	if err != nil || r.Response.Body != "${HOME} ${file:/etc/hostname}" {
		t.Errorf("%v, %q", err, r.Response.Body)
	}
}
