package mitigation

import "time"

// By says what started a mitigation.
type By uint8

const (
	ByEdge  By = iota // this edge's own verdict
	ByPoP             // learned: another edge's verdict, or the PoP's total
	ByAdmin           // an operator
	ByPeer            // another PoP
)

func (b By) String() string { return [...]string{"edge", "pop", "admin", "peer"}[b] }

// Bit is one mitigation.
type Bit struct {
	Start   time.Time // when the verdict fell, on the clock of the edge that gave it
	End     time.Time // requests from then on are counted again
	Learned time.Time // when it came into force in this table; Start sets it
	By      By
	Shadow  bool   // a verdict of a shadow, or of what is tried beside a rule: it refuses no request
	Reason  string // for people; empty for a verdict
	Who     string // of ByAdmin: the operator, as he calls himself

	// Memory is how long the bit is remembered after its end, so that a source that comes back can be mitigated for
	// longer (Repeat).
	Memory time.Duration

	Terms Terms // that a verdict was reached under; of ByAdmin none
}

// worth orders bits by what is lost with them in a full table.
func (b *common) worth() int {
	switch {
	case b.By == ByAdmin:
		return 2
	case b.Shadow:
		return 0
	}
	return 1
}

// replaces reports whether b replaces a bit that is in force.
func (b *Bit) replaces(old Bit) bool {
	if b.By == ByAdmin {
		return old.By != ByAdmin || !b.End.Equal(old.End) || b.Reason != old.Reason
	}
	return old.By != ByAdmin && b.End.After(old.End)
}
