package tier

import (
	"context"
	"time"
)

// Every calls f once in each period, until ctx is done.
func Every(ctx context.Context, period time.Duration, f func(now time.Time)) {
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
