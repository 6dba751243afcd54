package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"sluice/edge/message"
)

// MaxInterim bounds the answers with a status of 1xx before the real one.
const MaxInterim = 8

// http1 is what the head of every answer begins with.
const http1 = "HTTP/1."

var (
	ErrAnswer  = errors.New("edge: the head of the origin's answer is malformed")
	ErrFraming = errors.New("edge: the origin's answer does not say unmistakably where its body ends")
	ErrInterim = errors.New("edge: the origin sent too many interim answers")
)

// An Answer reads the heads of answers as strictly as those of requests.
type Answer struct {
	message.Answer
	size int // of the lines with the empty line after them; 0: that has not come
}

// Read waits for a head and reads it. raw is the whole of it, up to and with its empty line, and
// valid until br is read; old is an origin of HTTP/1.0.
func (a *Answer) Read(br *bufio.Reader) (raw []byte, old bool, err error) {
	_, _ = br.Peek(1)
	raw, _ = br.Peek(br.Buffered())
	old, err = a.parse(raw)
	if err != nil || a.size == 0 { // it may be a part of it
		if raw, old, err = a.readLines(br); err != nil {
			return nil, false, err
		}
	}
	return raw[:bytes.IndexByte(raw, '\n')+1+a.size], old, nil
}

// readLines waits for a whole head, line by line: what cannot become one is an error as soon as
// that shows, because an origin that speaks otherwise, or another protocol, may well send nothing
// more. A head has a bounded number of lines, so reading those that are there again with each that
// comes is bounded as well.
func (a *Answer) readLines(br *bufio.Reader) (raw []byte, old bool, err error) {
	searched := 0
	for n := 1; ; n = br.Buffered() + 1 {
		if _, err := br.Peek(n); err != nil {
			switch {
			case TimedOut(err):
				return nil, false, err
			case n == 1:
				return nil, false, io.EOF // however it ended
			}
			return nil, false, Unexpected(err)
		}
		raw, _ = br.Peek(br.Buffered())
		if begun := min(len(raw), len(http1)); string(raw[:begun]) != http1[:begun] {
			return nil, false, ErrAnswer
		}
		if i := bytes.LastIndexByte(raw[searched:], '\n'); i >= 0 {
			if old, err = a.parse(raw[:searched+i+1]); err != nil || a.size > 0 {
				return raw, old, err
			}
		}
		searched = len(raw)
	}
}

// parse reads the status line and scans the header lines.
func (a *Answer) parse(raw []byte) (old bool, err error) {
	a.Status, a.Reason, a.Protocol, a.Trailers = 0, nil, nil, nil
	i := bytes.IndexByte(raw, '\n')
	line := raw[:max(i, 0)]
	if len(line) < 13 || line[len(line)-1] != '\r' || string(line[:len(http1)]) != http1 ||
		line[8] != ' ' || line[7] != '0' && line[7] != '1' {
		return false, ErrAnswer
	}
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return false, ErrAnswer
		}
		a.Status = a.Status*10 + int(c-'0')
	}
	if a.Status < 100 || line[12] != ' ' && line[12] != '\r' {
		return false, ErrAnswer
	}
	for _, c := range line[12 : len(line)-1] { // the reason goes to the client
		if c < ' ' && c != '\t' || c == 0x7f {
			return false, ErrAnswer
		}
	}
	if line[12] == ' ' {
		a.Reason = line[13 : len(line)-1]
	}
	a.size, err = scan(&a.Head, raw[i+1:], message.MaxLines, true)
	return line[7] == '0', err
}

// Frame finds out how the body is delimited (RFC 9112, 6.3), whether the connection can be used
// again, and for how long it is kept, at most keep. What could be read in two ways is an error: one
// server's body would be another's next answer.
func (a *Answer) Frame(old bool, keep time.Duration) (reuse bool, kept time.Duration, err error) {
	length, reuse, kept := int64(message.LengthUnknown), !a.Head.Close && (!old || a.Head.Keep), keep // close outdoes keep-alive
	counted := false
	for i := range a.Head.Lines {
		l := &a.Head.Lines[i]
		switch l.Kind {
		case message.ContentLength:
			if length = parseLength(l.Value); length < 0 || counted {
				return false, 0, ErrFraming
			}
			counted = true
		case message.HopByHop:
			if seconds, ok := keepAliveTimeout(l); ok {
				kept = min(kept, seconds)
			}
		}
	}
	for i := range a.Head.Lines {
		if l := &a.Head.Lines[i]; l.Kind == message.TransferEncoding {
			if counted || length == message.LengthChunked || old ||
				!message.EqualFold(l.Value, "chunked") {
				return false, 0, ErrFraming
			}
			length = message.LengthChunked
		}
	}
	a.Length = length
	return reuse, kept, nil
}

// AppendAnswer appends the head of an answer as a client may get it, up to its last line: without
// what ends at this hop, and without lines that the origin may not send.
func AppendAnswer(out []byte, a *message.Answer, ours func(status int, name []byte) bool) []byte {
	out = append(append(out, version11...), ' ')
	out = strconv.AppendInt(out, int64(a.Status), 10)
	out = append(out, ' ') // the reason may be missing, this space may not (RFC 9112, 4)
	out = append(append(out, a.Reason...), "\r\n"...)
	for i := range a.Head.Lines {
		l := &a.Head.Lines[i]
		if l.Drop || ours(a.Status, l.Name) || l.Kind == message.ContentLength && (a.Status < 200 ||
			a.Status == http.StatusNoContent) {
			continue
		}
		out = l.Append(out)
	}
	return out
}

// Dated reports whether a date is passed on.
func (a *Answer) Dated() bool {
	return slices.ContainsFunc(a.Head.Lines, func(l message.Line) bool {
		return !l.Drop && message.EqualFold(l.Name, "date")
	})
}

// keepAliveTimeout reads how long an origin keeps an idle connection, less a second for the way.
func keepAliveTimeout(l *message.Line) (time.Duration, bool) {
	if !message.EqualFold(l.Name, "keep-alive") {
		return 0, false
	}
	for _, part := range message.SplitList(l.Value) {
		if len(part) > 8 && message.EqualFold(part[:8], "timeout=") {
			n, err := strconv.Atoi(string(part[8:]))
			if err != nil || n < 0 || n > 86400 {
				return 0, false
			}
			return max(0, time.Duration(n-1)*time.Second), true
		}
	}
	return 0, false
}
