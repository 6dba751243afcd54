package edge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"strings"
)

const (
	// maxHeaderLines bounds the headers of an answer, and the lines of a trailer. Servers commonly allow 100.
	maxHeaderLines = 128
	// maxListed bounds the elements of all hop-by-hop lines together: what Connection, TE, Trailer and Upgrade name.
	maxListed = 64
)

var (
	errHeaderSyntax = errors.New("edge: a header line is not NAME: VALUE")
	errHeaderCount  = errors.New("edge: too many header lines")
)

// A head is the header lines of a request or an answer as they came, each classified once. What is passed on is written from
// these lines, so it keeps their order and spelling, and what no rule of HTTP takes out arrives unchanged.
type head struct {
	lines []line
	close bool // Connection says so, in whatever case and company
	keep  bool // Connection says keep-alive
	asks  bool // Connection says upgrade

	nominates bool    // there is a Connection
	nominated nameSet // what it names beside; nil: nothing
	listed    int     // elements of hop-by-hop lines
}

type line struct {
	name, value []byte // the value without the white space around it
	kind        lineKind
	drop        bool // ends here: hop-by-hop, named by Connection, or not for this peer to say
}

// lineKind tells apart the headers that a proxy has something to do with.
type lineKind uint8

const (
	lineOther lineKind = iota
	lineConnection
	lineHopByHop // ends at this hop: Close, Keep-Alive, Proxy-Connection, TE, Trailer, Upgrade
	lineTransferEncoding
	lineContentLength
	lineHost
	lineCookie
	lineExpect
	lineForwardedFor
	lineRealIP
	lineForwarded
	lineForwardedProto
	lineForwardedHost
	lineForwardedOther // other X-Forwarded-*: claims that only a trusted proxy may make
	lineVia
	lineOverride  // tells some servers of another target, method or host than the request's own
	lineLookalike // spelled with underscores as one of the above, which many a server behind takes for it (CGI, CVE-2024-45614)
)

// reset makes h empty.
func (h *head) reset() { *h = head{lines: h.lines[:0]} }

// add adds a line, which must not be one too many. They point to what the head came in.
func (h *head) add(name, value []byte, most int) error {
	if len(h.lines) == most {
		return errHeaderCount
	}
	l := line{name: name, value: value, kind: classify(name)}
	switch l.kind {
	case lineConnection:
		l.drop, h.nominates = true, true
		h.listed += elements(value)
	case lineHopByHop:
		l.drop = true
		h.listed += elements(value)
	case lineTransferEncoding, lineLookalike:
		l.drop = true
	}
	if h.listed > maxListed {
		return errHeaderCount
	}
	h.lines = append(h.lines, l)
	return nil
}

// end is called after the last line: those that Connection names are dropped.
func (h *head) end() {
	if h.nominates {
		h.dropNominated()
	}
}

// dropNominated drops the headers that Connection names (RFC 9110, 7.6.1).
func (h *head) dropNominated() {
	for _, c := range h.lines {
		if c.kind != lineConnection {
			continue
		}
		for list := c.value; len(list) > 0; {
			var name []byte
			name, list, _ = bytes.Cut(list, []byte{','})
			switch name = trimSpace(name); {
			case len(name) == 0:
			case equalFold(name, "close"):
				h.close = true
			case equalFold(name, "keep-alive"):
				h.keep = true
			case equalFold(name, "upgrade"):
				h.asks = true
			default:
				h.nominated.add(name)
			}
		}
	}
	if h.nominated == nil {
		return
	}
	for i := range h.lines {
		if l := &h.lines[i]; l.mayBeNominated() && h.nominated.has(l.name) {
			l.drop = true
		}
	}
}

// elements is how many elements a list has, the empty ones among them.
func elements(list []byte) int { return bytes.Count(list, []byte{','}) + 1 }

// nameSet is a set of header names: by what they are in small letters, as they are written. It has its own copies. One look-up costs
// the length of the name, however many there are: nothing that a stranger lists is compared with all that he sends.
type nameSet map[string]string

func (n *nameSet) add(name []byte) {
	if *n == nil {
		*n = make(nameSet)
	}
	text := string(name)
	(*n)[strings.ToLower(text)] = text
}

func (n nameSet) has(name []byte) bool {
	_, found := n.get(name)
	return found
}

func (n nameSet) get(name []byte) (written string, found bool) {
	if len(n) == 0 {
		return "", false
	}
	var buf [64]byte
	lower := buf[:0]
	for _, c := range name {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		lower = append(lower, c)
	}
	written, found = n[string(lower)]
	return written, found
}

// taken are the names that no trailer may have: those of the head's lines, and those that Connection names.
func (h *head) taken() nameSet {
	all := maps.Clone(h.nominated)
	for i := range h.lines {
		all.add(h.lines[i].name)
	}
	return all
}

// mayBeNominated reports whether naming a line in Connection drops it.
func (l *line) mayBeNominated() bool {
	switch l.kind {
	case lineHost, // routes the request: without it the origin would choose a host that no rule has seen
		lineContentLength, lineTransferEncoding, // frame the body, and the edge writes them anew
		lineForwardedFor, lineRealIP, lineForwarded, lineForwardedProto, lineForwardedHost, lineForwardedOther, // say who asks: a
		// client behind a trusted proxy must not have its proxy's word removed, where that passes Connection on
		lineOverride, // likewise: a trusted proxy's word about the target
		lineVia:      // tells the origin of proxies on the way, and loops are found by it
		return false
	}
	return true
}

// distrust drops what only a trusted proxy may say to the origin: who asks, over what, and for what else than the request's own
// target.
func (h *head) distrust() {
	for i := range h.lines {
		switch l := &h.lines[i]; l.kind {
		case lineForwardedFor, lineRealIP, lineForwarded, lineForwardedProto, lineForwardedHost, lineForwardedOther, lineVia, lineOverride:
			l.drop = true
		}
	}
}

// only returns the value of the lines with this name that the origin gets as they came; nil if there are none, and false if
// they differ.
func (h *head) only(name []byte) (value []byte, ok bool) {
	for i := range h.lines {
		l := &h.lines[i]
		if l.drop || l.kind == lineForwardedFor || len(l.name) != len(name) || !bytes.EqualFold(l.name, name) {
			continue
		}
		if value != nil && !bytes.Equal(value, l.value) {
			return nil, false
		}
		value = l.value
	}
	return value, true
}

// first returns the value of the first line with this name, which is given in lower case.
func (h *head) first(name string) []byte {
	for i := range h.lines {
		if l := &h.lines[i]; equalFold(l.name, name) {
			return l.value
		}
	}
	return nil
}

// cookie is only for the cookie of this name.
func (h *head) cookie(name []byte) (value []byte, ok bool) {
	for i := range h.lines {
		if h.lines[i].kind != lineCookie || h.lines[i].drop {
			continue
		}
		for rest := h.lines[i].value; len(rest) > 0; {
			var pair []byte
			pair, rest, _ = bytes.Cut(rest, []byte{';'})
			key, v, ok := bytes.Cut(trimSpace(pair), []byte{'='})
			if !ok || !isCookie(trimSpace(key), name) {
				continue
			}
			if v = trimSpace(v); value != nil && !bytes.Equal(value, v) {
				return nil, false
			}
			value = v
		}
	}
	return value, true
}

// isCookie compares names of cookies as the laxest of common servers do: ASP.NET Core takes small letters and capitals for the
// same, PHP a dot for an underscore.
func isCookie(name, want []byte) bool {
	if len(name) != len(want) {
		return false
	}
	for i, c := range name {
		if foldCookie(c) != foldCookie(want[i]) {
			return false
		}
	}
	return true
}

func foldCookie(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c | 0x20
	case c == '.':
		return '_'
	}
	return c
}

func classify(name []byte) lineKind {
	is := func(s string) bool { return equalFold(name, s) }
	switch len(name) {
	case 2:
		if is("te") {
			return lineHopByHop
		}
	case 3:
		if is("via") {
			return lineVia
		}
	case 4:
		if is("host") {
			return lineHost
		}
	case 5:
		if is("close") { // a reserved name (RFC 9112, 9.6)
			return lineHopByHop
		}
	case 6:
		if is("cookie") {
			return lineCookie
		} else if is("expect") {
			return lineExpect
		}
	case 7:
		if is("upgrade") || is("trailer") {
			return lineHopByHop
		}
	case 9:
		if is("forwarded") {
			return lineForwarded
		} else if is("x-real-ip") {
			return lineRealIP
		}
	case 10:
		if is("connection") {
			return lineConnection
		} else if is("keep-alive") {
			return lineHopByHop
		}
	case 14:
		if is("content-length") {
			return lineContentLength
		}
	case 15:
		if is("x-forwarded-for") {
			return lineForwardedFor
		}
	case 16:
		if is("x-forwarded-host") {
			return lineForwardedHost
		} else if is("proxy-connection") {
			return lineHopByHop
		}
	case 17:
		if is("x-forwarded-proto") {
			return lineForwardedProto
		} else if is("transfer-encoding") {
			return lineTransferEncoding
		}
	}
	if len(name) > 12 && equalFold(name[:12], "x-forwarded-") {
		return lineForwardedOther
	}
	if len(name) > 8 && name[0]|0x20 == 'x' && isOverride(name) {
		return lineOverride
	}
	if bytes.IndexByte(name, '_') >= 0 && classify(bytes.ReplaceAll(name, []byte{'_'}, []byte{'-'})) != lineOther {
		return lineLookalike
	}
	return lineOther
}

// isOverride reports whether some server lets a header of that name stand for the request's target (Symfony, Zend, IIS behind
// ARR), its method (many a framework) or its host, which rules have not seen.
func isOverride(name []byte) bool {
	for _, prefix := range [...]string{"x-original-", "x-http-method"} {
		if len(name) >= len(prefix) && equalFold(name[:len(prefix)], prefix) {
			return true
		}
	}
	return equalFold(name, "x-rewrite-url") || equalFold(name, "x-method-override") || equalFold(name, "x-http-host-override")
}

// equalFold compares with a string of the same length that is in lower case.
func equalFold(name []byte, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// isToken reports whether s is a token of RFC 9110, 5.6.2.
func isToken(s []byte) bool {
	for _, c := range s {
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_':
		case bytes.IndexByte([]byte("!#$%&'*+.^`|~"), c) >= 0:
		default:
			return false
		}
	}
	return len(s) > 0
}

// isText reports whether a value has no control bytes (RFC 9110, 5.5), eight bytes at a time.
func isText(s []byte) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for len(s) >= 8 {
		v := binary.LittleEndian.Uint64(s)
		del := v ^ 0x7f*ones
		if ((v-0x20*ones)&^v|(del-ones)&^del)&high != 0 && !isPlainText(s[:8]) {
			return false
		}
		s = s[8:]
	}
	return isPlainText(s)
}

func isPlainText(s []byte) bool {
	for _, c := range s {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// isMethod reports whether s is a method as all servers take it. HTTP allows small letters and tells get from GET (RFC 9110,
// 9.1), but many an origin does not, and a rule about POST must not be dodged by writing post.
func isMethod(s []byte) bool {
	for _, c := range s {
		if 'a' <= c && c <= 'z' {
			return false
		}
	}
	return isToken(s)
}

func trimSpace(s []byte) []byte {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
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
