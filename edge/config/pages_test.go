package config

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice/edge/edgetest/golden"
)

// fieldsFile has every field with its default and what it does.
const fieldsFile = "testdata/fields.yaml"

// manual is that file.
func manual(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(fieldsFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A described field is one row of the pages.
type described struct {
	path, standard, text, since string
}

var (
	line    = regexp.MustCompile(`^( *)(- )?([a-z0-9_]+):(?: +(.*?))?(?: +# (.*))?$`)
	within  = regexp.MustCompile(`^ *#: ([a-z0-9_.]+): (\S+) # (.*)$`)
	version = regexp.MustCompile(`^\[since (\S+)\] `)
)

// describedFields reads the file. Lists are not in a path: rules.name is that of each rule.
func describedFields(t *testing.T) (list []described) {
	t.Helper()
	var path []string // the name at each depth
	depth := func(indent int, item bool) int {
		if !item && indent > 0 && (path[0] == "rules" || path[0] == "origins") { // each of a list has two columns more
			indent -= 2
		}
		return indent / 2
	}
	for text := range strings.Lines(manual(t)) {
		text = strings.TrimRight(text, "\n")
		if strings.HasPrefix(text, "# ") {
			continue
		}
		d := described{since: "0.1.0"}
		if m := within.FindStringSubmatch(text); m != nil {
			n := depth(len(text)-len(strings.TrimLeft(text, " ")), false)
			d.path, d.standard, d.text = strings.Join(append(slices.Clone(path[:n]), m[1]), "."), m[2], m[3]
		} else if m := line.FindStringSubmatch(text); m != nil {
			n := depth(len(m[1]), m[2] != "")
			path = append(path[:min(n, len(path))], m[3])
			d.path, d.standard, d.text = strings.Join(path, "."), m[4], m[5]
		} else {
			t.Fatalf("%s: a line of another form: %q", fieldsFile, text)
		}
		if d.standard == "" { // what is within it has rows
			continue
		}
		if m := version.FindStringSubmatch(d.text); m != nil {
			d.since, d.text = m[1], strings.TrimPrefix(d.text, m[0])
		}
		if strings.Contains(d.text, "[since") {
			t.Fatalf("%s: [since VERSION] stands in front of a description: %q", fieldsFile, text)
		}
		if required, found := strings.CutPrefix(d.text, "Required"); found {
			d.standard, d.text = "required", strings.TrimLeft(required, ". ")
			if strings.HasPrefix(required, ",") {
				d.text = "Required" + required
			}
		}
		list = append(list, d)
	}
	return list
}

// nest is a document in which the field has that value. Of a rule or an origin it has what either needs as well.
func nest(path string, value any) string {
	names := strings.Split(path, ".")
	v := value
	for i := len(names) - 1; i >= 0; i-- {
		m := map[string]any{names[i]: v}
		above := strings.Join(names[:i], ".")
		switch above {
		case "rules":
			for name, needed := range map[string]any{"name": "a", "limit": 1} {
				if names[i] != name {
					m[name] = needed
				}
			}
		case "pages":
			for name, needed := range map[string]any{"status": []int{404}, "type": "text/html", "file": fieldsFile} {
				if names[i] != name {
					m[name] = needed
				}
			}
		case "listen", "listen_tls":
			if names[i] != "address" {
				m["address"] = ":80"
			}
		case "origins":
			if names[i] != "servers" {
				m["servers"] = []string{"http://a"}
			}
		}
		v = m
		if slices.Contains([]string{"rules", "origins", "pop.peers", "lists", "rules.windows", "rules.prefixes", "rules.response.bodies", "rules.match.descriptors.entries", "pages"}, above) {
			v = []any{m}
		}
	}
	text, _ := json.Marshal(v)
	return string(text)
}

// says is what a configuration with that value of the field is refused with; "" if it is taken.
func says(path string, value any) string {
	_, err := reading.Parse("f", []byte(nest(path, value)))
	if err == nil {
		return ""
	}
	own := path[strings.LastIndexByte(path, '.')+1:]
	for message := range strings.SplitSeq(err.Error(), "\n") { // of several, that which is about the field
		if head, _, _ := strings.Cut(message, " want "); strings.Contains(head, own) {
			return message
		}
	}
	return firstLine(err.Error())
}

var choice = regexp.MustCompile(`^[a-z_]+( or [a-z_]+)+$`)

var bounds = regexp.MustCompile(`: want ((?:0, or )?\S+ to \S+(?: bytes)?)$`)

// listeners is the type of a field that is one listener or several.
const listeners = "address, fields, or a list"

// kindOf asks the code for the type of a field and its range, by values that it refuses.
func kindOf(path string) (kind, of string) {
	wanted := func(s string) string {
		_, after, found := strings.Cut(s, ": want ")
		if !found {
			return ""
		}
		after, _, _ = strings.Cut(after, ", not ")
		return after
	}
	switch s := says(path, map[string]any{"no-such-field": 1}); {
	case strings.Contains(s, "want true or false"):
		return "boolean", ""
	case strings.Contains(s, "is not a whole number"):
		return "integer", bounds.FindStringSubmatch(s)[1]
	case strings.Contains(s, "unknown field no-such-field") && strings.Contains(says(path, "\x01"), "is not an address"):
		return listeners, wanted(says(path, "\x01"))
	case strings.Contains(s, "unknown field no-such-field"):
		return "fields", ""
	case strings.Contains(s, "want a list"):
		switch s := says(path, []any{"\x01"}); {
		case strings.Contains(s, "is not a whole number"):
			return "list of integers", bounds.FindStringSubmatch(s)[1]
		case strings.Contains(s, "is not a time"):
			return "list of durations", bounds.FindStringSubmatch(s)[1]
		case strings.Contains(s, "want fields"):
			return "list of fields", ""
		default:
			return "list", wanted(s)
		}
	case !strings.Contains(s, "want a value, not fields"):
		return "fields by name", ""
	}
	switch s := says(path, "\x01"); {
	case strings.Contains(s, "is not a share"):
		bounds, _, _ := strings.Cut(wanted(s), ",")
		return "number", bounds
	case strings.Contains(s, "is not a time with a unit"):
		return "duration", bounds.FindStringSubmatch(s)[1]
	case strings.Contains(s, "is not a size"):
		m := bounds.FindStringSubmatch(says(path, "1152921504606846976"))
		if says(path, "0") == "" {
			return "size", "0, or " + m[1]
		}
		return "size", m[1]
	case choice.MatchString(wanted(s)):
		return "choice", strings.ReplaceAll(wanted(s), " or ", ", ")
	default:
		return "text", wanted(s)
	}
}

// pagesOf says which page has which settings.
var pagesOf = []struct {
	name, title, text, example string
	settings                   []string
}{
	{"edge", "The edge: listeners, limits, logs", "Where an edge listens, and what bounds it.",
		"listen: \":80\"\nlisten_tls: \":443\"\ntls: {folder: /etc/sluice/certificates}\nlimits: {connections: 50000, memory: 1GiB}\naccess_log: {file: /var/log/sluice/access.log}\n",
		[]string{"listen", "listen_tls", "listen_sockets", "tls", "acme", "hsts", "admin", "admin_hosts", "admin_token_file", "admin_insecure", "metrics_token", "edge_id", "state_dir", "table", "limits", "http2", "access_log", "tracing", "shed", "wall", "pages", "verdict_header"}},
	{"sources", "Sources: addresses, lists, countries", "Whom an edge takes a request to come from, and who is always or never let in. See [sources](../http/clients.md), [lists](../rules/lists.md) and [countries](../rules/geo.md).",
		"source: {trust: [10.0.0.0/8], header: X-Forwarded-For}\nallow: [192.0.2.0/24]\ndeny: [198.51.100.0/24]\n",
		[]string{"source", "lists", "geo", "deny", "allow"}},
	{"pop", "The PoP: nodes, secret, other PoPs", "What an edge shares with others. [A PoP](../install/pop.md) shows how to start one, [several PoPs](../install/several-pops.md) what `peers` and `etcd` do.",
		"pop:\n  name: fra1\n  memcached: [\"10.0.0.1:11211\", \"10.0.0.2:11211\"]\n  secret_file: /etc/sluice/pop.secret\n",
		[]string{"pop", "etcd"}},
	{"origins", "Origins", "The servers that get admitted requests. [Origins](../http/origins.md) says how the edge treats them.",
		"origins:\n  - hosts: [shop.example]\n    servers: [\"http://10.0.1.1:3000\", \"http://10.0.1.2:3000\"]\n    health: {active: /healthz}\n    max_requests: 200\n  - servers: [unix:/run/site.sock]\n",
		[]string{"origins"}},
	{"rules", "Rules", "A request must pass every rule that matches it. [Rules](../rules/README.md) has a page for each subject, and [matching](matching.md) the fields of `match`. Without rules an edge has one, `default`: 100 requests of a source in a minute, or what `--limit` and `--window` say.",
		"rules:\n  - {name: everything, limit: 600, window: 1m}\n  - name: login\n    match: {path: /login, methods: [POST]}\n    limit: 5\n    mitigation_timeout: 10m\n",
		[]string{"rules"}},
	{"matching", "Rules: which requests", "What a rule asks of a request. [Matching](../rules/matching.md) says what each field means. [Rules](rules.md) have the rest.",
		"rules:\n  - name: login\n    match: {path: /login, methods: [POST], not: {sources: [10.0.0.0/8]}}\n    limit: 5\n",
		[]string{"rules.match"}},
	{"clients", "Clients: plans, tokens", "What a client may do, by the key or the token that it sends. See [plans](../rules/plans.md) and [keys](../rules/keys.md).",
		"plans: {key: \"header:X-API-Key\", store: \"sqlite:/var/lib/sluice/plans.db\"}\njwt: {keys_file: /etc/sluice/jwks.json, issuer: \"https://login.example\"}\nrules:\n  - {name: api, key: \"header:X-API-Key\", limit: 60, plans: {pro: 600}}\n  - {name: user, key: \"jwt:sub\", limit: 100}\n",
		[]string{"plans", "jwt", "cors", "ja4"}},
	{"proxies", "Verdicts for other proxies", "How nginx, Caddy, Traefik, Envoy and programs ask an edge. See [checks](../rules/checks.md), [rate limit service](../rules/rate-limit-service.md) and [limit API](../rules/limit-api.md).",
		"check_path: /check\nsource: {trust: [127.0.0.1]}\nrate_limit_service: {listen: \"127.0.0.1:8082\"}\nlimit_api: {listen: \"127.0.0.1:8083\"}\n",
		[]string{"check_path", "rate_limit_service", "limit_api"}},
}

// page is one page of docs/configuration.
func page(list []described, name, title, text, example string, settings []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n%s\n\n```yaml\n%s```\n\n", title, wrap(text), example)
	fmt.Fprintf(&b, "The page is made from the code and `edge/config/testdata/fields.yaml`:\n`go test ./edge/config -run TestConfigurationPages -rewrite`.\n")
	for _, setting := range settings {
		if len(settings) <= 2 || setting == settings[0] {
			fmt.Fprintf(&b, "\n| field | type | default | range | since | what it does |\n|---|---|---|---|---|---|\n")
		}
		for _, d := range list {
			if d.path != setting && !strings.HasPrefix(d.path, setting+".") ||
				setting == "rules" && strings.HasPrefix(d.path, "rules.match.") { // on a page of its own
				continue
			}
			kind, of := kindOf(d.path)
			standard := "`" + d.standard + "`"
			if d.standard == "required" {
				standard = d.standard
			}
			if of != "" {
				of = "`" + strings.NewReplacer("|", `\|`, "`", "'").Replace(of) + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | `%s` | %s |\n", strings.TrimPrefix(d.path, "rules."), kind, standard, of, d.since, d.text)
		}
	}
	return b.String()
}

// wrap breaks a paragraph at 100 columns.
func wrap(text string) string {
	var b strings.Builder
	width := 0
	for word := range strings.FieldsSeq(text) {
		if n := len(word); width > 0 && width+1+n > 100 {
			b.WriteByte('\n')
			width = 0
		} else if width > 0 {
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += len(word)
	}
	return b.String()
}

// The pages on the configuration have each field, with type, default and range as the code has them.
func TestConfigurationPages(t *testing.T) {
	list := describedFields(t)
	for _, d := range list {
		if d.text == "" {
			t.Errorf("%s: nothing says what it does", d.path)
		}
	}
	placed := make(map[string]bool)
	for _, p := range pagesOf {
		for _, s := range p.settings {
			placed[s] = true
		}
		want := page(list, p.name, p.title, p.text, p.example, p.settings)
		file := "../../docs/configuration/" + p.name + ".md"
		if golden.Rewrite() {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if was, err := os.ReadFile(file); err != nil || string(was) != want {
			t.Errorf("%s is out of date (%v): go test ./edge/config -run TestConfigurationPages -rewrite", file, err)
		}
	}
	for _, d := range list {
		if top, _, _ := strings.Cut(d.path, "."); !placed[top] {
			t.Errorf("%s is on no page", d.path)
		}
	}
}

// What the pages call a type and a range is what the reader takes.
func TestKindOf(t *testing.T) {
	for path, want := range map[string][2]string{
		"limits.connections": {"integer", "1 to 10000000"}, "pop.wait": {"duration", "0, or 100µs to 1s"}, "limits.memory": {"size", "0, or 16777216 to 1125899906842624 bytes"},
		"shed": {"choice", "answer, connection, kernel"}, "rules.escalate": {"list of durations", "1s to 24h"}, "rules.match.not": {"fields", ""}, "admin_insecure": {"boolean", ""},
		"rules.match.headers": {"fields by name", ""}, "rules.windows.limit": {"integer", "1 to 1000000000"}, "tracing.sample": {"number", "0 to 1"},
	} {
		if kind, of := kindOf(path); kind != want[0] || of != want[1] {
			t.Errorf("%s: %s, %s; want %v", path, kind, of, want)
		}
	}
}

// Every field that the code reads has a row on a page, and every row is of one.
func TestEveryFieldIsDescribed(t *testing.T) {
	rows := make(map[string]bool)
	for _, d := range describedFields(t) {
		rows[d.path] = true
	}
	seen := 0
	var walk func(path string)
	walk = func(path string) {
		_, names, known := strings.Cut(says(strings.TrimPrefix(path+".no-such-field", "."), 1), "unknown field no-such-field: want ")
		if !known {
			t.Fatalf("%s: it does not list its fields", path)
		}
		for _, name := range strings.Split(strings.ReplaceAll(names, " or ", ", "), ", ") {
			field := strings.TrimPrefix(path+"."+name, ".")
			if kind, _ := kindOf(field); (kind == "fields" || kind == "list of fields" || kind == listeners) && field != "rules.plans" {
				delete(rows, field)
				walk(field)
				continue
			}
			seen++
			if !rows[field] {
				t.Errorf("%s has no %s", fieldsFile, field)
			}
			delete(rows, field)
		}
	}
	walk("")
	for _, either := range []string{"rules.prefixes.prefix", "rules.prefixes.limit", "rules.cost.bytes", "rules.cost.header", "rules.cost.json", "rules.cost.sse", "rules.cost.estimate"} { // a number, or fields
		delete(rows, either)
	}
	if len(rows) > 0 || seen < 100 {
		t.Errorf("of %d fields; rows of no field: %v", seen, rows)
	}
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}
