package http2

import (
	"time"

	frames "golang.org/x/net/http2"
)

// An Abuse is what a client does too often, or too much of, on one connection. Each costs the edge
// work, and none is a request that a rule could count; those that are requests count as well.
type Abuse uint8

const (
	Resets Abuse = iota // streams that it resets, or makes the edge reset
	// Frames that carry nothing: SETTINGS, PING, PRIORITY, WINDOW_UPDATE, empty DATA, unknown ones
	Control
	Continuations // heads in too many pieces, or too long to be read
	Malformed     // what is no HTTP/2
	abuses
)

func (a Abuse) String() string {
	return [...]string{"resets", "control", "continuation", "protocol"}[a]
}

// A bucket holds what a connection may still do of something.
type bucket struct {
	left, most, rate int // rate: so many come back a second
	since            time.Time
}

// take takes n, and reports false if there are not so many.
func (b *bucket) take(n int) bool {
	if b.left -= n; b.left >= 0 {
		return true
	}
	now := time.Now()
	b.left = min(b.most, b.left+int(now.Sub(b.since).Seconds()*float64(b.rate)))
	b.since = now
	return b.left >= 0
}

const (
	// resetBurst and resetRate are how many streams of a connection may be reset, by either side,
	// before their time: somebody who leaves a page resets all that is under way of it.
	resetBurst, resetRate = 256, 32
	// controlBurst and controlRate bound frames that carry nothing. More of them come back with
	// what gives reason to them: requestControls for each request, and one for each KiB that is
	// sent to the client, which has to open windows for it. So many cost as much as the handshake
	// of the connection that an attacker makes when this one has ended: fewer would cost the edge
	// more than they spare it.
	controlBurst, controlRate = 4096, 64
	requestControls           = 8
	// messageControls come back for each part of an answer: clients of gRPC answer each of their
	// messages with a PING and a WINDOW_UPDATE.
	messageControls = 2
	// mostContinuations is in how many more frames than one a head may come.
	mostContinuations = 32
	// decodeStep is how many bytes of a head are decoded before its size is looked at. The decoder
	// keeps room for what of a field goes on in the next.
	decodeStep = 4 << 10
	// bodyCost is how many bytes of frames a body may have around each of its own, bodySlack more:
	// as around chunks in HTTP/1.1.
	bodyCost, bodySlack = 16, 128 << 10
)

func newBuckets(now time.Time) (resets, controls bucket) {
	return bucket{resetBurst, resetBurst, resetRate, now}, bucket{controlBurst, controlBurst,
		controlRate, now}
}

// A calm ends a connection whose client went beyond a bound.
type calm Abuse

func (calm) Error() string { return "edge: http2: the client went beyond a bound" }

// earn gives a client's controls back. It needs c.mu.
func (c *conn) earn(n int) { c.earned = min(c.earned+n, controlBurst) }

// control counts frames that carry nothing.
func (c *conn) control(n int) error {
	if c.controls.take(n) {
		return nil
	}
	c.mu.Lock()
	earned := c.earned
	c.earned = 0
	c.mu.Unlock()
	if c.controls.left = min(c.controls.most, c.controls.left+earned); c.controls.left < 0 {
		return calm(Control)
	}
	return nil
}

// resetting counts a stream that is reset before its time.
func (c *conn) resetting() error {
	if c.resets.take(1) {
		return nil
	}
	return calm(Resets)
}

// blame has the client's source charged with what was no request: as with a request that is
// malformed.
func (c *conn) blame() {
	st := newStream(c, 0)
	st.in.Refused, st.silent = malformed, true
	if rest := c.site.Start(st); rest != nil {
		c.work(st, rest.Run)
	}
}

// fail ends the connection with an error of its client's.
func (c *conn) fail(err error) {
	code, what := frames.ErrCodeProtocol, Malformed
	switch err := err.(type) {
	case calm:
		code, what = frames.ErrCodeEnhanceYourCalm, Abuse(err)
	case frames.ConnectionError:
		code = frames.ErrCode(err)
	}
	c.site.Stats.Abuses[what].Add(1)
	c.mu.Lock()
	c.putGoAway(c.highest, code)
	c.mu.Unlock()
	c.blame()
	if c.site.Abused != nil {
		c.site.Abused(c.client, what)
	}
	c.client.Linger.Store(true) // or what it has sent takes the farewell with it
}
