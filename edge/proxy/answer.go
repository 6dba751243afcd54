package proxy

import (
	"errors"
	"net/http"
	"sync"

	"sluice/edge/http1"
)

var (
	errUpgrade     = errors.New("edge: the origin switched protocols without a request for it, or to another protocol than was requested")
	errNotSwitched = errors.New("edge: the origin did not switch protocols")
)

// answerHeads are taken when an answer is there, not when its request is: what has just been used
// is in the processor's caches.
var answerHeads = sync.Pool{New: func() any { return new(http1.Answer) }}

// readAnswer reads up to the final answer's head, and notes in b whether the connection can be used
// again. io.EOF means that the connection ended before any byte.
func (p *Forward) readAnswer(b *answerBody) error {
	if p.answer == nil {
		p.answer = answerHeads.Get().(*http1.Answer)
	}
	a := p.answer
	for n := range http1.MaxInterim {
		raw, old, err := a.Read(b.Reader)
		if p.in.ExpectContinue && http1.TimedOut(err) && !b.upload.expired() {
			p.invite(b.upload)
			continue
		}
		if n > 0 {
			err = http1.Unexpected(err) // an interim answer is one as well
		}
		if err != nil {
			return err
		}
		switch {
		case a.Status == http.StatusSwitchingProtocols && (old || !p.switched()):
			return errUpgrade
		case p.in.Tunnel && a.Status >= 200 && a.Status < 300:
			return errNotSwitched
		case a.Status == http.StatusSwitchingProtocols, a.Status >= 200:
			b.reuse, b.keep, err = a.Frame(old, b.keep)
			if err == nil {
				_, _ = b.Reader.Discard(len(raw)) // it stays valid until more is read
			}
			return err
		case a.Status == http.StatusContinue:
			if p.in.ExpectContinue { // it goes to the client that waits for it, once
				p.invite(b.upload)
			}
		case !old:
			p.on.Interim(&a.Answer, p.Ours)
		}
		_, _ = b.Reader.Discard(len(raw))
	}
	return http1.ErrInterim
}

// invite tells the client to send its body: the origin wants it, or is silent.
func (p *Forward) invite(u *upload) {
	p.in.ExpectContinue = false
	if !u.taken.Load() {
		p.on.Invite()
	}
	u.proceed()
}
