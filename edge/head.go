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
	size  int  // of the block, up to and with its empty line; 0: it has none

	nominated nameSet // what Connection names beside; nil: nothing
}

type line struct {
	name, value []byte // the value without the white space around it
	kind        lineKind
	drop        bool // hop-by-hop, or named by Connection
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
	lineLookalike // spelled with underscores as one of the above, which many a server behind takes for it (CGI, CVE-2024-45614)
)

// scan reads a header block: lines that end in CRLF, up to an empty line if there is one. What two servers could read differently is an error: a
// line that ends in LF alone, one that continues the line before, a name with white space, a control byte; and so are more than
// most lines. The lines point into block.
func (h *head) scan(block []byte, most int) error {
	*h = head{lines: h.lines[:0]}
	nominates, listed, whole := false, 0, len(block)
	for len(block) > 0 {
		i := bytes.IndexByte(block, '\n')
		if i < 1 || block[i-1] != '\r' {
			return errHeaderSyntax
		}
		text := block[:i-1]
		block = block[i+1:]
		if len(text) == 0 {
			h.size = whole - len(block)
			break
		}
		colon := bytes.IndexByte(text, ':')
		if colon < 1 || !isToken(text[:colon]) || !isText(text[colon+1:]) {
			return errHeaderSyntax
		}
		if len(h.lines) == most {
			return errHeaderCount
		}
		l := line{name: text[:colon], value: trimSpace(text[colon+1:])}
		l.kind = classify(l.name)
		switch l.kind {
		case lineConnection:
			l.drop, nominates = true, true
			listed += elements(l.value)
		case lineHopByHop:
			l.drop = true
			listed += elements(l.value)
		case lineTransferEncoding, lineLookalike:
			l.drop = true
		}
		if listed > maxListed {
			return errHeaderCount
		}
		h.lines = append(h.lines, l)
	}
	if nominates {
		h.dropNominated()
	}
	return nil
}

// dropNominated drops the headers that Connection names (RFC 9110, 7.6.1), except those that frame or route the message
// or say who sent it: a client must not be able to have them removed.
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
		if l := &h.lines[i]; (l.kind == lineOther || l.kind == lineExpect) && h.nominated.has(l.name) {
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

// only returns the value of the one line with this name, and false if there is none, an empty one, or several.
func (h *head) only(name []byte) ([]byte, bool) {
	var value []byte
	for i := range h.lines {
		if l := &h.lines[i]; len(l.name) == len(name) && bytes.EqualFold(l.name, name) {
			if value != nil {
				return nil, false
			}
			value = l.value
		}
	}
	return value, len(value) > 0
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

// cookie is only for the cookie of this name. It looks for the name and does not take every pair apart: a head has room for
// thousands of them.
func (h *head) cookie(name []byte) ([]byte, bool) {
	var value []byte
	for i := range h.lines {
		if h.lines[i].kind != lineCookie {
			continue
		}
		for rest := h.lines[i].value; len(rest) > 0; {
			at := bytes.Index(rest, name)
			if at < 0 {
				break
			}
			pair := bytes.LastIndexByte(rest[:at], ';') + 1 // where it begins
			before := trimSpace(rest[pair:at])
			var after []byte
			after, rest, _ = bytes.Cut(rest[at+len(name):], []byte{';'})
			if after = trimSpace(after); len(before) > 0 || len(after) == 0 || after[0] != '=' {
				continue
			}
			if value != nil {
				return nil, false
			}
			value = trimSpace(after[1:])
		}
	}
	return value, len(value) > 0
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
	if bytes.IndexByte(name, '_') >= 0 && classify(bytes.ReplaceAll(name, []byte{'_'}, []byte{'-'})) != lineOther {
		return lineLookalike
	}
	return lineOther
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
