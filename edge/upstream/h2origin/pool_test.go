package h2origin

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	frames "golang.org/x/net/http2"
)

// Requests share a connection up to a bound, and one where nobody is any more gets no further request; nor does one that the server leaves.
func TestPool(t *testing.T) {
	drain := func(r *raw) {
		for r.next() != nil {
		}
	}
	inWorld(t, func(w *world) {
		var open []net.Conn
		for range mostStreams + 1 {
			c, _ := w.ask(get)
			open = append(open, c)
		}
		first, second := <-w.made, <-w.made
		go drain(first)
		go drain(second)
		synctest.Wait()
		if a, b := w.conns[0].streams, w.conns[1].streams; a != mostStreams || b != 1 {
			t.Errorf("%d and %d streams", a, b)
		}
		for _, c := range open {
			c.Close()
		}
		synctest.Wait()
		if len(w.conns) != 2 || w.conns[0].streams != 0 {
			t.Errorf("%d connections, %d streams", len(w.conns), w.conns[0].streams)
		}
		w.Sweep(time.Now())
		if len(w.conns) != 2 {
			t.Error("a connection was closed that had just been used")
		}
		w.Sweep(time.Now().Add(time.Second))
		synctest.Wait()
		if len(w.conns) != 0 {
			t.Error("a connection was kept that had rested for long")
		}
	})
	inWorld(t, func(w *world) { // nobody answers, though something is read
		c, answer := w.ask(get)
		first := <-w.made
		first.head(first.request(), true, ":status", "200")
		all(answer)
		c.Close()
		time.Sleep(time.Second)
		c, _ = w.ask(get)
		go drain(first)
		time.Sleep(deafTime + time.Second)
		c.Close()
		synctest.Wait()
		c, _ = w.ask(get)
		second := <-w.made // else this would wait for ever
		go drain(second)
		c.Close()
		synctest.Wait()
	})
	inWorld(t, func(w *world) { // renewed: what is under way ends where it is
		c, answer := w.ask(get)
		first := <-w.made
		id := first.request()
		go drain(first)
		w.Renew()
		other, _ := w.ask(get)
		second := <-w.made
		go drain(second)
		first.head(id, true, ":status", "204")
		if got := all(answer); !strings.HasPrefix(got, "HTTP/1.1 204 ") {
			t.Errorf("%q", got)
		}
		c.Close()
		other.Close()
		synctest.Wait()
		if len(w.conns) != 1 {
			t.Errorf("%d connections", len(w.conns))
		}
	})
	inWorld(t, func(w *world) { // GOAWAY: what is under way ends there, and the next begins elsewhere
		c, answer := w.ask(get)
		first := <-w.made
		id := first.request()
		go drain(first)
		_ = first.WriteGoAway(id, frames.ErrCodeNo, nil)
		synctest.Wait()
		other, _ := w.ask(get)
		second := <-w.made
		go drain(second)
		first.head(id, true, ":status", "204")
		if got := all(answer); !strings.HasPrefix(got, "HTTP/1.1 204 ") {
			t.Errorf("%q", got)
		}
		c.Close()
		other.Close()
		synctest.Wait()
	})
}

// Who waits for a connection that another makes fails as that one does.
func TestDialling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("nobody listens")
		calls, fail := 0, make(chan struct{})
		p := &Pool{Dial: func(time.Time) (net.Conn, error) {
			calls++
			<-fail
			return nil, broken
		}}
		errs := make(chan error, 3)
		for range 3 {
			go func() {
				_, _, err := p.Open(false, time.Minute)
				errs <- err
			}()
		}
		synctest.Wait()
		_, _, err := p.Open(false, time.Second)
		if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
			t.Errorf("after a second: %v", err)
		}
		close(fail)
		for range 3 {
			if err := <-errs; err != broken {
				t.Errorf("%v", err)
			}
		}
		if calls != 1 {
			t.Errorf("%d calls", calls)
		}
	})
}

// A server that takes no streams at all has no connection left open to it for each request.
func TestServerWithoutRoom(t *testing.T) {
	near, far := net.Pipe()
	p := &Pool{}
	p.Dial = func(time.Time) (net.Conn, error) {
		p.mu.Lock() // until its SETTINGS have come: nobody takes a place before
		return near, nil
	}
	ended := make(chan error)
	go func() {
		preface := make([]byte, len(frames.ClientPreface))
		_, _ = io.ReadFull(far, preface)
		f := frames.NewFramer(far, far)
		go func() {
			_ = f.WriteSettings(frames.Setting{ID: frames.SettingMaxConcurrentStreams, Val: 0})
		}()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				ended <- err
				return
			}
			if s, ok := frame.(*frames.SettingsFrame); ok && s.IsAck() {
				p.mu.Unlock()
			}
		}
	}()
	if _, _, err := p.Open(false, 10*time.Second); err == nil {
		t.Error("a request was taken")
	}
	<-ended
}
