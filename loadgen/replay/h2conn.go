package replay

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"sluice/loadgen/answer"
	"sluice/loadgen/socket"
)

// Reasons of Outcome.Errors that only HTTP/2 has.
var (
	errRefusedStream = errors.New("stream refused by the edge")
	errResetByEdge   = errors.New("stream reset by the edge")
	errNoHTTP2       = errors.New("the edge does not speak HTTP/2 (http2.enabled)")
)

// defaultStreams is how many streams a connection has before the edge has said how many there may
// be (RFC 9113, 6.5.2: not fewer than 100).
const defaultStreams = 100

// h2conn is a connection that speaks HTTP/2. The multiplexer's mu guards it, but for what its
// reader alone has.
type h2conn struct {
	m       *multiplexer
	pool    int32
	edge    int
	from    netip.Addr // of its source; unless sources share it
	port    uint16     // in a PROXY header
	nc      net.Conn   // nil: it does not stand yet
	bare    net.Conn   // without TLS
	out     bytes.Buffer
	wake    sync.Cond // there is something to write, or the end
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
	fresh   []*h2stream // not yet written

	streams map[uint32]*h2stream // that are to be answered
	resets  map[uint32]*h2stream // that were reset: most are not
	id      uint32               // of the next
	most    int                  // at once
	opened  int
	used    int // requests answered
	retired bool
	pinged  bool          // it is asked whether more answers come to what was reset
	over    bool          // it has ended
	since   time.Duration // it was used
	eaten   uint32        // bytes of bodies that the edge has no credit for yet
}

// h2stream is a request on a connection.
type h2stream struct {
	id, request int32
	asked       time.Duration // it was about to be written
	since       time.Duration // it was written
	written     bool
	judged      bool // of a reset: its answer has it
	answer      answer.Answer
}

// open makes a connection and sends a request on it.
func (m *multiplexer) open(pool int32, edge int, request int32) {
	c := &h2conn{m: m, pool: pool, edge: edge, from: m.address(request),
		port:    uint16(1024 + m.pools[pool].opened%60000),
		streams: make(map[uint32]*h2stream), resets: make(map[uint32]*h2stream), id: 1,
		most: min(m.Streams, defaultStreams)}
	c.wake.L = &m.mu
	c.framer = http2.NewFramer(&c.out, nil)
	c.encoder = hpack.NewEncoder(&c.block)
	c.out.WriteString(http2.ClientPreface)
	const window = 1 << 30 // no answer waits for us
	_ = c.framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	_ = c.framer.WriteWindowUpdate(0, window)
	m.pools[pool].conns = append(m.pools[pool].conns, c)
	m.conns[c] = struct{}{}
	m.out.Connections++
	c.send(request)
	m.workers.Go(c.write)
}

func (c *h2conn) hasRoom() bool { return !c.retired && len(c.streams) < c.most }

// send puts a request behind what is to be written.
func (c *h2conn) send(request int32) {
	q := &c.m.trace.Requests[request]
	st := &h2stream{id: int32(c.id), request: request, asked: c.m.now()}
	st.since = st.asked
	c.encode(request)
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.id,
		BlockFragment: c.block.Bytes(), EndStream: true, EndHeaders: true})
	if q.Reset {
		_ = c.framer.WriteRSTStream(c.id, http2.ErrCodeCancel)
		c.resets[c.id] = st
		c.m.out.Resets++
	} else {
		c.streams[c.id] = st
		c.m.busy++
	}
	c.fresh = append(c.fresh, st)
	c.id += 2
	if c.opened++; c.opened >= c.m.PerConnection {
		c.retire()
	}
	c.wake.Signal()
}

// encode puts the head of a request into c.block. A reset is named in it, so that it is found in an
// edge's log.
func (c *h2conn) encode(request int32) {
	q := &c.m.trace.Requests[request]
	c.block.Reset()
	field := func(name, value string) {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	method, scheme := knownMethod(q.Method), "http"
	if c.m.TLS != nil {
		scheme = "https"
	}
	field(":method", method)
	field(":scheme", scheme)
	field(":authority", hostOf(q))
	field(":path", string(appendTarget(nil, q.Path)))
	if c.m.Carrier == Forwarded {
		field("x-forwarded-for", c.m.address(request).String())
	}
	if sendsBody(method) {
		field("content-length", "0")
	}
	if q.Reset {
		field("user-agent", resetAgent+c.m.out.token+"/"+strconv.Itoa(int(request)))
	}
}

// write makes the connection, and writes until its end.
func (c *h2conn) write() {
	m := c.m
	nc, bare, err := c.dial()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		c.end(err)
		return
	}
	if c.over {
		_ = bare.Close()
		return
	}
	c.nc, c.bare, c.since = nc, bare, m.now()
	m.workers.Go(c.read)
	for buf := []byte(nil); ; {
		for c.out.Len() == 0 && !c.over {
			c.wake.Wait()
		}
		if c.over {
			return
		}
		buf = append(buf[:0], c.out.Bytes()...)
		c.out.Reset()
		now := m.now()
		for _, st := range c.fresh {
			st.written, st.since = true, now
			m.wrote(st.request, now)
		}
		c.fresh, c.since = c.fresh[:0], now
		m.mu.Unlock()
		_, err := nc.Write(buf)
		m.mu.Lock()
		if err != nil {
			c.end(cause(err))
			return
		}
	}
}

func (c *h2conn) dial() (nc, bare net.Conn, err error) {
	m, to := c.m, c.m.edges[c.edge]
	ctx, cancel := context.WithTimeout(m.ctx, m.Timeout)
	defer cancel()
	var d net.Dialer
	if m.Carrier == Loopback {
		d.LocalAddr = &net.TCPAddr{IP: c.from.AsSlice()}
	}
	if bare, err = d.DialContext(ctx, "tcp4", to.String()); err != nil {
		return nil, nil, cause(err)
	}
	nc = bare
	if m.Carrier == Proxy {
		_, err = bare.Write(appendProxy(nil, c.from, c.port, to))
	}
	if m.TLS != nil && err == nil {
		config := m.TLS.Clone()
		config.NextProtos = []string{http2.NextProtoTLS, "http/1.1"} // what an edge without HTTP/2 agrees to, so that we can say so
		t := tls.Client(bare, config)
		if err = t.HandshakeContext(ctx); err == nil &&
			t.ConnectionState().NegotiatedProtocol != http2.NextProtoTLS {
			err = errNoHTTP2
		}
		nc = t
	}
	if err != nil {
		_ = bare.Close()
		return nil, nil, cause(err)
	}
	return nc, bare, nil
}

// retire has a connection take no more requests, and end when it has its answers.
func (c *h2conn) retire() {
	c.retired = true
	c.settle()
}

// settle ends a connection that is retired, once it has its answers. An edge may still answer what
// was reset, if it refused it; as it takes frames in their order, no more of that comes after the
// answer to a PING.
func (c *h2conn) settle() {
	switch {
	case !c.retired || c.over || len(c.streams) > 0:
	case len(c.resets) == 0:
		c.end(nil)
	case !c.pinged:
		c.pinged, c.since = true, c.m.now()
		_ = c.framer.WritePing(false, [8]byte{})
		c.wake.Signal()
	}
}

// housekeep retires the connection if it is idle, and gives up what is overdue.
func (c *h2conn) housekeep(now time.Duration) {
	m := c.m
	for id, st := range c.streams {
		if c.nc != nil && now-st.since > m.Timeout {
			_ = c.framer.WriteRSTStream(id, http2.ErrCodeCancel)
			c.wake.Signal()
			delete(c.streams, id)
			m.busy--
			m.fail(st.request, c.edge, errTimeout)
			m.serve(c.pool)
		}
	}
	switch {
	case len(c.streams) > 0 || c.nc == nil || c.over:
	case c.pinged && now-c.since > m.Timeout:
		c.end(errTimeout)
	case !c.pinged && (c.retired || now-c.since > m.Idle):
		c.retire()
	}
}

// end ends the connection. What it has not answered is sent once more where the edge has not taken
// it, or may be; of what was reset nobody knows.
func (c *h2conn) end(err error) {
	if c.over {
		return
	}
	m := c.m
	c.over, c.retired = true, true
	c.wake.Signal()
	if c.nc != nil {
		_ = c.bare.Close() // TLS would wait for the edge to take its farewell
	}
	delete(m.conns, c)
	p := &m.pools[c.pool]
	p.conns = slices.DeleteFunc(p.conns, func(o *h2conn) bool { return o == c })
	refused := c.nc == nil && err == socket.ErrRefused
	for _, id := range slices.Sorted(maps.Keys(c.streams)) {
		st := c.streams[id]
		m.busy--
		switch {
		case refused && m.turned(st.request, c.edge):
			m.dispatch(st.request, true)
		case c.nc != nil && !st.written && m.elsewhere(st.request, false):
		case c.used > 0 && st.written && st.answer.Status == 0 && m.repeat(st.request, err):
			m.dispatch(st.request, true)
		default:
			m.fail(st.request, c.edge, err)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.resets)) {
		switch st := c.resets[id]; {
		case refused && m.turned(st.request, c.edge):
			m.out.Resets--
			m.dispatch(st.request, true)
		case !st.written && c.nc != nil && m.elsewhere(st.request, false):
			m.out.Resets--
		case !st.written:
			m.out.Resets--
			m.fail(st.request, c.edge, err)
		default:
			m.silent(c, st)
		}
	}
	c.streams, c.resets = nil, nil
	m.serve(c.pool)
	starved := m.starved
	m.starved = nil
	for _, id := range starved {
		m.serve(id)
	}
}

// silent books a request that was reset and has no answer.
func (m *multiplexer) silent(c *h2conn, st *h2stream) {
	if !st.judged {
		m.out.Silent = append(m.out.Silent, Silent{Request: st.request, Edge: int16(c.edge),
			Asked: st.asked, Sent: st.since})
	}
}

// cause names the outcomes that a replay distinguishes.
func cause(err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return socket.ErrRefused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return socket.ErrReset
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE),
		errors.Is(err, syscall.EADDRNOTAVAIL):
		return socket.ErrExhausted
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return errClosedEarly
	case errors.Is(err, context.DeadlineExceeded):
		return errTimeout
	}
	return err
}
