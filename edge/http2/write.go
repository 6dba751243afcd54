package http2

import (
	"encoding/binary"
	"errors"
	"runtime"
	"time"

	frames "golang.org/x/net/http2"

	"sluice/edge/socket"
)

// Frames are put into c.out, and written by whoever flushes: one at a time, who then writes what
// others have put there as well. All that begins with put needs c.mu.

// appendFrame appends the header of a frame.
func appendFrame(b []byte, length int, kind frames.FrameType, flags frames.Flags,
	id uint32) []byte {
	b = append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	return binary.BigEndian.AppendUint32(b, id)
}

// borrowBuffers sees to it that there is something to write with.
func (c *conn) borrowBuffers() {
	if c.lent == nil {
		c.lent = lenders.Get().(*buffers)
		c.out, c.spare = append(c.lent.out, c.out...), c.lent.spare
	}
}

// giveBack gives it back, where nothing is to be written.
func (c *conn) giveBack() {
	if c.lent != nil && len(c.out)+len(c.late) == 0 {
		c.lent.out, c.lent.spare = c.out[:0], c.spare[:0]
		lenders.Put(c.lent)
		c.lent, c.out, c.spare = nil, nil, nil
	}
}

func (c *conn) putReset(id uint32, code frames.ErrCode) {
	c.out = binary.BigEndian.AppendUint32(appendFrame(c.out, 4, frames.FrameRSTStream, 0, id),
		uint32(code))
}

// putLateReset is putReset for a stream that has been answered, in a write of its own after the
// answer: some clients (curl 7.88) that hear of both at once forget the answer.
func (c *conn) putLateReset(id uint32, code frames.ErrCode) {
	c.late = binary.BigEndian.AppendUint32(appendFrame(c.late, 4, frames.FrameRSTStream, 0, id),
		uint32(code))
}

func (c *conn) putWindow(id uint32, n int) {
	c.out = binary.BigEndian.AppendUint32(appendFrame(c.out, 4, frames.FrameWindowUpdate, 0, id),
		uint32(n))
}

func (c *conn) putGoAway(last uint32, code frames.ErrCode) {
	c.out = binary.BigEndian.AppendUint32(appendFrame(c.out, 8, frames.FrameGoAway, 0, 0), last)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(code))
}

func (c *conn) putPing(ack frames.Flags, data [8]byte) {
	c.out = append(appendFrame(c.out, 8, frames.FramePing, ack, 0), data[:]...)
}

func (c *conn) putSettings(list ...frames.Setting) {
	c.out = appendFrame(c.out, 6*len(list), frames.FrameSettings, 0, 0)
	for _, s := range list {
		c.out = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(c.out, uint16(s.ID)),
			s.Val)
	}
}

// putHead puts a block of header fields, in as many frames as it takes. Nothing may come between
// them.
func (c *conn) putHead(id uint32, block []byte, end bool) {
	c.borrowBuffers()
	kind, flags := frames.FrameHeaders, frames.Flags(0)
	if end {
		flags = frames.FlagHeadersEndStream
	}
	shrink := 0
	// The client's table has become smaller: it has to hear that ours, which is never used, has
	// done so, too
	if c.shrunk {
		shrink, c.shrunk = 1, false
	}
	for first := true; first || len(block) > 0; first = false {
		n := min(len(block), frameSize-shrink)
		if n == len(block) {
			flags |= frames.FlagHeadersEndHeaders
		}
		c.out = appendFrame(c.out, n+shrink, kind, flags, id)
		if shrink > 0 {
			c.out = append(c.out, 0x20)
		}
		c.out = append(c.out, block[:n]...)
		block, kind, flags, shrink = block[n:], frames.FrameContinuation, 0, 0
	}
}

func (c *conn) putData(id uint32, p []byte, end bool) {
	c.borrowBuffers()
	flags := frames.Flags(0)
	if end {
		flags = frames.FlagDataEndStream
	}
	c.out = append(appendFrame(c.out, len(p), frames.FrameData, flags, id), p...)
}

// flush writes what there is, unless somebody else is about to. What it returns may be of another
// write, but not of one that came after what there is had been written: a client may go as soon as
// it has its answer. Who has written much that others have put there since is relieved, or it would
// write for as long as they go on.
func (c *conn) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gathers()
	until := c.written + int64(c.flying+len(c.out)+len(c.late))
	for !c.writing && len(c.out)+len(c.late) > 0 && c.broken == nil {
		if c.written > until+mostUnwritten {
			go c.flush()
			return nil
		}
		c.writing = true
		b, late := c.out, c.late
		c.out, c.late, c.flying = c.spare[:0], nil, len(b)+len(late)
		c.writes(len(b))
		c.mu.Unlock()
		var err error
		if len(b) > 0 {
			_, err = c.client.Write(b)
		}
		// And not when nobody has more to write, which may never be
		if err == nil && len(late) > 0 {
			_, err = c.client.Write(late)
		}
		c.mu.Lock()
		c.wrote()
		c.flying = 0
		if c.spare = b[:0]; cap(b) > 2*mostUnwritten {
			c.spare = nil
		}
		c.writing = false
		if err != nil {
			c.breakOff(err)
		} else {
			c.written += int64(len(b) + len(late))
		}
		if cap(c.out)+cap(c.spare) > 2*frameSize { // a stream that is only open needs none
			c.giveBack()
		}
		c.drained.Broadcast()
	}
	if c.written >= until {
		return nil
	}
	return c.broken
}

// gather lets other answers come that may be about to, so that they are written together.
func (c *conn) gather() {
	c.mu.Lock()
	several := c.working > 1 && !c.writing
	c.mu.Unlock()
	if several {
		runtime.Gosched()
	}
}

// say writes all that there is, and waits for whoever does so.
func (c *conn) say() {
	_ = c.flush()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.writing {
		c.drained.Wait()
	}
}

// room waits until there is room for more to be written, of a stream, if it is not nil, that may be
// reset meanwhile. It needs c.mu.
func (c *conn) room(st *Stream) error {
	for first := true; c.broken == nil && len(c.out) > mostUnwritten &&
		(st == nil || st.died == nil); first = false {
		if st != nil && first {
			st.stalls()
			defer st.goesOn()
			c.mu.Unlock()
			c.site.Memory.makeRoom()
			c.mu.Lock()
			continue
		}
		if c.writing {
			c.gathers()
			c.drained.Wait()
			continue
		}
		c.mu.Unlock()
		_ = c.flush()
		c.mu.Lock()
	}
	return c.broken
}

var errGone = errors.New("edge: http2: the connection has ended")

// breakOff ends all that is under way: nothing can be written any more, or read. It needs c.mu.
func (c *conn) breakOff(err error) {
	if c.broken != nil {
		return
	}
	c.broken = err
	for _, st := range c.streams {
		st.die(errGone)
	}
	_ = c.client.Raw.SetReadDeadline(socket.LongAgo)
	c.drained.Broadcast()
}

// open waits until some of a body of n bytes may be sent on a stream, and returns how much. The
// client must open its windows at a pace. It needs c.mu.
func (c *conn) open(st *Stream, n int) (int, error) {
	for {
		if err := c.room(st); err != nil {
			return 0, err
		}
		if st.died != nil {
			return 0, st.died
		}
		if most := min(int64(n), frameSize, st.window, c.window); most > 0 {
			st.taking.Waited(0, int(most))
			return int(most), nil
		}
		st.stalls()
		c.mu.Unlock()
		c.site.Memory.makeRoom()
		err := c.flush()
		began := time.Now()
		late := err == nil && !wait(st.opened, st.taking.Left)
		c.mu.Lock()
		st.goesOn()
		st.taking.Waited(time.Since(began), 0)
		if err != nil {
			return 0, err
		}
		if late && st.died == nil && min(st.window, c.window) <= 0 {
			c.site.SlowReaders.Add(1)
			c.reset(st, frames.ErrCodeCancel)
			return 0, errSlow
		}
	}
}

var errSlow = errors.New("edge: http2: the client takes its answer too slowly")

// wait waits for a signal, and reports false if none came in time.
func wait(signal <-chan struct{}, most time.Duration) bool {
	timer := time.NewTimer(max(most, 0))
	defer timer.Stop()
	select {
	case <-signal:
		return true
	case <-timer.C:
		return false
	}
}

// signal wakes who waits, or will.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
