package front

import (
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestPace(t *testing.T) {
	p := Pace{Rate: 500, Most: time.Minute, Left: 10 * time.Second}
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
	any := Pace{Most: time.Minute, Left: time.Minute}
	if any.Waited(50*time.Second, 1); any.Left != time.Minute {
		t.Errorf("at any rate: %v left", any.Left)
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
			near, client := net.Pipe()
			c := &Client{Conn: near, Raw: near, Server: &Server{Limits: Limits{IdleTimeout: time.Minute, BodyRate: 500, AnswerRate: 500}}}
			defer client.Close()
			defer c.Conn.Close()
			others.Go(func() {
				_, err := client.Write(make([]byte, test.first))
				tick := time.NewTicker(time.Second)
				defer tick.Stop()
				for end := time.Now().Add(time.Hour); err == nil && time.Now().Before(end); <-tick.C {
					_, err = client.Write(make([]byte, test.rate))
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
