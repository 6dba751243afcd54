package http2

import (
	"net/http"
	"runtime"
	"strings"
	"time"

	frames "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"sluice/edge/http1"
	"sluice/edge/message"
)

// A head is the block of fields that is being read: of a request, or after its body.
type head struct {
	stream  *Stream // nil: it is read for what it says of the table, and nothing else
	trailer bool
	ends    bool // the stream ends with it
	pieces  int  // CONTINUATION frames
	wire    int  // bytes that came
	fault   error
	reads   representations

	// Of the fields, as HTTP/1.1 would write them: a byte on the wire may stand for as much as the
	// table holds
	size      int
	tooLarge  bool // more than limits.header_bytes
	wrong     bool // it is malformed
	begun     bool // a field that is no pseudo-header has come
	counted   bool // the body's length is said
	method    string
	scheme    string
	authority string
	path      string
	protocol  string // of a tunnel that is asked for
	host      string
	has       pseudo
	cookie    []byte
	text      []byte // gathers here: Stream.text is made once, when its length is known
}

// pseudo says which pseudo-headers have come, and host.
type pseudo uint8

const (
	hasMethod pseudo = 1 << iota
	hasScheme
	hasAuthority
	hasPath
	hasProtocol
	hasHost
)

var (
	malformed = http1.BadRequest
	crowded   = message.Refuse(http.StatusServiceUnavailable, "too_many_streams",
		"Too many requests at once on one connection.")
	slowHead   = message.Refuse(http.StatusRequestTimeout, "timeout", "The request came too slowly.")
	targetLong = message.Refuse(http.StatusRequestURITooLong, "target_too_long",
		"The request target is longer than this server accepts.")
	headTooLarge = message.Refuse(http.StatusRequestHeaderFieldsTooLarge, "header_too_large",
		"The head of the request is larger than this server accepts.")
)

// headers begins a head.
func (c *conn) headers(f *frames.HeadersFrame) error {
	id := f.StreamID
	h := c.head
	*h = head{ends: f.StreamEnded(), cookie: h.cookie[:0], text: h.text[:0]}
	if f.HasPriority() && f.Priority.StreamDep == id {
		h.fault = frames.StreamError{StreamID: id, Code: frames.ErrCodeProtocol}
	}
	if id%2 == 0 {
		return frames.ConnectionError(frames.ErrCodeProtocol)
	}
	c.mu.Lock()
	st, fresh, late := c.streams[id], id > c.highest, c.leaving == final
	if fresh && !late {
		c.highest = id // in the same moment: GOAWAY names all that are taken, or clients ask twice
	}
	c.mu.Unlock()
	switch {
	case fresh && late: // the client has been told that it is not taken
		c.untaken = max(c.untaken, id)
		if err := c.control(1); err != nil {
			return err
		}
	case fresh:
		c.opened(id)
	case st != nil && !st.ended:
		h.stream, h.trailer = st, true
		if !h.ends || st.in.Tunnel {
			h.fault = frames.StreamError{StreamID: id, Code: frames.ErrCodeProtocol}
		}
	case st != nil:
		h.fault = frames.StreamError{StreamID: id, Code: frames.ErrCodeStreamClosed}
	default:
		e := c.past.find(id)
		if e == nil {
			return frames.ConnectionError(frames.ErrCodeProtocol)
		}
		if e.left < 0 {
			return frames.ConnectionError(frames.ErrCodeStreamClosed)
		}
		if err := c.control(1); err != nil {
			return err
		}
	}
	return c.fragment(f.HeaderBlockFragment(), f.HeadersEnded())
}

// opened opens a stream.
func (c *conn) opened(id uint32) {
	c.controls.left = min(c.controls.most, c.controls.left+requestControls)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.borrowBuffers()
	st, _ := c.site.streams.Get().(*Stream)
	if st == nil {
		st = new(Stream)
	}
	st.reuse(c, id)
	c.head.stream = st
	c.asked = true
	if len(c.streams) >= c.site.MaxStreams || c.working >= 2*c.site.MaxStreams {
		st.in.Refused, st.silent, st.resetWith = crowded, true, frames.ErrCodeRefusedStream
	}
	c.streams[id] = st
	st.window, st.recv = c.initial, c.first
	c.client.Idle.Store(0)
}

// fragment reads a part of a head.
func (c *conn) fragment(part []byte, last bool) error {
	h := c.head
	if h.wire += len(part); h.wire > 2*c.site.Limits.HeaderBytes {
		return calm(Continuations)
	}
	for len(part) > 0 {
		n := min(len(part), decodeStep)
		if !c.head.reads.scan(part[:n]) {
			return frames.ConnectionError(frames.ErrCodeCompression)
		}
		if _, err := c.decoder.Write(part[:n]); err != nil {
			return frames.ConnectionError(frames.ErrCodeCompression)
		}
		if part = part[n:]; h.size > 2*c.site.Limits.HeaderBytes {
			return calm(Continuations)
		}
	}
	if !last {
		if c.headBy.IsZero() {
			c.headBy = time.Now().Add(c.site.Limits.HeaderTimeout)
		}
		return nil
	}
	if err := c.decoder.Close(); err != nil {
		return frames.ConnectionError(frames.ErrCodeCompression)
	}
	c.headBy = time.Time{}
	st := h.stream
	h.stream = nil // it is no longer under way
	switch {
	case h.trailer:
		if h.fault == nil {
			h.fault = c.trailer(st)
		}
		return h.fault
	case st != nil:
		return c.request(st)
	}
	return h.fault
}

// field takes one.
func (c *conn) field(f hpack.HeaderField) {
	h, limits := c.head, &c.site.Limits
	if h.size += len(f.Name) + len(f.Value) + len(": \r\n"); h.size > limits.HeaderBytes {
		h.tooLarge = true
		if f.Name == ":path" && len(h.path) == 0 {
			h.path = f.Value
		}
		return
	}
	switch {
	case h.wrong || h.stream == nil:
	case h.trailer:
		h.wrong = f.IsPseudo() || !h.stream.trail(f)
	case f.IsPseudo():
		h.wrong = !h.pseudo(f)
	default:
		if !h.begun {
			h.begun = true
			h.wrong = !h.begin()
		}
		h.wrong = h.wrong || !h.line(f)
	}
}

// pseudo takes a pseudo-header: each there is of a request, at most once, and before all that is
// none (RFC 9113, 8.3).
func (h *head) pseudo(f hpack.HeaderField) bool {
	var to *string
	var is pseudo
	switch f.Name {
	case ":method":
		to, is = &h.method, hasMethod
	case ":scheme":
		to, is = &h.scheme, hasScheme
	case ":authority":
		to, is = &h.authority, hasAuthority
	case ":path":
		to, is = &h.path, hasPath
	case ":protocol":
		if h.stream.conn.tunnels {
			to, is = &h.protocol, hasProtocol
		}
	}
	if is == 0 || h.has&is != 0 || h.begun {
		return false
	}
	*to, h.has = f.Value, h.has|is
	return true
}

// begin writes the first line of the request.
func (h *head) begin() bool {
	method, whole := h.method, h.has&(hasMethod|hasScheme|hasPath) == hasMethod|hasScheme|hasPath &&
		isScheme(h.scheme)
	switch connect := method == http.MethodConnect; {
	case h.tunnel():
		if !connect || !whole {
			return false
		}
		method = http.MethodGet
	case connect && h.path == "": // refused for what it is, whatever it lacks
		h.path = "/"
	case !whole:
		return connect
	}
	if !isWord(method) || !isWord(h.path) || h.path[0] != '/' && h.path != "*" {
		return false
	}
	n := len(method) + len(h.path)
	h.text = appendPath(append(append(h.text, method...), ' '), h.path)
	if h.size += len(h.text) - len(" ") - n; h.size > h.stream.conn.site.Limits.HeaderBytes {
		h.tooLarge = true
		return false
	}
	h.text = append(h.text, " HTTP/1.1\r\n"...)
	return true
}

// isScheme reports whether a scheme is one of HTTP's. Its letters have no case (RFC 3986, 3.1).
func isScheme(text string) bool {
	return strings.EqualFold(text, "http") || strings.EqualFold(text, "https")
}

// appendPath appends a target. Bytes that are not ASCII are no part of one (RFC 3986, 2), though
// clients send them as a user has typed them: percent-encoded they are what the client means, and
// what every server reads alike.
func appendPath(b []byte, path string) []byte {
	for i := range len(path) {
		if c := path[i]; c >= 0x80 {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		} else {
			b = append(b, c)
		}
	}
	return b
}

const hexDigits = "0123456789ABCDEF"

// tunnel reports whether the request is an extended CONNECT.
func (h *head) tunnel() bool { return h.has&hasProtocol != 0 }

// isWord reports whether text may stand in the first line of a request as a word of it.
func isWord(text string) bool {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c == 0x7f {
			return false
		}
	}
	return len(text) > 0
}

// line writes a field as a line of HTTP/1.1, unless it is Host or Cookie, of which there is one in
// the end.
func (h *head) line(f hpack.HeaderField) bool {
	n := len(h.text)
	h.text = append(append(h.text, f.Name...), ": "...)
	name := h.text[n : n+len(f.Name)]
	h.text = append(append(h.text, f.Value...), "\r\n"...)
	value := h.text[len(h.text)-2-len(f.Value) : len(h.text)-2]
	if !isName(name) || !isValue(value) {
		return false
	}
	switch kind := message.KindOf(name); kind {
	case message.Connection, message.TransferEncoding:
		return false
	case message.HopByHop:
		return string(name) == "trailer" || string(name) == "te" &&
			message.EqualFold(value, "trailers")
	case message.Host:
		h.text = h.text[:n]
		if h.has&hasHost != 0 {
			return false
		}
		h.host, h.has = f.Value, h.has|hasHost
	case message.Cookie:
		if len(h.cookie) > 0 {
			h.cookie = append(h.cookie, "; "...)
		}
		h.cookie = append(h.cookie, value...)
		h.text = h.text[:n]
	case message.ContentLength:
		h.counted = true
		return !h.tunnel()
	default:
		// There is one, and it is the edge's own
		if h.tunnel() && string(name) == "sec-websocket-key" {
			h.text = h.text[:n]
		}
	}
	return true
}

// isName reports whether a field may have a name: a token in small letters (RFC 9113, 8.2.1).
func isName(name []byte) bool {
	for _, c := range name {
		if 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return message.IsToken(name)
}

// isValue reports whether a field may have a value: without control bytes, and without white space
// around it.
func isValue(value []byte) bool {
	return len(message.TrimSpace(value)) == len(value) && message.IsText(value)
}

// finish writes what is left of the request's head.
func (h *head) finish() bool {
	if h.wrong || !h.begun && !h.begin() {
		return false
	}
	authority := h.authority
	switch {
	case h.has&(hasHost|hasAuthority) == hasHost|hasAuthority:
		if !message.EqualFold([]byte(h.authority), lower(h.host)) {
			return false
		}
	case h.has&hasHost != 0:
		authority = h.host
	}
	if h.has&(hasHost|hasAuthority) != 0 {
		if !isValue([]byte(authority)) {
			return false
		}
		h.text = append(append(append(h.text, "host: "...), authority...), "\r\n"...)
	}
	if len(h.cookie) > 0 {
		h.text = append(append(append(h.text, "cookie: "...), h.cookie...), "\r\n"...)
	}
	switch {
	case h.tunnel():
		h.text = appendUpgrade(h.text)
	case !h.ends && !h.counted:
		h.text = append(h.text, "transfer-encoding: chunked\r\n"...)
	}
	h.text = append(h.text, "\r\n"...)
	return true
}

func lower(text string) string {
	b := []byte(text)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c | 0x20
		}
	}
	return string(b)
}

var version = []byte("HTTP/2.0")

// request is called when the head of a request is there.
func (c *conn) request(st *Stream) error {
	h, r := c.head, &st.in
	h.stream = st
	switch whole := h.fault == nil && !h.tooLarge && h.finish(); {
	case r.Refused != nil:
	case h.tooLarge && len(h.path) > c.site.Limits.HeaderBytes:
		r.Refused = targetLong
	case h.tooLarge:
		r.Refused = headTooLarge
	case !whole:
		r.Refused, st.resetWith = malformed, frames.ErrCodeProtocol
	default:
		most := c.site.Limits.HeaderLines
		switch {
		case h.tunnel():
			most += upgradeLines
		case !h.ends && !h.counted:
			most++ // HTTP/2 does not say it
		}
		st.text = append(st.text, h.text...)
		r.Refused = r.Parse(st.text, most)
		if r.Tunnel = h.tunnel(); r.Refused == nil && r.Tunnel && h.protocol != webSocket {
			r.Refused = noProtocol
		}
		if h.ends && r.Length > 0 {
			r.Refused, st.resetWith = malformed, frames.ErrCodeProtocol
		}
	}
	h.stream = nil
	r.Version = version
	c.mu.Lock()
	if st.announced = -1; h.counted && r.Refused == nil {
		if st.announced = r.Length; r.Length == 0 && !h.ends {
			r.Length = message.LengthChunked // that there is none remains to be seen
		}
	}
	st.ended, st.bodiless = h.ends, h.ends
	c.mu.Unlock()
	resets := st.resetWith != frames.ErrCodeNo
	c.begin(st) // it may be another request's then
	if c.took += h.size + headCost; c.took >= turn {
		c.took = 0
		runtime.Gosched()
	}
	if resets {
		return c.resetting()
	}
	return nil
}

// trail takes a field after the body.
func (st *Stream) trail(f hpack.HeaderField) bool {
	n := len(st.tail)
	st.tail = append(append(st.tail, f.Name...), f.Value...)
	name, value := st.tail[n:n+len(f.Name):n+len(f.Name)], st.tail[n+len(f.Name):]
	switch message.KindOf(name) {
	case message.Connection, message.TransferEncoding, message.HopByHop:
		return false
	}
	st.tailAt = append(st.tailAt, len(name), len(value))
	return isName(name) && isValue(value)
}

// trailer ends a body by what came after it.
func (c *conn) trailer(st *Stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.head.wrong || c.head.tooLarge || st.announced >= 0 && st.came != st.announced {
		return frames.StreamError{StreamID: st.id, Code: frames.ErrCodeProtocol}
	}
	if !c.trails(st) {
		return frames.StreamError{StreamID: st.id, Code: frames.ErrCodeEnhanceYourCalm}
	}
	st.ended = true
	signal(st.arrived)
	return nil
}
