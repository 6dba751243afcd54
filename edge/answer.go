package edge

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"sluice/edge/http1"
	"sluice/edge/message"
)

var errUpgrade = errors.New("edge: the origin switched protocols unasked")

// answerHeads are taken when an answer is there, not when its request is: what has just been used is in the processor's caches.
var answerHeads = sync.Pool{New: func() any { return new(http1.Answer) }}

// readAnswerHead reads up to the final answer's head, and says in b how its body is delimited and whether the connection
// can be used again. io.EOF means that the connection ended before any byte.
func (x *exchange) readAnswerHead(b *answerBody) error {
	for n := range http1.MaxInterim {
		if x.answer == nil {
			x.answer = answerHeads.Get().(*http1.Answer)
		}
		raw, status, old, err := x.answer.Read(b.Reader)
		if x.ExpectContinue && timedOut(err) && !b.upload.expired() {
			x.inviteBody(b.upload)
			continue
		}
		if n > 0 {
			err = http1.Unexpected(err) // an interim answer is one as well
		}
		if err != nil {
			return err
		}
		switch {
		case status == http.StatusSwitchingProtocols:
			if old || !x.switched() {
				return errUpgrade
			}
			fallthrough
		case status >= 200:
			if b.length, b.reuse, b.keep, err = x.answer.Frame(old, b.keep); err != nil {
				return err
			}
			x.reply = reply{status: status, fields: x.reply.fields[:0], head: x.answer.Filter(x.reply.head[:0], raw, status, x.ours()), length: b.length}
			if !x.answer.Dated() {
				x.reply.add("Date", x.server.dateValue(time.Now())) // when it came (RFC 9110, 6.6.1)
			}
			_, _ = b.Reader.Discard(len(raw))
			return nil
		case status == http.StatusContinue:
			if x.ExpectContinue {
				x.inviteBody(b.upload)
			}
		case !old && !x.HTTP10:
			x.interim(raw, status)
		}
		_, _ = b.Reader.Discard(len(raw))
	}
	return http1.ErrInterim
}

// inviteBody tells the client to send its body: the origin wants it, or says nothing.
func (x *exchange) inviteBody(u *upload) {
	x.ExpectContinue = false
	if !u.taken.Load() {
		_, _ = x.conn.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n")) // a failure shows when the body is read
	}
	u.proceed()
}

// interim passes an answer of status 1xx on, such as early hints (RFC 9110, 15.2), but for a 100: it goes to who waits for it, once.
// A client of HTTP/1.0 gets none.
func (x *exchange) interim(raw []byte, status int) {
	x.buf = append(x.answer.Filter(x.buf[:0], raw, status, tellsVerdict), "\r\n"...)
	_, _ = x.conn.Write(x.buf) // a failure shows when the answer itself is written
}

// ours reports, of the names of an answer's lines, which only the edge may say: its verdict, and, where a rule has something to tell,
// limits. An origin's own limits stay where no rule applies.
func (x *exchange) ours() func(name []byte) bool {
	if x.decision.Told != nil {
		return tellsOurs
	}
	return tellsVerdict
}

func tellsVerdict(name []byte) bool { return message.EqualFold(name, "sluice-verdict") }

func tellsOurs(name []byte) bool { return tellsVerdict(name) || tellsLimit(name) }

func tellsLimit(name []byte) bool {
	switch len(name) {
	case len("ratelimit"):
		return message.EqualFold(name, "ratelimit")
	case len("ratelimit-policy"):
		return message.EqualFold(name, "ratelimit-policy")
	case len("x-ratelimit-limit"): // and -reset
		return message.EqualFold(name, "x-ratelimit-limit") || message.EqualFold(name, "x-ratelimit-reset")
	case len("x-ratelimit-remaining"):
		return message.EqualFold(name, "x-ratelimit-remaining")
	}
	return false
}
