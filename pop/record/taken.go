package record

import "time"

// Taken keeps which sub-windows' times have been taken in. That must happen once, though an
// outsider that reaches the tier may write an edge's record a second time.
type Taken struct {
	newest uint32
	before uint16    // a bit for each sub-window, that of the newest the lowest
	Until  time.Time // by then they have left every window
}

// Take notes a sub-window, and reports whether it is to be taken in.
func (t *Taken) Take(subWindow uint32) bool {
	ahead := int32(subWindow - t.newest)
	switch {
	case t.before == 0 || ahead >= 16:
		t.newest, t.before = subWindow, 1
		return true
	case ahead > 0:
		t.newest, t.before = subWindow, t.before<<ahead|1
		return true
	case ahead <= -16 || t.before>>-ahead&1 != 0:
		return false
	}
	t.before |= 1 << -ahead
	return true
}
