package message

import (
	"bytes"
	"errors"
	"maps"
)

const (
	// MaxLines bounds the headers of an answer, and the lines of a trailer. Servers commonly allow
	// 100.
	MaxLines = 128
	// maxListed bounds the elements of all hop-by-hop lines together: what Connection, TE, Trailer
	// and Upgrade name.
	maxListed = 64
)

var (
	ErrSyntax = errors.New("edge: a header line is not NAME: VALUE")
	ErrCount  = errors.New("edge: too many header lines")
)

// A Head is the header lines of a request or an answer as they came, each classified once. What is
// passed on is written from these lines, so it keeps their order and spelling, and what no rule of
// HTTP takes out arrives unchanged.
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

// Taken are the names that no trailer may have: those of the head's lines, and those that
// Connection names.
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
	// Routes the request: without it the origin would choose a host that no rule has seen
	case Host,
		ContentLength, TransferEncoding, // frame the body, and the edge writes them anew
		// Name the client: a
		ForwardedFor, RealIP, Forwarded, ForwardedProto, ForwardedHost, ForwardedOther,
		// client behind a trusted proxy must not have its proxy's word removed, where that passes
		// Connection on
		Override,  // likewise: a trusted proxy's word about the target,
		RequestID, // and the name by which it will look the request up
		Via:       // tells the origin of proxies on the way, and loops are found by it
		return false
	}
	return true
}

// Distrust drops the lines that only a trusted proxy may send to the origin: those that name the
// client, its protocol, or another target than the request's. It reports whether a line names the
// client.
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

// OnlyFrom is Distrust for one more header that names the client, and reports whether it is there.
// A trusted proxy's own word stays, even where Connection names it, as its client may have written;
// a spelling that some servers take for it is dropped.
func (h *Head) OnlyFrom(trusted bool, name []byte) (named bool) {
	for i := range h.Lines {
		if l := &h.Lines[i]; isSpelling(l.Name, name, foldHeader) {
			l.Drop, named = !trusted || !bytes.EqualFold(l.Name, name), true
		}
	}
	return named
}

// Only returns the value of the lines with this name that the origin gets as they came; nil if
// there are none, and false if they differ.
func (h *Head) Only(name []byte) (value []byte, ok bool) {
	value, _, ok = h.Header(name)
	return value, ok
}

// Header is Only, and reports whether there is one such line, of a name that only its case may tell
// from this one.
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

// foldHeader folds as servers do that make variables of headers (CGI, WSGI), where an underscore is
// a hyphen, and for lighttpd whatever is no letter and no digit.
func foldHeader(c byte) byte {
	switch {
	case 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
		return c
	case 'A' <= c && c <= 'Z':
		return c | 0x20
	}
	return '-'
}
