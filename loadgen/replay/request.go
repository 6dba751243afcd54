package replay

import (
	"net/netip"
	"strings"

	"sluice/loadgen/trace"
)

// DefaultHost is the Host of requests whose log line names none, or none that HTTP allows.
const DefaultHost = "sluice.test"

// appendRequest appends q as HTTP/1.1. Logs hold what servers were sent, TLS bytes and spaces
// included; a limiter is measured on requests that reach it, so what HTTP does not allow is made
// allowable: an unknown method becomes GET, bytes that a target cannot have are percent-encoded, an
// absolute target keeps its path. A valid source is named in X-Forwarded-For.
func appendRequest(b []byte, q *trace.Request, source netip.Addr) []byte {
	method := knownMethod(q.Method)
	b = append(b, method...)
	b = append(b, ' ')
	b = appendTarget(b, q.Path)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, hostOf(q)...)
	if source.IsValid() {
		b = append(b, "\r\nX-Forwarded-For: "...)
		b = source.AppendTo(b)
	}
	if sendsBody(method) {
		b = append(b, "\r\nContent-Length: 0"...)
	}
	return append(b, "\r\n\r\n"...)
}

func knownMethod(m string) string {
	switch m {
	case "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH":
		return m
	}
	return "GET"
}

// sendsBody reports whether a request has a body, if only an empty one.
func sendsBody(method string) bool {
	return method == "POST" || method == "PUT" || method == "PATCH"
}

func hostOf(q *trace.Request) string {
	if validHost(q.Host) {
		return q.Host
	}
	return DefaultHost
}

// idempotent reports whether a request may be sent again when its connection died without an answer
// (RFC 9110, 9.2.2).
func idempotent(method string) bool {
	m := knownMethod(method)
	return m != "POST" && m != "PATCH"
}

func appendTarget(b []byte, path string) []byte {
	if _, rest, ok := strings.Cut(path, "://"); ok && !strings.HasPrefix(path, "/") {
		path = "/"
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			path = rest[i:]
		}
	}
	if !strings.HasPrefix(path, "/") {
		b = append(b, '/')
	}
	const hex = "0123456789ABCDEF"
	for i := range len(path) {
		if c := path[i]; c <= ' ' || c >= 0x7f || c == '#' || c == '"' || c == '<' || c == '>' ||
			c == '\\' {
			b = append(b, '%', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return b
}

// validHost reports whether host is a name or IPv4 address with an optional port.
func validHost(host string) bool {
	name, port, hasPort := strings.Cut(host, ":")
	if name == "" || len(name) > 253 || hasPort && (port == "" || len(port) > 5) {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' ||
			c == '-') {
			return false
		}
	}
	return strings.Trim(port, "0123456789") == ""
}
