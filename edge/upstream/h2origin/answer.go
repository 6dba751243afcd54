package h2origin

import (
	"bufio"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/edge/http1"
	"sluice/edge/message"
)

// appendHead appends the head of an answer, but for its framing and its end.
func appendHead(b []byte, status int, header http.Header) []byte {
	b = strconv.AppendInt(append(b, "HTTP/1.1 "...), int64(status), 10)
	b = append(append(append(b, ' '), http.StatusText(status)...), "\r\n"...)
	for _, name := range slices.Sorted(maps.Keys(header)) {
		switch message.KindOf([]byte(name)) {
		case message.Connection, message.TransferEncoding, message.HopByHop, message.ContentLength:
			continue
		}
		b = appendLines(b, name, header[name])
	}
	return b
}

func appendLines(b []byte, name string, values []string) []byte {
	for _, v := range values {
		b = append(append(append(append(b, name...), ": "...), v...), "\r\n"...)
	}
	return b
}

// malformed stands for an answer that RFC 9113 (8.1.1) calls so. Who reads it refuses it, as that
// answer over HTTP/1.1: it does not say unmistakably where its body ends.
const malformed = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: malformed\r\n\r\n"

// holdTime is how long the head of an answer with a length waits for the first part of its body,
// and its last part for the end of the stream: an answer that is longer or shorter than its head
// says is mostly seen by then, and refused. Neither a slow body nor a stream without an end holds
// up what is there.
const holdTime = 100 * time.Millisecond

// namesConnection reports whether a head has a field about a connection, which HTTP/2 has none of
// (RFC 9113, 8.2.2).
func namesConnection(header http.Header) bool {
	for _, name := range [...]string{"Connection", "Keep-Alive", "Proxy-Connection",
		"Transfer-Encoding", "Upgrade"} {
		if len(header[name]) > 0 {
			return true
		}
	}
	return false
}

// counted is the length that an answer announces; -1: none. It is one number, in digits.
func counted(header http.Header) (length int64, ok bool) {
	values := header["Content-Length"]
	if len(values) == 0 {
		return -1, true
	}
	n, err := strconv.ParseUint(values[0], 10, 62)
	return int64(n), err == nil && len(values) == 1
}

// relay writes an answer down. Its connection is used for nothing else.
func (x *exchange) relay(a *http.Response) {
	length, ok := counted(a.Header)
	if !ok || namesConnection(a.Header) {
		_, _ = io.WriteString(x.far, malformed)
		return
	}
	head := appendHead(make([]byte, 0, 1<<10), a.StatusCode, a.Header)
	head = append(head, "Connection: close\r\n"...)
	chunked := false
	switch {
	case message.Bodyless(x.head.IsHead, a.StatusCode):
		if length >= 0 && a.StatusCode != http.StatusNoContent {
			head = appendLines(head, "Content-Length", a.Header["Content-Length"])
		}
		length = -1 // of no body
	case a.ContentLength >= 0 && len(a.Trailer) == 0:
		length = a.ContentLength
		head = append(strconv.AppendInt(append(head, "Content-Length: "...), length, 10), "\r\n"...)
	default:
		chunked = true
		head = append(head, "Transfer-Encoding: chunked\r\n"...)
		if names := slices.Sorted(maps.Keys(a.Trailer)); len(names) > 0 {
			head = append(append(append(head, "Trailer: "...), strings.Join(names, ", ")...),
				"\r\n"...)
		}
	}
	head = append(head, "\r\n"...)
	if length >= 0 && !chunked {
		x.fixed(a, head, length)
	} else if _, err := x.far.Write(head); err == nil {
		w := http1.WriterTo(x.far)
		defer http1.ReleaseWriter(w)
		x.body(a, w, chunked)
	}
}

// A held answer is one of a known length. What is held of it goes with what comes next, or after
// holdTime by the timer, while Read still waits. There is one writer at a time, without a lock: a
// timer that Stop does not stop is waited for.
type held struct {
	*exchange
	answer   io.ReadCloser // its body
	text     []byte        // its head, and room for a part of its body
	head     int           // the length of its head
	from, to int           // of text: what is held; once something is written, from is above 0
	left     int64         // of its body
	failed   error
	written  chan struct{} // by the timer
}

// fixed writes an answer of this length.
func (x *exchange) fixed(a *http.Response, head []byte, length int64) {
	const room = 15 << 10 // with most heads 16 KiB
	h := &held{
		exchange: x, answer: a.Body, text: slices.Grow(head, room)[:len(head)+room],
		head: len(head), to: len(head), left: length, written: make(chan struct{}, 1),
	}
	var timer *time.Timer
	for {
		waits, part := h.from < h.to, h.text[h.to:len(h.text)-1]
		if h.left == 0 {
			part = h.text[h.to : h.to+1] // for io.EOF, or an error: net/http counts, too
		}
		if waits && timer == nil {
			timer = time.AfterFunc(holdTime, h.late)
		} else if waits { // it does not run: it was stopped, or waited for
			timer.Reset(holdTime)
		}
		n, err := a.Body.Read(part)
		if waits && !timer.Stop() {
			<-h.written
		}
		if err != nil && err != io.EOF {
			if h.from == 0 {
				_, _ = io.WriteString(x.far, malformed)
			}
			return
		}
		h.to, h.left = h.to+n, h.left-int64(n)
		if h.left > 0 || err == io.EOF {
			h.write()
		}
		if h.failed != nil || err == io.EOF {
			return
		}
	}
}

func (h *held) write() {
	if h.from < h.to { // an empty write would wait for a reader, too
		_, h.failed = h.far.Write(h.text[h.from:h.to])
		h.from, h.to = h.head, h.head
	}
}

// late writes what is held. Where the answer is whole with it, Read ends.
func (h *held) late() {
	defer func() {
		if h.conn.pool.recovered(recover()) {
			h.failed = errFault
		}
		h.written <- struct{}{}
	}()
	if h.write(); h.left == 0 {
		_ = h.answer.Close()
	}
}

// body writes what comes as it comes.
func (x *exchange) body(a *http.Response, w *bufio.Writer, chunked bool) {
	part := make([]byte, 16<<10)
	for {
		n, err := a.Body.Read(part)
		if n > 0 {
			if chunked {
				_ = http1.WriteChunk(w, part[:n]) // a failure shows in Flush
			} else {
				_, _ = w.Write(part[:n])
			}
		}
		if code := x.cancelled(err); code != "" && chunked {
			a.Trailer, err = http.Header{"Grpc-Status": {code}}, io.EOF
		}
		if err == io.EOF && chunked {
			_, _ = w.WriteString("0\r\n")
			for _, name := range slices.Sorted(maps.Keys(a.Trailer)) {
				_, _ = w.Write(appendLines(w.AvailableBuffer(), name, a.Trailer[name]))
			}
			_, _ = w.WriteString("\r\n")
		}
		if failed := w.Flush(); failed != nil || err != nil {
			return
		}
	}
}
