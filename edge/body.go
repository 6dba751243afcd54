package edge

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/valyala/fasthttp"
)

var errChunk = errors.New("edge: malformed chunk in the origin's answer")

// maxChunkLine bounds the line before a chunk, extensions included, and maxTrailer the lines after the last one.
const (
	maxChunkLine = 4 << 10
	maxTrailer   = 16 << 10
)

// An answerBody streams the body of an origin's answer to the client. What breaks off is an error, never an end: a client
// must not take a part for the whole. When the server has written it, or has given up, it calls CloseWithError, and the
// connection to the origin goes back to the pool or away.
type answerBody struct {
	link      *link
	client    *conn
	upload    *upload // may still be under way
	length    int64   // as the head says: bytes, lengthChunked or lengthUnknown
	framing   framing
	left      int64 // of the fixed length or of the current chunk
	begun     bool  // a chunk has been read: a line end comes before the next
	done      bool  // the whole body has been read
	reuse     bool  // the origin keeps the connection
	keep      time.Duration
	timeout   time.Duration
	head      *fasthttp.ResponseHeader // where trailers go; nil: they are dropped
	trailers  []byte                   // the lines after the last chunk
	nominated [][]byte                 // by the head's Connection
	due       time.Time                // of the whole answer; zero: it may take any time
}

// within is how long the origin may take for its next word, or for taking ours.
func (b *answerBody) within(now time.Time) time.Duration {
	if b.due.IsZero() {
		return b.timeout
	}
	return min(b.timeout, b.due.Sub(now))
}

type framing uint8

const (
	fixed framing = iota
	chunked
	untilClose
)

// SupportsBodyWriteTo lets the server use WriteTo: it copies from the origin's read buffer, without a buffer between.
func (b *answerBody) SupportsBodyWriteTo() bool { return true }

// WriteTo sends the body on. What has arrived goes out before it waits for more, so that a slow stream is not held up.
func (b *answerBody) WriteTo(w io.Writer) (int64, error) {
	b.client.startAnswer()
	defer b.client.endAnswer()
	var total int64
	for {
		part, err := b.next()
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
		n, err := w.Write(part)
		total += int64(n)
		if err != nil {
			return total, err
		}
		b.discard(n)
		if f, ok := w.(*bufio.Writer); ok && b.link.br.Buffered() == 0 && !b.finished() {
			if err := f.Flush(); err != nil {
				return total, err
			}
		}
	}
}

// Read is there for callers that do not know WriteTo.
func (b *answerBody) Read(p []byte) (int, error) {
	part, err := b.next()
	if err != nil {
		return 0, err
	}
	n := copy(p, part)
	b.discard(n)
	return n, nil
}

func (b *answerBody) finished() bool { return b.done || b.framing == fixed && b.left == 0 }

// next returns what is there of the body, at least one byte, or io.EOF after its proper end.
func (b *answerBody) next() ([]byte, error) {
	switch {
	case b.done:
		return nil, io.EOF
	case b.framing == fixed && b.left == 0:
		b.done = true
		return nil, io.EOF
	case b.framing == chunked && b.left == 0:
		if err := b.nextChunk(); err != nil {
			return nil, err
		}
		if b.left == 0 {
			b.done = true
			return nil, io.EOF
		}
	}
	if err := b.fill(1); err != nil {
		if err == io.EOF && b.framing == untilClose {
			b.done, b.reuse = true, false
			return nil, io.EOF
		}
		return nil, unexpected(err)
	}
	n := b.link.br.Buffered()
	if b.framing != untilClose {
		n = int(min(int64(n), b.left))
	}
	return b.link.br.Peek(n)
}

// fill waits until n bytes are there, at most so long as the origin may pause.
func (b *answerBody) fill(n int) error {
	if b.link.br.Buffered() >= n {
		return nil
	}
	now := time.Now()
	if err := b.link.SetReadDeadline(now.Add(b.within(now))); err != nil {
		return err
	}
	_, err := b.link.br.Peek(n)
	return err
}

func (b *answerBody) discard(n int) {
	_, _ = b.link.br.Discard(n) // n bytes are there: next showed them
	if b.framing != untilClose {
		b.left -= int64(n)
	}
}

// nextChunk reads the line before a chunk and sets left to its size; at the last chunk it reads the trailers as well.
func (b *answerBody) nextChunk() error {
	if b.begun {
		if err := b.fill(2); err != nil {
			return unexpected(err)
		}
		if end, _ := b.link.br.Peek(2); string(end) != "\r\n" {
			return errChunk
		}
		_, _ = b.link.br.Discard(2)
	}
	b.begun = true
	text, err := b.line(maxChunkLine)
	if err != nil {
		return err
	}
	size, _, _ := bytes.Cut(text, []byte{';'})
	size = bytes.TrimRight(size, " \t")
	if len(size) == 0 || len(size) > 15 {
		return errChunk
	}
	b.left = 0
	for _, c := range size {
		digit := unhex(c)
		if digit < 0 {
			return errChunk
		}
		b.left = b.left<<4 | int64(digit)
	}
	for rest := maxTrailer; b.left == 0; {
		text, err := b.line(rest)
		if err != nil {
			return err
		}
		if len(text) == 0 {
			if len(b.trailers) > 0 {
				return b.passTrailers()
			}
			break
		}
		b.trailers = append(append(b.trailers, text...), "\r\n"...)
		if rest -= len(text); rest <= 0 {
			return errChunk
		}
	}
	return nil
}

// line reads up to CRLF. A bare LF is not an end of a line: what another server takes for one would split here.
func (b *answerBody) line(most int) ([]byte, error) {
	for n := 1; ; n = b.link.br.Buffered() + 1 {
		if err := b.fill(n); err != nil {
			return nil, unexpected(err)
		}
		have, _ := b.link.br.Peek(b.link.br.Buffered())
		if i := bytes.IndexByte(have, '\n'); i >= 0 {
			if i > most || i == 0 || have[i-1] != '\r' || bytes.IndexByte(have[:i-1], '\r') >= 0 {
				return nil, errChunk
			}
			text := have[:i-1]
			_, _ = b.link.br.Discard(i + 1) // text stays valid until the next read
			return text, nil
		}
		if len(have) > most {
			return nil, errChunk
		}
	}
}

// CloseWithError is called once the body is written, with nil, or when writing or reading it failed. A failure is the
// end of the client's connection: it has been promised more than it gets.
func (b *answerBody) CloseWithError(err error) error {
	if err != nil {
		b.client.failed = true
		b.reuse = false
	}
	b.finish()
	return nil
}

// finish waits for the request's body and gives the connection back. It returns when that was.
func (b *answerBody) finish() time.Time {
	if b.upload != nil {
		b.reuse = b.upload.end() && b.reuse
		b.client.body = false
	}
	b.link.origin.active.Add(-1)
	now := time.Now()
	if b.reuse && b.finished() && b.link.br.Buffered() == 0 {
		b.link.origin.release(b.link, now, b.keep)
	} else {
		b.link.Close()
	}
	return now
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// bodyless reports whether an answer has no body whatever its headers say (RFC 9112, 6.3).
func bodyless(method []byte, status int) bool {
	return string(method) == fasthttp.MethodHead || status == fasthttp.StatusNoContent || status == fasthttp.StatusNotModified
}
