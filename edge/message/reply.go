package message

import "time"

// A Reply is an answer of the edge's own.
type Reply struct {
	Status      int
	Common      *Common // what it says as many others do; nil: nothing
	Fields      []Field // what it says besides
	ContentType string  // as is
	Body        []byte
	At          time.Time // an instant just now, which spares whoever writes it a look at the clock; zero: there is none
}

// Common is lines of a header that many answers have in common.
type Common struct {
	Fields []Field
	Lines  []byte // the same as HTTP/1.1 writes them,
	Block  []byte // and as HTTP/2 does; who has neither writes Fields
}
