//go:build !minimal

package main

import (
	"strings"
	"testing"
)

// Every command that asks an edge finds it by a configuration, whatever sections of modules and forms of rules that has.
func TestCommandsReadConfigurationsOfModules(t *testing.T) {
	file := write(t, `admin: "127.0.0.1:1"
access_log: {file: requests.log}
limit_api: {listen: "127.0.0.1:2"}
origins: [{servers: ["http://127.0.0.1:3"]}]
rules: [{name: a, key: ja4, limit: 5, action: challenge}]
`)
	args := map[string]string{ // of those that want some
		"block": "192.0.2.7", "unblock": "192.0.2.7", "why": "192.0.2.7",
		"rules": "history a", "quota": "list", "usage": "k", "suggest": "a",
		"challenge": "on a", "try": "list",
	}
	asked := 0
	for _, c := range commands() {
		if c.Flags == nil || c.Flags.Lookup("config") == nil {
			continue
		}
		asked++
		line := append(append([]string{c.Name}, strings.Fields(args[c.Name])...), "--config", file)
		if code, _, errs := sluice(line...); code != 1 || !strings.Contains(errs, "no edge listens at 127.0.0.1:1") {
			t.Errorf("sluice %s: exit %d: %s", strings.Join(line, " "), code, errs)
		}
	}
	if asked < 15 {
		t.Errorf("%d commands ask an edge", asked)
	}
}
