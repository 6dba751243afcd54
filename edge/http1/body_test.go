package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"sluice/edge/message"
)

// What this edge takes for the whole body of a request is the same body, with the same trailers and the same bytes after it, to
// another server; and what breaks off, wherever that is, is an error and never an end.
func FuzzRequestBody(f *testing.F) {
	for _, body := range []string{
		"3\r\nabc\r\n0\r\n\r\n", "03;x=y\r\nabc\r\n000\r\nX: y\r\nX: z\r\n\r\nGET / HTTP/1.1\r\n", "1 \t\r\na\r\n0\r\n\r\n", "0\r\n\r\n\r\n",
		"3\r\nabcd\r\n0\r\n\r\n", "3\nabc\n0\n\n", "ffffffffffffffff\r\na", "1;\"\n\"\r\na\r\n0\r\n\r\n", "1\r\na\r\n0\r\nX : y\r\n\r\n", "A\r\n0123456789\r\n0\r\nX:\r\n y\r\n\r\n",
		"1000\r\n" + strings.Repeat("x", 0x1000) + "\r\n0;" + strings.Repeat("y", maxChunkLine) + "\r\n\r\n", "0\r\nX: " + strings.Repeat("y", maxTrailer) + "\r\n\r\n",
	} {
		f.Add(message.LengthChunked, uint8(255), []byte(body))
		f.Add(3, uint8(2), []byte(body))
	}
	f.Fuzz(func(t *testing.T, length int, most uint8, sent []byte) {
		length = max(length, message.LengthChunked)
		body, trailer, left, err := readBody(length, int(most)+1, sent)
		theirs, err2 := readBodyElsewhere(length, sent)
		switch {
		case err == nil && err2 == nil:
			if !bytes.Equal(body, theirs.body) || left != theirs.left || !maps.EqualFunc(trailer, theirs.trailer, slices.Equal) {
				t.Fatalf("%q, length %d: %q, trailer %v, %d bytes left; another server reads %q, %v, %d", sent, length, body, trailer, left,
					theirs.body, theirs.trailer, theirs.left)
			}
		case length >= 0 && (err == nil) != (err2 == nil):
			t.Fatalf("%q, length %d: %v; another server says %v", sent, length, err, err2)
		}
		if err != nil || len(sent)-left > 50 {
			return
		}
		for n := range len(sent) - left {
			if _, _, _, err := readBody(length, int(most)+1, sent[:n]); err != io.ErrUnexpectedEOF {
				t.Fatalf("%q, length %d, broken off after %d bytes: %v", sent, length, n, err)
			}
		}
	})
}

// readBody reads a body that comes in pieces of at most so many bytes, as an upload does. It returns how many bytes are left after it.
func readBody(length, most int, sent []byte) (body []byte, trailer http.Header, left int, err error) {
	c := &inPieces{sends: sent, most: most}
	c.Reader = bufio.NewReaderSize(c, 4<<10)
	s := NewBody(c.Reader, c, int64(length))
	for {
		part, err := s.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			return nil, nil, 0, err
		}
		body = append(body, part...)
		s.Discard(len(part))
	}
	var lines message.Head
	if _, err := ScanHead(&lines, s.trailers, message.MaxLines); err != nil {
		return nil, nil, 0, err
	}
	trailer = make(http.Header)
	for _, l := range lines.Lines {
		trailer.Add(string(l.Name), string(l.Value))
	}
	return body, trailer, len(c.sends) + c.Buffered(), nil
}

// A client that sends inPieces is read at most so many bytes at once.
type inPieces struct {
	*bufio.Reader
	sends []byte
	most  int
}

func (c *inPieces) Read(p []byte) (int, error) {
	if len(c.sends) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.most)], c.sends)
	c.sends = c.sends[n:]
	return n, nil
}

func (c *inPieces) Fill(n int) error {
	_, err := c.Peek(n)
	return err
}

type elsewhere struct {
	body    []byte
	trailer http.Header
	left    int
}

// readBodyElsewhere is how another server reads it.
func readBodyElsewhere(length int, sent []byte) (got elsewhere, err error) {
	framing := fmt.Sprintf("Content-Length: %d", length)
	if length == message.LengthChunked {
		framing = "Transfer-Encoding: chunked"
	}
	all := strings.NewReader("POST / HTTP/1.1\r\nHost: a\r\n" + framing + "\r\n\r\n" + string(sent))
	br := bufio.NewReader(all)
	r, err := http.ReadRequest(br)
	if err != nil {
		return got, err
	}
	got.body, err = io.ReadAll(r.Body)
	got.trailer, got.left = r.Trailer, br.Buffered()+all.Len()
	return got, err
}
