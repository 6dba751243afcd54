package http2

import (
	"bufio"
	"sync"
	"time"

	frames "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"sluice/edge/front"
)

// A conn is a connection. But for what c.mu guards it belongs to its loop.
type conn struct {
	site             *Server
	client           *front.Client
	early            []byte      // what has been read ahead
	reader           *reader     // nil: nothing has come that has not been read
	try              func() bool // came
	looking          bool        // it is called
	failed           error       // what it met
	decoder          *hpack.Decoder
	head             *head // the reader's
	settled          bool  // the client's first SETTINGS have come
	tunnels          bool  // it may ask for them
	resets, controls bucket
	past             past
	// The highest stream that came after the last that is taken; 0: none has
	untaken uint32
	headBy  time.Time // when the head that has begun must be there; zero: none has
	took    int       // of turn

	holder *holder // whom its streams are counted for; nil: there is no bound on memory
	pause  pause

	mu      sync.Mutex
	held    stall  // what is being written, and gathers meanwhile
	copied  int    // bytes of refusals that wait, but of pages that are the same for all
	out     []byte // frames to be written
	late    []byte // those to be written after them, in a write of their own
	spare   []byte
	lent    *buffers  // of which out and spare are; nil: while there is no stream
	writing bool      // somebody writes
	flying  int       // bytes that are being written,
	written int64     // and that have been
	drained sync.Cond // something has been written
	broken  error     // nothing more can be written
	shrunk  bool
	window  int64 // what the client takes of all answers, in bytes
	initial int64 // that of a new stream
	recv    int   // what the client may send of all bodies,
	credit  int   // and what it may send again, but has not been told
	first   int   // of the body of a new stream, as far as it knows
	wide    int   // what is left of spareWindow
	earned  int   // controls
	sent    int   // bytes of answers that have not earned one
	streams map[uint32]*Stream
	highest uint32 // stream
	working int    // requests in goroutines
	worked  sync.Cond
	leaving stage
	last    uint32    // streams above it are not taken, once leaving is final
	leaveBy time.Time // while leaving is announced: when it becomes final
	readBy  time.Time // the read deadline that is set
	idle    time.Time // since when there is no stream
	asked   bool      // there has been one
}

// turn is how many bytes of heads a loop takes at once, each with headCost more for the request,
// before others that can run have their turn. The scheduler would let it go on for 10 ms: a hundred
// such loops would hold up everybody else for a second.
const turn, headCost = 16 << 10, 1 << 10

// A reader is what frames are read with, by whichever connection has something to read.
type reader struct {
	*bufio.Reader
	framer *frames.Framer
	head   head
}

var readers = sync.Pool{New: func() any {
	r := &reader{Reader: bufio.NewReaderSize(nil, 4<<10)}
	r.framer = frames.NewFramer(nil, r)
	r.framer.SetReuseFrames()
	r.framer.SetMaxReadFrameSize(frameSize)
	return r
}}

// buffers are what a connection writes with while it has streams.
type buffers struct{ out, spare []byte }

var lenders = sync.Pool{New: func() any { return new(buffers) }}

// Serve serves a connection until it ends. Where the client's bytes have been read ahead, as of its
// preface, they are in its Reader.
func (s *Server) Serve(client *front.Client) {
	c := &conn{site: s, client: client, window: usualWindow, initial: usualWindow,
		first: usualWindow, recv: s.window(), wide: spareWindow, streams: make(map[uint32]*Stream),
		idle: time.Unix(0, client.Accepted)}
	c.drained.L, c.worked.L = &c.mu, &c.mu
	c.resets, c.controls = newBuckets(time.Now())
	s.Stats.Connections.Add(1)
	defer s.Stats.Connections.Add(-1)
	s.Memory.enter(c)
	defer s.Memory.leave(c)
	defer c.end()
	defer func() {
		if p := recover(); p != nil {
			s.Fault(p)
		}
	}()
	if client.Reader != nil {
		c.early, _ = client.Reader.Peek(client.Reader.Buffered())
	}
	c.try = c.came
	c.decoder = hpack.NewDecoder(4096, c.field)
	c.decoder.SetMaxStringLength(4 * s.Limits.HeaderBytes)
	client.StartAnswer()
	client.Idle.Store(client.Accepted)
	c.loop()
}

// end ends the connection: with what is under way.
func (c *conn) end() {
	c.say()
	c.site.Leave(c.client)
	if c.client.Linger.Load() {
		c.client.LingeringClose()
	}
	c.mu.Lock()
	c.breakOff(errGone)
	c.mu.Unlock()
	_ = c.client.Conn.Close()
	_ = c.client.Raw.Close()
	c.mu.Lock()
	for c.working > 0 {
		c.worked.Wait()
	}
	c.mu.Unlock()
	c.client.Linger.Store(false)
}

// locked does something with c.mu. After a fault in it the connection can still be ended.
func (c *conn) locked(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

// begin takes a request that has come, and has it judged.
//
// A stream has one owner. The loop owns it from its HEADERS to here; Start borrows it, and has let
// go of it when it returns. Then the loop ends the stream, or gives it to the goroutine that owns
// it to its end, once, and does not touch it any more: the goroutine puts it into the pool. Others,
// which find it in c.streams, have it while they hold c.mu: it is in no pool as long as it is
// there.
func (c *conn) begin(st *Stream) {
	c.site.Stats.Requests.Add(1)
	c.mu.Lock()
	_ = c.room(nil) // a few bytes ask for many answers; a failure shows in Read
	c.mu.Unlock()
	if !c.admits(st) && st.in.Refused == nil {
		st.in.Refused, st.silent, st.resetWith = crowded, true, frames.ErrCodeRefusedStream
	}
	rest := c.judge(st)
	switch {
	case rest != nil:
		c.work(st, rest.Run)
	case st.unsent != nil:
		c.work(st, st.sendUnsent)
	default:
		c.locked(func() {
			c.over(st)
			c.rested(st.wrote)
			c.keep(st)
		})
	}
}

// judge has a request judged. A fault there ends the connection.
func (c *conn) judge(st *Stream) Continuation {
	judged := false
	defer func() {
		if st.looped = false; !judged {
			c.release(st)
		}
	}()
	st.looped = true
	rest := c.site.Start(st)
	judged = true
	return rest
}

// keep keeps a stream of the caller's for another request, unless somebody may still have it. It
// needs c.mu.
func (c *conn) keep(st *Stream) {
	if st.spare() {
		st.conn = nil
		c.site.streams.Put(st)
	}
}

// spare reports whether nobody has a stream any more that is over, and its memory is worth to be
// kept.
func (st *Stream) spare() bool {
	return st.bodiless && st.died == nil && st.gone == nil &&
		cap(st.text)+cap(st.block)+cap(st.out) <= mostKept
}

// work gives a stream to a goroutine, which does something for it and ends it. The caller has it no
// more.
func (c *conn) work(st *Stream, do func()) {
	c.mu.Lock()
	c.working++
	c.mu.Unlock()
	c.site.Stats.Streams.Add(1)
	go func() {
		done := false
		defer func() {
			c.site.Stats.Streams.Add(-1)
			c.mu.Lock()
			c.over(st)
			if done {
				c.keep(st)
			}
			c.working--
			c.rested(time.Time{})
			if c.rests() {
				c.doze()
			}
			c.worked.Signal()
			c.mu.Unlock()
			_ = c.flush()
		}()
		defer func() {
			if p := recover(); p != nil {
				c.site.Fault(p)
			}
		}()
		do()
		done = true
	}()
}
