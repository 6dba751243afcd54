package front

import "time"

// A pace is how long a client may still keep the edge waiting while it sends a body or takes one. What it makes the edge wait is
// taken from that, and every rate bytes that move give a second back, up to most: so in the long run it must keep up the
// rate, and at no time may it pause for longer than most. What the edge waits for its origin is not held against a client.
type pace struct {
	rate int // bytes a second; 0: any
	most time.Duration
	left time.Duration
}

// waited takes note that n bytes moved after so long a wait.
func (p *pace) waited(d time.Duration, n int) {
	if p.rate == 0 {
		p.left = p.most
		return
	}
	p.left = min(p.most, p.left-d+time.Duration(n)*time.Second/time.Duration(p.rate))
}
