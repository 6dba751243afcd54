package message

import "net/http"

// Request is a request, whatever protocol it came in. What it points to belongs to its reader.
type Request struct {
	Method   []byte         // as rules see it
	Target   []byte         // as it came
	Version  []byte         // of the protocol, as it names itself: HTTP/1.1
	RawHost  []byte         // as it came, and as the origin gets it
	Host     []byte         // in canonical form; none: a client of HTTP/1.0 need not say
	Path     []byte         // of the target, in canonical form
	Readings Interpretation // the others that the target's path has
	Head     Head
	Size     int   // of the whole head, in bytes; 0: it is not known where it ends
	Length   int64 // of the body, in bytes, or LengthChunked
	// The method is HEAD as it came, whatever rules see: the answer has no body
	IsHead         bool
	ExpectContinue bool   // the client waits to be invited to send its body, and has not been
	TakesTrailers  bool   // the client takes those of the answer
	Upgrade        []byte // the protocol that it wants to switch to; nil: none
	// It wants nothing else, and takes any success for a switch: only a server that switches may
	// answer with one
	Tunnel bool
	// What modules have found out of the handshake of its connection
	Hello   []any
	Refused *Refusal // why it is no request; nil: it is one
	// No whole head came: it was slow, or its client is gone, which is not its form
	Broken bool

	hostBuf, pathBuf []byte
}

// BadTarget is the answer to a request with a malformed target.
var BadTarget = Refuse(http.StatusBadRequest, "bad_target", "The request target is malformed.")

// Reset makes r ready for the next request.
func (r *Request) Reset() {
	r.Head.Reset()
	*r = Request{Head: r.Head, hostBuf: r.hostBuf, pathBuf: r.pathBuf}
}

// SetHost reads the requested host, and reports false if it is malformed.
func (r *Request) SetHost(raw []byte) bool {
	host, ok := AppendHost(r.hostBuf[:0], raw)
	if ok {
		r.hostBuf, r.Host, r.RawHost = host, host, raw
	}
	return ok
}

// SetPath reads the path of the target, and refuses one that is too long, or that origins read in
// too many ways.
func (r *Request) SetPath() *Refusal {
	path := RawPath(r.Target)
	if len(path) > MaxPath {
		return TooLong
	}
	r.Path, r.Readings = AppendPath(r.pathBuf, r.Target)
	if cap(r.Path) > cap(r.pathBuf) && !IsCanonical(path) {
		r.pathBuf = r.Path
	}
	if r.Readings&TooMany != 0 || r.Readings != 0 && len(path) > MaxOddPath {
		return BadTarget
	}
	return nil
}

// IsGRPC reports whether a request is a call of gRPC, which is HTTP/2 by definition. What browsers
// send for one (gRPC-Web) is not.
func (r *Request) IsGRPC() bool {
	if r.Tunnel || len(r.Version) == 0 || r.Version[len("HTTP/")] != '2' {
		return false
	}
	const grpc = "application/grpc"
	kind := r.Head.First("content-type")
	return len(kind) >= len(grpc) && EqualFold(kind[:len(grpc)], grpc) && (len(kind) == len(grpc) ||
		kind[len(grpc)] == '+' || kind[len(grpc)] == ';')
}
