//go:build system

package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// noJSON are the commands that have no --json, and why.
var noJSON = map[string]string{
	"schema":     "it prints JSON already",
	"help":       "it is for people: completion has what programs want of it",
	"completion": "a shell reads it",
}

// Every form of every command prints, with --json, one value in JSON and nothing else, and exits as it does without.
func TestJSONEverywhere(t *testing.T) {
	t.Setenv("VISUAL", "true") // an editor that changes nothing
	file := writePlans(t, 1, "store: \"sqlite:"+filepath.Join(t.TempDir(), "plans.db")+"\"")[0]
	p := start(t, origin(t), "--config", file, "--memcached", startMemcached(t))
	two := write(t, "- {name: first, limit: 5}\n- {name: second, limit: 6}\n")
	edited := write(t, "name: first\nlimit: 7\n")
	asks := write(t, "name: asks\nkey: path\nlimit: 5\naction: challenge\n")
	log := filepath.Join(t.TempDir(), "access.log")
	must(t, os.WriteFile(log, nil, 0o600))
	wrong := write(t, "rules: [{name: a, limit: none}]\n")
	had := make(map[string]bool)
	for _, test := range []struct {
		line string
		code int
	}{
		{"check FILE", 0},
		{"check " + wrong, 1},
		{"check --diff FILE --admin ADMIN", 1},
		{"import nginx ../../edge/modules/importer/testdata/nginx.conf", 0},
		{"import envoy-ratelimit " + write(t, "domain: d\ndescriptors: [{key: k}]\n"), 1},
		{"version", 0},
		{"status --admin ADMIN", 0},
		{"status --pop --admin ADMIN", 0},
		{"top --admin ADMIN", 0},
		{"top --kind key --admin ADMIN", 0},
		{"top --pop --admin ADMIN", 0},
		{"blocked --admin ADMIN", 0},
		{"blocked --pop --admin ADMIN", 0},
		{"block 192.0.2.7 --admin ADMIN", 0},
		{"block --key header:X-API-Key=k --admin ADMIN", 0},
		{"unblock 192.0.2.7 --admin ADMIN", 0},
		{"unblock --key header:X-API-Key=k --admin ADMIN", 0},
		{"allow 192.0.2.7 --admin ADMIN", 0},
		{"allow --admin ADMIN", 0},
		{"allow 192.0.2.7 --remove --admin ADMIN", 0},
		{"deny 192.0.2.7 --admin ADMIN", 0},
		{"deny --admin ADMIN", 0},
		{"rules --admin ADMIN", 0},
		{"lists --admin ADMIN", 0},
		{"rules add " + two + " --admin ADMIN", 0},
		{"rules add " + write(t, "name: third\nlimit: 5\n") + " --admin ADMIN", 0},
		{"rules set first limit=9 --admin ADMIN", 0},
		{"rules edit first " + edited + " --admin ADMIN", 0},
		{"rules edit first --admin ADMIN", 0},
		{"rules history first --admin ADMIN", 0},
		{"rules rollback first --admin ADMIN", 0},
		{"rules remove first --admin ADMIN", 0},
		{"rules add " + asks + " --admin ADMIN", 0},
		{"challenge on asks --admin ADMIN", 0},
		{"challenge off asks --admin ADMIN", 0},
		{"reload --admin ADMIN", 0},
		{"drain --admin ADMIN", 0},
		{"undrain --admin ADMIN", 0},
		{"maintenance on --allow 127.0.0.1 --admin ADMIN", 0},
		{"maintenance status --admin ADMIN", 0},
		{"maintenance off --admin ADMIN", 0},
		{"config --admin ADMIN", 0},
		{"events --admin ADMIN", 0},
		{"events --pop --admin ADMIN", 0},
		{"quota set k --plan pro --admin ADMIN", 0},
		{"quota get k --admin ADMIN", 0},
		{"quota list --admin ADMIN", 0},
		{"quota history k --admin ADMIN", 0},
		{"quota delete k --admin ADMIN", 0},
		{"usage k --admin ADMIN", 0},
		{"usage --key header:X-API-Key=k --admin ADMIN", 0},
		{"try limit=5 --name a --detach --admin ADMIN", 0},
		{"try limit=5 --name b --for 1s --admin ADMIN", 0},
		{"try list --admin ADMIN", 0},
		{"try show a --admin ADMIN", 0},
		{"try stop a --admin ADMIN", 0},
		{"suggest third --admin ADMIN", 0},
		{"why 192.0.2.7 --admin ADMIN", 0},
		{"why 192.0.2.7 --pop --admin ADMIN", 0},
		{"why 192.0.2.7 " + log, 0},
	} {
		line := strings.NewReplacer("FILE", file, "ADMIN", p.back).Replace(test.line)
		args := append(strings.Fields(line), "--json")
		had[args[0]] = true
		code, stdout, stderr := sluice(args...)
		d := json.NewDecoder(strings.NewReader(stdout))
		var first, more any
		if err := d.Decode(&first); err != nil || code != test.code {
			t.Errorf("%s: exit %d, %v: %s%s", test.line, code, err, stdout, stderr)
		} else if err := d.Decode(&more); err != io.EOF {
			t.Errorf("%s: more than one value: %s", test.line, stdout)
		}
	}
	for _, c := range commands() {
		if had[c.Name] == (noJSON[c.Name] != "") {
			t.Errorf("%s: it was tried with --json: %v; it is excused: %q", c.Name, had[c.Name], noJSON[c.Name])
		}
		if c.Flags != nil && c.Flags.Lookup("json") == nil {
			t.Errorf("%s has flags, and --json is not among them", c.Name)
		}
	}
	for name := range noJSON {
		if _, known := findCommand(name); !known {
			t.Errorf("%s is excused, and there is no such command", name)
		}
	}
	p.stop(syscall.SIGTERM)
}
