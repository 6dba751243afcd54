package control

import (
	"time"

	"sluice/counter"
	"sluice/mitigation"
)

var siteKey = mitigation.Key{Rule: mitigation.Site, Source: counter.SourceOfDigest([16]byte{})}

// MaxReason is how many bytes a reason travels with.
const MaxReason = 256

// Site is what operators say of the whole site, if they say anything.
func (c *Admin) Site(now time.Time) (mitigation.Bit, bool) {
	return c.with.Limiter.Blocks.Get(siteKey, now)
}

// SayOfSite says it on every edge of the PoP, in place of what was said before.
func (c *Admin) SayOfSite(d time.Duration, reason string, by Operator,
	now time.Time) (Mitigation, error) {
	return c.put(Site, siteKey, d, reason, by, now)
}

// LiftOfSite ends it.
func (c *Admin) LiftOfSite(by Operator, now time.Time) (Lifted, error) {
	return c.lift(Site, siteKey, nil, by, now, false)
}
