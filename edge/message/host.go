package message

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
)

// AppendHost appends the form of a Host that rules are matched against: lower case, without port
// and without the dot that may end it. It reports whether host could be one at all (RFC 3986: a
// name, an IPv4 address, or an IPv6 address in brackets, with or without a port). What RFC 3986 has
// in brackets for addresses to come (IPvFuture) is none: nobody has one, and servers read it
// differently.
func AppendHost(buf, host []byte) ([]byte, bool) {
	name, port := host, []byte(nil)
	if len(host) > 0 && host[0] == '[' {
		i := bytes.IndexByte(host, ']')
		if i < 0 {
			return buf, false
		}
		name, port = host[:i+1], host[i+1:]
		if !isIPv6(name[1:i]) {
			return buf, false
		}
	} else if i := bytes.IndexByte(host, ':'); i >= 0 {
		name, port = host[:i], host[i:]
	}
	if len(name) == 0 || len(name) > 255 {
		return buf, false
	}
	if len(port) > 0 && (port[0] != ':' || len(port) > 6) {
		return buf, false
	}
	for i, c := range port {
		if i > 0 && (c < '0' || c > '9') {
			return buf, false
		}
	}
	if name[0] != '[' {
		name = bytes.TrimSuffix(name, []byte("."))
	}
	dot := true // no label is empty
	for _, c := range name {
		if c == '.' && dot {
			return buf, false
		}
		dot = c == '.'
		switch {
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' ||
			c == '~' || c == '%':
		case name[0] == '[' && (c == ':' || c == '[' || c == ']'):
		default:
			return buf, false
		}
		buf = append(buf, c)
	}
	return buf, !dot
}

// isIPv6 reports whether text is an IPv6 address, perhaps with a zone (RFC 6874).
func isIPv6(text []byte) bool {
	a, err := netip.ParseAddr(string(text))
	return err == nil && a.Is6()
}

// ParseHostPattern reads an exact host, "*", or "*.example.com", and returns it in canonical form.
func ParseHostPattern(text string) (string, error) {
	if text == "*" {
		return text, nil
	}
	name, wild := strings.CutPrefix(text, "*.")
	canonical, ok := AppendHost(nil, []byte(name))
	if !ok || strings.Contains(name, "*") || strings.Contains(strings.TrimPrefix(name, "["), ":") &&
		name[0] != '[' {
		return "",
			fmt.Errorf("%q is not a host: want example.com without a port, *.example.com, or *",
				text)
	}
	if wild {
		return "*." + string(canonical), nil
	}
	return string(canonical), nil
}
