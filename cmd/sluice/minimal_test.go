//go:build minimal

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A minimal program refuses each setting that needs what it was built without, in a check and at a start, and no other.
func TestMinimal(t *testing.T) {
	const origin = "origins: [{servers: ['http://127.0.0.1:1']}]\n"
	for setting, c := range map[string]struct{ yaml, part string }{
		"access_log":                {"access_log: {file: /dev/null}\n", "the access log"},
		"acme.hosts":                {"listen_tls: ':8443'\nstate_dir: /tmp\nacme: {hosts: [a.example], agree: true}\n", "ACME"},
		"etcd.endpoints":            {"etcd: {endpoints: ['http://127.0.0.1:2379']}\n", "etcd"},
		"jwt.keys_file":             {"jwt: {keys_file: /keys}\n", "JSON Web Tokens"},
		"limit_api.listen":          {"limit_api: {listen: '127.0.0.1:1'}\n", "the limit API"},
		"listen.redirect":           {"listen: {address: '127.0.0.1:1', redirect: 443}\n", "redirects to https"},
		"lists":                     {"lists: [{name: a, file: /a}]\n", "named lists"},
		"plans.store":               {"plans: {key: 'header:X-Key', store: 'sqlite:/plans'}\n", "drivers of databases"},
		"rate_limit_service.listen": {"rate_limit_service: {listen: '127.0.0.1:1'}\n", "Envoy's rate limit service"},
		"tracing.endpoint":          {"tracing: {endpoint: 'http://127.0.0.1:4318'}\n", "OpenTelemetry"},
		"wall.socket":               {"shed: kernel\nwall: {socket: /run/w.sock}\n", "the wall in the kernel"},
		"":                          {"verdict_header: true\n", ""},
	} {
		file := filepath.Join(t.TempDir(), "sluice.yaml")
		if err := os.WriteFile(file, []byte(origin+c.yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		want := ": " + setting + ": this program was built without " + c.part + ": build it with make build, or remove the setting"
		f, err := parseFlags([]string{"--config", file})
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.load()
		checked := strings.Join(examine(file).Errors, "\n")
		if setting == "" {
			if err != nil || strings.Contains(checked, "built without") {
				t.Errorf("%v, %s", err, checked)
			}
			continue
		}
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("a start with %s: %v, want %s", setting, err, want)
		}
		if !strings.HasSuffix(checked, want) {
			t.Errorf("a check of %s: %s, want %s", setting, checked, want)
		}
	}
}

// Commands of modules are not there.
func TestMinimalCommands(t *testing.T) {
	for _, name := range []string{"challenge", "import", "maintenance", "suggest", "try"} {
		if _, known := findCommand(name); known {
			t.Errorf("a minimal program has sluice %s", name)
		}
	}
}

// The page on a minimal program names the commands that it lacks, which the help of a whole one has.
func TestMinimalCommandsOnThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/install/one-machine.md")
	if err != nil {
		t.Fatal(err)
	}
	help, err := os.ReadFile("testdata/golden/help.txt")
	if err != nil {
		t.Fatal(err)
	}
	lacks := 0
	for line := range strings.Lines(string(help)) {
		rest, is := strings.CutPrefix(line, "  sluice ")
		name, _, _ := strings.Cut(rest, " ")
		if _, has := findCommand(name); !is || has || strings.HasPrefix(name, "[") {
			continue
		}
		if lacks++; !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/install/one-machine.md does not say that a minimal program lacks sluice %s", name)
		}
	}
	if lacks == 0 {
		t.Error("it lacks no command")
	}
}
