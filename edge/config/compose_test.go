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
			"main.yaml":       "include: [\"conf.d/*.yaml\", more/last.yaml]\nlisten: \":81\"\npop: {name: p}\nrules: [{name: main, limit: 1}]\n",
			"conf.d/b.yaml":   "rules: [{name: b, limit: 1}]\ndeny: [192.0.2.2]\n",
			"conf.d/a.yaml":   "rules: [{name: a, limit: 1}]\npop: {wait: 9ms}\ndeny: [192.0.2.1]\n",
			"conf.d/.#c.yaml": "listen: nothing that is read\n", "conf.d/empty.yaml": "# nothing yet\n",
			"more/last.yaml": "include: [\"${NEXT}\"]\nrules: [{name: last, limit: 1}]\n", "more/next.yaml": "origins: [{servers: [\"http://a\"]}]\n"},
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

// What is wrong is said at the place where it stands, in the file where it stands.
func TestComposedErrors(t *testing.T) {
	for name, x := range map[string]struct {
		files map[string]string
		want  string
	}{
		"unset":                         {map[string]string{"main.yaml": "pop:\n  name: ${POP}\n"}, "main.yaml:2:9: ${POP}: the environment has no POP: set it, or give a default, ${POP:-DEFAULT}"},
		"no name":                       {map[string]string{"main.yaml": "edge_id: ${a-b}\n"}, "main.yaml:1:10: ${a-b}: that is no name of a variable: want ${NAME}, ${NAME:-DEFAULT} or ${file:PATH}; $${ stands for the two characters themselves"},
		"not closed":                    {map[string]string{"main.yaml": "edge_id: ${POP\n"}, "main.yaml:1:10: ${POP has no closing brace: write ${NAME}, or $${ for the two characters themselves"},
		"without quotes":                {map[string]string{"main.yaml": "pop: {name: ${SET}}\n"}, "main.yaml:1:14: ',' or '}' must be specified: within braces and brackets, and with a colon and a space in it, ${…} stands in quotes"},
		"a value of the wrong kind":     {map[string]string{"main.yaml": "limits: {connections: \"${SET}\"}\n"}, "main.yaml:1:23: limits.connections: set is not a whole number: want 1 to 10000000"},
		"no file":                       {map[string]string{"main.yaml": "include: conf.d/a.yaml\n", "conf.d/a.yaml": "\nplans: {store: \"${file:store}\"}\n"}, "conf.d/a.yaml:2:16: ${file:store}: no such file or directory: give the path of a readable file; it begins in the folder of conf.d/a.yaml"},
		"a device":                      {map[string]string{"main.yaml": "edge_id: ${file:/dev/zero}\n"}, "main.yaml:1:10: ${file:/dev/zero}: that is no regular file: give the path of a readable file; it begins in the folder of main.yaml"},
		"contents of more than is read": {map[string]string{"main.yaml": "x-all:\n" + strings.Repeat("  - ${file:much}\n", 17), "much": strings.Repeat("a", 1<<20)}, "main.yaml:18:5: ${file:much}: the files of this configuration that are named so have more than 16777216 bytes together: have fewer of them, or smaller ones"},
		"a file's content is not told":  {map[string]string{"main.yaml": "edge_id: ${file:id}\n", "id": "hush \"hush\"\n"}, "main.yaml:1:10: edge_id: \"${file:id}\" is not possible: want 1 to 64 letters, digits, dots, dashes or underscores"},
		"a file's content in a rule":    {map[string]string{"main.yaml": "rules:\n  - name: a\n    limit: 1\n    match: {headers: {X-Secret: \"${file:id}\"}}\n", "id": "hush\n"}, "main.yaml:4:33: X-Secret: ${file:…} would show operators and other edges what the file says, as they are shown every rule: only the body of a response may have it"},
		"a file's content as a header's, of the name of a body": {map[string]string{"main.yaml": "rules:\n  - name: a\n    limit: 1\n    match: {headers: {body: \"${file:id}\"}}\n", "id": "hush\n"}, "main.yaml:4:29: body: ${file:…} would show operators and other edges what the file says, as they are shown every rule: only the body of a response may have it"},
		"a file's content as an expression":                     {map[string]string{"main.yaml": "rules:\n  - name: a\n    limit: 1\n    match: {path: \"${file:id}\"}\n", "id": "~(hush\n"}, "main.yaml:4:19: path: ${file:…} would show operators and other edges what the file says, as they are shown every rule: only the body of a response may have it"},
		"in an included file":                                   {map[string]string{"main.yaml": "include: [a.yaml]\nrules: [{name: a, limit: 1}]\n", "a.yaml": "rules:\n  - name: b\n    limit: 0\n"}, "a.yaml:3:12: limit: 0 is out of range: want 1 to 1000000000"},
		"one name in two files":                                 {map[string]string{"main.yaml": "include: [a.yaml]\nrules: [{name: a, limit: 1}]\n", "a.yaml": "rules:\n  - {name: a, limit: 1}\n"}, "a.yaml:2:12: rule name: a is the name of the rule at main.yaml:2 already: choose another"},
		"a value in two files":                                  {map[string]string{"main.yaml": "include: [a.yaml]\npop: {name: a}\n", "a.yaml": "pop:\n  name: b\n"}, "a.yaml:2:3: pop.name is set at main.yaml:2:7 as well: keep one of them"},
		"not YAML":                                              {map[string]string{"main.yaml": "include: [a.yaml]\n", "a.yaml": "pop: [\n"}, "a.yaml:1:6: sequence end token ']' not found"},
		"a list":                                                {map[string]string{"main.yaml": "include: [a.yaml]\n", "a.yaml": "- a\n"}, "a.yaml:1:1: an included file: want fields (name: value), as in the file that includes it"},
		"no such file":                                          {map[string]string{"main.yaml": "include: [a.yaml]\n"}, "main.yaml:1:11: include: a.yaml: no such file or directory: give the path of a readable file, which begins in the folder of main.yaml"},
		"a folder":                                              {map[string]string{"main.yaml": "include: [conf.d]\n", "conf.d/a.yaml": ""}, "main.yaml:1:11: include: conf.d: that is a folder: give the path of a readable file, which begins in the folder of main.yaml"},
		"no such folder":                                        {map[string]string{"main.yaml": "include: [\"conf.d/*.yaml\"]\n"}, "main.yaml:1:11: include: conf.d/*.yaml: the folder conf.d: no such file or directory: make it, or correct the path, which begins in the folder of main.yaml"},
		"no pattern":                                            {map[string]string{"main.yaml": "include: [\"[a\"]\n"}, "main.yaml:1:11: include: [a is not a pattern: close its brackets"},
		"no paths":                                              {map[string]string{"main.yaml": "include: [{a: 1}]\n"}, "main.yaml:1:11: include: want the paths of files, such as [conf.d/*.yaml]"},
		"a cycle":                                               {map[string]string{"main.yaml": "include: [a.yaml]\n", "a.yaml": "\ninclude: [b.yaml]\n", "b.yaml": "include: [a.yaml]\n"}, "b.yaml:1:11: include: a.yaml includes itself: a.yaml → b.yaml → a.yaml"},
		"twice":                                                 {map[string]string{"main.yaml": "include: [a.yaml, \"*.yaml\"]\n", "a.yaml": "listen: \":1\"\n"}, "main.yaml:1:19: include: a.yaml is included at main.yaml:1:11 already: name it once\nmain.yaml:1:19: include: main.yaml includes itself: main.yaml → main.yaml"},
		"no anchor":                                             {map[string]string{"main.yaml": "include: [a.yaml]\nx-a: &a 1\n", "a.yaml": "audit_one_in: *a\n"}, "a.yaml:1:15: alias *a: there is no anchor &a above it"},
		"an anchor within itself":                               {map[string]string{"main.yaml": "deny: &a [*a]\n"}, "main.yaml:1:11: alias *a: there is no anchor &a above it"},
		"a merge of a value":                                    {map[string]string{"main.yaml": "x-a: &a 1\npop: {<<: *a}\n"}, "main.yaml:1:9: <<: want the alias of fields, such as <<: *base, or a list of them"},
		"a billion laughs": {map[string]string{"main.yaml": "x-a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\nx-b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\nx-c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\n" +
			"x-d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\nx-e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\ndeny: *e\n"}, "main.yaml:5:38: alias *d: aliases stand for more than 100000 values: write out what is meant"},
	} {
		t.Run(name, func(t *testing.T) {
			_, read, err := composed(t, map[string]string{"SET": "set"}, x.files)
			if err == nil || err.Error() != x.want {
				t.Errorf("got  %v\nwant %s", err, x.want)
			}
			if read.Text() != read.Now() {
				t.Errorf("read again, nothing has changed, and it is %q, not %q", read.Now(), read.Text())
			}
		})
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
		"main.yaml": "x-store: &store ${file:store}\nplans: {key: \"header:A\", store: *store}\nadmin_hosts: [a, \"${file:host}\"]\ndeny: [\"${file:net}\"]\netcd: {endpoints: [\"https://a:1\"], username: a, password_file: b, ca_file: \"x/${file:ca}\"}\n"})
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
	for _, want := range []string{`"store":"${file:store}"`, `"admin_hosts":["a","${file:host}"]`, `"deny":["${file:net}"]`, `"ca_file":"x/${file:ca}"`} {
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
