// Package every is the loop of what is done every so often.
package every

import (
	"context"
	"time"
)

// Period calls f once in each period, until ctx is done.
func Period(ctx context.Context, period time.Duration, f func(now time.Time)) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			f(now)
		}
	}
}
