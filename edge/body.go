package edge

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"time"

	"sluice/edge/http1"
	"sluice/edge/message"
	"sluice/edge/screen"
	"sluice/edge/upstream"
)

// An answerBody is the exchange with an origin: the body of its answer, and what becomes of the connection. Every one that was
// begun is finished: the connection to the origin goes back to the pool or away.
type answerBody struct {
	http1.Body
	link      *upstream.Link
	client    *screen.Client
	upload    *upload // may still be under way
	length    int64   // as the head says: bytes, message.LengthChunked or message.LengthUnknown
	reuse     bool    // the origin keeps the connection
	keep      time.Duration
	timeout   time.Duration
	out       *bufio.Writer // to the client, while the body is streamed
	pass      bool          // the client takes trailers
	nominated message.Names // by the head's Connection
	due       time.Time     // of the whole answer; zero: it may take any time
}

// within is how long the origin may take for its next word, or for taking ours.
func (b *answerBody) within(now time.Time) time.Duration {
	if b.due.IsZero() {
		return b.timeout
	}
	return min(b.timeout, b.due.Sub(now))
}

// send streams the body to the client, behind the head of the answer. What has arrived goes out before it waits for more, so
// that a slow stream is not held up. A failure is the end of the client's connection: it has been promised more than it gets.
func (b *answerBody) send(head []byte, inChunks bool) error {
	w := http1.WriterTo(b.client)
	defer http1.ReleaseWriter(w)
	b.client.StartAnswer()
	defer b.client.EndAnswer()
	b.out = w
	_, _ = w.Write(head) // a failure shows in the next write, and at last in Flush
	err := b.copy(w, inChunks)
	if failed := w.Flush(); err == nil {
		err = failed
	}
	return err
}

func (b *answerBody) copy(w *bufio.Writer, inChunks bool) error {
	var size [18]byte
	for {
		part, err := b.Next()
		switch {
		case err == io.EOF && inChunks:
			return b.passTrailers(w)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if inChunks {
			_, _ = w.Write(append(strconv.AppendInt(size[:0], int64(len(part)), 16), '\r', '\n'))
		}
		_, err = w.Write(part)
		if inChunks {
			_, _ = w.WriteString("\r\n")
		}
		if err != nil {
			return err
		}
		b.Discard(len(part))
	}
}

// fill waits until n bytes are there, at most so long as the origin may pause.
func (b *answerBody) Fill(n int) error {
	if b.Reader.Buffered() >= n {
		return nil
	}
	if b.out != nil {
		if err := b.out.Flush(); err != nil {
			return err
		}
	}
	now := time.Now()
	if err := b.link.SetReadDeadline(now.Add(b.within(now))); err != nil {
		return err
	}
	_, err := b.Reader.Peek(n)
	return err
}

// finish waits for the request's body and gives the connection back. It returns when that was.
func (b *answerBody) finish() time.Time {
	if b.upload != nil {
		b.reuse = b.upload.end() && b.reuse
		b.client.Body = false
	}
	b.link.Origin.Active.Add(-1)
	now := time.Now()
	clean := b.reuse && b.Framing != http1.UntilClose && b.Finished() && b.Reader.Buffered() == 0
	if b.link.Rest(); clean {
		b.link.Origin.Release(b.link, now, b.keep)
	} else {
		b.link.Close()
	}
	return now
}

// bodyless reports whether an answer has no body whatever its headers say (RFC 9112, 6.3).
func bodyless(head bool, status int) bool {
	return head || status == http.StatusNoContent || status == http.StatusNotModified
}
