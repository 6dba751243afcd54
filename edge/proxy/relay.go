package proxy

import (
	"io"
	"net/http"
	"time"

	"sluice/edge/http1"
	"sluice/edge/message"
	"sluice/edge/upstream"
)

// An answerBody is the exchange with an origin: the body of its answer, and what becomes of the
// connection. Every one that was begun is finished: the connection to the origin goes back to the
// pool or away.
type answerBody struct {
	http1.Body
	link    *upstream.Link
	out     Answer  // to the client, while the body is streamed
	upload  *upload // may still be under way
	reuse   bool    // the origin keeps the connection
	rests   bool    // which may have a body to come that the answer must not have
	keep    time.Duration
	timeout time.Duration
	due     time.Time // of the whole answer; zero: it may take any time
}

// within is how long the origin may take for its next word, or for taking ours.
func (b *answerBody) within(now time.Time) time.Duration {
	if b.due.IsZero() {
		return b.timeout
	}
	return min(b.timeout, b.due.Sub(now))
}

// Fill waits until n bytes are there, at most so long as the origin may pause. What has arrived
// goes out before, so that a slow stream is not held up.
func (b *answerBody) Fill(n int) error {
	if b.Reader.Buffered() >= n {
		return nil
	}
	if b.out != nil {
		if err := b.out.Flush(); err != nil {
			return err
		}
	}
	now := time.Now()
	if err := b.link.SetReadDeadline(now.Add(b.within(now))); err != nil {
		return err
	}
	_, err := b.Reader.Peek(n)
	return err
}

// giveBack gives the connection back. It returns when that was.
func (b *answerBody) giveBack() time.Time {
	b.link.Origin.Active.Add(-1)
	now := time.Now()
	clean := b.reuse && b.Framing != http1.UntilClose && b.Finished() && b.Reader.Buffered() == 0
	clean = (!b.rests || b.link.RestFrom(now)) && clean
	if b.link.Rest(); clean {
		b.link.Origin.Release(b.link, now, b.keep)
	} else {
		b.link.Close()
	}
	return now
}

// answered makes ready to relay an origin's answer.
func (p *Forward) answered(o *upstream.Origin, b *answerBody) {
	a := p.answer
	a.Ahead = b.Reader.Size() + o.Ahead()
	p.on.Answering()
	o.Answers[a.Status%message.Codes].Add(1)
	if b.upload != nil && !b.upload.taken.Load() {
		p.on.Last() // an answer before the end of the request: the rest of it will not be read
	}
	switch {
	case a.Status == http.StatusSwitchingProtocols:
		a.Protocol = p.upgrade
		b.reuse = false
	case message.Bodyless(p.in.IsHead, a.Status):
		b.Framing, b.Left = http1.Fixed, 0
		b.rests = a.Length > 0 || a.Length == message.LengthChunked
		a.Length = max(0, a.Length)
	case a.Length >= 0:
		b.Framing, b.Left = http1.Fixed, a.Length
	case a.Length == message.LengthChunked:
		b.Framing = http1.Chunked
	default:
		b.Framing = http1.UntilClose
	}
}

// Relay makes the origin's answer the client's, with the edge's lines in its head. tunnel reports
// that the connection switches protocols: then Tunnel goes on with it; else the exchange with the
// origin is over.
//
// A body that is all there goes with its head, and the connection to the origin is free before the
// client has read a byte. A failure is the end of the client's connection: it has been promised
// more than it gets.
func (p *Forward) Relay(fields []message.Field) (tunnel bool, err error) {
	a, b := p.answer, &p.body
	if p.in.TakesTrailers && b.Framing == http1.Chunked {
		expectTrailers(&a.Answer)
	}
	open := p.on.Begin(&a.Answer, p.Ours, fields)
	switch {
	case a.Protocol != nil:
		p.timed(time.Now())
		if err = p.on.End(time.Time{}); err == nil {
			return true, nil
		}
		p.over()
	case b.Framing == http1.Fixed && b.Left <= int64(b.Reader.Buffered()):
		part, _ := b.Reader.Peek(int(b.Left))
		_ = p.on.Send(part)
		if p.order.Read != nil {
			p.order.Read(part)
		}
		b.Discard(len(part))
		now := p.over() // the clock is not read a second time: the answer has just come
		p.timed(now)
		err = p.on.End(now)
	default:
		p.timed(time.Now())
		if err = p.stream(open); err != nil {
			b.reuse = false
			p.on.Abort()
		}
		p.over()
	}
	return false, err
}

// timed notes how long the server took for its answer, of which at least the head is there.
func (p *Forward) timed(now time.Time) {
	p.body.link.Origin.Seconds.Observe(int64(now.Sub(p.sent)))
}

// stream sends the answer in parts, as they come.
func (p *Forward) stream(open bool) error {
	p.on.Stream()
	p.body.out = p.on
	err := p.copy(open)
	if failed := p.on.End(time.Time{}); err == nil {
		err = failed
	}
	return err
}

func (p *Forward) copy(open bool) error {
	for b := &p.body; ; {
		part, err := b.Next()
		switch {
		case err == io.EOF && open:
			return p.passTrailers()
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := p.on.Send(part); err != nil {
			return err
		}
		if p.order.Read != nil {
			p.order.Read(part)
		}
		b.Discard(len(part))
	}
}

// over waits for the end of the request's body, and ends the exchange with the origin. It returns
// when that was.
func (p *Forward) over() time.Time {
	b := p.open
	p.open = nil
	if p.unwatch() {
		b.reuse = false
	}
	if b.upload != nil {
		b.reuse = b.upload.end() && b.reuse
	}
	ended := b.giveBack()
	p.leave()
	return ended
}

// Cut ends the exchange with the origin, if there is one, after a fault: nothing else will.
func (p *Forward) Cut() {
	if p.open != nil {
		p.open.reuse = false
		p.over()
	}
}
