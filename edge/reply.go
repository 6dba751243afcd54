package edge

import (
	"net/http"
	"strconv"
	"time"

	"sluice/edge/limiter"
)

// A reply is the answer to a request as its client gets it.
type reply struct {
	status int
	from   from
	head   []byte      // status line and header lines; what ends at this hop, and the empty line, come when it is sent
	body   []byte      // of an answer of the edge's own
	stream *answerBody // of an origin's; nil: there is none
	length int64       // of the body as announced, in bytes; less than 0: it is not
}

// A refusal is an answer of the edge's own to what it does not take. Its texts go to the client: they must not hold anything
// that a client should not know, nor quotes.
type refusal struct {
	status        int
	code, message string
	header        string // further lines, each with its end
}

func refuse(status int, code, message string) *refusal {
	return &refusal{status: status, code: code, message: message}
}

// say answers with a refusal.
func (x *exchange) say(r *refusal) {
	b := append(x.buf[:0], `{"error":{"code":"`...)
	b = append(b, r.code...)
	b = append(b, `","message":"`...)
	b = append(b, r.message...)
	b = append(b, `"}}`+"\n"...)
	x.buf = b
	x.begins(r.status, "application/json", b, time.Now()) // the origin may have had its time before that
	x.reply.head = append(x.reply.head, "Cache-Control: no-store\r\n"...)
	x.reply.head = append(x.reply.head, r.header...)
}

// begins begins an answer of the edge's own: with its status line, and what its body is.
func (x *exchange) begins(status int, contentType string, body []byte, now time.Time) {
	h := append(appendStatusLine(x.reply.head[:0], status), x.server.dateLine(now)...)
	if contentType != "" {
		h = append(h, "Content-Type: "...)
		h = append(h, contentType...)
		h = append(h, "\r\n"...)
	}
	h = append(h, "Content-Length: "...)
	h = strconv.AppendInt(h, int64(len(body)), 10)
	h = append(h, "\r\n"...)
	x.reply = reply{status: status, from: fromEdge, head: h, body: body, length: int64(len(body))}
}

// A date is the Date line of a second (RFC 9110, 6.6.1), made once for all answers.
type date struct {
	second int64
	line   []byte
}

func (s *Server) dateLine(now time.Time) []byte {
	d, second := s.date.Load(), now.Unix()
	if d == nil || d.second != second {
		d = &date{second, now.UTC().AppendFormat(nil, "Date: "+http.TimeFormat+"\r\n")}
		s.date.Store(d)
	}
	return d.line
}

func appendStatusLine(b []byte, status int) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(status)...)
	return append(b, "\r\n"...)
}

// ruleText is what a rule's answers say every time, made once.
type ruleText struct {
	quoted []byte // "login"
	window int64  // whole seconds, rounded up
	// The header lines (draft-ietf-httpapi-ratelimit-headers-10) up to what is left, and on to where it stands again.
	before, between []byte
}

func newRuleText(r *rule) ruleText {
	t := ruleText{
		quoted: strconv.AppendQuote(nil, r.config.Name),
		window: seconds(time.Duration(r.config.Window)),
	}
	limit, window := strconv.FormatUint(uint64(r.config.Limit), 10), strconv.FormatInt(t.window, 10)
	t.before = []byte("RateLimit-Policy: " + string(t.quoted) + ";q=" + limit + ";w=" + window + "\r\nRateLimit: " + string(t.quoted) + ";r=")
	t.between = []byte("\r\nX-RateLimit-Limit: " + limit + "\r\nX-RateLimit-Remaining: ")
	return t
}

// seconds rounds up to whole seconds, at least 1, so that who waits that long has waited enough.
func seconds(d time.Duration) int64 { return max(1, int64((d+time.Second-1)/time.Second)) }

// limitHeaders tells the client what the strictest rule has left for it. On admission t is the window: what is left may
// be relied on again after it. On refusal it is the time to wait.
func (x *exchange) limitHeaders() {
	told := x.decision.Told
	if told == nil {
		return
	}
	text, remaining := &x.decision.rule(told).text, uint64(0)
	t := text.window
	if x.decision.Refused() {
		t = seconds(told.Wait)
	} else {
		remaining = uint64(told.Ask.Remaining)
	}
	reset := x.now.Unix() + t
	if x.now.Nanosecond() > 0 {
		reset++
	}
	h := append(x.reply.head, text.before...)
	h = strconv.AppendUint(h, remaining, 10)
	h = append(h, ";t="...)
	h = strconv.AppendInt(h, t, 10)
	h = append(h, text.between...)
	h = strconv.AppendUint(h, remaining, 10)
	h = append(h, "\r\nX-RateLimit-Reset: "...)
	h = strconv.AppendInt(h, reset, 10)
	x.reply.head = append(h, "\r\n"...)
}

// verdictHeader tells a judge how the request was decided, and when.
func (x *exchange) verdictHeader() {
	cause := x.decision.Cause
	if cause == nil || !x.snap.verdictHeader {
		return
	}
	h := append(x.reply.head, "Sluice-Verdict: "...)
	h = append(h, x.decision.Verdict.String()...)
	h = append(h, ";at="...)
	h = strconv.AppendInt(h, x.now.UnixNano(), 10)
	if cause.Ask != nil {
		h = append(h, ";e="...)
		h = strconv.AppendFloat(h, cause.Ask.Estimate, 'g', -1, 64)
	}
	h = append(h, ";until="...)
	until := int64(0)
	if !cause.Until.IsZero() {
		until = cause.Until.UnixNano()
	}
	h = strconv.AppendInt(h, until, 10)
	h = append(h, ";rule="...)
	h = append(h, x.decision.rule(cause).text.quoted...)
	x.reply.head = append(h, "\r\n"...)
}

// limited answers a request that rules refused.
func (x *exchange) limited() {
	told := x.decision.Told
	r, wait := x.decision.rule(told), seconds(told.Wait)
	if own := &r.config.Response; x.decision.Verdict != limiter.FailedClosed && own.Body != "" {
		x.buf = append(x.buf[:0], own.Body...)
		x.begins(own.Status, own.ContentType, x.buf, x.now)
	} else {
		status, code, message := own.Status, "rate_limited", "Too many requests. Try again in "
		if x.decision.Verdict == limiter.FailedClosed {
			status, code, message = http.StatusServiceUnavailable, "unavailable", "Requests cannot be counted at the moment. Try again in "
		}
		b := append(x.buf[:0], `{"error":{"code":"`...)
		b = append(b, code...)
		b = append(b, `","rule":`...)
		b = append(b, r.text.quoted...)
		b = append(b, `,"message":"`...)
		b = append(b, message...)
		b = strconv.AppendInt(b, wait, 10)
		if wait == 1 {
			b = append(b, ` second.","retry_after":`...)
		} else {
			b = append(b, ` seconds.","retry_after":`...)
		}
		b = strconv.AppendInt(b, wait, 10)
		x.buf = append(b, "}}\n"...)
		x.begins(status, "application/json", x.buf, x.now)
	}
	x.reply.from = fromLimit
	x.limitHeaders()
	x.verdictHeader()
	h := append(x.reply.head, "Cache-Control: no-store\r\nRetry-After: "...)
	h = strconv.AppendInt(h, wait, 10)
	x.reply.head = append(h, "\r\n"...)
}
