//go:build system

package store

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"sluice/edge/plans"
	"sluice/edge/plans/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// each runs a test on every kind of store.
func each(t *testing.T, test func(t *testing.T, name string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, "sqlite:"+filepath.Join(t.TempDir(), "a b?.db")) })
	t.Run("postgres", func(t *testing.T) { test(t, storetest.Database(t)) })
}

// A database that stops and comes back is used again by who had it open.
func TestStoreComesBack(t *testing.T) {
	server := storetest.Start(t)
	s, ctx := open(t, server.URL), context.Background()
	away := &reader{t: t, s: s}
	away.read()
	server.Stop()
	if _, err := s.Changes(ctx, away.mark, func(bool) {}, func(plans.Change) {}); err == nil {
		t.Error("a store that is stopped answers")
	}
	if err := server.Run(); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(ctx, []string{"=a"}, plans.Quota{Plan: "pro"}, plans.Author{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	away.wants(`=a "" "pro" 0 0-0`)
}
