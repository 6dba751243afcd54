package edge

import (
	"io"
	"net/http"
	"slices"
	"time"
)

// skipLimit is how much of a refused request's body is read so that its connection can stay open.
const skipLimit = 64 << 10

// admit takes a request up to its verdict. It reports whether the request goes on to the origin; else the answer is made.
func (x *exchange) admit() bool {
	if x.conn.unnamed {
		x.client, x.trusted = x.conn.peer, false
	} else {
		x.client, x.chain, x.trusted = x.snap.sources.identify(x.conn.peer, &x.head, x.chain)
	}
	if !x.trusted {
		x.head.distrust()
	}
	x.source = x.snap.sources.of(x.client)
	x.server.requests.hit(x.source)
	check := x.snap.check.is(x.path, x.target)
	if check && x.trusted && x.ask(x.snap.check) != nil {
		x.say(refuse(http.StatusBadRequest, "bad_check", "The request to be judged is malformed, or told in two ways."))
		return false
	}
	switch {
	case isIn(x.snap.deny, x.client):
		x.server.refusals.hit(x.source)
		x.say(refuse(http.StatusForbidden, "denied", "Requests from this address are not accepted."))
		return false
	case isIn(x.snap.allow, x.client):
		x.allowed = true
	default:
		if !x.judge() {
			x.decision.Reset()
			x.say(badKey)
			return false
		}
		if x.decision.Refused() {
			x.server.refusals.hit(x.source)
			x.conn.writeAt = x.now
			if until := x.decision.Told.Until; !x.trusted && !until.IsZero() {
				x.conn.blocked.Store(until.UnixNano())
			}
			x.limited()
			if len(x.snap.sheds) > 0 && !x.decision.Told.Until.IsZero() && !x.trusted && slices.Contains(x.snap.sheds, x.decision.rule(x.decision.Told)) {
				x.close = true
			}
			return false
		}
	}
	if x.conn.blocked.Load() != 0 {
		x.conn.blocked.Store(0)
	}
	if check {
		x.grant()
		return false
	}
	if limit := x.server.limits.BodyBytes; limit > 0 && x.length > int64(limit) {
		x.say(bodyTooLarge)
		return false
	}
	return true
}

var bodyTooLarge = refuse(http.StatusRequestEntityTooLarge, "body_too_large", "The body is larger than this server accepts.")

var badKey = refuse(http.StatusBadRequest, "bad_key", "A header or cookie by which clients are told apart is there several times, or malformed.")

// judge finds the rules that the request falls under and decides. It reports false if there is no telling whom one of them counts.
func (x *exchange) judge() bool {
	d := &x.decision
	d.match(x.snap.rules, x.host, x.path, x.target, x.method, x.readings)
	if len(x.host) == 0 {
		if g := x.snap.origins.of(nil); g != nil {
			for _, o := range g.servers { // the origin will be told its own name, so rules about that hold
				d.match(x.snap.rules, o.canonical, x.path, x.target, x.method, x.readings)
			}
		}
	}
	if len(d.rules) == 0 {
		return true
	}
	if !d.add(x.server.secret, &x.head, x.source) {
		return false
	}
	if x.now.Nanosecond()>>4%sampling != 0 || x.snap.waits {
		x.server.limiter.Decide(&d.Decision, x.now)
	} else {
		start := time.Now()
		x.server.limiter.Decide(&d.Decision, x.now)
		x.server.stats.deciding.Observe(time.Since(start).Seconds())
	}
	d.tally()
	return true
}

// skipBody reads the body of a request that does not go on, so that the connection can stay open; one that is long or slow
// costs the connection instead.
func (x *exchange) skipBody() {
	c := x.conn
	if x.length <= skipLimit && !x.close {
		x.startBody(lingerTime, lingerTime)
		c.writeAt = time.Time{} // it takes its time
		defer func() { c.body = false }()
		body, skipped := &x.in, 0
		for skipped <= skipLimit {
			part, err := body.next()
			if err == io.EOF {
				return
			}
			if err != nil {
				break
			}
			skipped += len(part)
			body.discard(len(part))
		}
	}
	c.linger.Store(true)
	x.close = true
}

// startBody begins to read the request's body, which the client must send at a pace. The head is not in the buffer any more.
func (x *exchange) startBody(grace, most time.Duration) {
	x.bodyRead = true
	if x.length == lengthChunked || x.length > headBuffer {
		x.conn.grow(bodyBuffer)
	}
	x.in.br = x.conn.br
	x.conn.startBody(grace, most)
}
