//go:build !minimal

package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"sluice/edge/plans"
)

// past is the history of a client, a line each, without numbers of changes.
func past(t *testing.T, s *Store, keys ...string) (lines []string) {
	t.Helper()
	list, err := s.History(context.Background(), keys)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		line := fmt.Sprintf("%d %s %q %q %d %d-%d by %s/%s/%s", e.At, e.Does, e.Quota.Rule, e.Quota.Plan, e.Quota.Limit, e.Quota.Start, e.Quota.End, e.By.Who, e.By.From, e.By.Edge)
		if e.Current {
			line += " now"
		}
		lines = append(lines, line)
	}
	return lines
}

func wants(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// Who said what of a client and when is told by every edge, also of what is deleted, and of a client whose keys are secret since.
func TestHistory(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		ctx, one, two := context.Background(), open(t, name), open(t, name)
		(&reader{t: t, s: one}).read()
		anna, boris := plans.Author{Who: "anna", From: "192.0.2.1:9", Edge: "e1"}, plans.Author{Who: "bo\xff\x00ris"}
		put := func(key string, q plans.Quota, by plans.Author, at int64) {
			t.Helper()
			if err := one.Put(ctx, []string{key, "=a"}, q, by, time.UnixMilli(at)); err != nil {
				t.Fatal(err)
			}
		}
		put("=a", plans.Quota{Plan: "pro"}, anna, 1000)
		put("=a", plans.Quota{Rule: "api", Limit: 5, End: 9000}, boris, 2000)
		put("#d", plans.Quota{Plan: "free"}, anna, 3000)
		put("=b", plans.Quota{Plan: "pro"}, anna, 3500)
		wants(t, past(t, two, "#d", "=a"), `3000 set "" "free" 0 0-0 by anna/192.0.2.1:9/e1 now`, `2000 set "api" "" 5 0-9000 by bo??ris// now`,
			`1000 set "" "pro" 0 0-0 by anna/192.0.2.1:9/e1`)
		api := "api"
		for _, rule := range []*string{&api, &api, nil} { // what is not there is not deleted
			if _, err := two.Delete(ctx, []string{"#d", "=a"}, rule, boris, time.UnixMilli(4000)); err != nil {
				t.Fatal(err)
			}
		}
		wants(t, past(t, one, "#d", "=a")[:3], `4000 deleted all "" "" 0 0-0 by bo??ris//`, `4000 deleted "api" "" 0 0-0 by bo??ris//`, `3000 set "" "free" 0 0-0 by anna/192.0.2.1:9/e1`)
	})
}

// The history of a client has an end, but who said what stands now is told for as long as it does.
func TestHistoryIsBounded(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		ctx, s := context.Background(), open(t, name)
		(&reader{t: t, s: s}).read()
		put := func(key string, q plans.Quota, at time.Time) {
			t.Helper()
			if err := s.Put(ctx, []string{key}, q, plans.Author{}, at); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.UnixMilli(1000)
		put("=a", plans.Quota{Plan: "pro"}, begin)
		put("=b", plans.Quota{Plan: "pro"}, begin)
		put("=b", plans.Quota{Plan: "free"}, begin)
		for i := range 2 * kept {
			put("=a", plans.Quota{Rule: "api", Limit: uint32(i + 1)}, begin)
		}
		if got := past(t, s, "=a"); len(got) != kept+1 || got[kept] != `1000 set "" "pro" 0 0-0 by // now` {
			t.Errorf("%d changes: %q", len(got), got)
		}
		wants(t, past(t, s, "=b"), `1000 set "" "free" 0 0-0 by // now`, `1000 set "" "pro" 0 0-0 by //`)
		if _, err := s.db.Exec(fmt.Sprintf(`UPDATE sluice_plans SET change = %d`, tombstones/10-1)); err != nil {
			t.Fatal(err)
		}
		put("=c", plans.Quota{Plan: "pro"}, begin.Add(keptTime+time.Millisecond))
		wants(t, past(t, s, "=b"), `1000 set "" "free" 0 0-0 by // now`)
	})
}

// A store of before there was a history gets one with the next change. Edges of before know nothing of it, and go on: what they
// change has nobody to its name, and neither does it take another's.
func TestOlderStore(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		ctx, s := context.Background(), open(t, name)
		r := &reader{t: t, s: s}
		r.read()
		for _, statement := range []string{
			`DROP TABLE sluice_quota_history`,
			`INSERT INTO sluice_quotas (client, rule, effective_at, expires_at, plan, hits, change, removed) VALUES ('=a', '', 0, 0, 'pro', 0, 1, 0)`,
			`UPDATE sluice_plans SET change = 1`,
		} {
			if _, err := s.db.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		r.wants(`=a "" "pro" 0 0-0`)
		wants(t, past(t, s, "=a"))
		if err := s.Put(ctx, []string{"=a"}, plans.Quota{Rule: "api", Limit: 5}, plans.Author{Who: "anna"}, time.UnixMilli(1000)); err != nil {
			t.Fatal(err)
		}
		wants(t, past(t, s, "=a"), `1000 set "api" "" 5 0-0 by anna// now`)
		for _, statement := range []string{ // as an edge of before puts limit 5 again
			`UPDATE sluice_plans SET change = 3`, `UPDATE sluice_quotas SET change = 3 WHERE rule = 'api'`,
		} {
			if _, err := s.db.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		wants(t, past(t, s, "=a"), `1000 set "api" "" 5 0-0 by anna//`)
		r.wants(`=a "api" "" 5 0-0`)
		if _, err := s.db.Exec(`UPDATE sluice_plans SET change = 1`); err != nil { // put back, but for the history
			t.Fatal(err)
		}
		if err := s.Put(ctx, []string{"=a"}, plans.Quota{Plan: "free"}, plans.Author{Who: "boris"}, time.UnixMilli(2000)); err != nil {
			t.Fatal(err)
		}
		wants(t, past(t, s, "=a"), `2000 set "" "free" 0 0-0 by boris// now`)
	})
}
