//go:build system

package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// BIRD announces the service's prefixes while the edge is ready, not before, and no longer than that: not while it drains, and not once nobody looks any more.
func TestAnycast(t *testing.T) {
	t.Parallel()
	const example = "../../deploy/anycast/bird.conf"
	if out, err := exec.Command("bird", "-p", "-c", example).CombinedOutput(); err != nil {
		t.Fatalf("bird -p (apt-get install bird2): %v\n%s", err, out)
	}
	text, err := os.ReadFile(example)
	must(t, err)
	// A BIRD of our own has no router to talk to: what its sessions would export is looked at instead.
	alone, sessions, cut := strings.Cut(string(text), "template bgp")
	if !cut || strings.Count(sessions, "export where proto =") != 2 {
		t.Fatalf("sessions:\n%s", sessions)
	}
	folder := t.TempDir()
	config, socket := filepath.Join(folder, "bird.conf"), filepath.Join(folder, "bird.ctl")
	must(t, os.WriteFile(config, []byte(strings.Replace(alone, "log syslog all;", "", 1)), 0o600))
	said := new(bytes.Buffer)
	bird := exec.Command("bird", "-f", "-c", config, "-s", socket, "-P", filepath.Join(folder, "pid"))
	bird.Stderr = said
	must(t, bird.Start())
	t.Cleanup(func() {
		_ = bird.Process.Kill()
		_ = bird.Wait()
	})
	routes := func() int {
		out, _ := exec.Command("birdc", "-s", socket, "show", "route", "where", "proto", "~", `"sluice*"`).CombinedOutput()
		return strings.Count(string(out), "blackhole")
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for deadline := time.Now().Add(patience); !ok(); <-tick.C {
			if time.Now().After(deadline) {
				t.Fatalf("not %s after %v: %d routes", what, patience, routes())
			}
		}
	}
	until("answering", func() bool {
		return exec.Command("birdc", "-s", socket, "show", "status").Run() == nil
	})

	if n := routes(); n != 0 {
		t.Errorf("%d routes before anybody has asked the edge", n)
	}
	// As somebody has left it who was killed.
	if out, err := exec.Command("birdc", "-s", socket, "enable", "sluice4").CombinedOutput(); err != nil || routes() != 1 {
		t.Fatalf("birdc enable: %v %s", err, out)
	}

	var ready atomic.Bool
	var asked atomic.Int64
	edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if !ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer edge.Close()
	announce := exec.Command("../../deploy/anycast/announce.sh")
	announce.Env = append(os.Environ(), "READYZ="+edge.URL+"/readyz", "BIRDC=birdc -s "+socket, "INTERVAL=0.02")
	must(t, announce.Start())
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = announce.Process.Kill()
			_ = announce.Wait()
		}
	})
	until("asked ten times", func() bool { return asked.Load() >= 10 })
	if n := routes(); n != 0 {
		t.Errorf("%d routes of an edge that is not ready", n)
	}
	ready.Store(true)
	until("announced", func() bool { return routes() == 2 })
	ready.Store(false)
	until("withdrawn", func() bool { return routes() == 0 })
	ready.Store(true)
	until("announced again", func() bool { return routes() == 2 })
	must(t, announce.Process.Signal(syscall.SIGTERM))
	ended = true
	if err := announce.Wait(); err != nil {
		t.Error(err)
	}
	if n := routes(); n != 0 {
		t.Errorf("%d routes that nobody looks after", n)
	}
}
