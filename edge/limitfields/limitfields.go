// Package limitfields writes what answers say of limits: the fields RateLimit-Policy and RateLimit
// of Draft, which are lists of strings with parameters (RFC 9651):
//
//	RateLimit-Policy: "login";q=5;w=60
//	RateLimit: "login";r=3;t=37
package limitfields

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

// Draft is the Internet-Draft of the fields, and of the problem types of refusals.
const Draft = "draft-ietf-httpapi-ratelimit-headers-11"

// Units of quotas that the draft registers, beside requests, which need none.
const (
	ContentBytes       = "content-bytes"
	ConcurrentRequests = "concurrent-requests"
)

// Tokens is the unit of what models of language charge. The draft has none for that.
const Tokens = "tokens"

// MaxInteger is the largest integer that a structured field may have.
const MaxInteger = 999_999_999_999_999

// MaxPartition is how long a partition's key may be; of a longer one answers say nothing.
const MaxPartition = 128

// A Policy is an item of RateLimit-Policy: how much there is.
type Policy struct {
	Name   string
	Quota  uint64
	Unit   string        // "": requests
	Window time.Duration // 0: there is none
}

// Append appends the item.
func (p *Policy) Append(b []byte) []byte {
	b = strconv.AppendUint(append(AppendName(b, p.Name), ";q="...), min(p.Quota, MaxInteger), 10)
	if p.Unit != "" {
		b = AppendName(append(b, ";qu="...), p.Unit)
	}
	if p.Window > 0 {
		b = strconv.AppendInt(append(b, ";w="...), Seconds(p.Window), 10)
	}
	return b
}

// AppendLimit appends an item of RateLimit: so much is left of the policy whose name AppendName has
// written, and after so many seconds there is more.
func AppendLimit(b, name []byte, left uint64, seconds int64) []byte {
	b = strconv.AppendUint(append(append(b, name...), ";r="...), min(left, MaxInteger), 10)
	return strconv.AppendInt(append(b, ";t="...), seconds, 10)
}

// AppendPartition appends the key of the partition that the item before it is about.
func AppendPartition(b, key []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(b, ";pk=:"...), key), ':')
}

// AppendName appends a policy's name, or a unit's. A string has no other characters than those of
// ASCII that can be seen, and spaces; others are left out.
func AppendName(b []byte, name string) []byte {
	b = append(b, '"')
	for i := range len(name) {
		if c := name[i]; c >= ' ' && c <= '~' {
			if strings.IndexByte(`"\`, c) >= 0 {
				b = append(b, '\\')
			}
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// Seconds rounds up to whole seconds, at least 1, so that a client that waits that long has waited
// enough.
func Seconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }
