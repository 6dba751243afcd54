// Package answercost reads from an answer, as its bytes pass, how much it says that it cost: a
// number at a path of names in JSON, as APIs of language models have it.
//
//	{"choices": [...], "usage": {"total_tokens": 812}}      usage.total_tokens
//
// Of several documents, the events of a stream or lines of JSON, the last that has a number there
// is right. Nothing is kept of what has passed but the number, so the length of an answer does not
// matter. Where a name is there twice, the last counts, as for most readers of JSON.
package answercost

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A Path is the names on the way to the number.
type Path []string

// maxNames is how many names a path may have, and maxName how long each may be.
const maxNames, maxName = 16, 128

// ParsePath reads names with dots between them.
func ParsePath(text string) (Path, error) {
	p := Path(strings.Split(text, "."))
	if len(p) > maxNames {
		return nil, fmt.Errorf("more than %d names", maxNames)
	}
	for _, name := range p {
		if name == "" || len(name) > maxName {
			return nil, errors.New("want names with dots between them, as in usage.total_tokens")
		}
	}
	return p, nil
}

// A Form is what a body consists of.
type Form uint8

const (
	Document Form = iota
	Lines         // a document in each line (application/x-ndjson)
	Events        // server-sent events, each of whose data may be a document
)

// A Reader reads one answer. Reset it before each.
type Reader struct {
	form    Form
	started bool // with the first byte that is no byte order mark's
	marks   int  // how much of a byte order mark has come

	doc   document
	value float64
	found bool

	// Of Events
	line  lineState
	field [5]byte // the first bytes of a field's name, one more than data has
	n     int     // how many of them have come
	data  bool    // the event has data
	after bool    // a CR: a LF after it ends no line
}

type lineState uint8

const (
	inName lineState = iota
	beforeData
	inData
	inOther
)

// Reset makes the reader ready for an answer.
func (r *Reader) Reset(p Path, f Form) {
	*r = Reader{form: f}
	r.doc.path = p
}

const mark = "\xef\xbb\xbf"

// Read reads the next bytes of the body.
func (r *Reader) Read(part []byte) {
	for !r.started && len(part) > 0 {
		if r.marks < len(mark) && part[0] == mark[r.marks] {
			r.marks++
			part = part[1:]
			continue
		}
		r.started = true
	}
	if len(part) == 0 {
		return
	}
	switch r.form {
	case Events:
		r.events(part)
	case Lines:
		r.lines(part)
	default:
		r.doc.read(part)
	}
}

// Value is the number; false: there is none. Malformed reports that the body is not of its form, as
// far as it has come: then there is none.
func (r *Reader) Value() (value float64, ok, malformed bool) {
	if r.form == Document {
		return r.doc.value, r.doc.found && r.doc.state != bad, r.doc.state == bad
	}
	r.ended() // of the last, no end need have come
	return r.value, r.found, false
}

// ended takes what a whole document has said, and begins the next.
func (r *Reader) ended() {
	if r.doc.end() && r.doc.found {
		r.value, r.found = r.doc.value, true
	}
	r.doc = document{path: r.doc.path}
	r.data = false
}

func (r *Reader) lines(part []byte) {
	for {
		i := bytes.IndexByte(part, '\n')
		if i < 0 {
			r.doc.read(part)
			return
		}
		r.doc.read(part[:i])
		r.ended()
		part = part[i+1:]
	}
}

// events reads a stream of events as the WHATWG's HTML standard has it, 9.2.6.
func (r *Reader) events(part []byte) {
	for len(part) > 0 {
		if c := part[0]; r.after {
			if r.after = false; c == '\n' {
				part = part[1:]
				continue
			}
		}
		if r.line == inData || r.line == inOther {
			i := bytes.IndexAny(part, "\r\n")
			if i < 0 {
				i = len(part)
			}
			if r.line == inData {
				r.doc.read(part[:i])
			}
			if part = part[i:]; len(part) == 0 {
				return
			}
		}
		c := part[0]
		switch {
		case c == '\r' || c == '\n':
			r.after = c == '\r'
			if r.line == inName && r.n == 0 {
				r.ended()
			}
			r.line, r.n = inName, 0
		case r.line == beforeData:
			if r.line = inData; c != ' ' {
				continue // it belongs to the data
			}
		case c == ':' && string(r.field[:min(r.n, len(r.field))]) == "data":
			if r.line = beforeData; r.data {
				r.doc.read([]byte{'\n'})
			}
			r.data = true
		case c == ':':
			r.line = inOther
		case r.n < len(r.field):
			r.field[r.n] = c
			r.n++
		}
		part = part[1:]
	}
}

// maxDepth is how deep containers may be within one another. RFC 8259, 9, lets readers set limits.
const maxDepth = 512

// maxNumber is how many characters of a number are read.
const maxNumber = 32

// A document is one of JSON (RFC 8259), as far as it has come.
type document struct {
	path  Path
	value float64
	found bool

	state   state
	objects [maxDepth / 64]uint64 // which containers are objects, the outermost first
	depth   int                   // how many are open
	on      int                   // how many of them, from the outermost, lead to the number
	hit     bool                  // the value that comes is the path's next

	key  bool // the string is a name,
	same bool // which is, so far, the path's next:
	at   int  // so many bytes of it
	code rune // of an escape,
	left int  // of which so many digits are to come
	high rune // the first half of a pair

	literal string // what must follow
	number  [maxNumber]byte
	digits  int
}

type state uint8

const (
	value      state = iota
	valueOrEnd       // the first of a list
	nameOrEnd        // the first of an object
	name
	colon
	comma
	text
	escape
	digits
	number
	literal
	done
	bad
)

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

func (d *document) read(part []byte) {
	for i := 0; i < len(part) && d.state != bad; i++ {
		c := part[i]
		switch d.state {
		case text:
			if !d.key || !d.same { // of no interest
				for c != '"' && c != '\\' && c >= ' ' {
					if i++; i == len(part) {
						return
					}
					c = part[i]
				}
			}
			d.inText(c)
		case escape:
			d.escaped(c)
		case digits:
			d.digit(c)
		case number:
			if !d.inNumber(c) {
				i-- // it is what comes after
			}
		case literal:
			if c != d.literal[0] {
				d.state = bad
			} else if d.literal = d.literal[1:]; d.literal == "" {
				d.after()
			}
		default:
			if !isSpace(c) {
				d.between(c)
			}
		}
	}
}

// between reads what begins, ends or separates values.
func (d *document) between(c byte) {
	switch d.state {
	case valueOrEnd, value:
		if c == ']' && d.state == valueOrEnd {
			d.close(false)
			return
		}
		d.begin(c)
	case nameOrEnd, name:
		switch {
		case c == '}' && d.state == nameOrEnd:
			d.close(true)
		case c == '"':
			d.state, d.key, d.same, d.at, d.high = text, true, d.on == d.depth, 0, 0
		default:
			d.state = bad
		}
	case colon:
		if d.state = value; c != ':' {
			d.state = bad
		}
	case comma:
		switch {
		case c == '}' || c == ']':
			d.close(c == '}')
		case c != ',':
			d.state = bad
		case d.inObject():
			d.state = name
		default:
			d.state = value
		}
	default: // done
		d.state = bad
	}
}

// begin begins a value.
func (d *document) begin(c byte) {
	hit := d.hit
	d.hit = false
	switch {
	case c == '{' || c == '[':
		d.open(c == '{', hit)
	case c == '"':
		d.state, d.key = text, false
	case c == '-' || c >= '0' && c <= '9':
		d.state, d.digits, d.hit = number, 0, hit
		d.inNumber(c)
	case c == 't':
		d.state, d.literal = literal, "true"[1:]
	case c == 'f':
		d.state, d.literal = literal, "false"[1:]
	case c == 'n':
		d.state, d.literal = literal, "null"[1:]
	default:
		d.state = bad
	}
}

func (d *document) open(object, hit bool) {
	if d.depth == maxDepth {
		d.state = bad
		return
	}
	if object && (d.depth == 0 || hit && d.on < len(d.path)) {
		d.on++
	}
	bit := uint64(1) << (d.depth % 64)
	if d.state = valueOrEnd; object {
		d.state = nameOrEnd
		d.objects[d.depth/64] |= bit
	} else {
		d.objects[d.depth/64] &^= bit
	}
	d.depth++
}

func (d *document) inObject() bool {
	i := d.depth - 1
	return d.objects[i/64]&(1<<(i%64)) != 0
}

func (d *document) close(object bool) {
	if d.inObject() != object {
		d.state = bad
		return
	}
	if d.on == d.depth {
		d.on--
	}
	d.depth--
	d.after()
}

// after is after a value.
func (d *document) after() {
	if d.state = comma; d.depth == 0 {
		d.state = done
	}
}

func (d *document) inText(c byte) {
	switch {
	case c == '"' && d.key:
		d.state, d.hit = colon, d.same && d.at == len(d.path[d.on-1])
	case c == '"':
		d.after()
	case c == '\\':
		d.state = escape
	case c < ' ':
		d.state = bad
	default:
		d.compare(c)
	}
}

// compare goes on with a name.
func (d *document) compare(c byte) {
	if d.key && d.same {
		want := d.path[d.on-1]
		d.same = d.high == 0 && d.at < len(want) && want[d.at] == c
		d.at++
	}
}

func (d *document) escaped(c byte) {
	if c == 'u' {
		d.state, d.code, d.left = digits, 0, 4
		return
	}
	i := strings.IndexByte(`"\/bfnrt`, c)
	if i < 0 {
		d.state = bad
		return
	}
	d.state = text
	d.compare("\"\\/\b\f\n\r\t"[i])
}

// digit reads a digit of an escape. Characters beyond the first 65,536 are two of them.
func (d *document) digit(c byte) {
	n, err := strconv.ParseUint(string(rune(c)), 16, 8)
	if err != nil {
		d.state = bad
		return
	}
	d.code = d.code<<4 | rune(n)
	if d.left--; d.left > 0 {
		return
	}
	d.state = text
	if !d.key || !d.same {
		return
	}
	switch r := utf16.DecodeRune(d.high, d.code); {
	case r != utf8.RuneError:
		d.high, d.code = 0, r
	case d.code >= 0xd800 && d.code < 0xdc00:
		d.same, d.high = d.high == 0, d.code
		return
	}
	for _, b := range []byte(string(d.code)) {
		d.compare(b)
	}
}

// inNumber reads a character of a number, and reports false if it is none.
func (d *document) inNumber(c byte) bool {
	if c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E' {
		if d.digits < maxNumber {
			d.number[d.digits] = c
		}
		d.digits++
		return true
	}
	d.numbered()
	return false
}

// numbered is after a number.
func (d *document) numbered() {
	if d.hit && d.on == len(d.path) && d.on == d.depth && d.digits <= maxNumber {
		n, err := strconv.ParseFloat(string(d.number[:d.digits]), 64)
		if err != nil || math.IsInf(n, 0) {
			d.state = bad
			return
		}
		d.value, d.found = n, true
	}
	d.hit = false
	d.after()
}

// end reports whether the document is whole.
func (d *document) end() bool {
	if d.state == number && d.depth == 0 {
		d.numbered()
	}
	return d.state == done
}
