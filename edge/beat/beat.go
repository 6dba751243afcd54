// Package beat has what looks now and then whether there is something to do look at the same
// moments. What a resting edge costs is not the looks but the wake-ups: ten looks at one moment
// wake the process once.
//
// Beats are a Period apart, and follow the wall clock, so that nobody needs to know when they
// began. A step of that clock moves them, and no wait is ever longer than nine eighths of what it
// should be.
package beat

import (
	"context"
	"time"
)

// Period is the time from one beat to the next.
const Period = 500 * time.Millisecond

// In is how long to wait at now for the next moment of those that are every apart, a multiple of
// Period. A timer may end a little before its moment, because the wall clock is put right by
// running slower: then that moment has been, and In is until the one after it.
func In(now time.Time, every time.Duration) time.Duration {
	wait := every - time.Duration(now.UnixNano()%int64(every))
	if wait < every/8 {
		wait += every
	}
	return wait
}

// Every calls f at moments that are every apart, a multiple of Period, until ctx is done.
func Every(ctx context.Context, every time.Duration, f func(now time.Time)) {
	timer := time.NewTimer(In(time.Now(), every))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			f(time.Now())
			timer.Reset(In(time.Now(), every))
		}
	}
}
