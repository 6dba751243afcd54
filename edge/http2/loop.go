package http2

import (
	"errors"
	"io"

	frames "golang.org/x/net/http2"
)

// loop reads frames until the connection ends.
func (c *conn) loop() {
	c.tunnels = c.site.Tunnels != nil && c.site.Tunnels()
	c.mu.Lock()
	settings := []frames.Setting{{ID: frames.SettingMaxConcurrentStreams,
		Val: uint32(c.site.MaxStreams)},
		{ID: frames.SettingMaxHeaderListSize, Val: uint32(c.site.Limits.HeaderBytes)},
		{ID: frames.SettingInitialWindowSize, Val: firstWindow}}
	if c.tunnels {
		settings = append(settings, frames.Setting{ID: frames.SettingEnableConnectProtocol, Val: 1})
	}
	c.putSettings(settings...)
	if c.client.OverCap {
		c.putGoAway(0, frames.ErrCodeNo)
		c.mu.Unlock()
		c.client.Linger.Store(true)
		return
	}
	c.putWindow(0, c.site.window()-usualWindow)
	c.mu.Unlock()
	var preface [len(frames.ClientPreface)]byte
	if c.ready() != nil {
		return // nobody asked for anything
	}
	if _, err := io.ReadFull(c.reader, preface[:]); err != nil {
		return
	}
	if string(preface[:]) != frames.ClientPreface {
		c.fail(frames.ConnectionError(frames.ErrCodeProtocol))
		return
	}
	for {
		if err := c.next(); err != nil {
			c.stop(err)
			return
		}
	}
}

// stop ends the connection for a reason. A head that is under way is a request all the same.
func (c *conn) stop(err error) {
	var wrong frames.ConnectionError
	var abuse calm
	switch {
	case errors.As(err, &wrong), errors.As(err, &abuse):
		c.fail(err)
		return
	case errors.Is(err, frames.ErrFrameTooLarge):
		c.fail(frames.ConnectionError(frames.ErrCodeFrameSize))
		return
	}
	if h := c.head; h != nil && h.stream != nil && !h.trailer {
		st := h.stream
		st.in.Refused, st.in.Broken, st.silent, st.resetWith = malformed, true, true,
			frames.ErrCodeCancel
		if err == errSlowHead {
			st.in.Refused = slowHead
		}
		c.begin(st)
	}
	if err == errSlowHead {
		c.mu.Lock()
		c.finally()
		c.mu.Unlock()
		c.client.Linger.Store(true)
	}
}

// next reads a frame, and does what it says.
func (c *conn) next() error {
	if err := c.ready(); err != nil {
		return err
	}
	header, err := c.reader.framer.ReadFrameHeader()
	if err != nil {
		return err
	}
	if !c.settled && (header.Type != frames.FrameSettings ||
		header.Flags.Has(frames.FlagSettingsAck)) {
		return frames.ConnectionError(frames.ErrCodeProtocol)
	}
	frame, err := c.reader.framer.ReadFrameForHeader(header)
	if err == nil {
		err = c.take(frame)
		// What it said of tables and windows is lost
	} else if header.Type == frames.FrameHeaders || header.Type == frames.FrameData {
		if stream, ok := err.(frames.StreamError); ok {
			err = frames.ConnectionError(stream.Code)
		}
	}
	if wrong, ok := err.(frames.StreamError); ok {
		return c.wrong(wrong)
	}
	return err
}

func (c *conn) take(frame frames.Frame) error {
	switch f := frame.(type) {
	case *frames.HeadersFrame:
		return c.headers(f)
	case *frames.ContinuationFrame:
		if c.head.pieces++; c.head.pieces > mostContinuations {
			return calm(Continuations)
		}
		return c.fragment(f.HeaderBlockFragment(), f.HeadersEnded())
	case *frames.DataFrame:
		return c.data(f)
	case *frames.RSTStreamFrame:
		return c.resetByClient(f)
	case *frames.WindowUpdateFrame:
		return c.widen(f)
	case *frames.SettingsFrame:
		return c.settings(f)
	case *frames.PingFrame:
		return c.ping(f)
	case *frames.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return frames.StreamError{StreamID: f.StreamID, Code: frames.ErrCodeProtocol}
		}
	case *frames.PushPromiseFrame:
		return frames.ConnectionError(frames.ErrCodeProtocol)
	}
	return c.control(1)
}

func (c *conn) ping(f *frames.PingFrame) error {
	if err := c.control(1); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !f.IsAck() {
		c.putPing(frames.FlagPingAck, f.Data)
	} else if f.Data == farewell && c.leaving == announced {
		c.finally()
	}
	return nil
}

// acknowledged is called when the client has heard of firstWindow: the windows of its streams have
// become smaller, perhaps less than nothing.
func (c *conn) acknowledged() {
	for _, st := range c.streams {
		st.recv -= c.first - firstWindow
	}
	c.first = firstWindow
}

func (c *conn) settings(f *frames.SettingsFrame) error {
	if c.settled {
		if err := c.control(1 + f.NumSettings()/8); err != nil {
			return err
		}
	}
	c.settled = true
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.IsAck() {
		c.acknowledged()
		return nil
	}
	last, largest := c.initial, c.initial
	err := f.ForeachSetting(func(s frames.Setting) error {
		switch s.ID {
		case frames.SettingHeaderTableSize:
			c.shrunk = c.shrunk || s.Val < 4096
		case frames.SettingInitialWindowSize:
			last = int64(s.Val)
			largest = max(largest, last)
		}
		return s.Valid()
	})
	if err == nil {
		err = c.resize(last, largest)
	}
	if err == nil {
		c.out = appendFrame(c.out, 0, frames.FrameSettings, frames.FlagSettingsAck, 0)
	}
	return err
}

// resize makes the window of a new stream another one, and those of all streams with it, once for
// each frame however often that says so. It needs c.mu.
func (c *conn) resize(window, largest int64) error {
	was := c.initial
	if c.initial = window; largest == was && window == was {
		return nil
	}
	for _, st := range c.streams {
		if st.window+largest-was > mostWindow {
			return frames.ConnectionError(frames.ErrCodeFlowControl)
		}
		st.window += window - was
		signal(st.opened)
	}
	return nil
}
