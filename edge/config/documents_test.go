package config

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sluice/docs/pages"
	"sluice/edge/upstream"
)

// documents are those that operators read.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all, err := pages.All("../..")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// yamlBlocks are the configurations in a document: each whole, or, where its fence says yaml and the name of a field (```yaml rules), what
// stands under that field.
func yamlBlocks(text string) (blocks []string) {
	for _, m := range regexp.MustCompile("(?ms)^ *```ya?ml(?: +([a-z_.]+))?\n(.*?)^ *```$").FindAllStringSubmatch(text, -1) {
		block := m[2]
		if m[1] != "" {
			block = m[1] + ":\n" + regexp.MustCompile("(?m)^.").ReplaceAllString(block, "  $0")
		}
		blocks = append(blocks, block)
	}
	return blocks
}

func TestYAMLBlocks(t *testing.T) {
	got := yamlBlocks("a\n```yaml\nlisten: x\n```\n```sh\nno\n```\n```yaml rules\n- name: a\n  limit: 1\n```\n")
	if len(got) != 2 || got[0] != "listen: x\n" || got[1] != "rules:\n  - name: a\n    limit: 1\n" {
		t.Errorf("%q", got)
	}
}

// What goes wrong if a document shows a configuration that the edge refuses: whoever copies it has an edge that does not start.
func TestDocumentsAreConfigurations(t *testing.T) {
	blocks, fields := 0, 0
	for name, text := range documents(t) {
		dir := t.TempDir() // where a block includes others of its page, by the names in their first lines
		for _, block := range yamlBlocks(text) {
			if file, named := strings.CutPrefix(firstLine(block), "# "); named && strings.HasSuffix(file, ".yaml") {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(block), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^\$ (?:mkdir \S+; )?echo '([^']*)' > (\S+\.(?:txt|html))$`).FindAllStringSubmatch(text, -1) {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, m[2])), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, m[2]), []byte(m[1]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, block := range yamlBlocks(text) {
			blocks++
			file := filepath.Join(dir, "block.yaml")
			if name, named := strings.CutPrefix(firstLine(block), "# "); named && strings.HasSuffix(name, ".yaml") {
				file = filepath.Join(dir, name)
			}
			c, err := reading.Parse(file, []byte(block))
			if err == nil {
				if origin, err := upstream.ParseOrigin("http://127.0.0.1:3000"); err == nil && len(c.Origins) == 0 {
					c.Origins = []upstream.Config{{Servers: []*url.URL{origin}}} // a block of rules leaves it out
				}
				err = c.Check()
			}
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, block)
			}
		}
		if !strings.HasPrefix(name, "docs/") && name != "README.md" || strings.HasPrefix(name, "docs/operating/") || name == "docs/install/coming-from.md" {
			continue // they have what programs print, and fields of others
		}
		for _, m := range regexp.MustCompile("`([a-z_]+): ([^`]+)`").FindAllStringSubmatch(text, -1) {
			fields++
			if field := m[1] + ": " + strings.NewReplacer("…", "[401]", " N", " 10").Replace(" " + m[2])[1:]; !isField(field) && !others[m[1]] {
				t.Errorf("%s: %s is no field of a configuration, with no value of that kind", name, field)
			}
		}
	}
	if blocks == 0 || fields < 10 {
		t.Errorf("%d blocks and %d fields are found in the documents", blocks, fields)
	}
}

// others are fields of other programs.
var others = map[string]bool{"address": true, "path_prefix": true, "authorization": true, "include": true} // Traefik's, Envoy's, the name of a header, what leads to another file

// isField reports whether a field and its value may stand somewhere in a configuration.
func isField(field string) bool {
	for _, position := range []string{"%", "pop: {%}", "source: {%}", "limits: {%}", "access_log: {%}", "tracing: {endpoint: \"http://a\", %}", "origins: [{servers: [\"http://a\"], %}]",
		"rules: [{name: a, %}]", "rules: [{name: a, limit: 1, %}]", "jwt: {keys_file: a}\nrules: [{name: a, limit: 10, %}]", "rules: [{name: a, limit: 1, match: {%}}]", "rules: [{name: a, limit: 1, count: {%}}]", "rules: [{name: a, limit: 1, response: {%}}]", "rules: [{name: a, limit: 1, response: {location: \"https://a/\"}, %}]",
		"rules: [{name: a, algorithm: token_bucket, limit: 10, window: 1s, %}]", "geo: {country: a, asn: a}\nrules: [{name: a, limit: 1, %}]", "plans: {key: \"header:a\"}\nrules: [{name: a, limit: 1, %}]"} {
		if _, err := reading.Parse("", []byte(strings.Replace(position, "%", field, 1))); err == nil {
			return true
		}
	}
	return false
}

// The examples of README and deploy are complete: an edge starts with them.
func TestExamplesAreConfigurations(t *testing.T) {
	examples := 0
	check := func(name, text string) {
		t.Helper()
		c, err := reading.Parse(name, []byte(text))
		if err == nil {
			err = c.Check()
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile("../../deploy/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, whole := range yamlBlocks(documents(t)["README.md"]) {
		examples++
		check("README.md", whole)
	}
	if examples == 0 {
		t.Error("README.md has no configuration")
	}
	for _, name := range []string{"sluice.yaml", "debian/sluice.yaml", "compose/sluice.yaml"} {
		check(name, read(name))
	}
}
