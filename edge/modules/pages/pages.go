// Package pages has what clients read in place of the edge's own answers: files, by status and
// media type.
//
// The edge answers in JSON. Where there are pages for a status, a client gets the one whose type
// its Accept likes best (RFC 9110, 12.5.1). The edge's own JSON stands first among them, so a
// client that likes all alike gets that, and so does one that sends no Accept, or takes none of
// them. A page of application/json is in its place for all who send an Accept.
//
// A page is text, but for {{status}}, {{request_id}} and {{retry_after}}, which are escaped as its
// type wants it.
package pages

import (
	"bytes"
	"html"
	"mime"
	"strconv"
	"strings"
	"unicode/utf8"

	"sluice/edge/message"
)

const builtIn = "application/json"

// A page is a body with its type.
type page struct {
	contentType string
	kind        string // without parameters
	parts       []part
}

// A part is text, and the placeholder after it.
type part struct {
	text []byte
	then placeholder
}

type placeholder uint8

const (
	nothing placeholder = iota
	status
	requestID
	retryAfter
)

var placeholders = map[string]placeholder{"{{status}}": status, "{{request_id}}": requestID,
	"{{retry_after}}": retryAfter}

// A set is the pages of all statuses. A nil set has none.
type set struct{ of map[int][]*page }

// newSet makes a set; nil of an empty list.
func newSet(list Settings) *set {
	if len(list) == 0 {
		return nil
	}
	s := &set{of: make(map[int][]*page)}
	for _, c := range list {
		p := newPage(c)
		for _, status := range c.Status {
			s.of[status] = append(s.of[status], p)
		}
	}
	return s
}

func newPage(c Page) *page {
	p := &page{contentType: string(c.Type), kind: kindOf(string(c.Type))}
	if strings.HasPrefix(p.kind, "text/") && !strings.Contains(string(c.Type), ";") && utf8.Valid(c.File.Text) {
		p.contentType += "; charset=utf-8" // else browsers guess
	}
	for rest := c.File.Text; ; {
		at, name := next(rest)
		p.parts = append(p.parts, part{rest[:at], placeholders[name]})
		if name == "" {
			return p
		}
		rest = rest[at+len(name):]
	}
}

// next is the first placeholder of a text; "" at its end.
func next(text []byte) (at int, name string) {
	at = len(text)
	for known := range placeholders {
		if i := bytes.Index(text, []byte(known)); i >= 0 && i < at {
			at, name = i, known
		}
	}
	return at, name
}

// kindOf is a media type without its parameters, as "text/html"; "" if it is none, or a range.
func kindOf(contentType string) string {
	kind, _, err := mime.ParseMediaType(contentType)
	if of, sub, _ := strings.Cut(kind, "/"); err != nil || of == "" || sub == "" ||
		strings.Contains(kind, "*") {
		return ""
	}
	return kind
}

// has reports whether there are pages for a status. The answer then depends on Accept.
func (s *set) has(status int) bool { return s != nil && len(s.of[status]) > 0 }

// choose is the page that a client gets; nil: the edge's own answer.
func (s *set) choose(status int, head *message.Head) *page {
	if !s.has(status) || !head.SaysAccept() {
		return nil
	}
	var best *page
	most := head.Quality(builtIn)
	for _, p := range s.of[status] {
		if q := head.Quality(p.kind); q > most || best == nil && q == most && p.kind == builtIn {
			best, most = p, q
		}
	}
	return best
}

// fixed is the page's text if it is the same for all; nil: it is not.
func (p *page) fixed() []byte {
	if len(p.parts) == 1 {
		return p.parts[0].text
	}
	return nil
}

// append appends the page's text. retry is what Retry-After says; nothing where the answer has
// none.
func (p *page) append(b []byte, code int, id, retry []byte) []byte {
	for _, part := range p.parts {
		b = append(b, part.text...)
		switch part.then {
		case status:
			b = strconv.AppendInt(b, int64(code), 10)
		case requestID:
			b = p.escape(b, id)
		case retryAfter:
			b = append(b, retry...)
		}
	}
	return b
}

// escape appends what others have written, visible characters of ASCII, as the page's type wants
// it.
func (p *page) escape(b, text []byte) []byte {
	switch {
	case p.kind == "text/plain":
		return append(b, text...)
	case p.kind == builtIn || strings.HasSuffix(p.kind, "+json"):
		for _, c := range text {
			if c == '"' || c == '\\' {
				b = append(b, '\\')
			}
			b = append(b, c)
		}
		return b
	}
	return append(b, html.EscapeString(string(text))...)
}
