package edge

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
)

const http11 = "HTTP/1.1"

// understand reads the head of a request and refuses what is not plain: anything that this edge and the origin could read
// differently. raw begins with the head, up to and with its empty line; the exchange points into it.
func (x *exchange) understand(raw []byte) *refusal {
	line, lines, _ := bytes.Cut(raw, []byte("\r\n"))
	if r := x.requestLine(line); r != nil {
		return r
	}
	if err := x.head.scan(lines, x.server.limits.HeaderLines); errors.Is(err, errHeaderCount) {
		return refuse(http.StatusRequestHeaderFieldsTooLarge, "too_many_headers", "The request has too many headers.")
	} else if err != nil || x.head.size == 0 {
		return refuse(http.StatusBadRequest, "bad_header", "A header of the request is malformed.")
	}
	x.size = len(line) + len("\r\n") + x.head.size
	x.close = x.head.close || x.old && !x.head.keep
	if r := x.framed(); r != nil {
		return r
	}
	host, absolute, ok := authority(x.target)
	if absolute && len(x.rawHost) == 0 && x.old {
		x.rawHost = host
	}
	switch {
	case !ok || bytes.IndexByte(x.target, '#') >= 0,
		x.target[0] == '*' && (len(x.target) > 1 || string(x.method) != http.MethodOptions):
		return badTarget
	case len(x.rawHost) > 0:
		if x.hostBuf, ok = appendCanonicalHost(x.hostBuf[:0], x.rawHost); !ok {
			return badHost
		}
		x.host = x.hostBuf
	case !x.old:
		return badHost
	}
	if absolute {
		if !x.isAuthority(host) {
			return refuse(http.StatusBadRequest, "bad_host", "The request target and the Host header name different hosts.")
		}
		x.rawHost = host
	}
	path := rawPath(x.target)
	if len(path) > maxPath {
		return refuse(http.StatusRequestURITooLong, "target_too_long", "The path is longer than this server accepts.")
	}
	x.path, x.readings = appendCanonicalPath(x.pathBuf, x.target)
	if cap(x.path) > cap(x.pathBuf) && !isCanonical(path) {
		x.pathBuf = x.path
	}
	if x.readings&tooMany != 0 {
		return badTarget
	}
	return nil
}

// isAuthority reports whether the authority of an absolute target is the one that Host names (RFC 9112, 3.2.2): the same host
// and the same port, where the one that is not written is the scheme's.
func (x *exchange) isAuthority(authority []byte) bool {
	host, ok := appendCanonicalHost(x.hostBuf[len(x.hostBuf):], authority)
	usual := []byte("80")
	if x.target[len("http")]|0x20 == 's' {
		usual = []byte("443")
	}
	return ok && bytes.Equal(host, x.host) && bytes.Equal(portOf(authority, usual), portOf(x.rawHost, usual))
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
	badRequest = refuse(http.StatusBadRequest, "bad_request", "The request is malformed.")
	badTarget  = refuse(http.StatusBadRequest, "bad_target", "The request target is malformed.")
	badHost    = refuse(http.StatusBadRequest, "bad_host", "The Host header is malformed.")
	badVersion = refuse(http.StatusHTTPVersionNotSupported, "bad_version", "This server speaks HTTP/1.1.")
	badMethod  = &refusal{http.StatusMethodNotAllowed, "bad_method", "This server does not do that.",
		field{"Allow", []byte("GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH")}}
)

// requestLine reads method, target and version (RFC 9112, 3): three words with one space between each.
func (x *exchange) requestLine(line []byte) *refusal {
	method, rest, _ := bytes.Cut(line, []byte{' '})
	target, version, _ := bytes.Cut(rest, []byte{' '})
	switch {
	case string(version) == http11:
	case string(version) == "HTTP/1.0":
		x.old = true
	case isVersion(version):
		return badVersion
	default:
		return badRequest
	}
	x.method, x.target, x.version = method, target, version
	x.isHead = string(method) == http.MethodHead
	switch string(method) {
	case http.MethodConnect, http.MethodTrace:
		return badMethod
	}
	if !isMethod(method) {
		return refuse(http.StatusBadRequest, "bad_method", "The method is malformed: methods are in capitals.")
	}
	if len(target) == 0 || !isText(target) || bytes.IndexByte(target, '\t') >= 0 {
		return badTarget
	}
	return nil
}

// isVersion reports whether a word names a version of HTTP, this one's or another.
func isVersion(word []byte) bool {
	digits, ok := bytes.CutPrefix(word, []byte("HTTP/"))
	digit := func(i int) bool { return '0' <= digits[i] && digits[i] <= '9' }
	return ok && (len(digits) == 1 && digit(0) || len(digits) == 3 && digit(0) && digits[1] == '.' && digit(2))
}

// framed finds the host, how the body is delimited (RFC 9112, 6), and what the client expects before it sends one.
func (x *exchange) framed() *refusal {
	hosts, lengths, codings := 0, 0, 0
	for i := range x.head.lines {
		switch l := &x.head.lines[i]; l.kind {
		case lineHost:
			hosts++
			x.rawHost, x.hostLine = l.value, l.value
		case lineContentLength:
			x.framing = true
			lengths++
			if x.length = parseLength(l.value); x.length < 0 {
				return badLength
			}
		case lineTransferEncoding:
			x.framing = true
			if codings++; x.old || codings > 1 || !equalFold(l.value, "chunked") {
				return refuse(http.StatusNotImplemented, "bad_encoding", "The only transfer encoding here is chunked.")
			}
		case lineExpect:
			x.framing = true
			if !equalFold(l.value, "100-continue") {
				return refuse(http.StatusExpectationFailed, "bad_expect", "The only expectation here is 100-continue.")
			}
			x.invite = !x.old // else it is ignored: a client of HTTP/1.0 would not understand the invitation (RFC 9110, 10.1.1)
		}
	}
	switch {
	case hosts > 1:
		return badHost
	case lengths > 1:
		return badLength
	case lengths > 0 && codings > 0:
		return refuse(http.StatusBadRequest, "bad_length", "A request has a Content-Length or a Transfer-Encoding, not both.")
	case codings > 0:
		x.length = lengthChunked
	}
	x.invite = x.invite && x.length != 0
	return nil
}

var badLength = refuse(http.StatusBadRequest, "bad_length", "The Content-Length is malformed.")

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

// appendHead appends the head of the request as the origin gets it: the target and the headers as they came, without what ends
// at this hop, and with what only we may say of where the request comes from.
func (x *exchange) appendHead(b []byte, o *origin) []byte {
	b = append(b, x.method...)
	b = append(b, ' ')
	b = append(b, originForm(x.target)...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	if len(x.rawHost) > 0 {
		b = append(b, x.rawHost...)
	} else {
		b = append(b, o.host...) // a client of HTTP/1.0 need not say
	}
	b = append(b, "\r\n"...)

	proto, via := false, false
	x.trailers = false
	for i := range x.head.lines {
		l := &x.head.lines[i]
		if l.drop {
			x.trailers = x.trailers || l.kind == lineHopByHop && !x.old && takesTrailers(l)
			continue
		}
		switch l.kind {
		case lineHost, lineExpect, lineForwardedFor, lineContentLength:
			continue // they are written below
		case lineForwardedHost, lineForwardedProto:
			proto = proto || l.kind == lineForwardedProto
			x.forwardedHost = x.forwardedHost || l.kind == lineForwardedHost
		case lineVia:
			via = true
			b = append(append(b, "Via: "...), l.value...)
			b = append(b, ", 1.1 sluice\r\n"...)
			continue
		}
		b = append(b, l.name...)
		b = append(b, ": "...)
		b = append(b, l.value...)
		b = append(b, "\r\n"...)
	}

	b = append(b, "X-Forwarded-For: "...)
	for i := len(x.chain) - 1; i >= 0; i-- {
		b = x.chain[i].AppendTo(b)
		b = append(b, ", "...)
	}
	b = x.conn.peer.AppendTo(b)
	if !proto {
		b = append(b, "\r\nX-Forwarded-Proto: http"...)
		if x.conn.secure {
			b = append(b, 's')
		}
	}
	if !x.forwardedHost && len(x.rawHost) > 0 {
		b = append(b, "\r\nX-Forwarded-Host: "...)
		b = append(b, x.rawHost...)
	}
	if !via {
		b = append(b, "\r\nVia: "...)
		b = append(b, x.version[len("HTTP/"):]...)
		b = append(b, " sluice"...)
	}
	if x.upgrade != nil {
		b = append(b, "\r\nConnection: Upgrade\r\nUpgrade: "...)
		b = append(b, x.upgrade...)
	} else if x.trailers {
		b = append(b, "\r\nConnection: TE\r\nTE: trailers"...)
	}
	if x.invite {
		b = append(b, "\r\nExpect: 100-continue"...)
	}
	switch n := x.length; {
	case n == lengthChunked:
		b = append(b, "\r\nTransfer-Encoding: chunked"...)
		b = x.announce(b)
	case n > 0 || n == 0 && string(x.method) != http.MethodGet && string(x.method) != http.MethodHead:
		b = append(b, "\r\nContent-Length: "...)
		b = strconv.AppendInt(b, n, 10)
	}
	x.forwardedHost = false
	return append(b, "\r\n\r\n"...)
}

// originForm is the target in the form that an origin expects: an absolute one without scheme and authority.
func originForm(target []byte) []byte {
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

// authority is the host and port of an absolute target, and false if the target is not absolute.
func authority(target []byte) (host []byte, absolute, ok bool) {
	if len(target) == 0 || target[0] == '/' || target[0] == '*' {
		return nil, false, true
	}
	scheme, rest, found := bytes.Cut(target, []byte("://"))
	if !found || !equalFold(scheme, "http") && !equalFold(scheme, "https") {
		return nil, false, false
	}
	if i := bytes.IndexAny(rest, "/?"); i >= 0 {
		rest = rest[:i]
	}
	return rest, true, len(rest) > 0 && bytes.IndexByte(rest, '@') < 0
}

// splitList splits a header value at its commas.
func splitList(value []byte) [][]byte {
	if len(value) == 0 {
		return nil
	}
	parts := bytes.Split(value, []byte{','})
	for i := range parts {
		parts[i] = trimSpace(parts[i])
	}
	return parts
}
