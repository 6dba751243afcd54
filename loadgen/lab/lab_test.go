package lab

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestLabStartFailsClean(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// The "origin" runs for good and leaves its number, but answers nobody; so does not the edge.
	origin := script("origin", `echo $$ > `+dir+`/pid; exec sleep 1000`)
	broken := script("broken", `echo cannot bind >&2; exit 1`)

	f := func(ctx context.Context, l Lab, want string) {
		t.Helper()
		site, err := l.Start(ctx)
		if err == nil {
			site.Stop()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one with %q", l, err, want)
		}
		left, _ := filepath.Glob(filepath.Join(dir, "sluice-lab-*"))
		if len(left) > 0 {
			t.Errorf("%+v: it leaves %v", l, left)
		}
	}
	rule := RuleConfig{Limit: 1, Window: time.Second}
	f(t.Context(), Lab{Sluice: filepath.Join(dir, "nothing"), Origin: []string{origin}, Rule: rule}, "make build")
	f(t.Context(), Lab{Sluice: broken, Rule: rule}, "origin")
	f(t.Context(), Lab{Sluice: broken, Origin: []string{origin}, Twemproxy: true, Rule: rule}, "twemproxy needs memcached")
	f(t.Context(), Lab{Sluice: broken, Origin: []string{broken}, Rule: rule}, "cannot bind")
	ctx, cancel := context.WithCancel(t.Context())
	var b []byte
	var waited sync.WaitGroup
	waited.Go(func() { // until the origin runs
		defer cancel()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for deadline := time.Now().Add(20 * time.Second); !strings.HasSuffix(string(b), "\n") && time.Now().Before(deadline); <-tick.C {
			b, _ = os.ReadFile(filepath.Join(dir, "pid"))
		}
	})
	f(ctx, Lab{Sluice: broken, Origin: []string{origin}, Rule: rule}, context.Canceled.Error())
	waited.Wait()
	if len(b) == 0 {
		t.Fatal("the origin has not run")
	}
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(b))); err == nil {
		t.Errorf("the origin, process %s, still runs", b)
	}
}
