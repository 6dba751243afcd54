package ratelimit

import (
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"sluice/edge"
	"sluice/edge/rules/descriptors"
)

// answer is the answer to the proxy.
func (c *call) answer() *service.RateLimitResponse {
	a := &service.RateLimitResponse{
		OverallCode: code(c.decided.Refused()),
		Statuses:    make([]*service.RateLimitResponse_DescriptorStatus, len(c.requested)),
	}
	for i := range c.requested {
		a.Statuses[i] = descriptorStatus(c.decided.State(i))
	}
	fields := c.decided.Fields()
	contentType, body := c.decided.Body()
	if len(body) > 0 {
		a.RawBody = append([]byte(nil), body...)
	}
	headers := make([]core.HeaderValue, len(fields)+1)
	a.ResponseHeadersToAdd = make([]*core.HeaderValue, 0, len(headers))
	add := func(name, value string) {
		h := &headers[len(a.ResponseHeadersToAdd)]
		h.Key, h.Value = name, value
		a.ResponseHeadersToAdd = append(a.ResponseHeadersToAdd, h)
	}
	for _, f := range fields {
		add(f.Name, string(f.Value))
	}
	if contentType != "" {
		add("Content-Type", contentType)
	}
	return a
}

func code(refused bool) service.RateLimitResponse_Code {
	if refused {
		return service.RateLimitResponse_OVER_LIMIT
	}
	return service.RateLimitResponse_OK
}

// descriptorStatus is how a descriptor stands. Without a rule it has no limit, and is within it.
func descriptorStatus(st edge.DescriptorState) *service.RateLimitResponse_DescriptorStatus {
	s := &service.RateLimitResponse_DescriptorStatus{Code: code(st.Refused)}
	if st.Rule == nil {
		return s
	}
	unit, n := descriptors.UnitOf(st.Window)
	limit := &service.RateLimitResponse_RateLimit{Name: st.Rule.Config.Name,
		RequestsPerUnit: st.Limit, Unit: units[unit]}
	if n > 1 {
		limit.UnitMultiplier = wrapperspb.UInt32(n)
	}
	s.CurrentLimit, s.LimitRemaining, s.DurationUntilReset = limit, st.Remaining,
		durationpb.New(st.Reset)
	return s
}

// units are the names that windows have. Windows that are no whole number of a unit are rounded
// down to seconds: the header is exact.
var units = map[time.Duration]service.RateLimitResponse_RateLimit_Unit{
	time.Second:    service.RateLimitResponse_RateLimit_SECOND,
	time.Minute:    service.RateLimitResponse_RateLimit_MINUTE,
	time.Hour:      service.RateLimitResponse_RateLimit_HOUR,
	24 * time.Hour: service.RateLimitResponse_RateLimit_DAY,
}
