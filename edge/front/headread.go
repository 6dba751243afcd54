package front

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"runtime"
	"time"

	"sluice/edge/http1"
	"sluice/edge/message"
)

const (
	// headBuffer is what is read at once of a client that sends heads, and bodyBuffer of one that
	// sends a body, in bytes.
	headBuffer = 4 << 10
	bodyBuffer = 32 << 10
)

// crowded is the answer on a connection above the cap.
const crowded = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"

var (
	errTargetTooLong = errors.New("edge: the first line of a request is longer than limits.header_bytes")
	errHeadTooLong   = errors.New("edge: the head of a request is longer than limits.header_bytes")
	errTLS           = errors.New("edge: a TLS handshake where plain HTTP is spoken")
	errClear         = errors.New("edge: plain HTTP where TLS is spoken")
	errBareLF        = errors.New("edge: a line of a request's head ends in LF alone")
)

// tlsHandshake is the first byte of a connection over TLS (RFC 8446, 5.1). Its client waits for an
// answer to what is no head and has no end.
const tlsHandshake = 0x16

// NextHead waits for the whole head of the next request, and returns it, perhaps with more behind
// it. It stays in the buffer. Empty lines before it are passed over (RFC 9112, 2.2). The whole of
// it must come within so long after its first byte.
func (c *Client) NextHead(within time.Duration, most int) ([]byte, error) {
	timed, searched := false, 0
	if c.heading = c.Reader.Buffered() > 0; c.heading {
		if c.piped++; c.piped%pipelineYield == 0 {
			runtime.Gosched()
		}
	}
	for {
		have, _ := c.Reader.Peek(c.Reader.Buffered())
		for searched == 0 && (bytes.HasPrefix(have, []byte{'\n'}) ||
			bytes.HasPrefix(have, []byte("\r\n"))) {
			n := bytes.IndexByte(have, '\n') + 1
			_, _ = c.Reader.Discard(n)
			have = have[n:]
			c.heading = len(have) > 0 // an empty line after a body is not the next request
		}
		if len(have) > 0 && have[0] == tlsHandshake {
			return nil, errTLS
		}
		end := len(have) + 1
		if bytes.HasSuffix(have, []byte("\r\n\r\n")) && len(have) <= most {
			return have, nil // nearly always: one head and nothing else
		} else if i := bytes.Index(have[searched:], []byte("\r\n\r\n")); i >= 0 {
			end = searched + i + 4
		}
		switch {
		case end > most && bytes.IndexByte(have[:most], '\n') < 0:
			return nil, errTargetTooLong
		case end > most:
			return nil, errHeadTooLong
		case end <= len(have):
			return have[:end], nil
		}
		if hasBareLF(have, max(searched, 1)) { // its client has sent all of the head, and waits
			return nil, errBareLF
		}
		searched = max(0, len(have)-3)
		if len(have) == c.Reader.Size() {
			c.grow(most)
		}
		if c.heading && !timed {
			now := time.Now()
			if c.readDue, timed = now.Add(within), true; c.Blocked.Load() < now.UnixNano() {
				c.Idle.Store(0)
			}
		}
		if _, err := c.Reader.Peek(len(have) + 1); err != nil {
			return nil, err
		}
	}
}

// hasBareLF reports whether an LF from i on has no CR before it.
func hasBareLF(text []byte, i int) bool {
	for ; i < len(text); i++ {
		n := bytes.IndexByte(text[i:], '\n')
		if n < 0 {
			return false
		}
		if i += n; text[i-1] != '\r' {
			return true
		}
	}
	return false
}

// grow makes the buffer larger. What is in it stays.
func (c *Client) grow(size int) {
	if have, _ := c.Reader.Peek(c.Reader.Buffered()); size > c.Reader.Size() {
		c.Reader = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(have)), c), size)
		_, _ = c.Reader.Peek(len(have))
	}
}

// headless is the answer to what is no request, and whether what has come of it could have become a
// head: its client was slow, or has gone.
func (c *Client) headless(err error) (refused *message.Refusal, broken bool) {
	switch {
	case err == errTLS:
		return message.Refuse(http.StatusBadRequest, "tls",
			"This port speaks plain HTTP, not TLS."), false
	case err == errClear:
		return message.Refuse(http.StatusBadRequest, "plain_http",
			"This port speaks TLS, not plain HTTP: the address begins with https."), false
	case err == errBareLF:
		return http1.BadRequest, false
	case err == errTargetTooLong:
		return message.Refuse(http.StatusRequestURITooLong, "target_too_long",
			"The request target is longer than this server accepts."), false
	case err == errHeadTooLong:
		return message.Refuse(http.StatusRequestHeaderFieldsTooLarge, "header_too_large",
			"The head of the request is larger than this server accepts."), false
	case http1.TimedOut(err):
		return message.Refuse(http.StatusRequestTimeout, "timeout", "The request came too slowly."),
			true
	}
	have, _ := c.Reader.Peek(c.Reader.Buffered())
	line, _, whole := bytes.Cut(have, []byte("\r\n"))
	return http1.BadRequest, !whole && bytes.IndexByte(line, '\n') < 0 ||
		new(http1.RequestHead).Begins(line)
}
