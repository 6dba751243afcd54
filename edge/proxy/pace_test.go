package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/edge/front"
	"sluice/edge/http1"
	"sluice/edge/upstream"
)

// paced is a client's connection and its other end.
func paced() (*front.Client, net.Conn) {
	near, far := net.Pipe()
	return &front.Client{Conn: near, Raw: near, Server: &front.Server{Limits: front.Limits{IdleTimeout: time.Minute, AnswerRate: 500}}}, far
}

// move reads or writes n bytes each second, until do fails or the given time has passed.
func move(n int, length time.Duration, do func([]byte) (int, error)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	buf := make([]byte, n)
	for end := time.Now().Add(length); time.Now().Before(end); <-tick.C {
		if _, err := do(buf); err != nil {
			return
		}
	}
}

// A client that takes a streamed answer more slowly than answer_rate is cut once it has used up idle_timeout; one that keeps
// the rate is not, and an origin's pauses are not held against it.
func TestSlowReadersOfStreams(t *testing.T) {
	for _, test := range []struct {
		rate        int
		pause       time.Duration // of the origin, after each part
		cut         bool
		from, until time.Duration // when it is cut
	}{
		{rate: 1, cut: true, from: time.Minute, until: time.Minute},
		{rate: 100, cut: true, from: time.Minute, until: 90 * time.Second},
		{rate: 400, cut: true, from: 2 * time.Minute, until: 6 * time.Minute},
		{rate: 510},
		{rate: 510, pause: 10 * time.Minute},
		{rate: 1 << 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			var others sync.WaitGroup
			defer others.Wait()
			c, client := paced()
			defer client.Close()
			defer c.Conn.Close()
			near, origin := net.Pipe()
			defer near.Close()
			defer origin.Close()
			others.Go(func() {
				part := make([]byte, 8<<10)
				for {
					if _, err := origin.Write(part); err != nil {
						return
					}
					time.Sleep(test.pause)
				}
			})
			others.Go(func() {
				move(test.rate, 30*time.Hour, func(p []byte) (int, error) { return io.ReadFull(client, p) })
			})

			const size = 1 << 20
			e := new(front.Exchange)
			e.Reset(&front.HeadFilter{Conn: c})
			p := &Forward{on: e}
			b := &p.body
			*b = answerBody{link: &upstream.Link{Conn: near}, timeout: time.Hour}
			b.Body = http1.Body{Reader: bufio.NewReaderSize(near, 8<<10), Wait: b, Framing: http1.Fixed, Left: size}
			start := time.Now()
			err := p.stream(false)
			took := time.Since(start)
			switch {
			case !test.cut && (err != nil || b.Left > 0):
				t.Errorf("%+v: %d bytes left after %v, %v", test, b.Left, took, err)
			case test.cut && (!errors.Is(err, os.ErrDeadlineExceeded) || took < test.from || took > test.until):
				t.Errorf("%+v: %d bytes left after %v, %v", test, b.Left, took, err)
			}
			if cut := c.Server.SlowReaders.Load() == 1; cut != test.cut || c.Paced {
				t.Errorf("%+v: counted as cut %t, still paced %t", test, cut, c.Paced)
			}
		})
	}
}
