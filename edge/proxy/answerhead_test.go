package proxy

import (
	"bufio"
	"bytes"
	"net/http"
	"testing"
	"time"

	"sluice/edge/front"
	"sluice/edge/http1"
	"sluice/edge/message"
	"sluice/edge/upstream"
)

// What is taken for the head of an answer can be handed on, says the same there, and has nothing left that ends here.
func FuzzAnswerHead(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.0 404\r\nConnection: keep-alive, x\r\nX: 1\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 \r\nKeep-Alive: timeout=5\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		p, b, err := readAnswer(http1.RequestHead{HTTP10: true}, answer)
		if err != nil {
			return
		}
		a := &p.answer.Answer
		status, text := a.Status, append(http1.AppendAnswer(nil, a, p.Ours), "\r\n"...)
		if a.Length < message.LengthUnknown {
			t.Fatalf("length %d", a.Length)
		}
		if br := bufio.NewReader(bytes.NewReader(text)); status >= 200 {
			theirs, err := http.ReadResponse(br, &http.Request{Method: http.MethodGet})
			if err != nil {
				return // a client may be stricter
			}
			want := a.Length
			if status == 204 || status == 304 {
				want = 0
			}
			// Transfer-Encoding is hop-by-hop: the edge writes its own for a body of unknown length.
			if theirs.StatusCode != status || want >= 0 && theirs.ContentLength != want || br.Buffered() > 0 {
				t.Fatalf("%q: a client sees %d, length %d, want %d; %d bytes left", text, theirs.StatusCode, theirs.ContentLength, want, br.Buffered())
			}
		}
		readAnswerElsewhere(t, answer, a, b.Reader.Buffered())
		for _, l := range linesOf(t, text) {
			if l.Kind == message.Connection || l.Kind == message.HopByHop || l.Kind == message.TransferEncoding || l.Kind == message.ContentLength && status == 204 {
				t.Fatalf("%s was handed on", l.Name)
			}
		}
	})
}

// readAnswer has a Forward read the answer to a request.
func readAnswer(r http1.RequestHead, answer []byte) (*Forward, *answerBody, error) {
	e := &front.Exchange{In: r}
	p := &Forward{on: e, in: e.Request(), Ours: func(int, []byte) bool { return false }}
	b := &answerBody{Body: http1.Body{Reader: bufio.NewReaderSize(bytes.NewReader(answer), upstream.MaxHead)}, keep: time.Minute}
	return p, b, p.readAnswer(b)
}

// readAnswerElsewhere lets a client read the very same bytes: where it takes them for an answer, its body is delimited in the
// same way and begins at the same byte.
func readAnswerElsewhere(t *testing.T, answer []byte, a *message.Answer, left int) {
	t.Helper()
	br := bufio.NewReaderSize(bytes.NewReader(answer), upstream.MaxHead)
	theirs, err := http.ReadResponse(br, &http.Request{Method: http.MethodGet})
	for err == nil && theirs.StatusCode < 200 && theirs.StatusCode != http.StatusSwitchingProtocols {
		theirs, err = http.ReadResponse(br, &http.Request{Method: http.MethodGet})
	}
	if err != nil || a.Status == http.StatusNoContent || a.Status == http.StatusNotModified || a.Status == http.StatusSwitchingProtocols {
		return
	}
	chunked := len(theirs.TransferEncoding) > 0
	if theirs.StatusCode != a.Status || chunked != (a.Length == message.LengthChunked) || !chunked && theirs.ContentLength != max(a.Length, -1) {
		t.Fatalf("%q: a client sees %d, length %d, chunked %t, we length %d", answer, theirs.StatusCode, theirs.ContentLength, chunked, a.Length)
	}
	if br.Buffered() != left {
		t.Fatalf("%q: %d bytes are left after the head, but %d for a client", answer, left, br.Buffered())
	}
}

func TestConnectionOfAnswers(t *testing.T) {
	for head, want := range map[string]bool{
		"HTTP/1.1 200 OK\r\n":                                                true,
		"HTTP/1.1 200 OK\r\nConnection: close\r\n":                           false,
		"HTTP/1.1 200 OK\r\nConnection: x, Close\r\n":                        false,
		"HTTP/1.0 200 OK\r\n":                                                false,
		"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n":                      true,
		"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nConnection: close\r\n": false,
		"HTTP/1.0 200 OK\r\nConnection: close, keep-alive\r\n":               false,
	} {
		if _, b, err := readAnswer(http1.RequestHead{}, []byte(head+"Content-Length: 0\r\n\r\n")); err != nil || b.reuse != want {
			t.Errorf("%q: reuse %t, %v", head, b.reuse, err)
		}
	}
}
