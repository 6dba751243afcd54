package front

import "time"

// Limits bound what clients can take.
type Limits struct {
	Connections int // in all
	// Of those, as configured, where the process may open fewer files than they need; 0:
	// Connections
	Wanted    int
	PerSource int // connections of one source
	// Bytes in use near which streams of HTTP/2 give way, and new connections are turned away; 0:
	// unlimited
	Memory      int
	HeaderBytes int // request line and headers
	HeaderLines int // of a request
	BodyBytes   int // 0: unlimited
	// Bytes a second of a request's body that a client must send at least; 0: any number
	BodyRate      int
	AnswerRate    int // bytes a second of an answer that a client must take at least; 0: any number
	HeaderTimeout time.Duration
	IdleTimeout   time.Duration
	TunnelTimeout time.Duration // after which a tunnel ends in which nothing moves
}
