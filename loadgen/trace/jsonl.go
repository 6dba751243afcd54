package trace

import (
	"bytes"
	"encoding/json"
)

// parseJSON reads one object:
// {"t":seconds,"source":"…","host":…,"method":…,"path":…,"status":…,"role":…,"sample":…,"user_agent":…,"reset":…}.
// Only t and source must be there; fields it does not know are let be.
func parseJSON(line []byte, r *record) string {
	if line[0] == '#' {
		return SkippedComment
	}
	var v struct {
		T      json.RawMessage `json:"t"`
		Source string          `json:"source"`
		Host   string          `json:"host"`
		Method string          `json:"method"`
		Path   string          `json:"path"`
		Status json.RawMessage `json:"status"`
		Role   string          `json:"role"`
		Sample json.RawMessage `json:"sample"`
		Agent  string          `json:"user_agent"`
		Reset  bool            `json:"reset"`
	}
	if json.Unmarshal(line, &v) != nil {
		return SkippedSyntax
	}
	r.client = []byte(v.Source)
	if !seconds(bytes.Trim(v.T, `"`), r) {
		return SkippedTime
	}
	r.host, r.method, r.path, r.agent = []byte(v.Host), []byte(v.Method), []byte(v.Path),
		[]byte(v.Agent)
	if n, ok := decimal(bytes.Trim(v.Status, `"`)); ok && n <= 999 {
		r.status = int16(n)
	}
	if n, ok := decimal(v.Sample); ok {
		r.sample = int64(n)
	}
	r.role, r.reset = parseRole([]byte(v.Role)), v.Reset
	return ""
}

// epochFrom is the least t that is taken for an instant: 2001. A trace that is 31 years long does
// not exist.
const epochFrom = 1_000_000_000

// seconds reads a decimal number of seconds exactly, which a float of today's instants would not.
func seconds(b []byte, r *record) bool {
	whole, frac, point := bytes.Cut(b, []byte("."))
	if len(whole) == 0 || len(whole) > 10 {
		return false
	}
	n := int64(0)
	for _, c := range whole {
		if c < '0' || c > '9' {
			return false
		}
		n = n*10 + int64(c-'0')
	}
	if n > 7_258_118_400 { // the year 2200
		return false
	}
	ns := int64(0)
	for i := range 9 {
		d := byte('0')
		if i < len(frac) {
			d = frac[i]
		}
		if d < '0' || d > '9' {
			return false
		}
		ns = ns*10 + int64(d-'0')
	}
	for i := 9; i < len(frac); i++ {
		if frac[i] < '0' || frac[i] > '9' {
			return false
		}
	}
	r.at, r.coarse, r.relative = n*1e9+ns, !point, n < epochFrom
	return true
}

func parseRole(b []byte) Role {
	switch string(b) {
	case "good":
		return Good
	case "abuser":
		return Abuser
	}
	return Unknown
}

// String is "good", "abuser", or nothing.
func (r Role) String() string { return [...]string{"", "good", "abuser"}[r] }
