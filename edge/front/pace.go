package front

import "time"

// A Pace is how long a client may still keep the edge waiting while it sends a body or takes one.
// What it makes the edge wait is taken from that, and every Rate bytes that move give a second
// back, up to Most: so in the long run it must keep up the rate, and at no time may it pause for
// longer than Most. What the edge waits for its origin is not held against a client.
type Pace struct {
	Rate int // bytes a second; 0: any
	Most time.Duration
	Left time.Duration
}

// Waited takes note that n bytes moved after so long a wait.
func (p *Pace) Waited(d time.Duration, n int) {
	if p.Rate == 0 {
		p.Left = p.Most
		return
	}
	p.Left = min(p.Most, p.Left-d+time.Duration(n)*time.Second/time.Duration(p.Rate))
}
