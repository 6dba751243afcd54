// Package message is the content of requests and answers, whatever protocol carried them: header
// lines, each classified once, hosts, paths and values in the one form that rules compare, which
// fields a header and a trailer may have and from whom, and how a request is refused.
//
// It reads bytes and does no I/O. What it points to belongs to its reader, and ends with the
// request.
package message

import "net/http"

// Answer is an answer, whatever protocol it came in.
type Answer struct {
	Status   int
	Reason   []byte // what is said behind the status, in protocols that say something there
	Head     Head
	Length   int64    // of the body as announced, in bytes, or LengthChunked, or LengthUnknown
	Protocol []byte   // that a status of 101 switches to; nil: none
	Ahead    int      // bytes that the edge may hold of it, and to read it with, before it is read
	Trailers [][]byte // names of those that may come after the body
}

// Lengths of bodies that have none.
const (
	LengthChunked = -1 // it is not announced, and the body marks its own end
	LengthUnknown = -2 // up to the end of the connection
)

// Codes bounds what is counted by status: a status has three digits.
const Codes = 1000

// Bodyless reports whether an answer has no body whatever its head announces (RFC 9110, 6.4.1).
// head is one to HEAD.
func Bodyless(head bool, status int) bool {
	return head || status == http.StatusNoContent || status == http.StatusNotModified
}
