package replay

import (
	"bufio"
	"fmt"
	"sluice/loadgen/answer"
	"strconv"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// read reads frames until the connection ends.
func (c *h2conn) read() {
	f := http2.NewFramer(nil, bufio.NewReaderSize(c.nc, 16<<10))
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.MaxHeaderListSize = answer.MaxLine
	f.SetReuseFrames()
	for {
		frame, err := f.ReadFrame()
		c.m.mu.Lock()
		if err == nil && !c.over {
			err = c.take(frame)
		}
		if err != nil {
			if _, ok := err.(http2.StreamError); ok {
				err = answer.ErrMalformed
			}
			c.end(cause(err))
		}
		over := c.over
		c.m.mu.Unlock()
		if over {
			return
		}
	}
}

// take takes a frame.
func (c *h2conn) take(frame http2.Frame) error {
	defer c.wake.Signal()
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		return c.head(f)
	case *http2.DataFrame:
		if c.eaten += f.Length; c.eaten >= 1<<24 {
			_ = c.framer.WriteWindowUpdate(0, c.eaten)
			c.eaten = 0
		}
		if st := c.find(f.StreamID); st != nil {
			st.answer.Take(f.Data())
			if f.StreamEnded() {
				c.finish(st)
			}
		}
	case *http2.RSTStreamFrame:
		c.reset(f)
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		if n, ok := f.Value(http2.SettingMaxConcurrentStreams); ok {
			c.most = int(min(n, uint32(c.m.Streams)))
		} else {
			c.most = c.m.Streams
		}
		if n, ok := f.Value(http2.SettingHeaderTableSize); ok {
			c.encoder.SetMaxDynamicTableSizeLimit(n)
		}
		_ = c.framer.WriteSettingsAck()
		c.m.serve(c.pool)
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.framer.WritePing(true, f.Data)
		}
		for _, st := range c.resets {
			c.m.silent(c, st)
		}
		clear(c.resets)
		c.settle()
	case *http2.GoAwayFrame:
		c.goAway(f)
	}
	return nil
}

// find finds a stream whose answer is wanted, or may come.
func (c *h2conn) find(id uint32) *h2stream {
	if st := c.streams[id]; st != nil {
		return st
	}
	return c.resets[id]
}

// head takes the head of an answer, an interim one, or what comes after its body.
func (c *h2conn) head(f *http2.MetaHeadersFrame) error {
	st := c.find(f.StreamID)
	if st == nil {
		return nil
	}
	a := &st.answer
	if a.Status == 0 {
		n, err := strconv.Atoi(f.PseudoValue("status"))
		if err != nil || n < 100 || n > 999 {
			return fmt.Errorf("%w: status %q", answer.ErrMalformed, f.PseudoValue("status"))
		}
		if n < 200 {
			return nil
		}
		a.Status = n
		for _, h := range f.RegularFields() {
			switch h.Name {
			case "sluice-verdict":
				a.Verdict = answer.ParseVerdict([]byte(h.Value))
			case "ratelimit":
				a.Asked = true
			}
		}
	}
	if f.StreamEnded() {
		c.finish(st)
	} else if _, reset := c.resets[f.StreamID]; reset && a.Verdict.Found { // its end may never come
		c.judge(st)
	}
	return nil
}

// judge books what the answer to a reset says of the decision.
func (c *h2conn) judge(st *h2stream) {
	if !st.judged {
		st.judged = true
		c.m.judged(st.request, int16(c.edge), &st.answer, st.asked, st.since, c.m.now())
	}
}

// finish books an answer that is complete.
func (c *h2conn) finish(st *h2stream) {
	m, id, now := c.m, uint32(st.id), c.m.now()
	c.used++
	c.since = now
	if c.resets[id] == st {
		c.judge(st)
		delete(c.resets, id)
		m.out.Statuses[st.answer.Status]++
		m.out.Answered++
	} else {
		delete(c.streams, id)
		m.busy--
		m.answered(st.request, int16(c.edge), &st.answer, st.asked, st.since, now)
	}
	m.serve(c.pool)
	c.settle()
}

// reset takes note that the edge has ended a stream. One that was reset by us has no answer, which
// shows in the end.
func (c *h2conn) reset(f *http2.RSTStreamFrame) {
	st := c.streams[f.StreamID]
	if st == nil {
		return
	}
	err := errResetByEdge
	// It may not be sent again: the edge has counted it
	if f.ErrCode == http2.ErrCodeRefusedStream {
		err = errRefusedStream
	}
	delete(c.streams, f.StreamID)
	c.m.busy--
	c.m.fail(st.request, c.edge, err)
	c.m.serve(c.pool)
	c.settle()
}

// goAway has the connection end. What the edge has not taken is sent once more elsewhere.
func (c *h2conn) goAway(f *http2.GoAwayFrame) {
	if f.ErrCode != http2.ErrCodeNo {
		c.m.out.Ended[f.ErrCode.String()]++
	}
	c.retired = true
	for _, streams := range []map[uint32]*h2stream{c.streams, c.resets} {
		for id, st := range streams {
			if id <= f.LastStreamID {
				continue
			}
			delete(streams, id)
			if st.written = true; c.resetOf(st) {
				c.m.out.Resets--
			} else {
				c.m.busy--
			}
			if !c.m.elsewhere(st.request, true) {
				c.m.fail(st.request, c.edge, errClosedEarly)
			}
		}
	}
	c.settle()
}

func (c *h2conn) resetOf(st *h2stream) bool { return c.m.trace.Requests[st.request].Reset }
