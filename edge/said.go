package edge

// said is what a request says, whatever protocol it came in.
type said struct {
	method   []byte  // as rules see it
	target   []byte  // as it came
	rawHost  []byte  // as it came, and as the origin gets it
	host     []byte  // in canonical form; none: a client of HTTP/1.0 need not say
	path     []byte  // of the target, in canonical form
	readings reading // the others that the target's path has
	head     head
	length   int64 // of the body, in bytes, or lengthChunked
	invite   bool  // the client waits to be invited to send its body, and has not been
}
