package memcached

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"sluice/counter/buckets"
	"sluice/pop/wire"
)

// Backlog is how many commands a node's pipeline takes before their answers are there. What a
// Machine sends beyond it comes back Unsent.
const Backlog = 1 << 14

const (
	backlogBytes = 8 << 20 // not yet written; commands beyond it come back Unsent as well
	// Without a complete answer, or for a write, before the connection is given up
	progressTimeout = time.Second
	readBuffer      = 64 << 10
	batch           = 256 // results delivered at a time, at most
	// When so many answers are to come, they are waited for together
	gatherFrom = 64
	gatherFor  = 10 * time.Millisecond // at most so long: it is not worth more
)

var (
	errPanic   = errors.New("memcached: panic")
	errStopped = errors.New("memcached: stopped")
	errBacklog = errors.New("memcached: too many commands under way to this node")
	errKey     = errors.New("memcached: not a key: 1 to 250 bytes of printable ASCII are")
	errKeys    = fmt.Errorf("memcached: get of more than %d keys", wire.MaxKeys)
)

// pipeline carries many small commands to one node on one connection: the reports, or polls. What
// gathers while a burst is being written is the next burst, so that there is no flush interval to
// tune; answers come in the order of the commands.
//
// A command is carried out at most once: nothing is ever sent again. When the connection is lost,
// commands that were written in full are Unknown and all others Unsent.
type pipeline struct {
	dialer *dialer
	// Called by one goroutine at a time; the slice is valid until it returns
	deliver func([]wire.Result)
	caught  func(any)          // is called with a panic
	wake    chan struct{}      // something is queued
	trips   *buckets.Histogram // one observation for each burst: from its write to its last answer
	drops   *drops
	// Without a complete answer, or for a write, before the connection is given up
	patience time.Duration
	// The caller of send writes where nothing is under way: such a write does not wait, and wakes
	// no goroutine. For polls, which are most of what an edge at rest does.
	direct bool

	mu sync.Mutex
	// ring for head <= i < tail: the commands not yet answered, of which those before sent have
	// been given to the connection. The reader reads slots before sent without mu: they change only
	// after head has passed them.
	ring             ring
	head, sent, tail uint64
	buf              []byte    // ring[sent:tail] as bytes
	bursts           []burst   // on their way, oldest first
	conn             net.Conn  // to write on, while there is one, if direct
	writing          bool      // somebody writes: another burst must wait
	failed           error     // of send's write: the connection is lost
	due              time.Time // of the next answer; the zero Time if none is to come
}

// burst is what one write carried.
type burst struct {
	end uint64 // the number of the command behind its last
	at  time.Time
}

// drops counts lost connections by their reason.
type drops struct {
	closed, timeout, wrong atomic.Uint64
}

func (d *drops) count(err error) {
	switch {
	case errors.Is(err, errAnswer):
		d.wrong.Add(1)
	case errors.Is(err, os.ErrDeadlineExceeded):
		d.timeout.Add(1)
	default:
		d.closed.Add(1)
	}
}

func newPipeline(d *dialer, deliver func([]wire.Result), caught func(any)) *pipeline {
	return &pipeline{
		dialer:  d,
		deliver: deliver,
		caught:  caught,
		trips:   buckets.Trips(),
		drops:   new(drops),
		wake:    make(chan struct{}, 1),
		ring:    make(ring, Backlog/16),

		patience: progressTimeout,
	}
}

// send queues commands and returns at once. What it has no room for it returns: those have not been
// sent. It does not keep cmds itself.
func (p *pipeline) send(cmds []wire.Command) (refused []wire.Command) {
	p.mu.Lock()
	for len(cmds) > 0 && p.tail-p.head < Backlog && len(p.buf) < backlogBytes {
		if p.tail-p.head == uint64(len(p.ring)) {
			p.ring = p.ring.grown(p.head, p.tail)
		}
		s := p.ring.at(p.tail)
		s.Command = cmds[0]
		p.buf = appendCommand(p.buf, &cmds[0])
		s.end = len(p.buf)
		p.tail++
		cmds = cmds[1:]
	}
	conn := p.conn
	if conn == nil || p.writing || p.head != p.sent || len(p.buf) == 0 {
		p.mu.Unlock()
		p.hurry()
		return cmds
	}
	buf := p.begin(conn, nil)
	p.mu.Unlock()
	_, err := writeAll(conn, buf, p.patience)
	p.mu.Lock()
	more := p.written(buf)
	p.failed = err
	p.mu.Unlock()
	if err != nil {
		conn.Close() // so the reader ends, and the connection with it
	} else if more {
		p.hurry()
	}
	return cmds
}

// hurry has what is queued written.
func (p *pipeline) hurry() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// begin takes what is queued as the next burst. p.mu is held, and nobody writes; spare is to queue
// in meanwhile. written must follow.
func (p *pipeline) begin(conn net.Conn, spare []byte) (buf []byte) {
	if len(p.buf) == 0 {
		return nil
	}
	buf, p.buf = p.buf, spare[:0]
	if cap(p.buf) > backlogBytes/8 {
		p.buf = nil // an exceptional burst does not hold its memory for ever
	}
	now := time.Now()
	if p.head == p.sent { // nothing was on its way: from now on the node owes us an answer
		p.due = now.Add(p.patience)
		conn.SetReadDeadline(p.due)
	}
	p.sent, p.writing = p.tail, true
	if len(p.bursts) < 64 { // of more on their way, some are not timed
		p.bursts = append(p.bursts, burst{p.sent, now})
	}
	return buf
}

// written ends a burst, whose bytes are not needed any more, and reports whether more is queued.
// p.mu is held.
func (p *pipeline) written(buf []byte) (more bool) {
	if p.writing = false; len(p.buf) == 0 {
		p.buf = buf[:0]
	}
	return len(p.buf) > 0
}

// backlog is how many commands have no answer yet.
func (p *pipeline) backlog() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.tail - p.head)
}

// run connects whenever there is something to send and no connection, until ctx is done. Then all
// that is not answered comes back.
func (p *pipeline) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			p.giveUp(errStopped, 0, 0)
			return
		case <-p.wake:
		}
		if p.backlog() == 0 {
			continue
		}
		conn, err := p.dialer.connect(ctx)
		if err != nil {
			p.giveUp(err, 0, 0)
			continue
		}
		p.talk(ctx, conn)
	}
}

// talk uses one connection until it is lost or ctx is done.
func (p *pipeline) talk(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	var readErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer conn.Close() // which also ends a write under way
		defer func() {
			if v := recover(); v != nil {
				p.caught(v)
				readErr = fmt.Errorf("%w: %v", errPanic, v)
			}
		}()
		readErr = p.read(conn)
	}()
	if p.direct {
		_ = p.use(conn)
	}
	from, written, err := p.write(conn, done)
	err = cmp.Or(err, p.use(nil))
	conn.Close()
	<-done
	switch {
	case ctx.Err() != nil:
		err = errStopped
	case readErr != nil && !errors.Is(readErr, net.ErrClosed):
		err = readErr // the reader has the cause: the writer only sees a closed connection
	}
	if ctx.Err() == nil {
		p.drops.count(err)
		p.dialer.lost()
	}
	p.giveUp(err, from, written)
}

// use lets send write on a connection; nil: on none any more. It returns why the one before failed,
// if a write of send did.
func (p *pipeline) use(conn net.Conn) (failed error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	failed, p.failed = p.failed, nil
	p.conn = conn
	return failed
}

// write writes bursts until the connection is lost or done is closed. It returns the number of the
// first command that was not given to the connection in a whole burst, and how many bytes from
// there on were.
func (p *pipeline) write(conn net.Conn,
	done <-chan struct{}) (from uint64, written int, err error) {
	var buf, spare []byte
	for {
		p.mu.Lock()
		if from, buf = p.sent, nil; !p.writing { // else send wakes this one when it has written
			buf = p.begin(conn, spare)
		}
		p.mu.Unlock()
		if len(buf) > 0 {
			n, err := writeAll(conn, buf, p.patience)
			p.mu.Lock()
			p.writing = false
			p.mu.Unlock()
			if err != nil {
				return from, n, err
			}
			spare = buf
			continue
		}
		select {
		case <-p.wake:
		case <-done:
			return from, 0, nil
		}
	}
}

// writeAll writes b, or returns how much of it was written.
func writeAll(conn net.Conn, b []byte, patience time.Duration) (n int, err error) {
	due := time.Now().Add(patience)
	conn.SetWriteDeadline(due)
	if n, err = conn.Write(b); late(err, due) {
		conn.SetWriteDeadline(time.Now().Add(patience))
		var rest int
		rest, err = conn.Write(b[n:])
		n += rest
	}
	return n, err
}

// lateBy is how late a deadline's end is noticed by a process that did not run meanwhile: it was
// stopped, or starved. The other side may have answered in time, and gets as long again, once,
// because what is read after a deadline is an error whatever has come.
const lateBy = 250 * time.Millisecond

// late reports whether err is the end of a deadline, and this process was not there to see it.
func late(err error, deadline time.Time) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) && time.Since(deadline) >= lateBy
}

// read reads answers until something is wrong, and returns what.
//
// A node answers a burst in small pieces, and to be woken for each costs more than all else that is
// done for it. So while many answers are to come, it sleeps until there are about as many bytes as
// answers; one has three or more.
func (p *pipeline) read(conn net.Conn) error {
	var (
		mark     = newLowMark(conn)
		awaited  int // answers to come after the last, 0 if there was none since the last Read
		in       = make([]byte, readBuffer)
		from, to int // in[from:to] is not used up yet
		state    answers
		results  = make([]wire.Result, 0, batch)
		again    bool // a deadline was missed since the last answer, and set again
	)
	for {
		if from == to {
			from, to = 0, 0
		} else if to == len(in) {
			if from > 0 {
				to = copy(in, in[from:to])
				from = 0
			} else {
				// At most a value and its lines: answers refuses longer ones
				in = append(in, make([]byte, len(in))...)
			}
		}
		gather := awaited >= gatherFrom
		if gather {
			mark.set(awaited)
			conn.SetReadDeadline(time.Now().Add(gatherFor))
		} else {
			mark.set(1)
		}
		n, err := conn.Read(in[to:])
		if gather {
			awaited = 0
			p.mu.Lock()
			conn.SetReadDeadline(p.due)
			p.mu.Unlock()
			if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
				continue // the node is slow, or stopped: now any answer will do
			}
		}
		to += n
		if n == 0 && err != nil {
			if !again && p.missed(conn, err) {
				again = true
				continue
			}
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		p.mu.Lock()
		head, sent, ring := p.head, p.sent, p.ring
		p.mu.Unlock()
		for head < sent {
			results = append(results, wire.Result{Command: ring.at(head).Command})
			used, complete, err := state.read(in[from:to], &results[len(results)-1])
			from += used
			if !complete {
				results = results[:len(results)-1]
			} else {
				head++
			}
			if err != nil || !complete || head == sent || len(results) == batch {
				if len(results) > 0 { // else a node that drips must not move its deadline
					awaited, again = p.answered(conn, head, results), false
				}
				results = results[:0]
				if err != nil {
					return err
				}
				if !complete {
					break
				}
			}
		}
		if head == sent && from < to {
			// More commands may have been queued since, but only those that were sent when Read
			// returned can have been answered.
			return fmt.Errorf("%w: unsolicited bytes: %.80q", errAnswer, in[from:to])
		}
	}
}

// missed reports whether this process has missed a deadline itself, and sets another if so.
func (p *pipeline) missed(conn net.Conn, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !late(err, p.due) {
		return false
	}
	p.due = time.Now().Add(p.patience)
	conn.SetReadDeadline(p.due)
	return true
}

// answered delivers results and moves head past them. It returns how many answers are to come.
func (p *pipeline) answered(conn net.Conn, head uint64, results []wire.Result) (awaited int) {
	if p.direct {
		p.time(results)
	}
	p.deliver(results)
	p.dialer.answered()
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.head, p.due = head, time.Time{}
	if p.head < p.sent {
		p.due = now.Add(p.patience)
	}
	conn.SetReadDeadline(p.due)
	for len(p.bursts) > 0 && p.bursts[0].end <= head {
		p.trips.Observe(int64(now.Sub(p.bursts[0].at)))
		p.bursts = append(p.bursts[:0], p.bursts[1:]...)
	}
	return int(p.sent - p.head)
}

// time notes how long answers took, for those that wait before they are taken in.
func (p *pipeline) time(results []wire.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.bursts) > 0 {
		for i := range results {
			results[i].Took = time.Since(p.bursts[0].at)
		}
	}
}

// giveUp delivers all commands that are still without an answer. Of those from the number from on,
// only so many bytes were written. A command that lacks its last byte is none to the node.
func (p *pipeline) giveUp(err error, from uint64, written int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	results := make([]wire.Result, 0, batch)
	for i := p.head; i < p.tail; i++ {
		s := p.ring.at(i)
		status := wire.Unsent
		if i < p.sent && (i < from || s.end <= written) {
			status = wire.Unknown
		}
		results = append(results, wire.Result{Command: s.Command, Status: status, Err: err})
		if len(results) == batch {
			p.deliver(results)
			results = results[:0]
		}
	}
	if len(results) > 0 {
		p.deliver(results)
	}
	clear(p.ring)
	p.head, p.sent = p.tail, p.tail
	p.buf = p.buf[:0]
	p.bursts = p.bursts[:0]
	p.due = time.Time{}
}
