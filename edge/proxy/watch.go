package proxy

import "sluice/edge/message"

// clientLeft is called by the watch of the client.
func (p *Forward) clientLeft() {
	if !p.order.Counts {
		p.gone = true
		p.body.link.Close()
	}
}

// watch begins to watch the client of an exchange whose request was sent to the origin.
func (p *Forward) watch(b *answerBody) {
	if p.left == nil {
		p.left = p.clientLeft
	}
	var ready chan struct{}
	if b.upload != nil {
		ready = b.upload.done
	}
	p.gone = false
	p.on.Watch(ready, p.left)
}

// unwatch ends that, and reports whether the exchange with the origin was ended because the client
// has gone.
func (p *Forward) unwatch() (gone bool) {
	p.on.Unwatch()
	gone, p.gone = p.gone, false
	return gone
}

// abandoned ends a request whose client has gone.
func (p *Forward) abandoned(b *answerBody) {
	if b.upload != nil {
		b.upload.end()
	}
	p.on.Last()
}

// clientGone has the status that nginx gives it, for logs and metrics: no client is there to read
// it.
var clientGone = message.Refuse(499, "client_closed",
	"The connection was closed before the answer was there.")
