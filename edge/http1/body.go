package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"

	"sluice/edge/message"
)

var (
	ErrChunk    = errors.New("edge: malformed chunk")
	errBodyCost = errors.New("edge: a chunked body has too much around its bytes")
)

// maxChunkLine bounds the line before a chunk, extensions included, and maxTrailer the lines after
// the last one.
const (
	maxChunkLine = 4 << 10
	maxTrailer   = 16 << 10
	// A chunked body may have at most bodyCost bytes around it for each of its own, and bodySlack
	// bytes more: what goes beyond is endless chunk extensions.
	bodyCost  = 16
	bodySlack = 128 << 10
)

// Framing is how a body is delimited (RFC 9112, 6.3).
type Framing uint8

const (
	Fixed Framing = iota
	Chunked
	UntilClose
)

// A Body reads a body out of the buffer that its head came in, without a buffer between. What
// breaks off is an error, never an end: a part must not be taken for the whole.
type Body struct {
	Reader   *bufio.Reader
	Wait     Waiter // waits until bytes are in br
	Framing  Framing
	Left     int64  // of the fixed length or of the current chunk
	Got      int64  // bytes of the body so far,
	Around   int64  // and of chunk lines
	begun    bool   // a chunk has been read: a line end comes before the next
	done     bool   // the whole body has been read
	trailers []byte // the lines after the last chunk
}

// NewBody is a body whose length is as the head says: in bytes, or message.LengthChunked.
func NewBody(br *bufio.Reader, w Waiter, length int64) Body {
	if length == message.LengthChunked {
		return Body{Reader: br, Wait: w, Framing: Chunked}
	}
	return Body{Reader: br, Wait: w, Left: length}
}

// A Waiter waits until n bytes are in the buffer of a body.
type Waiter interface{ Fill(n int) error }

func (s *Body) Finished() bool { return s.done || s.Framing == Fixed && s.Left == 0 }

// Next returns what is there of the body, at least one byte, or io.EOF after its proper end. It is
// valid until the next call.
func (s *Body) Next() ([]byte, error) {
	switch {
	case s.done:
		return nil, io.EOF
	case s.Framing == Fixed && s.Left == 0:
		s.done = true
		return nil, io.EOF
	case s.Framing == Chunked && s.Left == 0:
		if err := s.nextChunk(); err != nil {
			return nil, err
		}
		if s.Left == 0 {
			s.done = true
			return nil, io.EOF
		}
	}
	if err := s.Wait.Fill(1); err != nil {
		if err == io.EOF && s.Framing == UntilClose {
			s.done = true
			return nil, io.EOF
		}
		return nil, Unexpected(err)
	}
	n := s.Reader.Buffered()
	if s.Framing != UntilClose {
		n = int(min(int64(n), s.Left))
	}
	return s.Reader.Peek(n)
}

// Discard goes on behind n bytes that next showed.
func (s *Body) Discard(n int) {
	_, _ = s.Reader.Discard(n)
	s.Got += int64(n)
	if s.Framing != UntilClose {
		s.Left -= int64(n)
	}
}

// Read makes the body an io.Reader.
func (s *Body) Read(p []byte) (int, error) {
	part, err := s.Next()
	if err != nil {
		return 0, err
	}
	n := copy(p, part)
	s.Discard(n)
	return n, nil
}

// ReadTrailer reads what came after the last chunk into h.
func (s *Body) ReadTrailer(h *message.Head) error {
	_, err := ScanHead(h, s.trailers, message.MaxLines)
	return err
}

// nextChunk reads the line before a chunk and sets left to its size; at the last chunk it reads the
// trailers as well.
func (s *Body) nextChunk() error {
	if s.begun {
		if err := s.Wait.Fill(2); err != nil {
			return Unexpected(err)
		}
		if end, _ := s.Reader.Peek(2); string(end) != "\r\n" {
			return ErrChunk
		}
		_, _ = s.Reader.Discard(2)
	}
	s.begun = true
	text, err := s.line(maxChunkLine)
	if err != nil {
		return err
	}
	if s.Around += int64(len(text) + len("\r\n\r\n")); s.Around > bodyCost*s.Got+bodySlack {
		return errBodyCost
	}
	size, _, extended := bytes.Cut(text, []byte{';'})
	if !extended {
		size = bytes.TrimRight(size, " \t")
	}
	if len(size) == 0 || len(size) > 15 {
		return ErrChunk
	}
	for _, c := range size {
		digit := message.Unhex(c)
		if digit < 0 {
			return ErrChunk
		}
		s.Left = s.Left<<4 | int64(digit)
	}
	for rest := maxTrailer; s.Left == 0; {
		text, err := s.line(rest)
		if err != nil {
			return err
		}
		if len(text) == 0 {
			break
		}
		s.trailers = append(append(s.trailers, text...), "\r\n"...)
		if rest -= len(text); rest <= 0 {
			return ErrChunk
		}
	}
	return nil
}

// line reads up to CRLF. A bare LF is not an end of a line: what another server takes for one would
// split here.
func (s *Body) line(most int) ([]byte, error) {
	for n := 1; ; n = s.Reader.Buffered() + 1 {
		if err := s.Wait.Fill(n); err != nil {
			return nil, Unexpected(err)
		}
		have, _ := s.Reader.Peek(s.Reader.Buffered())
		if i := bytes.IndexByte(have, '\n'); i >= 0 {
			if i > most || i == 0 || have[i-1] != '\r' || bytes.IndexByte(have[:i-1], '\r') >= 0 {
				return nil, ErrChunk
			}
			text := have[:i-1]
			_, _ = s.Reader.Discard(i + 1) // text stays valid until the next read
			return text, nil
		}
		if len(have) > most {
			return nil, ErrChunk
		}
	}
}

func Unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// TimedOut reports whether a wait for the peer was too long.
func TimedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// writers hold what is written to origins and clients, each for as long as a request or a body is
// being written.
var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 8<<10) }}

// WriterTo takes a buffer for what is written to c.
func WriterTo(c io.Writer) *bufio.Writer {
	w := writers.Get().(*bufio.Writer)
	w.Reset(c)
	return w
}

// WriteChunk writes a part of a body as a chunk (RFC 9112, 7.1).
func WriteChunk(w *bufio.Writer, part []byte) error {
	// A failure shows in the last write
	_, _ = w.Write(append(strconv.AppendInt(w.AvailableBuffer(), int64(len(part)), 16), "\r\n"...))
	_, _ = w.Write(part)
	_, err := w.WriteString("\r\n")
	return err
}

// ReleaseWriter gives one back; what is in it is lost.
func ReleaseWriter(w *bufio.Writer) {
	w.Reset(nil)
	writers.Put(w)
}
