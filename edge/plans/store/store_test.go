//go:build !minimal

package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/edge/plans"
)

func open(t *testing.T, name string) *Store {
	t.Helper()
	s, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// A reader is an edge that has read up to a mark.
type reader struct {
	t    *testing.T
	s    *Store
	mark plans.Mark
}

// read is what is new, a line each.
func (r *reader) read() (lines []string) {
	r.t.Helper()
	mark, err := r.s.Changes(context.Background(), r.mark, func(all bool) {
		if all {
			lines = append(lines, "all")
		}
	}, func(c plans.Change) {
		line := fmt.Sprintf("%s %q %q %d %d-%d", c.Key, c.Quota.Rule, c.Quota.Plan, c.Quota.Limit, c.Quota.Start, c.Quota.End)
		if c.Removed {
			line = "gone " + line
		}
		lines = append(lines, line)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.mark = mark
	return lines
}

func (r *reader) wants(want ...string) {
	r.t.Helper()
	if got := r.read(); !slices.Equal(got, want) {
		r.t.Errorf("read\n%q, want\n%q", got, want)
	}
}

// What one edge changes the others read, in its order and once; who comes later reads what is left.
func TestChanges(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		ctx, now := context.Background(), time.UnixMilli(1_000_000)
		one, two := open(t, name), open(t, name)
		first := &reader{t: t, s: one}
		first.wants("all")
		first.wants()
		put := func(s *Store, q plans.Quota, keys ...string) {
			t.Helper()
			if err := s.Put(ctx, keys, q, plans.Author{}, now); err != nil {
				t.Fatal(err)
			}
		}
		put(two, plans.Quota{Plan: "pro"}, "=a")
		put(two, plans.Quota{Rule: "api", Limit: 500, End: 5_000_000}, "=a")
		put(one, plans.Quota{Rule: "api", Limit: 900, Start: 2_000_000}, "=a") // begins later: both stay
		first.wants(`=a "" "pro" 0 0-0`, `=a "api" "" 500 0-5000000`, `=a "api" "" 900 2000000-0`)
		first.wants()
		put(one, plans.Quota{Rule: "api", Limit: 600, Start: 900_000}, "=a") // has begun: in place of what was in force
		first.wants(`gone =a "api" "" 500 0-5000000`, `=a "api" "" 600 900000-0`)
		put(one, plans.Quota{Plan: "free"}, "#b", "=a") // the same client under a digest from now on
		first.wants(`gone =a "" "pro" 0 0-0`, `#b "" "free" 0 0-0`)
		(&reader{t: t, s: two}).wants("all", `=a "api" "" 900 2000000-0`, `=a "api" "" 600 900000-0`, `#b "" "free" 0 0-0`)
		api := "api"
		if n, err := two.Delete(ctx, []string{"#b", "=a"}, &api, plans.Author{}, time.Now()); n != 2 || err != nil {
			t.Errorf("%d are deleted, %v; want 2", n, err)
		}
		if n, err := two.Delete(ctx, []string{"#b", "=a"}, nil, plans.Author{}, time.Now()); n != 1 || err != nil {
			t.Errorf("%d are deleted, %v; want 1", n, err)
		}
		if n, err := two.Delete(ctx, []string{"#b", "=a"}, nil, plans.Author{}, time.Now()); n != 0 || err != nil {
			t.Errorf("%d are deleted, %v; want none", n, err)
		}
		if got := first.read(); len(got) != 3 {
			t.Errorf("read %q, want three that are gone", got)
		}
	})
}

// Clients are listed once each, in one order, a page after the other, and whatever their keys are.
func TestList(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		ctx, now := context.Background(), time.UnixMilli(1_000_000)
		s := open(t, name)
		(&reader{t: t, s: s}).wants("all")
		said := []string{"=a", "=B", "=\xff", "#0123", "header:x-org=a", "=c"}
		for _, key := range said {
			for _, q := range []plans.Quota{{Plan: "pro"}, {Rule: "api", Limit: 5}, {Rule: "api", Plan: "pro", End: 2_000_000}} {
				if err := s.Put(ctx, []string{key}, q, plans.Author{}, now); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := s.Delete(ctx, []string{"=c"}, nil, plans.Author{}, now); err != nil {
			t.Fatal(err)
		}
		if err := s.Put(ctx, []string{"=a"}, plans.Quota{Plan: "free"}, plans.Author{}, now); err != nil {
			t.Fatal(err)
		}
		list := func(plan string, at int64) (all []string) {
			for after := ""; ; {
				page, err := s.List(ctx, after, plan, 2, time.UnixMilli(at))
				if err != nil || len(page) > 2 || len(all) > 10 {
					t.Fatal(page, err)
				}
				if len(page) == 0 {
					slices.Sort(all) // databases have orders of their own
					return all
				}
				all, after = append(all, page...), page[len(page)-1]
			}
		}
		for _, test := range []struct {
			plan string
			at   int64
			want []string
		}{
			{"", 1_000_000, []string{"#0123", "=B", "=a", "=\xff", "header:x-org=a"}},
			{"free", 1_000_000, []string{"=a"}},
			{"pro", 1_000_000, []string{"#0123", "=B", "=a", "=\xff", "header:x-org=a"}}, // =a until it is over
			{"pro", 2_000_000, []string{"#0123", "=B", "=\xff", "header:x-org=a"}},
			{"gold", 1_000_000, nil},
		} {
			if got := list(test.plan, test.at); !slices.Equal(got, test.want) {
				t.Errorf("plan %q at %d: %q, want %q", test.plan, test.at, got, test.want)
			}
		}
	})
}

// What is lent stands over what is in force, which is so again afterwards; what is said for good takes the place of all that has begun.
func TestLent(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		s, r := open(t, name), (*reader)(nil)
		said := func(at int64, q plans.Quota) {
			t.Helper()
			if err := s.Put(context.Background(), []string{"=a"}, q, plans.Author{}, time.UnixMilli(at)); err != nil {
				t.Fatal(err)
			}
		}
		left := func(want ...string) {
			t.Helper()
			r = &reader{t: t, s: s}
			r.wants(append([]string{"all"}, want...)...)
		}
		left()
		const free, pro, gold = `=a "" "free" 0 0-0`, `=a "" "pro" 0 1000-9000`, `=a "" "gold" 0 2000-5000`
		said(500, plans.Quota{Plan: "free"})
		said(1000, plans.Quota{Plan: "pro", Start: 1000, End: 9000})
		left(free, pro)
		said(2000, plans.Quota{Plan: "gold", Start: 2000, End: 5000})
		left(free, pro, gold)
		said(3000, plans.Quota{Plan: "gold", Start: 3000, End: 4000}) // the same, and shorter
		left(free, pro, `=a "" "gold" 0 3000-4000`)
		said(4500, plans.Quota{Plan: "new", Start: 8000, End: 8500}) // to come: what is over goes
		left(free, pro, `=a "" "new" 0 8000-8500`)
		said(4600, plans.Quota{Plan: "gold", Start: 4600, End: 9500}) // longer than pro
		left(free, `=a "" "new" 0 8000-8500`, `=a "" "gold" 0 4600-9500`)
		said(4700, plans.Quota{Plan: "free", Start: 4700, End: 9900}) // what was for good has an end
		left(`=a "" "new" 0 8000-8500`, `=a "" "free" 0 4700-9900`)
		said(4800, plans.Quota{Plan: "new", Start: 8000})
		said(4900, plans.Quota{Plan: "free"})
		left(`=a "" "new" 0 8000-0`, free)
	})
}

// A key is kept byte for byte, also one that is no text, and a limit that cannot be keeps nobody from reading the others.
func TestOddRows(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		ctx, s := context.Background(), open(t, name)
		r := &reader{t: t, s: s}
		r.wants("all")
		for _, key := range []string{"=\xff\x00a", "=ü ", "=~x"} {
			for _, plan := range []string{"free", "pro"} {
				if err := s.Put(ctx, []string{key, "#d"}, plans.Quota{Plan: plan}, plans.Author{}, time.Now()); err != nil {
					t.Fatalf("%q: %v", key, err)
				}
			}
			r.wants(key + ` "" "pro" 0 0-0`)
			if n, err := s.Delete(ctx, []string{"#d", key}, nil, plans.Author{}, time.Now()); n != 1 || err != nil {
				t.Errorf("%q: %d are deleted, %v; want 1", key, n, err)
			}
			r.wants("gone " + key + ` "" "pro" 0 0-0`)
		}
		for _, rule := range []string{"\x00", "\xff", "'; DROP TABLE sluice_quotas; --"} {
			if n, err := s.Delete(ctx, []string{"=a"}, &rule, plans.Author{}, time.Now()); n != 0 || err != nil {
				t.Errorf("%q: %d are deleted, %v; want none", rule, n, err)
			}
		}
		r.wants()
		for key, hits := range map[string]string{"=a": "-1", "=b": "5000000000"} {
			if err := s.Put(ctx, []string{key}, plans.Quota{Rule: "api", Limit: 7}, plans.Author{}, time.Now()); err != nil {
				t.Fatal(err)
			}
			if _, err := s.db.Exec(`UPDATE sluice_quotas SET hits = ` + hits + ` WHERE client = '` + key + `'`); err != nil {
				t.Fatal(err)
			}
			r.wants(key + ` "api" "" 4294967295 0-0`)
		}
	})
}

// SQLite takes text for a number. A row that has some keeps nobody from reading the others.
func TestTextForANumber(t *testing.T) {
	s := open(t, "sqlite:"+filepath.Join(t.TempDir(), "p.db"))
	r := &reader{t: t, s: s}
	r.wants("all")
	for i, column := range []string{"", "effective_at", "expires_at", "hits", "client"} {
		if err := s.Put(context.Background(), []string{fmt.Sprint("=", i)}, plans.Quota{Plan: "pro"}, plans.Author{}, time.Now()); err != nil {
			t.Fatal(err)
		}
		if column == "" {
			continue
		}
		if _, err := s.db.Exec(`UPDATE sluice_quotas SET `+column+` = 'x' WHERE client = ?`, fmt.Sprint("=", i)); err != nil {
			t.Fatal(err)
		}
	}
	r.wants(`=0 "" "pro" 0 0-0`, ` "" "" 0 0-0`, ` "" "" 0 0-0`, ` "" "" 0 0-0`, `x "" "pro" 0 0-0`)
}

// Changes of edges that change at once have numbers of their own, and nobody misses one.
func TestChangesAtOnce(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		const writers, changes = 4, 25
		reading := &reader{t: t, s: open(t, name)}
		reading.read()
		put := make(chan error, writers*changes)
		for w := range writers {
			s := open(t, name)
			go func() {
				for i := range changes {
					put <- s.Put(context.Background(), []string{fmt.Sprintf("=%d-%d", w, i)}, plans.Quota{Plan: "pro"}, plans.Author{}, time.Now())
				}
			}()
		}
		seen := make(map[string]bool)
		for range writers * changes { // who reads goes along with who writes
			if err := <-put; err != nil {
				t.Error(err)
			}
			for _, line := range reading.read() {
				seen[line] = true
			}
		}
		if len(seen) != writers*changes {
			t.Errorf("%d of %d changes were read", len(seen), writers*changes)
		}
	})
}

// Who has read nothing for so long that what was taken away is forgotten reads everything; so does who has read another store.
func TestLongAway(t *testing.T) {
	s, ctx := open(t, "sqlite:"+filepath.Join(t.TempDir(), "p.db")), context.Background()
	away := &reader{t: t, s: s}
	away.read()
	if _, err := s.db.Exec(`UPDATE sluice_plans SET change = ?`, 2*tombstones-1); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(ctx, []string{"=a"}, plans.Quota{Plan: "pro"}, plans.Author{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	away.wants("all", `=a "" "pro" 0 0-0`)
	away.mark.Store = "another"
	away.wants("all", `=a "" "pro" 0 0-0`)
}

// What was taken away is forgotten while somebody who needs to know it reads: he reads everything again.
func TestForgottenMeanwhile(t *testing.T) {
	s, ctx := open(t, "sqlite:"+filepath.Join(t.TempDir(), "p.db")), context.Background()
	put := func(key string) {
		t.Helper()
		if err := s.Put(ctx, []string{key}, plans.Quota{Plan: "pro"}, plans.Author{}, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	late := &reader{t: t, s: s}
	late.wants("all")
	put("=a")
	late.wants(`=a "" "pro" 0 0-0`)
	if _, err := s.Delete(ctx, []string{"=a"}, nil, plans.Author{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Exec(`UPDATE sluice_plans SET change = ?`, tombstones+tombstones/10-1); err != nil {
		t.Fatal(err)
	}
	mark, err := s.Changes(ctx, late.mark, func(bool) { put("=b") }, func(plans.Change) {})
	if err == nil {
		late.mark = mark
	}
	late.wants("all", `=b "" "pro" 0 0-0`)
}

// Tables of a version that this edge does not know are left alone.
func TestOtherVersion(t *testing.T) {
	s := open(t, "sqlite:"+filepath.Join(t.TempDir(), "p.db"))
	(&reader{t: t, s: s}).read()
	if _, err := s.db.Exec(`UPDATE sluice_plans SET version = 2`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Changes(context.Background(), plans.Mark{}, func(bool) {}, func(plans.Change) {}); err == nil {
		t.Error("read all the same")
	}
}

func TestParse(t *testing.T) {
	for name, good := range map[string]bool{
		"sqlite:/var/lib/sluice/plans.db": true, "postgres://sluice:secret@db:5432/plans?sslmode=verify-full": true, "postgresql://db/plans": true,
		"postgres:///plans?host=/run/postgresql": true, "sqlite:plans.db": false, "mysql://db/plans": false, "postgres://db": false, "": false, "/var/lib/plans.db": false,
	} {
		if _, _, err := parse(name); (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A store that is away is named, with the reason, and without its password.
func TestAwaySaysWhichAndWhy(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	slow := errors.New("no answer in time")
	for address, why := range map[string]string{gone.Addr().String(): "connection refused", silent.Addr().String(): "no answer in time"} {
		s := open(t, "postgres://user:hidden@"+address+"/quotas?sslmode=disable")
		ctx, cancel := context.WithCancelCause(t.Context())
		if address == silent.Addr().String() {
			go func() {
				if c, err := silent.Accept(); err == nil {
					defer c.Close()
					cancel(slow)
				}
			}()
		}
		_, err := s.Changes(ctx, plans.Mark{}, func(bool) {}, func(plans.Change) {})
		if err == nil || !strings.HasPrefix(err.Error(), "postgres "+address+"/quotas: ") || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("want %s and %s: %v", address, why, err)
		}
		cancel(nil)
	}
	if got := Where("postgres://u:p@/db?host=/run/pg"); got != "postgres /run/pg/db" {
		t.Error(got)
	}
}

// An edge that looks at an empty store while another makes its tables starts as well: what it did not find at its first look is there at the next.
func TestTablesAreMadeMeanwhile(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		ctx := context.Background()
		var all sync.WaitGroup
		for range 8 {
			s := open(t, name)
			all.Go(func() {
				if _, err := s.Changes(ctx, plans.Mark{}, func(bool) {}, func(plans.Change) {}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
}
