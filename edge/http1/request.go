// Package http1 says what a head and a body of HTTP/1.1 may look like (RFC 9112), of requests and
// of answers. It is strict: what two servers could read differently is an error or a refusal, so
// that where a message ends is never a matter of opinion.
//
// It works on bytes that somebody else has read into a buffer, and does no I/O but to ask for more
// of them.
package http1

import (
	"bytes"
	"errors"
	"net/http"

	"sluice/edge/message"
)

const version11 = "HTTP/1.1"

// A RequestHead is the head of a request as HTTP/1.1 has it. What it points to is that head.
type RequestHead struct {
	message.Request
	HostLine []byte // of the head; an absolute target outdoes it
	HTTP10   bool   // HTTP/1.0
	Close    bool   // the connection ends with the answer
	Framing  bool   // there are lines that frame the body, or Expect
}

// Reset makes r ready for the next head.
func (r *RequestHead) Reset() {
	r.Request.Reset()
	r.HostLine, r.HTTP10, r.Close, r.Framing = nil, false, false, false
}

// Parse reads the head of a request and refuses what is not plain: anything that this edge and the
// origin could read differently, and what has more than so many lines. raw begins with the head, up
// to and with its empty line.
func (r *RequestHead) Parse(raw []byte, most int) *message.Refusal {
	line, lines, _ := bytes.Cut(raw, []byte("\r\n"))
	if no := r.requestLine(line); no != nil {
		return no
	}
	size, err := ScanHead(&r.Head, lines, most)
	if errors.Is(err, message.ErrCount) {
		return message.Refuse(http.StatusRequestHeaderFieldsTooLarge, "too_many_headers",
			"The request has too many headers.")
	} else if err != nil || size == 0 {
		return message.Refuse(http.StatusBadRequest, "bad_header",
			"A header of the request is malformed.")
	}
	r.Size = len(line) + len("\r\n") + size
	r.Close = r.Head.Close || r.HTTP10 && !r.Head.Keep
	if no := r.framed(); no != nil {
		return no
	}
	host, absolute, ok := Authority(r.Target)
	if absolute && len(r.RawHost) == 0 && r.HTTP10 {
		r.RawHost = host
	}
	switch {
	case !ok || bytes.IndexByte(r.Target, '#') >= 0,
		r.Target[0] == '*' && (len(r.Target) > 1 || string(r.Method) != http.MethodOptions):
		return message.BadTarget
	case len(r.RawHost) > 0:
		if !r.SetHost(r.RawHost) {
			return badHost
		}
	case !r.HTTP10:
		return badHost
	}
	if absolute {
		if !r.isAuthority(host) {
			return message.Refuse(http.StatusBadRequest, "bad_host",
				"The request target and the Host header name different hosts.")
		}
		r.RawHost = host
	}
	r.Upgrade = r.upgrade()
	return r.SetPath()
}

// upgrade is the protocol that a request wants to switch to. A request with a body, or one that
// wants anything else, is an ordinary request: the wish ends at this hop (RFC 9110, 7.8).
func (r *RequestHead) upgrade() (protocol []byte) {
	if r.HTTP10 || string(r.Method) != http.MethodGet || r.Length != 0 || !r.Head.Upgrades {
		return nil
	}
	for i := range r.Head.Lines {
		if l := &r.Head.Lines[i]; l.Kind == message.HopByHop &&
			message.EqualFold(l.Name, "upgrade") {
			if protocol != nil {
				return nil
			}
			protocol = l.Value
		}
	}
	return protocol
}

// isAuthority reports whether the authority of an absolute target is the one that Host names (RFC
// 9112, 3.2.2): the same host and the same port, where the one that is not written is the scheme's.
func (r *RequestHead) isAuthority(authority []byte) bool {
	host, ok := message.AppendHost(r.Host[len(r.Host):], authority)
	usual := []byte("80")
	if r.Target[len("http")]|0x20 == 's' {
		usual = []byte("443")
	}
	return ok && bytes.Equal(host, r.Host) && bytes.Equal(portOf(authority, usual),
		portOf(r.RawHost, usual))
}

// portOf is the port of what is a host, without leading zeros.
func portOf(host, usual []byte) []byte {
	i := bytes.LastIndexByte(host, ':')
	if i < 0 || i == len(host)-1 || host[len(host)-1] == ']' {
		return usual
	}
	return bytes.TrimLeft(host[i+1:], "0")
}

var (
	BadRequest = message.Refuse(http.StatusBadRequest, "bad_request", "The request is malformed.")
	badHost    = message.Refuse(http.StatusBadRequest, "bad_host", "The Host header is malformed.")
	badVersion = message.Refuse(http.StatusHTTPVersionNotSupported, "bad_version",
		"This server speaks HTTP/1.1.")
	badMethod = message.Refuse(http.StatusMethodNotAllowed, "bad_method",
		"This server does not do that.").
		With("Allow", "GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH")
)

// requestLine reads method, target and version (RFC 9112, 3): three words with one space between
// each.
func (r *RequestHead) requestLine(line []byte) *message.Refusal {
	method, rest, _ := bytes.Cut(line, []byte{' '})
	target, version, _ := bytes.Cut(rest, []byte{' '})
	switch {
	case string(version) == version11:
	case string(version) == "HTTP/1.0":
		r.HTTP10 = true
	case isVersion(version):
		return badVersion
	default:
		return BadRequest
	}
	r.Method, r.Target, r.Version = method, target, version
	r.IsHead = string(method) == http.MethodHead
	switch string(method) {
	case http.MethodConnect, http.MethodTrace:
		return badMethod
	}
	if !message.IsMethod(method) {
		return message.Refuse(http.StatusBadRequest, "bad_method",
			"The method is malformed: methods are in capitals.")
	}
	if len(target) == 0 || !message.IsText(target) || bytes.IndexByte(target, '\t') >= 0 {
		return message.BadTarget
	}
	return nil
}

// Begins reports whether a request could begin with a line.
func (r *RequestHead) Begins(line []byte) bool { return r.requestLine(line) == nil }

// isVersion reports whether a word names a version of HTTP, this one's or another.
func isVersion(word []byte) bool {
	digits, ok := bytes.CutPrefix(word, []byte("HTTP/"))
	digit := func(i int) bool { return '0' <= digits[i] && digits[i] <= '9' }
	return ok && (len(digits) == 1 && digit(0) || len(digits) == 3 && digit(0) &&
		digits[1] == '.' && digit(2))
}

// framed finds the host, how the body is delimited (RFC 9112, 6), and what the client expects
// before it sends one.
func (r *RequestHead) framed() *message.Refusal {
	hosts, lengths, codings := 0, 0, 0
	for i := range r.Head.Lines {
		switch l := &r.Head.Lines[i]; l.Kind {
		case message.Host:
			hosts++
			r.RawHost, r.HostLine = l.Value, l.Value
		case message.ContentLength:
			r.Framing = true
			lengths++
			if r.Length = parseLength(l.Value); r.Length < 0 {
				return badLength
			}
		case message.TransferEncoding:
			r.Framing = true
			if codings++; r.HTTP10 || codings > 1 || !message.EqualFold(l.Value, "chunked") {
				return message.Refuse(http.StatusNotImplemented, "bad_encoding",
					"The only transfer encoding here is chunked.")
			}
		case message.HopByHop:
			r.TakesTrailers = r.TakesTrailers || !r.HTTP10 && message.TakesTrailers(l)
		case message.Expect:
			r.Framing = true
			if !message.EqualFold(l.Value, "100-continue") {
				return message.Refuse(http.StatusExpectationFailed, "bad_expect",
					"The only expectation here is 100-continue.")
			}
			// Else it is ignored: a client of HTTP/1.0 would not understand the invitation (RFC
			// 9110, 10.1.1)
			r.ExpectContinue = !r.HTTP10
		}
	}
	switch {
	case hosts > 1:
		return badHost
	case lengths > 1:
		return badLength
	case lengths > 0 && codings > 0:
		return message.Refuse(http.StatusBadRequest, "bad_length",
			"A request has a Content-Length or a Transfer-Encoding, not both.")
	case codings > 0:
		r.Length = message.LengthChunked
	}
	r.ExpectContinue = r.ExpectContinue && r.Length != 0
	return nil
}

var badLength = message.Refuse(http.StatusBadRequest, "bad_length",
	"The Content-Length is malformed.")

// parseLength reads a Content-Length: digits and nothing else, up to 2^62; -1 is none.
func parseLength(value []byte) int64 {
	n := int64(0)
	for _, c := range value {
		if c < '0' || c > '9' || n > 1<<58 {
			return -1
		}
		n = n*10 + int64(c-'0')
	}
	if len(value) == 0 {
		return -1
	}
	return n
}

// OriginForm is the target in the form that an origin expects: an absolute one without scheme and
// authority.
func OriginForm(target []byte) []byte {
	if len(target) == 0 || target[0] == '/' || target[0] == '*' {
		return target
	}
	_, rest, _ := bytes.Cut(target, []byte("://"))
	i := bytes.IndexAny(rest, "/?")
	switch {
	case i < 0:
		return []byte("/")
	case rest[i] == '?':
		return append([]byte("/"), rest[i:]...)
	}
	return rest[i:]
}

// Authority is the host and port of an absolute target, and false if the target is not absolute.
func Authority(target []byte) (host []byte, absolute, ok bool) {
	if len(target) == 0 || target[0] == '/' || target[0] == '*' {
		return nil, false, true
	}
	scheme, rest, found := bytes.Cut(target, []byte("://"))
	if !found || !message.EqualFold(scheme, "http") && !message.EqualFold(scheme, "https") {
		return nil, false, false
	}
	if i := bytes.IndexAny(rest, "/?"); i >= 0 {
		rest = rest[:i]
	}
	return rest, true, len(rest) > 0 && bytes.IndexByte(rest, '@') < 0
}
