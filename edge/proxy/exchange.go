package proxy

import (
	"time"

	"sluice/edge/message"
)

// An Exchange is a request and its answer at the client's end, in whatever protocol the client
// speaks: edge/front has that of HTTP/1.1, edge/edgetest one without a socket. It belongs to the
// goroutine that serves the request, except reading the body, which belongs to the reading
// goroutine.
type Exchange interface {
	// Request is what came. It stays the same, and the client does not change it.
	Request() *message.Request
	Body
	Client
	Answer
}

// A Body is a request's, on its way from the client.
type Body interface {
	// StartBody begins to wait for it: the client must send it at a pace, and may be late at first
	// by more than for a head. All of it must be there by due, if that is not zero.
	StartBody(more time.Duration, due time.Time)
	// AwaitBody waits until it has begun.
	AwaitBody() error
	// TakeBody begins to read it, perhaps in another goroutine. pause, if not nil, is called before
	// the client is waited for, and resume after it; an error of pause is that of Next.
	TakeBody(pause func() error, resume func())
	// Next is what is there of it, at least one byte, or io.EOF after its proper end. It is valid
	// until the next call.
	Next() ([]byte, error)
	// Discard goes on behind n bytes that Next showed. They stay valid as well.
	Discard(n int)
	// Got is how many bytes of it have been discarded.
	Got() int64
	// ReadTrailer reads the lines after its end.
	ReadTrailer(*message.Head) error
	// AbortBody ends a Next that waits, and every one after it. It is called from another
	// goroutine.
	AbortBody()
	// EndBody ends reading it.
	EndBody()
}

// A Client is the client that waits for the answer.
type Client interface {
	// Gone reports whether it has gone, while its body is not being read.
	Gone() bool
	// Watch has gone called, from another goroutine and at most once, if it goes before Unwatch;
	// the watch begins when ready is closed, if that is not nil. A client that has only said that
	// it will send no more has not gone.
	Watch(ready <-chan struct{}, gone func())
	// Expect is told how many bytes the edge may hold of an origin's answer that it waits for,
	// besides the request.
	Expect(bytes int)
	Answering()
	// Unwatch may be called without Watch. When it returns, gone has been called, or will not be.
	Unwatch()
	// Last declares that what the client still sends is not read: a connection of its own ends with
	// the answer.
	Last()
}

// An Answer is what goes.
type Answer interface {
	// Invite tells the client to send its body (100), and Interim other interim answers, without
	// the lines that only the edge may write.
	Invite()
	Interim(a *message.Answer, ours func(status int, name []byte) bool)
	// Begin begins the answer: with the lines of a but those that are ours to say, and then fields.
	// It reports whether the body is to be ended by Trailers.
	Begin(a *message.Answer, ours func(status int, name []byte) bool,
		fields []message.Field) (open bool)
	// Stream announces a body that comes in parts; Flush sends those that are there. Without it, it
	// is sent by End.
	Stream()
	Send(part []byte) error
	Trailers(lines []message.Line) error
	Flush() error
	// End sends what there is, the last of the answer. at is an instant just now, or zero.
	End(at time.Time) error
	// Abort breaks the answer off: no client may take it for whole.
	Abort()
}
