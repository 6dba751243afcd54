package message

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"strings"
)

const (
	// MaxLines bounds the headers of an answer, and the lines of a trailer. Servers commonly allow 100.
	MaxLines = 128
	// maxListed bounds the elements of all hop-by-hop lines together: what Connection, TE, Trailer and Upgrade name.
	maxListed = 64
)

var (
	ErrSyntax = errors.New("edge: a header line is not NAME: VALUE")
	ErrCount  = errors.New("edge: too many header lines")
)

// A Head is the header lines of a request or an answer as they came, each classified once. What is passed on is written from
// these lines, so it keeps their order and spelling, and what no rule of HTTP takes out arrives unchanged.
type Head struct {
	Lines    []Line
	Close    bool // Connection says so, in whatever case and company
	Keep     bool // Connection says keep-alive
	Upgrades bool // Connection says upgrade

	nominates bool  // there is a Connection
	Nominated Names // what it names beside; nil: nothing
	listed    int   // elements of hop-by-hop lines
}

type Line struct {
	Name, Value []byte // the value without the white space around it
	Kind        Kind
	Drop        bool // ends here: hop-by-hop, named by Connection, or not for this peer to say
}

// Append appends the line, with its end.
func (l *Line) Append(b []byte) []byte {
	b = append(append(b, l.Name...), ": "...)
	return append(append(b, l.Value...), "\r\n"...)
}

// Kind tells apart the headers that a proxy has something to do with.
type Kind uint8

const (
	Other Kind = iota
	Connection
	HopByHop // ends at this hop: Close, Keep-Alive, Proxy-Connection, TE, Trailer, Upgrade
	TransferEncoding
	ContentLength
	Host
	Cookie
	Expect
	ForwardedFor
	RealIP
	Forwarded
	ForwardedProto
	ForwardedHost
	ForwardedOther // other X-Forwarded-*: claims that only a trusted proxy may make
	Via
	RequestID // X-Request-ID: the edge says it anew
	Override  // tells some servers of another target, method or host than the request's own
	Lookalike // spelled with underscores or other signs as one of the above, which many a server behind takes for it (CGI, CVE-2024-45614)
)

// Reset makes h empty.
func (h *Head) Reset() { *h = Head{Lines: h.Lines[:0]} }

// Add adds a line, which must not be one too many. They point to what the head came in.
func (h *Head) Add(name, value []byte, most int) error {
	if len(h.Lines) == most {
		return ErrCount
	}
	l := Line{Name: name, Value: value, Kind: classify(name)}
	switch l.Kind {
	case Connection:
		l.Drop, h.nominates = true, true
		h.listed += elements(value)
	case HopByHop:
		l.Drop = true
		h.listed += elements(value)
	case TransferEncoding, Lookalike:
		l.Drop = true
	}
	if h.listed > maxListed {
		return ErrCount
	}
	h.Lines = append(h.Lines, l)
	return nil
}

// End is called after the last line: those that Connection names are dropped.
func (h *Head) End() {
	if h.nominates {
		h.dropNominated()
	}
}

// dropNominated drops the headers that Connection names (RFC 9110, 7.6.1).
func (h *Head) dropNominated() {
	for _, c := range h.Lines {
		if c.Kind != Connection {
			continue
		}
		for list := c.Value; len(list) > 0; {
			var name []byte
			name, list, _ = bytes.Cut(list, []byte{','})
			switch name = TrimSpace(name); {
			case len(name) == 0:
			case EqualFold(name, "close"):
				h.Close = true
			case EqualFold(name, "keep-alive"):
				h.Keep = true
			case EqualFold(name, "upgrade"):
				h.Upgrades = true
			default:
				h.Nominated.Add(name)
			}
		}
	}
	if h.Nominated == nil {
		return
	}
	for i := range h.Lines {
		if l := &h.Lines[i]; l.mayBeNominated() && h.Nominated.Has(l.Name) {
			l.Drop = true
		}
	}
}

// elements is how many elements a list has, the empty ones among them.
func elements(list []byte) int { return bytes.Count(list, []byte{','}) + 1 }

// Names is a set of header names: by what they are in small letters, as they are written. It has its own copies. One look-up costs
// the length of the name, however many there are: nothing that a stranger lists is compared with all that he sends.
type Names map[string]string

func (n *Names) Add(name []byte) {
	if *n == nil {
		*n = make(Names)
	}
	text := string(name)
	(*n)[strings.ToLower(text)] = text
}

func (n Names) Has(name []byte) bool {
	_, found := n.Get(name)
	return found
}

func (n Names) Get(name []byte) (written string, found bool) {
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

// Taken are the names that no trailer may have: those of the head's lines, and those that Connection names.
func (h *Head) Taken() Names {
	all := maps.Clone(h.Nominated)
	for i := range h.Lines {
		all.Add(h.Lines[i].Name)
	}
	return all
}

// mayBeNominated reports whether naming a line in Connection drops it.
func (l *Line) mayBeNominated() bool {
	switch l.Kind {
	case Host, // routes the request: without it the origin would choose a host that no rule has seen
		ContentLength, TransferEncoding, // frame the body, and the edge writes them anew
		ForwardedFor, RealIP, Forwarded, ForwardedProto, ForwardedHost, ForwardedOther, // say who asks: a
		// client behind a trusted proxy must not have its proxy's word removed, where that passes Connection on
		Override,  // likewise: a trusted proxy's word about the target,
		RequestID, // and the name by which it will look the request up
		Via:       // tells the origin of proxies on the way, and loops are found by it
		return false
	}
	return true
}

// Distrust drops what only a trusted proxy may say to the origin: who asks, over what, and for what else than the request's own
// target. It reports whether a line says who asks.
func (h *Head) Distrust() (named bool) {
	for i := range h.Lines {
		switch l := &h.Lines[i]; l.Kind {
		case ForwardedFor, RealIP, Forwarded:
			l.Drop, named = true, true
		case ForwardedProto, ForwardedHost, ForwardedOther, Via, Override, RequestID:
			l.Drop = true
		}
	}
	return named
}

// OnlyFrom is Distrust for one more header that says who asks, and reports whether it is there. A trusted proxy's own word stays, even
// where Connection names it, as its client may have written; a spelling that some servers take for it is nobody's.
func (h *Head) OnlyFrom(trusted bool, name []byte) (named bool) {
	for i := range h.Lines {
		if l := &h.Lines[i]; isSpelling(l.Name, name, foldHeader) {
			l.Drop, named = !trusted || !bytes.EqualFold(l.Name, name), true
		}
	}
	return named
}

// Only returns the value of the lines with this name that the origin gets as they came; nil if there are none, and false if
// they differ.
func (h *Head) Only(name []byte) (value []byte, ok bool) {
	value, _, ok = h.Header(name)
	return value, ok
}

// Header is Only, and reports whether there is one such line, of a name that only its case may tell from this one.
func (h *Head) Header(name []byte) (value []byte, once, ok bool) {
	for i := range h.Lines {
		l := &h.Lines[i]
		if l.Drop || l.Kind == ForwardedFor || !isSpelling(l.Name, name, foldHeader) {
			continue
		}
		if value != nil && !bytes.Equal(value, l.Value) {
			return nil, false, false
		}
		once = value == nil && bytes.EqualFold(l.Name, name)
		value = l.Value
	}
	return value, once, true
}

// First returns the value of the first line with this name, which is given in lower case.
func (h *Head) First(name string) []byte {
	for i := range h.Lines {
		if l := &h.Lines[i]; EqualFold(l.Name, name) {
			return l.Value
		}
	}
	return nil
}

// SameHeader reports whether some server takes two names of headers for the same.
func SameHeader(name, other []byte) bool { return isSpelling(name, other, foldHeader) }

// isSpelling reports whether two names are the same for a server that folds them so.
func isSpelling(name, want []byte, fold func(byte) byte) bool {
	if len(name) != len(want) {
		return false
	}
	for i, c := range name {
		if fold(c) != fold(want[i]) {
			return false
		}
	}
	return true
}

// foldHeader folds as servers do that make variables of headers (CGI, WSGI), where an underscore is a hyphen, and for lighttpd whatever is no letter
// and no digit.
func foldHeader(c byte) byte {
	switch {
	case 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
		return c
	case 'A' <= c && c <= 'Z':
		return c | 0x20
	}
	return '-'
}

// KindOf is the kind of a header of that name.
func KindOf(name []byte) Kind { return classify(name) }

// kinds are the headers that mean something to a proxy, by the length of their names.
var kinds = [...][]struct {
	name string
	kind Kind
}{
	2:  {{"te", HopByHop}},
	3:  {{"via", Via}},
	4:  {{"host", Host}},
	5:  {{"close", HopByHop}}, // a reserved name (RFC 9112, 9.6)
	6:  {{"cookie", Cookie}, {"expect", Expect}},
	7:  {{"upgrade", HopByHop}, {"trailer", HopByHop}},
	9:  {{"forwarded", Forwarded}, {"x-real-ip", RealIP}, {"path_info", Override}},
	10: {{"connection", Connection}, {"keep-alive", HopByHop}},
	11: {{"script_name", Override}},
	12: {{"x-request-id", RequestID}},
	14: {{"content-length", ContentLength}},
	15: {{"x-forwarded-for", ForwardedFor}},
	16: {{"x-forwarded-host", ForwardedHost}, {"proxy-connection", HopByHop}},
	17: {{"x-forwarded-proto", ForwardedProto}, {"transfer-encoding", TransferEncoding}},
}

func classify(name []byte) Kind {
	if len(name) < len(kinds) {
		for i := range kinds[len(name)] {
			k := &kinds[len(name)][i]
			if like, exact := isLike(name, k.name); exact {
				return k.kind
			} else if like {
				return Lookalike
			}
		}
	}
	if len(name) <= 8 || name[0]|0x20 != 'x' || foldHeader(name[1]) != '-' {
		return Other
	}
	for i := range families {
		f := &families[i]
		if len(name) != len(f.name) && (!f.prefix || len(name) < len(f.name)) {
			continue
		}
		if like, exact := isLike(name[:len(f.name)], f.name); exact {
			return f.kind
		} else if like {
			return Lookalike
		}
	}
	return Other
}

// families are more of the kinds: all X-Forwarded-*, and what some server lets stand for the request's target (Symfony, Zend, IIS behind
// ARR; gunicorn and Flask take SCRIPT_NAME off the path), its method (many a framework) or its host, which rules have not seen.
var families = [...]struct {
	name   string
	prefix bool
	kind   Kind
}{
	{"x-forwarded-", true, ForwardedOther},
	{"x-original-", true, Override},
	{"x-http-method", true, Override},
	{"x-rewrite-url", false, Override},
	{"x-method-override", false, Override},
	{"x-http-host-override", false, Override},
	{"x-script-name", false, Override},
}

// isLike reports whether some server takes a name for another of the same length, which is in lower case, and whether it is that one.
func isLike(name []byte, lower string) (like, exact bool) {
	if len(name) != len(lower) {
		return false, false
	}
	exact = true
	for i, c := range name {
		if foldHeader(c) != lower[i] && c != lower[i] {
			return false, false
		}
		exact = exact && (c == lower[i] || c|0x20 == lower[i])
	}
	return true, exact
}

// EqualFold compares with a string of the same length that is in lower case.
func EqualFold(name []byte, lower string) bool {
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

// IsToken reports whether s is a token of RFC 9110, 5.6.2.
func IsToken(s []byte) bool {
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

// IsText reports whether a value has no control bytes (RFC 9110, 5.5), eight bytes at a time.
func IsText(s []byte) bool {
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

// IsMethod reports whether s is a method as all servers take it. HTTP allows small letters and tells get from GET (RFC 9110,
// 9.1), but many an origin does not, and a rule about POST must not be dodged by writing post.
func IsMethod(s []byte) bool {
	for _, c := range s {
		if 'a' <= c && c <= 'z' {
			return false
		}
	}
	return IsToken(s)
}

func TrimSpace(s []byte) []byte {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// SplitList splits a header value at its commas.
func SplitList(value []byte) [][]byte {
	if len(value) == 0 {
		return nil
	}
	parts := bytes.Split(value, []byte{','})
	for i := range parts {
		parts[i] = TrimSpace(parts[i])
	}
	return parts
}
