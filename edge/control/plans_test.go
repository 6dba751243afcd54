package control

import (
	"testing"
	"time"
)

// An operator may write a quota's times in any zone; they are told in the one that all times are told in.
func TestQuotaIsToldInUTC(t *testing.T) {
	from, until := time.Date(2026, 12, 1, 0, 0, 0, 0, time.FixedZone("", 2*3600)), time.Date(2026, 12, 5, 0, 0, 0, 0, time.FixedZone("", -5*3600))
	q := Quota{Rule: "r", Limit: 50, EffectiveAt: &from, ExpiresAt: &until}.UTC()
	if got, want := (&Quotas{Quotas: []Quota{q}}).ByRule()["r"], "limit 50 from 2026-11-30T22:00:00Z until 2026-12-05T05:00:00Z"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if _, zone := from.Zone(); zone == 0 || (Quota{}).UTC() != (Quota{}) {
		t.Error("what it was made of has changed, or nothing became something")
	}
}
