package edge

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"

	"sluice/edge/front"
	"sluice/edge/http2"
	"sluice/edge/limiter"
	"sluice/edge/limitfields"
	"sluice/edge/message"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
)

// A reply is the answer to a request as its client gets it. Of an origin's, only Status and Fields
// are here: the lines that the edge adds.
type reply struct {
	message.Reply
	from   from
	acted  bool  // an action of a module has answered
	length int64 // of the body as announced, in bytes; less than 0: it is not
}

func (r *reply) add(name string, value []byte) {
	r.Fields = append(r.Fields, message.Field{Name: name, Value: value})
}

// respond answers with a refusal.
func (x *Exchange) respond(r *message.Refusal) {
	b := append(x.buf[:0], `{"error":{"code":"`...)
	b = append(b, r.Code...)
	b = append(b, `","message":"`...)
	b = append(b, r.Message...)
	b = append(b, `"}}`+"\n"...)
	x.buf = b
	x.begins(r.Status, "application/json", b)
	x.reply.add("Cache-Control", noStore)
	if r.Header.Name != "" {
		x.reply.add(r.Header.Name, r.Header.Value)
	}
	if len(x.snap.bodies) > 0 {
		x.replaceBody(retryAfter(r))
	}
}

// replaceBody has modules replace the body of an answer of the edge's own. A rule's own body is not
// replaced, and a call of gRPC has none. retry is what Retry-After says.
func (x *Exchange) replaceBody(retry []byte) {
	if x.front == nil || !x.checks && x.IsGRPC() {
		return
	}
	for _, replace := range x.snap.bodies {
		if replace(x, retry) {
			return
		}
	}
}

// retryAfter is what a refusal's Retry-After says; nothing if it has none.
func retryAfter(r *message.Refusal) []byte {
	if r.Header.Name != "Retry-After" {
		return nil
	}
	return r.Header.Value
}

var (
	noStore = []byte("no-store")
	accept  = []byte("Accept")
)

// begins begins an answer of the edge's own: its status, and what its body is.
func (x *Exchange) begins(status int, contentType string, body []byte) {
	x.reply = reply{Reply: message.Reply{Status: status, Fields: x.reply.Fields[:0],
		ContentType: contentType, Body: body}, from: fromEdge, length: int64(len(body))}
}

// refusalHeader is what all refusals under a limit say.
func refusalHeader(t *rules.Text) *message.Common {
	fields := []message.Field{{Name: "RateLimit-Policy", Value: t.Policy},
		{Name: "X-RateLimit-Limit", Value: t.Limit},
		{Name: "X-RateLimit-Remaining", Value: []byte("0")}, {Name: "Cache-Control",
			Value: noStore}}
	return &message.Common{Fields: fields, Lines: front.Lines(fields), Block: http2.Block(fields)}
}

// limitHeaders adds the headers with what the strictest limit has left for the client. On admission
// what is left may be relied on again after t: a window, or what is left of a fixed one. On refusal
// it is the time to wait.
func (x *Exchange) limitHeaders() {
	reported := x.decision.Reported
	if reported == nil {
		return
	}
	text, remaining := rules.TextOf(reported, x.client), uint64(0)
	wait := reported.Wait
	if !x.decision.Refused() {
		remaining, wait = uint64(reported.Reservation.Remaining), reported.CountedBy().Reset(x.now)
	}
	t := limitfields.Seconds(wait)
	reset := x.now.Unix() + t
	if x.now.Nanosecond() > 0 {
		reset++
	}
	b := limitfields.AppendLimit(x.values, text.Quoted, remaining*text.Each, t)
	if text.Partition != nil {
		b = x.partition(b, text.Partition)
	}
	limit := len(b)
	b = strconv.AppendInt(b, reset, 10)
	end := len(b)
	r := &x.reply
	if r.Common == nil {
		b = strconv.AppendUint(b, remaining, 10)
		r.add("RateLimit-Policy", text.Policy)
		r.add("X-RateLimit-Limit", text.Limit)
		r.add("X-RateLimit-Remaining", b[end:])
	}
	r.add("RateLimit", b[len(x.values):limit])
	r.add("X-RateLimit-Reset", b[limit:end])
	x.values = b
}

// partition appends the key of what the limit is of, if it is not long.
func (x *Exchange) partition(b []byte, parts []key.Part) []byte {
	var room [limitfields.MaxPartition]byte
	if open, ok := key.AppendOpen(room[:0], parts, x.Request); ok {
		b = limitfields.AppendPartition(b, open)
	}
	return b
}

// verdictHeader adds how the request was decided, and when, for a judge.
func (x *Exchange) verdictHeader() {
	if !x.snap.verdictHeader {
		return
	}
	cause := x.decision.Cause
	if cause == nil {
		x.openedHeader()
		return
	}
	b := append(x.values, x.decision.Verdict.String()...)
	b = append(b, ";at="...)
	b = strconv.AppendInt(b, x.now.UnixNano(), 10)
	if cause.Reservation != nil {
		b = append(b, ";e="...)
		b = strconv.AppendFloat(b, cause.Reservation.Estimate, 'g', -1, 64)
	}
	b = append(b, ";until="...)
	until := int64(0)
	if !cause.Until.IsZero() {
		until = cause.Until.UnixNano()
	}
	b = strconv.AppendInt(b, until, 10)
	b = append(b, ";rule="...)
	l := rules.LimitOf(cause)
	b = append(b, l.Parent.Limits[0].Texts[0].Quoted...) // its name
	if l.OwnPolicy() != "" {
		b = append(b, ";policy="...)
		b = append(b, l.Texts[0].Quoted...)
	}
	x.reply.add("Sluice-Verdict", b[len(x.values):])
	x.values = b
}

// openedHeader adds that a rule let the request pass because no node answers, and when.
func (x *Exchange) openedHeader() {
	r := x.decision.Opened()
	if r == nil {
		return
	}
	b := append(x.values, "open;at="...)
	b = strconv.AppendInt(b, x.now.UnixNano(), 10)
	b = append(b, ";until=0;rule="...)
	b = append(b, r.Limits[0].Texts[0].Quoted...) // its name
	x.reply.add("Sluice-Verdict", b[len(x.values):])
	x.values = b
}

// limited answers a request that rules refused.
func (x *Exchange) limited() {
	reported := x.decision.Reported
	r, wait, text := rules.RuleOf(reported), limitfields.Seconds(reported.Wait), rules.TextOf(reported,
		x.client)
	own := &r.Config.Response
	if own.Jitter > 0 {
		wait += rand.Int64N((wait*int64(own.Jitter)+99)/100 + 1)
	}
	x.retry = wait
	words := false // the edge's own
	redirects := r.Config.Action == rules.Redirect && x.decision.Verdict != limiter.FailedClosed
	contentType, body := own.ContentType, own.Body
	if len(own.Bodies) > 0 {
		contentType, body = choose(&x.Head, own)
	}
	if x.acts(reported) {
		// The answer is made.
	} else if redirects && body == "" {
		x.begins(own.Status, "", nil)
	} else if x.decision.Verdict != limiter.FailedClosed && body != "" {
		x.buf = append(x.buf[:0], body...)
		x.begins(own.Status, contentType, x.buf)
	} else {
		words = len(own.Bodies) == 0 || x.decision.Verdict == limiter.FailedClosed
		of := &quotaExceeded
		status, code, message := own.Status, "rate_limited", "Too many requests. Try again in "
		if x.decision.Verdict == limiter.FailedClosed {
			status, code, message = http.StatusServiceUnavailable, "unavailable",
				"Requests cannot be counted at the moment. Try again in "
			of = &reducedCapacity
			// Why is for operators
		} else if _, ordered := x.server.limiter.Ordered(reported, x.covering, x.now); ordered {
			code, message = "blocked", "An operator has blocked these requests. Try again in "
			of = &abnormalUsage
		}
		if x.wantsProblem() {
			x.problem(of, status, r.Limits[0].Texts[0].Quoted, wait)
			x.reply.add("Vary", accept)
			words = false // nor a page
		} else {
			x.words(status, code, message, r, text, wait)
		}
	}
	x.reply.from, x.reply.Common = fromLimit, x.snap.refusals[text]
	if x.reply.Common == nil { // a variant of a rule
		x.reply.add("Cache-Control", noStore)
	}
	x.limitHeaders()
	x.verdictHeader()
	n := len(x.values)
	x.values = strconv.AppendInt(x.values, wait, 10)
	retry := x.values[n:]
	x.reply.add("Retry-After", retry)
	x.ruleHeaders(r.Headers, retry)
	if words && len(x.snap.bodies) > 0 {
		x.replaceBody(retry)
	} else if len(own.Bodies) > 0 {
		x.reply.add("Vary", accept)
	}
	if redirects {
		x.reply.add("Location", []byte(own.Location))
	}
}

// words answers with the usual JSON of a refusal under a limit.
func (x *Exchange) words(status int, code, message string, r *rules.Rule, text *rules.Text,
	wait int64) {
	b := append(x.buf[:0], `{"error":{"code":"`...)
	b = append(b, code...)
	b = append(b, `","rule":`...)
	b = append(b, r.Limits[0].Texts[0].Quoted...) // its name
	if x.decision.Verdict != limiter.FailedClosed {
		b = append(append(b, ','), text.Body...)
	}
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
	x.begins(status, "application/json", x.buf)
}

// acts has the action of a module answer, if the rule has one.
func (x *Exchange) acts(r *limiter.RuleResult) bool {
	answer := x.action()
	if answer == nil || !answer(x, rules.RuleOf(r)) {
		return false
	}
	x.reply.acted = true
	return true
}

// action is a module's by which a refused request is answered; nil: it is refused.
func (x *Exchange) action() func(*Exchange, *rules.Rule) bool {
	if len(x.snap.actions) == 0 || x.front == nil || x.checks || x.Refused != nil {
		return nil
	}
	answer := x.snap.actions[x.decision.Action()]
	if answer == nil {
		return nil
	}
	for i := range x.decision.Results {
		r := &x.decision.Results[i]
		if _, ordered := x.server.limiter.Ordered(r, x.covering, x.now); ordered {
			return nil
		}
	}
	return answer
}

// ruleHeaders adds what a rule has its refusals say.
func (x *Exchange) ruleHeaders(list []rules.Header, retry []byte) {
	if x.front == nil { // a call of another proxy
		return
	}
next:
	for i := range list {
		n, b := len(x.values), x.values
		for _, part := range list[i].Parts {
			switch part.Of {
			case rules.OriginValue:
				from := x.Head.First("origin")
				if len(from) == 0 || len(from) > 1024 {
					continue next
				}
				b = append(b, from...)
			case rules.RequestIDValue:
				b = append(b, x.requestID()...)
			case rules.RetryAfterValue:
				b = append(b, retry...)
			default:
				b = append(b, part.Text...)
			}
		}
		x.values = b
		x.reply.add(list[i].Name, b[n:])
	}
}

// choose finds, of what a refusal may say, what the client would rather have: the first of those
// that it likes best, and the first of all if it takes none. A refusal is not worth a 406.
func choose(head *message.Head, r *rules.Response) (contentType, body string) {
	contentType, body = r.ContentType, r.Body
	best := head.Quality(contentType)
	for i := range r.Bodies {
		b := &r.Bodies[i]
		if q := head.Quality(b.ContentType); q > best {
			contentType, body, best = b.ContentType, b.Body, q
		}
	}
	return contentType, body
}

// ours reports which lines of an origin's answer go no further: those that only the edge may write,
// which are its verdict, the request's ID, HSTS where that is configured and, where a rule reports
// some, limits; and what the request costs, which is for the edge. An origin's own limits stay
// where no rule applies, and in interim answers.
func (x *Exchange) ours(status int, name []byte) bool {
	if message.EqualFold(name, "sluice-verdict") || message.EqualFold(name, "x-request-id") ||
		x.decision.Reported != nil && status >= 200 && isLimitHeader(name) {
		return true
	}
	if x.snap.hsts != nil && x.front.Secure() &&
		message.EqualFold(name, "strict-transport-security") {
		return true // clients believe the first alone (RFC 6797, 8.1)
	}
	return slices.ContainsFunc(x.snap.prices,
		func(price []byte) bool { return message.SameHeader(name, price) })
}

func isLimitHeader(name []byte) bool {
	switch len(name) {
	case len("ratelimit"):
		return message.EqualFold(name, "ratelimit")
	case len("ratelimit-policy"):
		return message.EqualFold(name, "ratelimit-policy")
	case len("x-ratelimit-limit"): // and -reset
		return message.EqualFold(name, "x-ratelimit-limit") ||
			message.EqualFold(name, "x-ratelimit-reset")
	case len("x-ratelimit-remaining"):
		return message.EqualFold(name, "x-ratelimit-remaining")
	}
	return false
}
