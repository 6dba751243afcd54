package ratelimit

import (
	"errors"
	"fmt"
	"math"
	"time"

	descriptor "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"sluice/edge"
	"sluice/edge/rules/descriptors"
)

// A call is the life of one call. It is used again for the next.
type call struct {
	decided   *edge.Call
	requested []descriptors.Descriptor
}

var (
	errNoDomain      = errors.New("rate limit domain must not be empty")
	errNoDescriptors = errors.New("rate limit descriptor list must not be empty")
)

// read reads a proxy's call. The texts stay those of the request.
func (c *call) read(q *service.RateLimitRequest) error {
	switch {
	case q.Domain == "":
		return errNoDomain
	case len(q.Descriptors) == 0:
		return errNoDescriptors
	case len(q.Descriptors) > descriptors.Max:
		return fmt.Errorf("%d descriptors in a request: %d at most", len(q.Descriptors),
			descriptors.Max)
	}
	hits := uint64(max(1, q.HitsAddend))
	c.requested = c.requested[:min(len(q.Descriptors), cap(c.requested))]
	for len(c.requested) < len(q.Descriptors) {
		c.requested = append(c.requested, descriptors.Descriptor{})
	}
	for i, d := range q.Descriptors {
		to := &c.requested[i]
		*to = descriptors.Descriptor{Entries: to.Entries[:0], Hits: uint32(hits)}
		for _, e := range d.GetEntries() {
			to.Entries = append(to.Entries, descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		if d.GetHitsAddend() != nil {
			to.Hits = uint32(min(d.HitsAddend.Value, math.MaxUint32))
		}
		if d.GetIsNegativeHits() {
			return errors.New("is_negative_hits: what was counted is not given back")
		}
		if d.GetLimit() != nil {
			if err := override(to, d.Limit); err != nil {
				return err
			}
		}
	}
	return nil
}

// override takes a limit that a proxy sends to replace the rule's.
func override(to *descriptors.Descriptor,
	limit *descriptor.RateLimitDescriptor_RateLimitOverride) error {
	switch limit.Unit {
	case envoytype.RateLimitUnit_SECOND:
		to.Window = time.Second
	case envoytype.RateLimitUnit_MINUTE:
		to.Window = time.Minute
	case envoytype.RateLimitUnit_HOUR:
		to.Window = time.Hour
	case envoytype.RateLimitUnit_DAY:
		to.Window = 24 * time.Hour
	default:
		return fmt.Errorf("limit override: no limit by %v: want SECOND, MINUTE, HOUR or DAY",
			limit.Unit)
	}
	if limit.RequestsPerUnit == 0 {
		return errors.New("limit override: requests_per_unit is 0: want 1 or more")
	}
	to.Limit = limit.RequestsPerUnit
	return nil
}

// end forgets the request.
func (c *call) end() {
	c.decided.End()
	for i := range c.requested {
		clear(c.requested[i].Entries)
	}
}
