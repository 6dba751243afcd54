// Package store keeps quotas in SQLite, for edges of one machine, or in PostgreSQL, for all others.
// Both speak the same SQL here.
//
// Every change takes the next number, in the row that all changes lock, so numbers become visible
// in their order: a reader that has read up to one has missed nothing before it. What is removed
// stays as a tombstone for so many changes; a reader that has read nothing for longer reads
// everything again. A look for changes is one statement of one row, however many quotas there are.
// PostgreSQL's LISTEN would take another connection, and polling besides, for when that breaks.
package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"sluice/edge/plans"
)

// version is of the tables.
const version = 1

// tombstones is how many changes a removal stays visible to readers of changes.
const tombstones = 10_000

// Store is a database. It is safe for concurrent use.
type Store struct {
	db       *sql.DB
	postgres bool
	where    string // for errors: no password is in it
	migrated atomic.Bool
}

// Where names a store for operators, without what is secret.
func Where(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "sqlite" {
		return text
	}
	host := u.Host
	if host == "" {
		host = cmp.Or(u.Query().Get("host"), "localhost") // as PostgreSQL's clients read it
	}
	return "postgres " + host + u.Path
}

// fails adds to an error which store it is, and why an exchange with it was broken off.
func (s *Store) fails(ctx context.Context, err *error) {
	if *err == nil {
		return
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(*err, cause) {
		*err = fmt.Errorf("%w (%w)", cause, *err)
	}
	*err = fmt.Errorf("%s: %w", s.where, *err)
}

// parse finds the driver of a store, and its data source name.
func parse(text string) (driver, name string, err error) {
	if path, is := strings.CutPrefix(text, "sqlite:"); is && filepath.IsAbs(path) {
		escaped := (&url.URL{Path: path}).EscapedPath()
		return "sqlite", "file:" + escaped +
			"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate", nil
	}
	if u, err := url.Parse(text); err == nil && (u.Scheme == "postgres" ||
		u.Scheme == "postgresql") && u.Host+u.RawQuery != "" && len(u.Path) > 1 {
		return "pgx", text, nil
	}
	return "", "",
		errors.New("that is not a store: want sqlite:/PATH or postgres://USER@HOST/DATABASE")
}

// Open opens a store, and makes its tables where there are none. A store that does not answer is no
// error: its methods will say so.
func Open(text string) (*Store, error) {
	driver, name, err := parse(text)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open(driver, name)
	if err != nil {
		return nil, fmt.Errorf("plans: open the store: %w", err)
	}
	db.SetMaxOpenConns(2) // the reader, and an operator
	db.SetConnMaxLifetime(10 * time.Minute)
	return &Store{db: db, postgres: driver == "pgx", where: Where(text)}, nil
}

// Close closes it.
func (s *Store) Close() error { return s.db.Close() }

// Times are Unix milliseconds; a removed row of sluice_quotas says nothing about its client.
var schema = []string{
	`CREATE TABLE IF NOT EXISTS sluice_plans (one BIGINT PRIMARY KEY, version BIGINT NOT NULL, store TEXT NOT NULL, change BIGINT NOT NULL, oldest BIGINT NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS sluice_quotas (client TEXT NOT NULL, rule TEXT NOT NULL, effective_at BIGINT NOT NULL, expires_at BIGINT NOT NULL,
		plan TEXT NOT NULL, hits BIGINT NOT NULL, change BIGINT NOT NULL, removed BIGINT NOT NULL, PRIMARY KEY (client, rule, effective_at))`,
	`CREATE INDEX IF NOT EXISTS sluice_quotas_change ON sluice_quotas (change)`,
	`CREATE TABLE IF NOT EXISTS sluice_quota_history (change BIGINT PRIMARY KEY, client TEXT NOT NULL, at BIGINT NOT NULL, does TEXT NOT NULL, rule TEXT NOT NULL,
		plan TEXT NOT NULL, hits BIGINT NOT NULL, effective_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, who TEXT NOT NULL, origin TEXT NOT NULL, edge TEXT NOT NULL)`,
	`CREATE INDEX IF NOT EXISTS sluice_quota_history_client ON sluice_quota_history (client, change)`,
}

// head reads the one row of a store.
func (s *Store) head(ctx context.Context) (mark plans.Mark, oldest int64, err error) {
	var v int64
	if err = s.db.QueryRowContext(ctx, `SELECT version, store, change, oldest FROM sluice_plans`).
		Scan(&v, &mark.Store, &mark.Change, &oldest); err == nil && v != version {
		err = fmt.Errorf("its tables are of version %d, and this edge knows version %d: run the edge that made them, or name another store", v, version)
	}
	return mark, oldest, err
}

// create makes the tables. Edges that start together do so one after the other.
func (s *Store) create(ctx context.Context) error {
	return s.within(ctx, func(tx *sql.Tx) error {
		if s.postgres {
			if _, err := tx.ExecContext(ctx,
				`SELECT pg_advisory_xact_lock(7308332045)`); err != nil {
				return err
			}
		}
		for _, statement := range schema {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx,
			`INSERT INTO sluice_plans (one, version, store, change, oldest) VALUES (1, $1, $2, 0, 0) ON CONFLICT (one) DO NOTHING`, version, rand.Text())
		return err
	})
}

func (s *Store) within(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback() // why it was is the error
		return err
	}
	return tx.Commit()
}

// Changes is plans.Store's.
func (s *Store) Changes(ctx context.Context, since plans.Mark, begin func(all bool),
	each func(plans.Change)) (_ plans.Mark, err error) {
	defer s.fails(ctx, &err)
	mark, oldest, err := s.head(ctx)
	// Another edge may make the tables between two of these statements, so that they are there by
	// now though the first did not find them.
	if err != nil && ctx.Err() == nil {
		made := error(nil)
		if s.missing(ctx, "sluice_plans") {
			made = s.create(ctx)
		}
		if mark, oldest, err = s.head(ctx); made != nil && err != nil {
			err = made
		}
	}
	if err != nil || mark == since {
		return mark, err
	}
	all := mark.Store != since.Store || mark.Change < since.Change || since.Change < oldest
	from, removed := since.Change, int64(1)
	if all {
		from, removed = -1, 0
	}
	begin(all)
	// One statement sees one state: that of mark, or a later one, of which the next look has the
	// rest again.
	rows, err := s.db.QueryContext(ctx, `SELECT client, rule, effective_at, expires_at, plan, hits, removed FROM sluice_quotas
		WHERE change > $1 AND removed <= $2 ORDER BY change, removed DESC`, from, removed)
	if err != nil {
		return since, err
	}
	defer rows.Close()
	for rows.Next() {
		var c plans.Change
		q, gone := &c.Quota, int64(0)
		var start, end, limit any
		if err := rows.Scan(&c.Key, &q.Rule, &start, &end, &q.Plan, &limit, &gone); err != nil {
			return since, err
		}
		ok := true
		number := func(v any) int64 { // SQLite takes text for one
			n, is := v.(int64)
			ok = ok && is
			return n
		}
		q.Start, q.End = number(start), number(end)
		hits := number(limit)
		if !ok {
			each(plans.Change{}) // a quota of no client
			continue
		}
		c.Key = keyOf(c.Key)
		q.Limit, c.Removed = math.MaxUint32, gone != 0 // that is no limit
		if 0 <= hits && hits < math.MaxUint32 {
			q.Limit = uint32(hits)
		}
		each(c)
	}
	if err := rows.Err(); err != nil {
		return since, err
	}
	if _, oldest, err = s.head(ctx); err == nil && !all && since.Change < oldest {
		err = errors.New("what was taken away was forgotten meanwhile: everything is read next time")
	}
	if err != nil {
		return since, err
	}
	return mark, nil
}

// missing reports whether the store answers, and has no such table.
func (s *Store) missing(ctx context.Context, table string) bool {
	statement := `SELECT count(*) FROM sqlite_master WHERE name = $1`
	if s.postgres {
		statement = `SELECT count(*) FROM pg_class WHERE relname = $1 AND pg_table_is_visible(oid)`
	}
	var n int
	return s.db.QueryRowContext(ctx, statement, table).Scan(&n) == nil && n == 0
}

// next takes the number of a change.
func (s *Store) next(ctx context.Context, tx *sql.Tx) (n int64, err error) {
	err = tx.QueryRowContext(ctx, `UPDATE sluice_plans SET change = change + 1 RETURNING change`).
		Scan(&n)
	if err != nil || n%(tombstones/10) != 0 {
		return n, err
	}
	if _, err = tx.ExecContext(ctx, `DELETE FROM sluice_quotas WHERE removed = 1 AND change < $1`,
		n-tombstones); err == nil {
		_, err = tx.ExecContext(ctx, `UPDATE sluice_plans SET oldest = $1`, max(0, n-tombstones))
	}
	return n, err
}

// keysOf is two keys, the second of which may be the first.
func (s *Store) keysOf(keys []string) (one, other string) {
	return s.text(keys[0]), s.text(keys[len(keys)-1])
}

// bytesMark begins a key that PostgreSQL does not take for text; other keys of clients begin
// otherwise.
const bytesMark = "~"

// text is a key as the database has it.
func (s *Store) text(key string) string {
	if s.postgres && (!utf8.ValidString(key) || strings.Contains(key, "\x00")) {
		return bytesMark + base64.RawURLEncoding.EncodeToString([]byte(key))
	}
	return key
}

// keyOf is the key of a text.
func keyOf(text string) string {
	if encoded, is := strings.CutPrefix(text, bytesMark); is {
		if key, err := base64.RawURLEncoding.DecodeString(encoded); err == nil {
			return string(key)
		}
	}
	return text
}

// Put is plans.Store's. Of keys there are one or two. Those that are over go as well, so that what
// is lent again and again takes no more room.
func (s *Store) Put(ctx context.Context, keys []string, q plans.Quota, by plans.Author,
	now time.Time) (err error) {
	defer s.fails(ctx, &err)
	if err := s.migrate(ctx); err != nil {
		return err
	}
	return s.within(ctx, func(tx *sql.Tx) error {
		n, err := s.next(ctx, tx)
		if err != nil {
			return err
		}
		key, other := s.keysOf(keys)
		at := now.UnixMilli()
		// Nothing: one that begins later stands beside what is in force
		begun, end := int64(-1), q.End
		if q.Start <= at {
			begun = at
		}
		if end == 0 {
			end = math.MaxInt64
		}
		if _, err := tx.ExecContext(ctx, `UPDATE sluice_quotas SET removed = 1, change = $1
			WHERE client IN ($2, $3) AND rule = $4 AND removed = 0 AND (effective_at = $5 OR expires_at > 0 AND expires_at <= $6
			OR effective_at <= $7 AND (COALESCE(NULLIF(expires_at, 0), 9223372036854775807) <= $8 OR plan = $9 AND hits = $10))`,
			n, key, other, q.Rule, q.Start, at, begun, end, q.Plan, int64(q.Limit)); err != nil {
			return err
		}
		if _, err = tx.ExecContext(ctx, `INSERT INTO sluice_quotas (client, rule, effective_at, expires_at, plan, hits, change, removed) VALUES ($1, $2, $3, $4, $5, $6, $7, 0)
			ON CONFLICT (client, rule, effective_at) DO UPDATE SET expires_at = excluded.expires_at, plan = excluded.plan, hits = excluded.hits, change = excluded.change, removed = 0`,
			key, q.Rule, q.Start, q.End, q.Plan, int64(q.Limit), n); err != nil {
			return err
		}
		return s.remember(ctx, tx, key, other, plans.Entry{Change: n, At: at, Does: plans.Set,
			Quota: q, By: by})
	})
}

// Delete is plans.Store's.
func (s *Store) Delete(ctx context.Context, keys []string, rule *string, by plans.Author,
	now time.Time) (deleted int, err error) {
	defer s.fails(ctx, &err)
	if err := s.migrate(ctx); err != nil {
		return 0, err
	}
	err = s.within(ctx, func(tx *sql.Tx) error {
		n, err := s.next(ctx, tx)
		if err != nil {
			return err
		}
		key, other := s.keysOf(keys)
		e, every := plans.Entry{Change: n, At: now.UnixMilli(), Does: plans.DeleteAll, By: by}, 1
		if rule != nil {
			e.Does, e.Quota.Rule, every = plans.DeleteUnder, *rule, 0
		}
		result, err := tx.ExecContext(ctx,
			`UPDATE sluice_quotas SET removed = 1, change = $1 WHERE client IN ($2, $3) AND removed = 0 AND (rule = $4 OR $5 = 1)`, n, key, other, s.text(e.Quota.Rule), every)
		if err != nil {
			return err
		}
		some, err := result.RowsAffected()
		if deleted = int(some); err != nil || deleted == 0 {
			return err
		}
		return s.remember(ctx, tx, key, other, e)
	})
	return deleted, err
}
