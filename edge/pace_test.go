package edge

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

	"sluice/edge/http1"
	"sluice/edge/screen"
	"sluice/edge/upstream"
)

func TestPace(t *testing.T) {
	p := screen.Pace{Rate: 500, Most: time.Minute, Left: 10 * time.Second}
	for i, step := range []struct {
		waited time.Duration
		bytes  int
		left   time.Duration
	}{
		{0, 0, 10 * time.Second},
		{4 * time.Second, 0, 6 * time.Second},
		{time.Second, 500, 6 * time.Second},
		{time.Second, 1000, 7 * time.Second},
		{0, 1 << 30, time.Minute}, // what it was fast before does not excuse a longer pause
		{59 * time.Second, 250, 1500 * time.Millisecond},
		{2 * time.Second, 0, -500 * time.Millisecond},
	} {
		if p.Waited(step.waited, step.bytes); p.Left != step.left {
			t.Errorf("step %d: %v left, want %v", i, p.Left, step.left)
		}
	}
	any := screen.Pace{Most: time.Minute, Left: time.Minute}
	if any.Waited(50*time.Second, 1); any.Left != time.Minute {
		t.Errorf("at any rate: %v left", any.Left)
	}
}

// paced is a client's connection and its other end.
func paced() (*screen.Client, net.Conn) {
	near, far := net.Pipe()
	return &screen.Client{Conn: near, Raw: near, Site: &screen.Site{Limits: screen.Limits{IdleTimeout: time.Minute, BodyRate: 500, AnswerRate: 500}}}, far
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
			b := &answerBody{link: &upstream.Link{Conn: near}, client: c, timeout: time.Hour}
			b.Body = http1.Body{Reader: bufio.NewReaderSize(near, 8<<10), Wait: b, Framing: http1.Fixed, Left: size}
			start := time.Now()
			err := b.send(nil, false)
			took := time.Since(start)
			switch {
			case !test.cut && (err != nil || b.Left > 0):
				t.Errorf("%+v: %d bytes left after %v, %v", test, b.Left, took, err)
			case test.cut && (!errors.Is(err, os.ErrDeadlineExceeded) || took < test.from || took > test.until):
				t.Errorf("%+v: %d bytes left after %v, %v", test, b.Left, took, err)
			}
			if cut := c.Site.SlowReaders.Load() == 1; cut != test.cut || c.Paced {
				t.Errorf("%+v: counted as cut %t, still paced %t", test, cut, c.Paced)
			}
		})
	}
}

// A client that sends its body more slowly than body_rate is cut, also if it was fast at first; what the edge waits for an
// origin that takes the body slowly is not held against it.
func TestSlowSenders(t *testing.T) {
	for _, test := range []struct {
		first, rate int
		pause       time.Duration // before each read
		cut         bool
		from, until time.Duration
	}{
		{rate: 1, cut: true, from: 10 * time.Second, until: 11 * time.Second},
		{rate: 250, cut: true, from: 18 * time.Second, until: 21 * time.Second},
		{first: 64 << 20, rate: 1, cut: true, from: time.Minute, until: 61 * time.Second},
		{rate: 510},
		{rate: 510, pause: 5 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			var others sync.WaitGroup
			defer others.Wait()
			c, client := paced()
			defer client.Close()
			defer c.Conn.Close()
			others.Go(func() {
				if _, err := client.Write(make([]byte, test.first)); err == nil {
					move(test.rate, time.Hour, client.Write)
				}
			})
			c.StartBody(10*time.Second, time.Minute)
			start, buf := time.Now(), make([]byte, 16<<10)
			var err error
			for err == nil && time.Since(start) < 55*time.Minute {
				time.Sleep(test.pause)
				_, err = c.Read(buf)
			}
			took := time.Since(start)
			if cut := errors.Is(err, os.ErrDeadlineExceeded); cut != test.cut || cut && (took < test.from || took > test.until) {
				t.Errorf("%+v: cut %t after %v: %v", test, cut, took, err)
			}
		})
	}
}
