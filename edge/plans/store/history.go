package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"sluice/edge/plans"
)

// The history has a row for each change of a client, with its author and time, under the number
// that the quota got with it. Edges of versions without a history do not know the table: their
// changes have other numbers, and no author.

// kept is how many changes of a client stay, beside those that made what stands now; keptTime is
// for how long those stay of which nothing does.
const (
	kept     = 20
	keptTime = 90 * 24 * time.Hour
)

// current is of a row of the history: the quota stands as this change made it.
const current = `EXISTS (SELECT 1 FROM sluice_quotas AS q WHERE q.change = h.change AND q.removed = 0)`

// remember keeps the author of a client's change, of which one or two keys are given, and forgets
// the oldest.
func (s *Store) remember(ctx context.Context, tx *sql.Tx, key, other string, e plans.Entry) error {
	// Where a store was put back to an earlier state, its numbers are given out again, and this
	// table may know of them.
	if _, err := tx.ExecContext(ctx, `DELETE FROM sluice_quota_history WHERE change >= $1`,
		e.Change); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO sluice_quota_history (change, client, at, does, rule, plan, hits, effective_at, expires_at, who, origin, edge)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
		e.Change, key, e.At, string(e.Does), s.text(e.Quota.Rule), e.Quota.Plan,
		int64(e.Quota.Limit), e.Quota.Start, e.Quota.End,
		valid(e.By.Who), valid(e.By.From), valid(e.By.Edge)); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM sluice_quota_history AS h WHERE client IN ($1, $2) AND NOT `+current+` AND change < (SELECT MIN(change) FROM
		(SELECT change FROM sluice_quota_history WHERE client IN ($1, $2) ORDER BY change DESC LIMIT $3) AS latest)`, key, other, kept)
	if err == nil && e.Change%(tombstones/10) == 0 {
		_, err = tx.ExecContext(ctx,
			`DELETE FROM sluice_quota_history AS h WHERE at < $1 AND NOT `+current,
			e.At-keptTime.Milliseconds())
	}
	return err
}

// valid is a text that every database takes for one.
func valid(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
}

// History is plans.Store's.
func (s *Store) History(ctx context.Context, keys []string) (list []plans.Entry, err error) {
	defer s.fails(ctx, &err)
	key, other := s.keysOf(keys)
	rows, err := s.db.QueryContext(ctx, `SELECT change, at, does, rule, plan, hits, effective_at, expires_at, who, origin, edge, CASE WHEN `+current+` THEN 1 ELSE 0 END
		FROM sluice_quota_history AS h WHERE client IN ($1, $2) ORDER BY change DESC`, key, other)
	if err != nil {
		if s.missing(ctx, "sluice_quota_history") {
			return nil, nil // nothing was changed since there is one
		}
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var e plans.Entry
		if err := rows.Scan(&e.Change, &e.At, &e.Does, &e.Quota.Rule, &e.Quota.Plan, &e.Quota.Limit,
			&e.Quota.Start, &e.Quota.End, &e.By.Who, &e.By.From, &e.By.Edge,
			&e.Current); err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, rows.Err()
}

// migrate makes the history of a store that is older. It has the version of before, because edges
// of before may go on with it.
func (s *Store) migrate(ctx context.Context) error {
	if s.migrated.Load() {
		return nil
	}
	if s.missing(ctx, "sluice_quota_history") {
		if err := s.create(ctx); err != nil {
			return fmt.Errorf("make the table sluice_quota_history, which keeps who changes what: %w", err)
		}
	}
	s.migrated.Store(true)
	return nil
}
