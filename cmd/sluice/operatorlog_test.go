//go:build system

package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"sluice/edge/control"
)

// apply has an operator say something, and returns the answer.
func (p *process) say(method, path, body string) (int, control.Mitigation) {
	p.t.Helper()
	resp, text := p.request(method, p.back, "/v1/mitigations/"+path, body)
	var m control.Mitigation
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		p.t.Errorf("%s: %v", text, err)
	}
	return resp.StatusCode, m
}

// blockedBy says who has blocked a source, as GET /v1/mitigations tells it.
func (p *process) blockedBy(source string) string {
	p.t.Helper()
	_, body := p.admin("GET", "/v1/mitigations")
	var list []control.Mitigation
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		return err.Error()
	}
	for _, m := range list {
		if m.Source == source {
			return m.By
		}
	}
	return ""
}

// What an operator says at one edge is in force on the others when the answer is there, which says so; and it is his, everywhere,
// and after each process has been replaced.
func TestOperatorLogOverThePoP(t *testing.T) {
	t.Parallel()
	nodes, dir := startMemcached(t)+","+startMemcached(t), t.TempDir()
	file := filepath.Join(dir, "sluice.yaml")
	must(t, os.WriteFile(file, []byte("edge_id: first\nstate_dir: "+dir+"\n"), 0o600))
	l := startLineage(t, origin(t), nil, "--config", file, "--memcached", nodes)
	second := start(t, origin(t), "--memcached", nodes)
	meet(l.process, second)
	status, m := second.say("PUT", "default/192.0.2.1", `{"for":"1h","reason":"because"}`)
	if status != 200 || m.Edges == nil || m.Edges.Known != 2 || m.Edges.Have != 2 || len(m.Edges.Missing) != 0 || m.By != "admin" {
		t.Errorf("%d %+v %+v", status, m, m.Edges)
	}
	if by := l.blockedBy("192.0.2.1"); by != "admin" {
		t.Errorf("on the other edge by %q", by)
	}
	l.replace()
	http.DefaultClient.CloseIdleConnections()
	l.until("blocking as before", func() bool { return l.blockedBy("192.0.2.1") == "admin" })
	if status, m := second.say("DELETE", "default/192.0.2.1", ""); status != 200 || m.Edges == nil || m.Edges.Have < 2 {
		t.Errorf("%d %+v", status, m.Edges)
	}
	http.DefaultClient.CloseIdleConnections()
	l.until("lifted", func() bool { return l.blockedBy("192.0.2.1") == "" && second.blockedBy("192.0.2.1") == "" })
	second.stop(syscall.SIGTERM)
}

// What operators said outlives the PoP where there is a state_dir, and a file that has been changed is no such thing.
func TestStateDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "sluice.yaml")
	must(t, os.WriteFile(file, []byte("state_dir: "+dir+"\n"), 0o600))
	p := start(t, origin(t), "--config", file, "--memcached", startMemcached(t))
	if status, m := p.say("PUT", "default/192.0.2.1", `{"for":"1h","reason":"because"}`); status != 200 || m.Edges.Have != 1 {
		t.Errorf("%d %+v", status, m.Edges)
	}
	p.stop(syscall.SIGTERM)
	next := start(t, origin(t), "--config", file, "--memcached", startMemcached(t)) // with all nodes new
	next.until("blocking as before", func() bool { return next.blockedBy("192.0.2.1") == "admin" })
	next.stop(syscall.SIGTERM)

	words := filepath.Join(dir, "words")
	text, err := os.ReadFile(words)
	must(t, err)
	for what, content := range map[string][]byte{"cut": text[:len(text)-1], "empty": {}, "forged": append(text[:len(text)-1:len(text)-1], text[len(text)-1]^1)} {
		must(t, os.WriteFile(words, content, 0o600))
		cmd := exec.Command(os.Args[0], "--config", file, "--memcached", "127.0.0.1:1", "--origin", origin(t), "--listen", freePort(t), "--admin", freePort(t))
		cmd.Env = append(os.Environ(), "SLUICE_UNDER_TEST=1")
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "state_dir") || !strings.Contains(string(out), words) {
			t.Errorf("%s: %v, %s", what, err, out)
		}
	}
}

// While the disk of state_dir is full, what operators say is in force, and log, events and status name the file and the reason. Once there is room it is kept.
func TestStateDirOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("a disk that is full needs the right to mount one: %v", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
	p := start(t, origin(t), "--config", write(t, "state_dir: "+dir), "--memcached", startMemcached(t))
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	if status, m := p.say("PUT", "default/192.0.2.1", `{"for":"1h"}`); status != 200 || p.blockedBy("192.0.2.1") != "admin" {
		t.Errorf("%d %+v", status, m)
	}
	full := regexp.MustCompile(regexp.QuoteMeta(dir) + `/\.words\.\d+: no space left on device`)
	p.until("telling it in the log", func() bool {
		return full.MatchString(p.log.String()) && strings.Contains(p.log.String(), "file="+dir+"/words")
	})
	p.until("telling it among the events", func() bool { return full.MatchString(p.events()) })
	code, stdout, stderr := sluice("status", "--admin", p.back)
	if !strings.Contains(squeezed(stdout), "disk "+dir+"/words cannot be written") || !full.MatchString(stdout) {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}
	if a := p.api("GET", "/v1/status", ""); !strings.Contains(a.text, `"file": "`+dir+`/words"`) {
		t.Error(a.text)
	}
	must(t, os.Remove(filler))
	p.until("keeping it again", func() bool { return !strings.Contains(p.api("GET", "/v1/status", "").text, "unkept") })
	p.until("saying so", func() bool { return strings.Contains(p.log.String(), "what operators said is kept again") })
	p.stop(syscall.SIGTERM)
	if text, err := os.ReadFile(filepath.Join(dir, "words")); err != nil || len(text) == 0 {
		t.Errorf("kept %d bytes, %v", len(text), err)
	}
}
