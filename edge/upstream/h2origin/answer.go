package h2origin

import (
	"bufio"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

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

// relay writes an answer down. Its connection is used for nothing else.
func (x *exchange) relay(a *http.Response) {
	head := appendHead(make([]byte, 0, 1<<10), a.StatusCode, a.Header)
	head = append(head, "Connection: close\r\n"...)
	chunked := false
	switch announced := a.Header["Content-Length"]; {
	case message.Bodyless(x.head.IsHead, a.StatusCode):
		if len(announced) == 1 && a.StatusCode != http.StatusNoContent {
			head = appendLines(head, "Content-Length", announced)
		}
	case a.ContentLength >= 0 && len(a.Trailer) == 0:
		head = append(strconv.AppendInt(append(head, "Content-Length: "...), a.ContentLength, 10), "\r\n"...)
	default:
		chunked = true
		head = append(head, "Transfer-Encoding: chunked\r\n"...)
		if names := slices.Sorted(maps.Keys(a.Trailer)); len(names) > 0 {
			head = append(append(append(head, "Trailer: "...), strings.Join(names, ", ")...), "\r\n"...)
		}
	}
	head = append(head, "\r\n"...)
	w := http1.WriterTo(x.far)
	defer http1.ReleaseWriter(w)
	if _, err := x.far.Write(head); err != nil {
		return
	}
	x.body(a, w, chunked)
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
