package store

import (
	"context"
	"time"
)

// List is plans.Store's. It follows the primary key, so a page costs the same wherever it begins;
// one of a plan looks at all clients before.
func (s *Store) List(ctx context.Context, after, plan string, n int,
	now time.Time) (keys []string, err error) {
	defer s.fails(ctx, &err)
	rows, err := s.db.QueryContext(ctx, `SELECT DISTINCT client FROM sluice_quotas
		WHERE client > $1 AND removed = 0 AND ($2 = '' OR plan = $2 AND (expires_at = 0 OR expires_at > $3)) ORDER BY client LIMIT $4`, s.text(after), s.text(plan), now.UnixMilli(), n)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		keys = append(keys, keyOf(key))
	}
	return keys, rows.Err()
}
