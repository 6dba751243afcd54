package edge

import (
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// Names of the headers that tell of limits. An origin's own of these names are replaced.
var (
	nameRateLimit  = []byte("RateLimit")
	namePolicy     = []byte("RateLimit-Policy")
	nameXLimit     = []byte("X-RateLimit-Limit")
	nameXRemaining = []byte("X-RateLimit-Remaining")
	nameXReset     = []byte("X-RateLimit-Reset")
	nameRetryAfter = []byte("Retry-After")
	nameCache      = []byte("Cache-Control")
	nameVerdict    = []byte("Sluice-Verdict")
	noStore        = []byte("no-store")
)

// answerText is what a rule's answers say every time, made once.
type answerText struct {
	quoted []byte // "login"
	policy []byte // "login";q=5;w=60 (draft-ietf-httpapi-ratelimit-headers-10)
	limit  []byte // 5
	window int64  // whole seconds, rounded up
}

func newAnswerText(r *rule) answerText {
	t := answerText{
		quoted: strconv.AppendQuote(nil, r.config.Name),
		limit:  strconv.AppendUint(nil, uint64(r.config.Limit), 10),
		window: seconds(time.Duration(r.config.Window)),
	}
	t.policy = append(append([]byte{}, t.quoted...), ";q="...)
	t.policy = append(append(t.policy, t.limit...), ";w="...)
	t.policy = strconv.AppendInt(t.policy, t.window, 10)
	return t
}

// seconds rounds up to whole seconds, at least 1, so that who waits that long has waited enough.
func seconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }

// limitHeaders tells the client what the strictest rule has left for it. On admission t is the window: what is left may
// be relied on again after it. On refusal it is the time to wait.
func (x *exchange) limitHeaders(h *fasthttp.ResponseHeader) {
	m := x.decision.Rule
	if m == nil {
		return
	}
	text, remaining, t := &m.rule.text, uint32(0), m.rule.text.window
	if x.decision.refused() {
		t = seconds(m.wait)
	} else {
		remaining = m.ask.Remaining
	}
	h.SetCanonical(namePolicy, text.policy)
	b := append(x.buf[:0], text.quoted...)
	b = append(b, ";r="...)
	b = strconv.AppendUint(b, uint64(remaining), 10)
	b = append(b, ";t="...)
	b = strconv.AppendInt(b, t, 10)
	h.SetCanonical(nameRateLimit, b)
	h.SetCanonical(nameXLimit, text.limit)
	b = strconv.AppendUint(b[:0], uint64(remaining), 10)
	h.SetCanonical(nameXRemaining, b)
	reset := x.now.Unix() + t
	if x.now.Nanosecond() > 0 {
		reset++
	}
	b = strconv.AppendInt(b[:0], reset, 10)
	h.SetCanonical(nameXReset, b)
	x.buf = b
}

// verdictHeader tells a judge how the request was decided, and when.
func (x *exchange) verdictHeader(h *fasthttp.ResponseHeader) {
	m := x.decision.Named
	if m == nil || !x.snap.verdictHeader {
		return
	}
	b := append(x.buf[:0], x.decision.Verdict.String()...)
	b = append(b, ";at="...)
	b = strconv.AppendInt(b, x.now.UnixNano(), 10)
	if m.ask != nil {
		b = append(b, ";e="...)
		b = strconv.AppendFloat(b, m.ask.Estimate, 'g', -1, 64)
	}
	b = append(b, ";until="...)
	until := int64(0)
	if !m.until.IsZero() {
		until = m.until.UnixNano()
	}
	b = strconv.AppendInt(b, until, 10)
	b = append(b, ";rule="...)
	b = append(b, m.rule.text.quoted...)
	h.SetCanonical(nameVerdict, b)
	x.buf = b
}

// refuse answers a request that rules refused.
func (x *exchange) refuse(ctx *fasthttp.RequestCtx) {
	m := x.decision.Rule
	r, wait := m.rule, seconds(m.wait)
	h := &ctx.Response.Header
	x.limitHeaders(h)
	x.verdictHeader(h)
	h.SetCanonical(nameCache, noStore)
	x.buf = strconv.AppendInt(x.buf[:0], wait, 10)
	h.SetCanonical(nameRetryAfter, x.buf)

	if x.decision.Verdict != Shut && r.config.Response.Body != "" {
		ctx.SetStatusCode(r.config.Response.Status)
		h.SetContentType(r.config.Response.ContentType)
		ctx.SetBodyString(r.config.Response.Body)
		return
	}
	status, code, message := r.config.Response.Status, "rate_limited", "Too many requests. Try again in "
	if x.decision.Verdict == Shut {
		status, code, message = fasthttp.StatusServiceUnavailable, "unavailable", "Requests cannot be counted at the moment. Try again in "
	}
	ctx.SetStatusCode(status)
	h.SetContentType("application/json")
	b := append(x.buf[:0], `{"error":{"code":"`...)
	b = append(b, code...)
	b = append(b, `","rule":`...)
	b = append(b, r.text.quoted...)
	b = append(b, `,"message":"`...)
	b = append(b, message...)
	b = strconv.AppendInt(b, wait, 10)
	if wait == 1 {
		b = append(b, " second."...)
	} else {
		b = append(b, " seconds."...)
	}
	b = append(b, `","retry_after":`...)
	b = strconv.AppendInt(b, wait, 10)
	b = append(b, "}}\n"...)
	ctx.SetBody(b)
	x.buf = b
}

// answer makes an answer of the edge's own. The message goes to the client: it must not hold anything that a client
// should not know, nor quotes.
func answer(ctx *fasthttp.RequestCtx, status int, code, message string) {
	ctx.Response.Reset()
	h := &ctx.Response.Header
	h.SetNoDefaultContentType(true)
	ctx.SetStatusCode(status)
	h.SetContentType("application/json")
	h.SetCanonical(nameCache, noStore)
	ctx.SetBodyString(`{"error":{"code":"` + code + `","message":"` + message + `"}}` + "\n")
}
