//go:build system

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"sluice/cmd/internal/labtest"
	"sluice/cmd/lab/bench"
)

// attacksHere runs http2-attacks --short, and returns its figures.
func attacksHere(t *testing.T, args ...string) (f bench.AttacksJSON) {
	t.Helper()
	dir, file := labtest.Trials(t), filepath.Join(t.TempDir(), "attacks.json")
	if out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "sluice-trial"), append([]string{"http2-attacks", "--short", "--json", file}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, json.Unmarshal(text, &f))
	return f
}

// Every attack is made, the client beside it is served, and the edge charges a source that resets its requests. How much of an attack there is in
// so short a time depends on the machine: which bounds it meets then is for TestHTTP2Abuse of edge.
func TestHTTP2Attacks(t *testing.T) {
	t.Parallel()
	f := attacksHere(t, "--servers", "sluice")
	var names []string
	for _, a := range f.Attacks {
		names = append(names, a.Attack)
		if a.Sent == 0 || a.Failed > 0 || a.P99 == 0 || a.Calm == 0 || a.Attack == "rapid reset" && a.Charged == 0 {
			t.Errorf("%+v", a)
		}
	}
	if !slices.Equal(names, bench.AttackNames()) || len(f.Connections) != 2 {
		t.Errorf("attacks %q, connections %v", names, f.Connections)
	}
}

// The others are configured so that they start, speak HTTP/2, and admit the calm client.
func TestHTTP2AttacksOnOthers(t *testing.T) {
	t.Parallel()
	for _, a := range attacksHere(t, "--servers", "nginx,haproxy", "--attacks", "PING").Attacks {
		if a.Sent == 0 || a.Failed > 0 || a.Charged > 0 {
			t.Errorf("%+v", a)
		}
	}
}
