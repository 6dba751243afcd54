//go:build !minimal

package main

import (
	"bytes"
	"fmt"
	"go/format"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"sluice/docs/pages"
)

// Every path that the pages on the architecture name exists, and what they name in a file is there.
func TestArchitecture(t *testing.T) {
	inFile := 0
	for name, least := range map[string]int{"architecture": 60, "life": 30, "where": 60} {
		text, err := os.ReadFile("../../docs/design/" + name + ".md")
		must(t, err)
		named := regexp.MustCompile("`([a-z]+(?:/[A-Za-z_-]+)*(?:/[A-Za-z_-]+\\.[a-z]+|/[A-Za-z_-]+))`").FindAllSubmatch(text, -1)
		if len(named) < least {
			t.Errorf("only %d paths are found on the page %s", len(named), name)
		}
		for _, m := range named {
			if _, err := os.Stat(filepath.Join("../..", string(m[1]))); err != nil {
				t.Errorf("%s: %v", m[1], err)
			}
		}
		for _, m := range regexp.MustCompile("`(?:\\w+\\.)?(\\w+)`,?\\s+(?:in|of)\\s+`([a-z/]+\\.(?:go|js))`").FindAllSubmatch(text, -1) {
			inFile++
			if code, err := os.ReadFile("../../" + string(m[2])); err != nil || !bytes.Contains(code, m[1]) {
				t.Errorf("%s: %s has no %s (%v)", name, m[2], m[1], err)
			}
		}
	}
	if inFile < 8 {
		t.Errorf("%d names in files are found", inFile)
	}
}

// A module is named by modules.go alone, of this program and of what-if, and imports no other: without its line all else works.
func TestModules(t *testing.T) {
	modules := regexp.MustCompile(`"sluice/(edge/modules/[a-z]+)[a-z/]*"`)
	named := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range modules.FindAllSubmatch(text, -1) {
			within := strings.HasPrefix(filepath.ToSlash(path), "../../"+string(m[1])+"/")
			switch filepath.ToSlash(path) {
			case "../../cmd/sluice/modules.go":
				named++
				continue
			case "../../cmd/sluice-loadgen/internal/dryrun/modules.go":
				continue
			}
			if !within {
				t.Errorf("%s names %s: only cmd/sluice/modules.go does", path, m[1])
			}
		}
		return err
	})
	must(t, err)
	if named < 3 {
		t.Errorf("%d modules are found", named)
	}
}

// Who is woken by an alert finds commands that are there.
func TestRunbookCommands(t *testing.T) {
	var text string
	for _, page := range runbook(t) {
		text += page
	}
	named := regexp.MustCompile("`sluice ([a-z]+)([^`]*)`").FindAllStringSubmatch(text, -1)
	for _, m := range named {
		if _, there := findCommand(m[1]); !there {
			t.Errorf("%s: no such command", m[0])
		}
	}
	if len(named) < 5 {
		t.Errorf("only %d commands are found", len(named))
	}
}

// shellWords are what stands at the beginning of commands in documents beside the programs of this repository.
var shellWords = strings.Fields("[ base64 bin/middleware cat cd certbot chronyc cp curl docker done dpkg echo etcdctl export for go grep head helm install kill kubectl memcached mkdir mv nginx promtool rm sed sh sleep sudo systemctl systemd-sysusers tail umask wait which")

var (
	inner    = regexp.MustCompile(`\$?\(|\)`)
	quoted   = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	separate = regexp.MustCompile(`&&|\|\||[|;&]`)
	variable = regexp.MustCompile(`^[A-Z_]+=\S* `)
	routed   = regexp.MustCompile(`(?:-X ([A-Z]+) )?'?(?:http://)?(?:localhost|127\.0\.0\.1):8081(/[^' ?]*)`)
)

// What goes wrong if a block for a shell has a command, a flag or a route that is no more: whoever copies it is told that there is none. The
// pages of docs/operating are run as they stand (TestOperatorPages); here each block must be a script for sh, begin its commands with words that
// are known, and those of sluice with flags that it has.
func TestShellBlocks(t *testing.T) {
	t.Parallel()
	all, err := pages.All("../..")
	must(t, err)
	routes := apiRoutes(t)
	seen := 0
	for name, text := range all {
		for _, block := range pages.Blocks(text) {
			switch kind, _, _ := strings.Cut(block.Kind, " "); {
			case kind == "" || kind == "yaml" || kind == "console" && strings.HasPrefix(name, "docs/operating/"):
				continue // a picture; what edge/config tries; what TestOperatorPages runs
			case kind == "go":
				if _, err := format.Source([]byte(block.Text)); err != nil {
					t.Errorf("%s:%d: %v", name, block.Line, err)
				}
				continue
			case kind != "sh":
				t.Errorf("%s:%d: nothing tries a block of %q: want sh, go or yaml", name, block.Line, block.Kind)
				continue
			}
			block.Text = strings.ReplaceAll(block.Text, "\\\n", "  ")
			if out, err := exec.Command("sh", "-n", "-c", block.Text).CombinedOutput(); err != nil {
				t.Errorf("%s:%d: %s", name, block.Line, out)
			}
			for i, line := range strings.Split(block.Text, "\n") {
				at := fmt.Sprintf("%s:%d", name, block.Line+i)
				for _, m := range routed.FindAllStringSubmatch(line, -1) {
					if method := m[1] + strings.Repeat("GET", 1-min(1, len(m[1]))); !slices.ContainsFunc(routes, func(r *regexp.Regexp) bool { return r.MatchString(method + " " + m[2]) }) {
						t.Errorf("%s: the API has no %s %s", at, method, m[2])
					}
				}
				line, _, _ = strings.Cut(" "+line, " #")
				for _, command := range separate.Split(inner.ReplaceAllString(quoted.ReplaceAllString(line, "Q"), ";"), -1) {
					command = strings.TrimSpace(command)
					for _, word := range []string{"do ", "then ", "time "} {
						command = strings.TrimPrefix(command, word)
					}
					command = variable.ReplaceAllString(command, "")
					words := strings.Fields(strings.TrimSuffix(command, ">"))
					if len(words) == 0 || words[0] == "Q" {
						continue
					}
					seen++
					checkCommand(t, at, words)
				}
			}
		}
	}
	if seen < 60 {
		t.Errorf("%d commands are found in blocks for a shell", seen)
	}
}

// checkCommand is about one command of a block.
func checkCommand(t *testing.T, at string, words []string) {
	t.Helper()
	switch program := words[0]; program {
	case "sluice", "bin/sluice":
		if len(words) == 1 || strings.HasPrefix(words[1], "-") { // it serves
			if _, err := parseFlags(words[1:]); err != nil {
				t.Errorf("%s: %s: %v", at, strings.Join(words, " "), err)
			}
			return
		}
		c, there := findCommand(words[1])
		if !there {
			t.Errorf("%s: there is no command sluice %s", at, words[1])
			return
		}
		if c.Flags == nil {
			if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "-") }); i > 0 {
				t.Errorf("%s: sluice %s has no flags: %s", at, words[1], words[i])
			}
			return
		}
		var stderr bytes.Buffer // behind the flags of the block stands one that nobody has, which must be the first to be refused
		if code := c.Run(append(slices.Clone(words[2:]), "--nobody-has-this"), io.Discard, &stderr); code != 2 || !strings.Contains(stderr.String(), "unknown flag: --nobody-has-this") {
			t.Errorf("%s: %s: exit code %d: %s", at, strings.Join(words, " "), code, stderr.String())
		}
	case "bin/sluice-loadgen", "bin/sluice-trial": // their own tests look at these
	case "make":
		makefile, err := os.ReadFile("../../Makefile")
		must(t, err)
		for _, target := range words[1:] {
			if !strings.Contains(target, "=") && !bytes.Contains(makefile, []byte("\n"+target+":")) {
				t.Errorf("%s: make %s: there is no such target", at, target)
			}
		}
	default:
		if !slices.Contains(shellWords, program) {
			t.Errorf("%s: %s is no command that documents use; if it is meant, shellWords has room for it", at, program)
		}
	}
	for _, w := range words[1:] { // files of the repository
		if strings.HasPrefix(w, "deploy/") || strings.HasPrefix(w, "examples/") || strings.HasPrefix(w, "docs/") {
			if _, err := os.Stat("../../" + strings.TrimRight(w, ";")); err != nil {
				t.Errorf("%s: %v", at, err)
			}
		}
	}
}

// The document of the API has the routes of all modules.
func TestRoutesInDocument(t *testing.T) {
	routes := apiRoutes(t)
	for _, m := range modules(true, nil) {
		for _, r := range m.Routes {
			if !slices.ContainsFunc(routes, func(known *regexp.Regexp) bool { return known.MatchString(r.Pattern) }) {
				t.Errorf("module %s: edge/admin/openapi.yaml has no %s", m.Name, r.Pattern)
			}
		}
	}
}

// apiRoutes are those of edge/admin/openapi.yaml, as "METHOD /path".
func apiRoutes(t *testing.T) (routes []*regexp.Regexp) {
	t.Helper()
	text, err := os.ReadFile("../../edge/admin/openapi.yaml")
	must(t, err)
	var d struct {
		Paths map[string]map[string]any
	}
	must(t, yaml.Unmarshal(text, &d))
	for path, methods := range d.Paths {
		path = regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(path), ".+")
		for method := range methods {
			routes = append(routes, regexp.MustCompile("^"+strings.ToUpper(method)+" "+path+"$"))
		}
	}
	return routes
}
