package slowclients

import (
	"bytes"
	"context"
	"net/netip"
	"strconv"
	"time"

	"sluice/loadgen/origin"
	"sluice/loadgen/socket"
)

// A kind is a way to keep a server busy at next to no cost of one's own.
type kind struct {
	name  string
	begin string // said at once
	drip  string // and this every second
	reads bool   // one byte is read every second; otherwise all that comes
	ends  string // how it is to end
	held  func(headerTimeout, idleTimeout time.Duration) time.Duration
}

// kinds, those that take the least memory first, are connections that are kept without being used, slow heads (Slowloris), slow bodies (R.U.D.Y.), and answers that are read slowly.
func kinds() []kind {
	return []kind{
		{name: "idle ones", begin: "GET / HTTP/1.1\r\nHost: slow\r\n\r\n", ends: slowCut,
			held: func(_, idle time.Duration) time.Duration { return idle }},
		{name: "slow heads", begin: "GET / HTTP/1.1\r\nHost: slow\r\nX: ", drip: "x", ends: slow408,
			held: func(header, _ time.Duration) time.Duration { return header }},
		{name: "slow bodies", begin: "POST / HTTP/1.1\r\nHost: slow\r\nTransfer-Encoding: chunked\r\n\r\n", drip: "1\r\nx\r\n", ends: slow408,
			held: func(header, _ time.Duration) time.Duration { return header }},
		{name: "slow readers", begin: "GET " + origin.BytesPath + "100000 HTTP/1.1\r\nHost: slow\r\n\r\n", reads: true, ends: slowCut,
			held: func(_, idle time.Duration) time.Duration { return idle }},
	}
}

// How a slow connection ended.
const (
	slowOpen    = "still open"
	slow408     = "answered 408"
	slowOther   = "answered otherwise"
	slowCut     = "cut"
	slowRefused = "turned away" // closed without a byte
)

// slowPeriod is how often a slow connection moves.
const slowPeriod = time.Second

// A attack opens many slow connections from one thread, evenly spread over time, so that it takes no more of the
// machine than it must.
type attack struct {
	kind   kind
	to     netip.AddrPort
	most   int
	ramp   time.Duration     // from the first connection to the last
	source func() netip.Addr // of the next connection
	conns  []conn
	gone   int
}

// A turn is when a connection moves.
type turn struct {
	conn int // of conns
	at   time.Duration
}

type conn struct {
	fd      int
	opened  time.Duration
	lasted  time.Duration
	said    int    // bytes of begin
	got     []byte // the beginning of what came
	outcome string
}

// run opens the connections and moves them until all have ended or the time is up; then it closes what is left.
func (a *attack) run(ctx context.Context, length time.Duration) error {
	start := time.Now()
	defer func() {
		for i := range a.conns {
			if a.conns[i].outcome == slowOpen {
				socket.Close(a.conns[i].fd)
			}
		}
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	// Everybody has a turn each period from when they came on, so turns are spread as evenly as arrivals, from the first.
	var turns []turn
	for now := time.Duration(0); now < length && (len(a.conns) < a.most || a.gone < a.most); now = time.Since(start) {
		for len(turns) > 0 && turns[0].at <= now {
			t := turns[0]
			turns = turns[1:]
			if a.move(&a.conns[t.conn], now); a.conns[t.conn].outcome == slowOpen {
				turns = append(turns, turn{t.conn, t.at + slowPeriod})
			}
		}
		for len(a.conns) < a.most && time.Duration(len(a.conns))*a.ramp/time.Duration(a.most) <= now {
			dial := socket.Dial
			if a.kind.reads {
				dial = socket.DialSmall
			}
			fd, err := dial(a.source(), a.to)
			if err != nil {
				return err
			}
			a.conns = append(a.conns, conn{fd: fd, opened: now, outcome: slowOpen})
			a.move(&a.conns[len(a.conns)-1], now)
			turns = append(turns, turn{len(a.conns) - 1, now + slowPeriod})
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// move gives a connection its turn.
func (a *attack) move(c *conn, now time.Duration) {
	if c.outcome != slowOpen {
		return
	}
	if c.said < len(a.kind.begin) {
		n, err := socket.Write(c.fd, []byte(a.kind.begin[c.said:]))
		c.said += max(n, 0)
		if err != nil && err != socket.ErrAgain {
			a.end(c, now)
		}
		return
	}
	var buf [512]byte
	room := buf[:]
	if a.kind.reads {
		room = buf[:1]
	}
	for {
		n, err := socket.Read(c.fd, room)
		if n > 0 {
			c.got = append(c.got, room[:min(n, 16-min(len(c.got), 16))]...)
		}
		switch {
		case err == socket.ErrAgain:
		case err != nil || n == 0 || a.kind.reads && socket.Error(c.fd) != nil:
			a.end(c, now)
			return
		case !a.kind.reads:
			continue
		}
		break
	}
	if a.kind.drip != "" {
		if _, err := socket.Write(c.fd, []byte(a.kind.drip)); err != nil && err != socket.ErrAgain {
			a.end(c, now)
		}
	}
}

// end notes how a connection ended.
func (a *attack) end(c *conn, now time.Duration) {
	socket.Close(c.fd)
	c.lasted = now - c.opened
	a.gone++
	switch {
	case a.kind.ends == slowCut && len(c.got) > 0:
		c.outcome = slowCut
	case bytes.HasPrefix(c.got, []byte("HTTP/1.1 408 ")):
		c.outcome = slow408
	case len(c.got) > 0:
		c.outcome = slowOther
	default:
		c.outcome = slowRefused
	}
}

// tally is what became of the connections of an attack.
type tally struct {
	by          map[string]int
	first, last time.Duration // when those that ended as they should did
}

func (a *attack) tally() tally {
	t := tally{by: make(map[string]int)}
	for i := range a.conns {
		c := &a.conns[i]
		t.by[c.outcome]++
		if c.outcome != slowOpen && c.outcome != slowRefused {
			if t.first == 0 || c.lasted < t.first {
				t.first = c.lasted
			}
			t.last = max(t.last, c.lasted)
		}
	}
	return t
}

func (t tally) String() string {
	out := ""
	for _, outcome := range []string{slow408, slowCut, slowRefused, slowOther, slowOpen} {
		if n := t.by[outcome]; n > 0 {
			out += ", " + strconv.Itoa(n) + " " + outcome
		}
	}
	if out == "" {
		return "none"
	}
	return out[2:]
}
