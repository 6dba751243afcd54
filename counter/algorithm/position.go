package algorithm

// Position is an instant in the sub-windows of one source.
type Position struct {
	Group uint32  // modulo 2^32
	Lane  int     // within the group
	Gone  float64 // share of the sub-window that has passed, 0 to 1
}

// Position returns where an instant, in ns since the epoch, lies.
func (r *Spec) Position(ns int64, phase uint16) Position {
	ns -= r.offset(phase)
	if r.algorithm == tokens {
		return r.inBucket(ns)
	}
	n := ns / r.sub
	return Position{
		Group: uint32(n >> r.lanes),
		Lane:  int(n) & (r.lanes.Count() - 1),
		Gone:  float64(ns-n*r.sub) * r.perSub,
	}
}

// PhaseBits are those of a phase that matter: a table has room for something else in the others.
const PhaseBits = 1<<16 - 1<<5

func (r *Spec) offset(phase uint16) int64 { return r.phases * int64(phase&PhaseBits) }

// Move says by how many groups the lanes of a counter whose newest group is base must be shifted for a position, and where
// to count then. A clock that stepped back by less than a window stays in the newest group that the counter has seen; one
// that stepped back by more starts the counter anew.
func (r *Spec) Move(base uint32, p Position) (at Position, by int) {
	d := int(int32(p.Group - base))
	switch n := r.Groups(); {
	case d == 0:
		return p, 0
	case d > 0 && d < n:
		return p, d
	case d < 0 && -d < n:
		return Position{Group: base, Lane: r.first}, 0
	default:
		return p, n
	}
}

// Number is the sub-window of a position, modulo 2^32.
func (r *Spec) Number(p Position) uint32 { return p.Group<<r.lanes | uint32(p.Lane) }

// Cut is the number of the sub-window that is cut by the beginning of a window that ends at a position.
func (r *Spec) Cut(p Position) uint32 { return r.Number(p) - uint32(r.SubWindows) }

// locate turns a lane counted from lane 0 of the newest group into a group and a lane in it, without a branch, because which it
// is differs from source to source. It counts from the oldest of n groups.
func (r *Spec) locate(lane, n int) (group, i int) {
	lane += (n - 1) << r.lanes
	group = max(n-1-lane>>r.lanes, 0)
	return group, lane - (n-1-group)<<r.lanes
}
