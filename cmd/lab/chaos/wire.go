package chaos

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// harm is what is the matter with a wire.
type harm string

const (
	mend   harm = "mend"   // nothing
	slow   harm = "slow"   // what comes back is late
	hold   harm = "hold"   // nothing passes, in either direction, until it is mended
	refuse harm = "refuse" // connections are reset, those that there are and new ones
	garble harm = "garble" // whatever is asked, the answer is abc
	drip   harm = "drip"   // of what comes back one byte passes in a second
)

// A wire stands between edges and a server, and passes on what both say until it is harmed.
type wire struct {
	to netip.AddrPort
	ln net.Listener

	mu      sync.Mutex // guards what follows
	how     harm
	late    time.Duration
	changed chan struct{} // closed when it is harmed otherwise
	open    map[net.Conn]bool
	shut    bool
}

func newWire(to netip.AddrPort) (*wire, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("loadgen: chaos: a wire to %s: %w", to, err)
	}
	w := &wire{to: to, ln: ln, how: mend, changed: make(chan struct{}), open: make(map[net.Conn]bool)}
	go w.accept()
	return w, nil
}

func (w *wire) addr() netip.AddrPort { return w.ln.Addr().(*net.TCPAddr).AddrPort() }

// harm harms it otherwise than before.
func (w *wire) harm(how harm, late time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.how, w.late = how, late
	close(w.changed)
	w.changed = make(chan struct{})
	if how == refuse || how == garble {
		w.resetAll()
	}
	return nil
}

// resetAll ends all connections at once. The lock is held.
func (w *wire) resetAll() {
	for c := range w.open {
		reset(c)
	}
	clear(w.open)
}

func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	c.Close()
}

// close ends it.
func (w *wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shut = true
	w.ln.Close()
	w.resetAll()
	close(w.changed)
	w.changed = make(chan struct{})
}

// now is how it is harmed, and what is closed once that changes.
func (w *wire) now() (how harm, late time.Duration, changed <-chan struct{}, shut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.how, w.late, w.changed, w.shut
}

func (w *wire) keep(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shut || w.how == refuse {
		reset(c)
		return
	}
	w.open[c] = true
}

func (w *wire) drop(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, c)
	c.Close()
}

func (w *wire) accept() {
	for {
		c, err := w.ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(time.Millisecond)
			continue
		}
		if how, _, _, _ := w.now(); how == refuse {
			reset(c)
			continue
		}
		go w.carry(c)
	}
}

// carry is the life of a connection.
func (w *wire) carry(client net.Conn) {
	w.keep(client)
	defer w.drop(client)
	server, err := net.DialTimeout("tcp", w.to.String(), time.Second)
	if err != nil {
		reset(client)
		return
	}
	w.keep(server)
	defer w.drop(server)
	go func() {
		w.pass(client, server, false)
		w.drop(server)
	}()
	w.pass(server, client, true)
}

// A chunk is bytes on their way.
type chunk struct {
	at   time.Time // when they come out
	data []byte
}

// pass carries bytes one way until either end closes. What is late does not hold up what comes after it.
func (w *wire) pass(from, to net.Conn, back bool) {
	under := make(chan chunk, 256)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c := range under {
			time.Sleep(time.Until(c.at))
			if !w.deliver(to, c.data, back) {
				from.Close()
				for range under {
				}
				return
			}
		}
		if t, ok := to.(*net.TCPConn); ok {
			t.CloseWrite()
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			how, late, _, _ := w.now()
			c := chunk{at: time.Now(), data: append([]byte(nil), buf[:n]...)}
			if how == slow && back {
				c.at = c.at.Add(late)
			}
			under <- c
		}
		if err != nil {
			break
		}
	}
	close(under)
	<-done
}

// deliver hands on bytes as the wire is then, and reports whether the connection goes on.
func (w *wire) deliver(to net.Conn, data []byte, back bool) bool {
	for {
		how, _, changed, shut := w.now()
		switch {
		case shut:
			return false
		case how == hold:
			<-changed
			continue
		case !back:
		case how == garble:
			data = []byte("abc\r\n")
		case how == drip:
			if _, err := to.Write(data[:1]); err != nil {
				return false
			}
			if data = data[1:]; len(data) == 0 {
				return true
			}
			select {
			case <-changed:
			case <-time.After(time.Second):
			}
			continue
		}
		_, err := to.Write(data)
		return err == nil
	}
}
