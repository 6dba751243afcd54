package message

import "time"

// A Reply is an answer of the edge's own.
type Reply struct {
	Status      int
	Common      *Common // the lines that many refusals share; nil: none
	Fields      []Field // further lines
	ContentType string  // as is
	Body        []byte
	Shared      bool // the body is never written to again; else it is lent
	// An instant just now, which spares its writer a look at the clock; zero: there is none
	At time.Time
}

// Common is lines of a header that many answers have in common.
type Common struct {
	Fields []Field
	Lines  []byte // the same as HTTP/1.1 writes them,
	Block  []byte // and in HTTP/2's form; without both, Fields is written
}
