// Package edgetest is what tests of the edge's rooms are made with.
//
// An Edge is a whole one that serves on a loopback socket until the test ends, before an origin: a
// Recorder, which keeps what it gets byte for byte, one that holds requests (SlowOrigin, Holder),
// one that speaks as a test has it (Speaker), or any of net/http. A Caller and a Talk ask it.
// MemoryServer and ServeAlone do without sockets, in virtual time. An Exchange is one request in no
// protocol: the client's end of an exchange, as an edge (edge.Front) and whoever passes it on
// (proxy.Exchange) ask for it. A test says what the client does, has the request handled, and reads
// what the client got.
package edgetest

import (
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"sluice/edge/message"
)

// An Exchange is one request and its answer.
type Exchange struct {
	In   message.Request
	From netip.Addr
	TLS  bool
	Conn net.Conn // what a tunnel is given; nil: none is possible

	// Invited is called when the client, whose request says that it waits for that, is invited to
	// send its body.
	Invited func()

	// What the client got. It may be read once the request has been handled.
	Before []int     // statuses of interim answers
	Status int       // 0: there was no answer
	Own    bool      // it is the edge's own
	Lines  []string  // of its head
	Text   string    // its body
	After  []string  // lines after the body
	Whole  bool      // it came to its end,
	Broken bool      // or broke off
	Closed bool      // the connection ends with it
	Until  time.Time // so long the client is blocked

	parts   chan []byte // of the request's body, as they come
	part    []byte      // of it, what has not been discarded
	got     int64
	taken   bool
	trailer []string
	pause   func() error
	resume  func()
	aborted chan struct{} // closed when nobody reads the body any more
	left    chan struct{} // closed when the client has gone
	wrote   time.Time

	unwatch  chan struct{} // ends the watch; nil: there is none
	watchers sync.WaitGroup
}

// NewExchange is a request without a body, of 192.0.2.1 for host a. Each of lines is one of its
// head, as "Name: value".
func NewExchange(method, target string, lines ...string) *Exchange {
	e := &Exchange{
		From: netip.MustParseAddr("192.0.2.1"),
		In: message.Request{Method: []byte(method), Target: []byte(target),
			Version: []byte("HTTP/test"), IsHead: method == "HEAD", Size: len(target)},
		left: make(chan struct{}), aborted: make(chan struct{}),
	}
	e.In.SetHost([]byte("a"))
	e.In.Refused = e.In.SetPath()
	addLines(&e.In.Head, lines)
	return e
}

func addLines(h *message.Head, lines []string) {
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		_ = h.Add([]byte(name), []byte(value), message.MaxLines)
	}
	h.End()
}

// Body gives the request a body of unknown length, which Say and Done send.
func (e *Exchange) Body() *Exchange {
	e.In.Length, e.parts = message.LengthChunked, make(chan []byte, 16)
	return e
}

// Say sends a part of the body, and Done ends it, with lines after it.
func (e *Exchange) Say(part string) { e.parts <- []byte(part) }

func (e *Exchange) Done(trailer ...string) {
	e.trailer = trailer
	close(e.parts)
}

// Leave is what a client does that waits no longer. It may be called from any goroutine, once.
func (e *Exchange) Leave() { close(e.left) }

// Line is the value of a line of the answer's head; "": there is none.
func (e *Exchange) Line(name string) string {
	for _, l := range e.Lines {
		if value, found := strings.CutPrefix(l, name+": "); found {
			return value
		}
	}
	return ""
}

func (e *Exchange) Request() *message.Request          { return &e.In }
func (e *Exchange) Peer() (netip.Addr, bool)           { return e.From, true }
func (e *Exchange) Secure() bool                       { return e.TLS }
func (e *Exchange) Redirect() uint16                   { return 0 }
func (e *Exchange) Going() bool                        { return false }
func (e *Exchange) Block(until time.Time, _ bool)      { e.Until = until }
func (e *Exchange) Close()                             { e.Closed = true }
func (e *Exchange) Last()                              { e.Closed = true }
func (e *Exchange) Drop()                              { e.Closed, e.taken = true, true }
func (e *Exchange) Begun() bool                        { return e.Status != 0 }
func (e *Exchange) Wrote() time.Time                   { return e.wrote }
func (e *Exchange) StartBody(time.Duration, time.Time) {}
func (e *Exchange) EndBody()                           {}
func (e *Exchange) AbortBody()                         { close(e.aborted) }
func (e *Exchange) Got() int64                         { return e.got }

func (e *Exchange) AwaitBody() error {
	if _, err := e.Next(); err != io.EOF {
		return err
	}
	return nil
}

func (e *Exchange) TakeBody(pause func() error, resume func()) {
	e.taken, e.pause, e.resume = true, pause, resume
}

func (e *Exchange) Next() ([]byte, error) {
	for len(e.part) == 0 {
		select {
		case part, more := <-e.parts:
			if !more {
				return nil, io.EOF
			}
			e.part = part
			continue
		default:
		}
		if e.pause != nil {
			if err := e.pause(); err != nil {
				return nil, err
			}
		}
		var err error
		select {
		case part, more := <-e.parts:
			if e.part = part; !more {
				err = io.EOF
			}
		case <-e.left:
			err = io.ErrUnexpectedEOF
		case <-e.aborted:
			err = os.ErrDeadlineExceeded
		}
		if e.resume != nil {
			e.resume()
		}
		if err != nil {
			return nil, err
		}
	}
	return e.part, nil
}

func (e *Exchange) Discard(n int) {
	e.part = e.part[n:]
	e.got += int64(n)
}

func (e *Exchange) ReadTrailer(h *message.Head) error {
	addLines(h, e.trailer)
	return nil
}

// SkipBody takes a body that nobody wants for one too many: the connection ends with the answer.
func (e *Exchange) SkipBody() bool {
	e.Closed = e.Closed || e.In.Length != 0 && !e.taken
	return false
}

func (e *Exchange) Gone() bool {
	select {
	case <-e.left:
		return true
	default:
		return false
	}
}

func (e *Exchange) Watch(ready <-chan struct{}, gone func()) {
	unwatch := make(chan struct{})
	e.unwatch = unwatch
	e.watchers.Go(func() {
		if ready != nil {
			select {
			case <-ready:
			case <-unwatch:
				return
			}
		}
		select {
		case <-e.left:
			gone()
		case <-unwatch:
		}
	})
}

func (e *Exchange) Answering() {}

func (e *Exchange) Expect(int) {}

func (e *Exchange) Unwatch() {
	if e.unwatch != nil {
		close(e.unwatch)
		e.watchers.Wait()
		e.unwatch = nil
	}
}

// Respond gets an answer of the edge's own, or not, as a client that has gone.
func (e *Exchange) Respond(r *message.Reply) error {
	if e.Gone() {
		return net.ErrClosed
	}
	e.Status, e.Own, e.Text, e.Whole, e.wrote = r.Status, true, string(r.Body), true, time.Now()
	if r.Common != nil {
		e.add(r.Common.Fields)
	}
	e.add(r.Fields)
	return nil
}

func (e *Exchange) add(fields []message.Field) {
	for _, f := range fields {
		e.Lines = append(e.Lines, f.Name+": "+string(f.Value))
	}
}

func (e *Exchange) Invite() { e.Invited() }

func (e *Exchange) Interim(a *message.Answer, _ func(status int, name []byte) bool) {
	e.Before = append(e.Before, a.Status)
}

func (e *Exchange) Begin(a *message.Answer, ours func(status int, name []byte) bool,
	fields []message.Field) (open bool) {
	e.Status = a.Status
	for i := range a.Head.Lines {
		if l := &a.Head.Lines[i]; !l.Drop && !ours(a.Status, l.Name) {
			e.Lines = append(e.Lines, string(l.Name)+": "+string(l.Value))
		}
	}
	e.add(fields)
	return a.Length < 0 && a.Protocol == nil
}

func (e *Exchange) Stream() {}

func (e *Exchange) Send(part []byte) error {
	e.Text += string(part)
	return e.Flush()
}

func (e *Exchange) Trailers(lines []message.Line) error {
	for _, l := range lines {
		e.After = append(e.After, string(l.Name)+": "+string(l.Value))
	}
	return e.Flush()
}

// Flush fails once the client has gone.
func (e *Exchange) Flush() error {
	if e.Gone() {
		return net.ErrClosed
	}
	return nil
}

func (e *Exchange) End(time.Time) error {
	e.wrote = time.Now()
	err := e.Flush()
	e.Whole = err == nil // a stream that has broken off is ended as well, and then aborted
	return err
}

func (e *Exchange) Abort() { e.Whole, e.Broken, e.Closed = false, true, true }

func (e *Exchange) Hijack(run func(net.Conn)) { run(e.Conn) }
