package edge

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"sluice/edge/message"
)

var (
	errChunk    = errors.New("edge: malformed chunk")
	errBodyCost = errors.New("edge: a chunked body has too much around its bytes")
)

// maxChunkLine bounds the line before a chunk, extensions included, and maxTrailer the lines after the last one.
const (
	maxChunkLine = 4 << 10
	maxTrailer   = 16 << 10
	// A chunked body may have at most bodyCost bytes around it for each of its own, and bodySlack bytes more: what goes beyond is
	// chunk extensions that have no end.
	bodyCost  = 16
	bodySlack = 128 << 10
)

// framing is how a body is delimited (RFC 9112, 6.3).
type framing uint8

const (
	fixed framing = iota
	chunked
	untilClose
)

// A stream reads a body out of the buffer that its head came in, without a buffer between. What breaks off is an error, never
// an end: nobody must take a part for the whole.
type stream struct {
	br       *bufio.Reader
	wait     Waiter // waits until bytes are in br
	framing  framing
	left     int64  // of the fixed length or of the current chunk
	got      int64  // bytes of the body so far,
	around   int64  // and of chunk lines
	begun    bool   // a chunk has been read: a line end comes before the next
	done     bool   // the whole body has been read
	trailers []byte // the lines after the last chunk
}

// requestBody is a body whose length is as the head says: in bytes, or message.LengthChunked.
func requestBody(br *bufio.Reader, w Waiter, length int64) stream {
	if length == message.LengthChunked {
		return stream{br: br, wait: w, framing: chunked}
	}
	return stream{br: br, wait: w, left: length}
}

// A Waiter waits until n bytes are in the buffer of a body.
type Waiter interface{ Fill(n int) error }

func (s *stream) finished() bool { return s.done || s.framing == fixed && s.left == 0 }

// next returns what is there of the body, at least one byte, or io.EOF after its proper end. It is valid until the next call.
func (s *stream) next() ([]byte, error) {
	switch {
	case s.done:
		return nil, io.EOF
	case s.framing == fixed && s.left == 0:
		s.done = true
		return nil, io.EOF
	case s.framing == chunked && s.left == 0:
		if err := s.nextChunk(); err != nil {
			return nil, err
		}
		if s.left == 0 {
			s.done = true
			return nil, io.EOF
		}
	}
	if err := s.wait.Fill(1); err != nil {
		if err == io.EOF && s.framing == untilClose {
			s.done = true
			return nil, io.EOF
		}
		return nil, unexpected(err)
	}
	n := s.br.Buffered()
	if s.framing != untilClose {
		n = int(min(int64(n), s.left))
	}
	return s.br.Peek(n)
}

// discard goes on behind n bytes that next showed.
func (s *stream) discard(n int) {
	_, _ = s.br.Discard(n)
	s.got += int64(n)
	if s.framing != untilClose {
		s.left -= int64(n)
	}
}

// Read makes the body an io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	part, err := s.next()
	if err != nil {
		return 0, err
	}
	n := copy(p, part)
	s.discard(n)
	return n, nil
}

// nextChunk reads the line before a chunk and sets left to its size; at the last chunk it reads the trailers as well.
func (s *stream) nextChunk() error {
	if s.begun {
		if err := s.wait.Fill(2); err != nil {
			return unexpected(err)
		}
		if end, _ := s.br.Peek(2); string(end) != "\r\n" {
			return errChunk
		}
		_, _ = s.br.Discard(2)
	}
	s.begun = true
	text, err := s.line(maxChunkLine)
	if err != nil {
		return err
	}
	if s.around += int64(len(text) + len("\r\n\r\n")); s.around > bodyCost*s.got+bodySlack {
		return errBodyCost
	}
	size, _, extended := bytes.Cut(text, []byte{';'})
	if !extended {
		size = bytes.TrimRight(size, " \t")
	}
	if len(size) == 0 || len(size) > 15 {
		return errChunk
	}
	for _, c := range size {
		digit := message.Unhex(c)
		if digit < 0 {
			return errChunk
		}
		s.left = s.left<<4 | int64(digit)
	}
	for rest := maxTrailer; s.left == 0; {
		text, err := s.line(rest)
		if err != nil {
			return err
		}
		if len(text) == 0 {
			break
		}
		s.trailers = append(append(s.trailers, text...), "\r\n"...)
		if rest -= len(text); rest <= 0 {
			return errChunk
		}
	}
	return nil
}

// line reads up to CRLF. A bare LF is not an end of a line: what another server takes for one would split here.
func (s *stream) line(most int) ([]byte, error) {
	for n := 1; ; n = s.br.Buffered() + 1 {
		if err := s.wait.Fill(n); err != nil {
			return nil, unexpected(err)
		}
		have, _ := s.br.Peek(s.br.Buffered())
		if i := bytes.IndexByte(have, '\n'); i >= 0 {
			if i > most || i == 0 || have[i-1] != '\r' || bytes.IndexByte(have[:i-1], '\r') >= 0 {
				return nil, errChunk
			}
			text := have[:i-1]
			_, _ = s.br.Discard(i + 1) // text stays valid until the next read
			return text, nil
		}
		if len(have) > most {
			return nil, errChunk
		}
	}
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
