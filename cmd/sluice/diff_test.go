//go:build system

package main

import (
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// A file that runs as it is differs in nothing, however many files the system lets the edge open, and its own ports are no warning.
func TestDiffOfNothing(t *testing.T) {
	var files syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	file := write(t, "limits: {connections: 9000000}\nrules: [{name: r, limit: 5, prefixes: [32, 24], escalate: [10m]}]\n")
	p := start(t, origin(t), "--config", file)
	admin, front := p.back, p.front
	whole := write(t, "admin: \""+admin+"\"\nlisten: \""+front+"\"\norigins: [{servers: [\"http://127.0.0.1:9\"]}]\nlimits: {connections: 9000000}\nrules: [{name: r, limit: 5, prefixes: [32, 24], escalate: [10m]}]\n")
	_, out, errs := sluice("check", "--diff", whole)
	if strings.Contains(out, "limits.connections") || strings.Contains(errs, "in use") || !strings.Contains(out, "origins") {
		t.Errorf("%s%s (open files: %d)", out, errs, files.Cur)
	}
}

// Connections that are open are told apart from those that were accepted.
func TestStatusTellsOpenConnections(t *testing.T) {
	p := start(t, origin(t))
	p.get()
	p.until("told", func() bool {
		_, out, _ := sluice("status", "--admin", p.back)
		return regexp.MustCompile(`(?m)^clients +\d+ connections open, [1-9]\d* accepted since the start$`).MatchString(out)
	})
}
