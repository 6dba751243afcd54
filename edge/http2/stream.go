package http2

import (
	"errors"
	"net/netip"
	"sync"
	"time"

	frames "golang.org/x/net/http2"

	"sluice/edge/front"
	"sluice/edge/http1"
	"sluice/edge/message"
)

// A Stream is a request and its answer at the end of a client that speaks HTTP/2: an edge.Front.
type Stream struct {
	in   http1.RequestHead
	conn *conn
	id   uint32 // 0: there is none, and nobody is answered
	text []byte // the head, as HTTP/1.1 writes it

	looped bool // the loop serves it: nothing may wait
	// What is left of an answer that the loop could not send; nil: nothing is
	unsent    []byte
	silent    bool           // nothing is said, but that it is reset
	resetWith frames.ErrCode // what ends it, after the answer
	wrote     time.Time

	block     []byte // the head of the answer
	out       []byte // its body, but of a stream
	streaming bool
	switching bool // it becomes a tunnel
	// What its origin may send of it before it is read, and what reads that, in bytes
	ahead  int
	left   int64      // of the body, in bytes; less than 0: it ends with Trailers
	taking front.Pace // of the answer

	sending front.Pace // of the body that comes
	bodyDue time.Time  // for all of it; zero: as long as the pace allows
	shown   []byte     // what Next shows
	got     int64
	pause   func() error
	resume  func()
	tail    []byte // names and values after the body, and how long each is
	tailAt  []int

	watching sync.Mutex
	// Is called if the client goes; nil: nobody asks. This and ready are guarded by conn.mu
	gone  func()
	ready <-chan struct{} // nobody looks before

	opened  chan struct{} // a window has opened
	arrived chan struct{} // something has come of the body, or nothing will

	held    stall // what it holds, and whether it waits for its client,
	stalled bool  // as far as its owner knows

	// What follows is guarded by conn.mu.
	copied    int   // bytes of unsent that are its own
	trailing  int64 // what is counted of tail, in bytes
	window    int64 // what the client takes of the answer, in bytes
	recv      int   // what it may send of the body,
	credit    int   // and what it may send again, but has not been told,
	most      int   // of all that nobody has read yet
	announced int64 // the length of the body, as its head says; less than 0: it does not
	came      int64 // bytes of it,
	around    int64 // and of what frames them
	queue     []byte
	taken     int   // what Next has shown, and Discard has not heard of
	ended     bool  // the client has sent all of it
	bodiless  bool  // and there was none
	ignores   bool  // nobody reads it
	lost      bool  // some of it has come to nothing: it is not whole
	aborted   bool  // who reads it is to stop
	answering bool  // the answer has begun
	closed    bool  // the answer is over
	died      error // the stream was reset, or its connection has ended
}

var (
	errReset  = errors.New("edge: http2: the client has reset the stream")
	errSilent = errors.New("edge: http2: nobody is answered")
)

func newStream(c *conn, id uint32) *Stream {
	st := new(Stream)
	st.reuse(c, id)
	return st
}

// reuse makes st another stream. Nobody has it any more.
func (st *Stream) reuse(c *conn, id uint32) {
	st.in.Reset()
	st.in.Hello = c.client.Hello
	opened, arrived := st.opened, st.arrived
	if opened == nil {
		opened, arrived = make(chan struct{}, 1), make(chan struct{}, 1)
	}
	select {
	case <-opened:
	default:
	}
	select {
	case <-arrived:
	default:
	}
	*st = Stream{in: st.in, conn: c, id: id, text: st.text[:0], block: st.block[:0],
		out: st.out[:0], opened: opened, arrived: arrived, most: firstWindow, announced: -1}
	st.startTaking()
}

func (st *Stream) startTaking() {
	l := &st.conn.site.Limits
	st.taking = front.Pace{Rate: l.AnswerRate, Most: l.IdleTimeout, Left: l.IdleTimeout}
}

// die ends what waits for the client. It needs conn.mu.
func (st *Stream) die(err error) {
	if st.died != nil {
		return
	}
	st.died = err
	signal(st.opened)
	signal(st.arrived)
	st.tell()
}

// tell tells who watches the client that it has gone. It needs conn.mu, and holds nobody up: ending
// a link to an origin may take a while.
func (st *Stream) tell() {
	if st.gone == nil {
		return
	}
	ready := st.ready
	go func() {
		defer func() {
			if p := recover(); p != nil {
				st.conn.site.Fault(p)
			}
		}()
		if ready != nil {
			<-ready
		}
		st.watching.Lock()
		defer st.watching.Unlock()
		st.conn.mu.Lock()
		gone := st.gone
		st.gone = nil
		st.conn.mu.Unlock()
		if gone != nil {
			gone()
		}
	}()
}

// Request is what came.
func (st *Stream) Request() *message.Request { return &st.in.Request }

// Peer is whom the connection comes from. It is not named if a PROXY header says that nobody is.
func (st *Stream) Peer() (peer netip.Addr, named bool) {
	return st.conn.client.Peer, !st.conn.client.Unnamed
}

// Secure reports whether the client speaks TLS.
func (st *Stream) Secure() bool { return st.conn.client.Secure }

// Redirect is the port of the https address that the listener sends requests to; 0: none.
func (st *Stream) Redirect() uint16 { return st.conn.client.Redirect }

// Going reports whether the connection is to make room for others.
func (st *Stream) Going() bool { return st.conn.client.Going.Load() != 0 }

// Block says that whoever sends on this connection is refused until then; the zero time: it is not.
func (st *Stream) Block(until time.Time, shared bool) {
	if shared {
		return // streams are judged first in any case
	}
	at := int64(0)
	if !until.IsZero() {
		at = until.UnixNano()
	}
	if b := &st.conn.client.Blocked; at != 0 || b.Load() != 0 {
		b.Store(at)
	}
}

// Close says that no request is taken on this connection any more: it ends when those under way are
// over.
func (st *Stream) Close() {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client.Linger.Store(true)
	c.finally()
}

// Last and Drop say that nothing more is read of the request, which ends its stream with the
// answer.
func (*Stream) Last() {}
func (*Stream) Drop() {}

// SkipBody is called before an answer. A body that nobody has taken costs its stream, when the
// answer is over.
func (st *Stream) SkipBody() (waited bool) { return false }

// Begun reports whether the answer has begun to go.
func (st *Stream) Begun() bool { return st.streaming || !st.wrote.IsZero() }

// Wrote is when the client was last written to.
func (st *Stream) Wrote() time.Time { return st.wrote }

// Gone reports whether the client has gone.
func (st *Stream) Gone() bool {
	st.conn.mu.Lock()
	defer st.conn.mu.Unlock()
	return st.died != nil
}

// Watch has gone called, once at most, if the client goes before Unwatch. Nobody looks before ready
// is closed, if it is not nil.
func (st *Stream) Watch(ready <-chan struct{}, gone func()) {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	st.gone, st.ready = gone, ready
	if st.died != nil {
		st.tell()
	}
}

// Expect counts what is held while the origin's answer is awaited. It is no more than what the
// request was admitted with, unless other origins have come into force since.
func (st *Stream) Expect(bytes int) {
	more := int64(bytes - st.ahead)
	if st.ahead = bytes; st.held.bytes != 0 {
		st.conn.hold(more)
		st.held.bytes += more
	}
}

// Answering says that the answer has begun. Who has gone is gone all the same: a stream has no half
// that goes on without the other. From now on the client may pause in its body for as long as the
// answer goes on: two who talk pause by turns, and the server's pauses are bounded.
func (st *Stream) Answering() {
	st.conn.mu.Lock()
	defer st.conn.mu.Unlock()
	st.answering = true
}

// Unwatch ends what Watch began, if anything. When it returns, gone has been called, or will not
// be.
func (st *Stream) Unwatch() {
	st.watching.Lock()
	defer st.watching.Unlock()
	st.conn.mu.Lock()
	st.gone = nil
	st.conn.mu.Unlock()
}
