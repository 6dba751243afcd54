package edge

import (
	"bytes"
	"strconv"
)

// A problem is a type of refusal, by which programs know why they were refused.
type problem struct{ name, title string }

// The problem types of limitfields.Draft: a limit, an operator's block, and
// counts that cannot be had.
var (
	quotaExceeded = problem{"quota-exceeded",
		"Request cannot be satisfied as assigned quota has been exceeded"}
	abnormalUsage = problem{"abnormal-usage-detected",
		"Request not satisfied due to detection of abnormal request pattern"}
	reducedCapacity = problem{"temporary-reduced-capacity",
		"Request cannot be satisfied due to temporary server capacity constraints"}
)

const problemJSON = "application/problem+json"

// wantsProblem reports whether the client would rather have a problem (RFC 9457) than the usual
// JSON. It must name the type: who takes anything gets what it got before there were problems.
func (x *Exchange) wantsProblem() bool {
	return bytes.Contains(x.Head.First("accept"), []byte("problem+json")) &&
		x.Head.Quality(problemJSON) > x.Head.Quality("application/json")
}

// problem answers with a problem in place of the usual JSON. rule is its name in quotes.
func (x *Exchange) problem(p *problem, status int, rule []byte, wait int64) {
	b := append(x.buf[:0], `{"type":"https://iana.org/assignments/http-problem-types#`...)
	b = append(b, p.name...)
	b = append(b, `","title":"`...)
	b = append(b, p.title...)
	b = append(b, `","status":`...)
	b = strconv.AppendInt(b, int64(status), 10)
	if p != &reducedCapacity {
		b = append(append(append(b, `,"violated-policies":[`...), rule...), ']')
	}
	b = append(b, `,"retry_after":`...)
	b = strconv.AppendInt(b, wait, 10)
	x.buf = append(b, "}\n"...)
	x.begins(status, problemJSON, x.buf)
}
