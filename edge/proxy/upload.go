package proxy

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/edge/http1"
	"sluice/edge/limiter/shedding"
	"sluice/edge/message"
	"sluice/edge/upstream"
)

// inlineBody is how large a body may be that is sent to the origin before its answer is read.
// Anything larger goes in a separate goroutine, because an origin may answer, and want its answer
// read, before it has read the request.
const inlineBody = 64 << 10

// heldBody is how large a body may be that is read before a server is chosen: a client may take its
// time for it, and holds no slot at the origin meanwhile.
const heldBody = 16 << 10

// inviteTime is how long a client that expects to be invited to send its body waits for the
// origin's word. Then the edge invites it: a client should not wait for that without end (RFC 9110,
// 10.1.1), and many an origin never answers before it has the body.
const inviteTime = time.Second

// lastMoment is how long the end of a body may take to be sent to an origin that has answered
// already.
const lastMoment = 100 * time.Millisecond

// chunkFrame is the most that stands around the bytes of a chunk, in bytes.
const chunkFrame = 16 + len("\r\n\r\n")

var (
	errBodyTooLarge = errors.New("edge: request body above limits.body_bytes")
	errTrailer      = errors.New("edge: a request's trailer has a field that only a header may have")
	errFault        = errors.New("edge: panic while sending a body")
)

// heldBodies hold bodies that have been read, each until its request is over.
var heldBodies = sync.Pool{New: func() any { return new([]byte) }}

// await waits for the body of a request, by due if that is not zero. A small one is read, and held;
// it takes memory for what has come, not for what was announced. A longer one is not, but it has
// begun when await returns: none of it is worth a server's slot, or a link that may end meanwhile.
func (p *Forward) await(due time.Time) error {
	p.on.StartBody(0, due)
	if p.in.Length == message.LengthChunked || p.in.Length > heldBody {
		return p.on.AwaitBody()
	}
	defer p.on.EndBody()
	p.on.TakeBody(nil, nil)
	p.held = heldBodies.Get().(*[]byte)
	*p.held = (*p.held)[:0]
	for {
		part, err := p.on.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		*p.held = append(*p.held, part...)
		p.on.Discard(len(part))
	}
}

// An upload sends a request's body to the origin.
type upload struct {
	on        Exchange // the exchange that it belongs to
	length    int64    // of it, as announced
	link      *upstream.Link
	w         *bufio.Writer // to the link; given back at the end of run
	fault     func(any)
	limit     int64                             // bytes; 0: none
	within    func(now time.Time) time.Duration // how long the origin may take to take something
	due       time.Time                         // of the whole answer; zero: any time
	announced message.Names                     // trailers that may go on
	// Lent while the client is waited for; nil: the group sheds nothing
	slot    *shedding.Slot
	stuck   bool          // the origin does not take what it is sent
	started bool          // in a separate goroutine
	taken   atomic.Bool   // the client has sent all of it
	failed  atomic.Bool   // err is set
	done    chan struct{} // closed at its end
	// When the origin's time for an answer is over; not before done
	answerBy time.Time
	err      error // why it failed
	byClient bool  // the failure is the client's, not the origin's
}

// run sends the body. What has arrived goes on together, before it waits for more: a body in chunks
// of one byte costs no system call for each of them. If the client fails, the connection to the
// origin is closed at once: an origin must never take a part of a request for the whole.
func (u *upload) run() {
	defer http1.ReleaseWriter(u.w)
	for {
		part, err := u.on.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			u.fail(err, !u.stuck)
			return
		}
		if u.limit > 0 && u.on.Got()+int64(len(part)) > u.limit {
			u.fail(errBodyTooLarge, true)
			return
		}
		if u.on.Got()+int64(len(part)) == u.length {
			// Before the last of it is sent: the answer may come before that call returns
			u.taken.Store(true)
		}
		// Before it is sent, which may fail: what is taken is not the client's next request. It
		// stays valid
		u.on.Discard(len(part))
		if err := u.write(part); err != nil {
			u.fail(err, false)
			return
		}
	}
	var trailer message.Head
	if err := u.on.ReadTrailer(&trailer); err != nil || slices.ContainsFunc(trailer.Lines,
		func(l message.Line) bool { return message.Forged(&l) }) {
		u.fail(errTrailer, true)
		return
	}
	u.taken.Store(true)
	if err := u.finish(&trailer); err != nil {
		u.fail(err, false)
	}
}

// pause is called before the client is waited for: a body in a separate goroutine does not keep
// back what it has.
func (u *upload) pause() error {
	if u.started && u.w.Buffered() > 0 {
		if err := u.flush(); err != nil {
			u.stuck = true
			return err
		}
	}
	if u.slot != nil {
		u.slot.Lend()
	}
	return nil
}

func (u *upload) resume() {
	if u.slot != nil {
		u.slot.Return()
	}
}

func (u *upload) write(p []byte) error {
	if u.w.Available() < len(p)+chunkFrame { // some of it is written now
		if err := u.extend(); err != nil {
			return err
		}
	}
	if u.length == message.LengthChunked {
		return http1.WriteChunk(u.w, p)
	}
	_, err := u.w.Write(p)
	return err
}

func (u *upload) flush() error {
	if err := u.extend(); err != nil {
		return err
	}
	return u.w.Flush()
}

// finish writes what comes after the body.
func (u *upload) finish(trailer *message.Head) error {
	if err := u.extend(); err != nil {
		return err
	}
	if u.length == message.LengthChunked {
		_, _ = u.w.WriteString("0\r\n")
		writeTrailers(u.w, trailer, u.announced)
	}
	return u.w.Flush()
}

// extend gives the origin its time anew: for the next write, and, where the head of the answer is
// read after that, for beginning to answer.
func (u *upload) extend() error {
	now := time.Now()
	if u.started {
		return u.link.SetWriteDeadline(now.Add(u.within(now)))
	}
	return u.link.SetDeadline(now.Add(u.within(now)))
}

func (u *upload) fail(err error, client bool) {
	u.err, u.byClient = err, client
	u.failed.Store(true) // before the link is closed: that ends the wait for an answer
	if client {
		u.link.Close()
	}
}

// start runs the upload in a goroutine, which end waits for. The origin may answer meanwhile, up to
// wait, but it need not: its time for that begins at the end.
func (u *upload) start(wait time.Time) {
	u.started, u.done = true, make(chan struct{})
	_ = u.link.SetReadDeadline(wait) // a failure shows when the link is read
	go func() {
		defer close(u.done)
		defer func() {
			now := time.Now()
			u.answerBy = now.Add(u.within(now))
			_ = u.link.SetReadDeadline(u.answerBy)
		}()
		defer func() {
			if p := recover(); p != nil {
				u.fault(p)
				u.fail(errFault, true)
			}
		}()
		u.run()
	}()
}

// expired reports whether the origin has had all its time, and not only that for a word before the
// body.
func (u *upload) expired() bool {
	by := u.due
	if u.over() {
		by = u.answerBy
	}
	return !by.IsZero() && !time.Now().Before(by)
}

// proceed takes back that the origin is to answer before the body has come.
func (u *upload) proceed() {
	_ = u.link.SetReadDeadline(u.due)
	if u.taken.Load() || u.failed.Load() { // the origin's time may have begun meanwhile
		now := time.Now()
		_ = u.link.SetReadDeadline(now.Add(u.within(now)))
	}
}

// over reports whether the body is sent, or has failed.
func (u *upload) over() bool {
	if !u.started {
		return true
	}
	select {
	case <-u.done:
		return true
	default:
		return false
	}
}

// end is called when the answer is over. An upload that is still under way then is cut off: the
// origin has said what it had to say. It reports whether the whole body was sent.
func (u *upload) end() bool {
	defer u.on.EndBody()
	if !u.over() && u.taken.Load() {
		// Nothing is left to read of the client, which can go on; that the last of it is sent is a
		// matter of a moment, or never comes to pass.
		moment := time.NewTimer(lastMoment)
		defer moment.Stop()
		select {
		case <-u.done:
		case <-moment.C:
			u.link.Close()
			<-u.done
		}
	}
	if !u.over() {
		u.link.Close()
		u.on.AbortBody()
		<-u.done
		return false
	}
	return u.err == nil
}

// bodyRefusal is the answer to a request whose body failed on the client's side.
func bodyRefusal(err error) *message.Refusal {
	switch {
	case err == errFault:
		return Mistake
	case errors.Is(err, errBodyTooLarge):
		return TooLarge
	case http1.TimedOut(err):
		return message.Refuse(http.StatusRequestTimeout, "body_timeout",
			"The body came too slowly.")
	}
	return message.Refuse(http.StatusBadRequest, "body_incomplete",
		"The body is malformed or incomplete.")
}

// TooLarge is the answer to a request whose body is above limits.body_bytes.
var TooLarge = message.Refuse(http.StatusRequestEntityTooLarge, "body_too_large",
	"The body is larger than this server accepts.")

// Mistake is the answer to a request that failed by a fault of the edge's own.
var Mistake = message.Refuse(http.StatusInternalServerError, "internal",
	"This server made a mistake.")
