package edge

import (
	"sync/atomic"
	"time"

	"sluice/edge/seen"
	"sluice/edge/top"
)

// heaviest are the sources and the keys that operators see first.
type heaviest struct {
	requests    *top.Top // sources with the most requests
	refusals    *top.Top // sources that are refused most
	notEnforced *top.Top // sources that shadows would refuse most
	keys        *seen.Keys
	atLimit     *seen.AtLimit
	faded       atomic.Int64 // when it was last
}

func newHeaviest() heaviest {
	return heaviest{requests: top.New(), refusals: top.New(), notEnforced: top.New(),
		keys: seen.New(), atLimit: seen.NewAtLimit()}
}

// fade halves what was counted, once in a while, so that what is heavy now comes first.
func (h *heaviest) fade(now time.Time) {
	switch at := h.faded.Load(); {
	case at == 0:
		h.faded.Store(now.UnixNano())
	case now.UnixNano()-at >= int64(top.Half):
		h.faded.Store(now.UnixNano())
		h.requests.Fade()
		h.refusals.Fade()
		h.notEnforced.Fade()
		h.keys.Fade()
	}
}
