package edge

// A field is a line of a header.
type field struct {
	name  string
	value []byte
}

// A refusal is an answer of the edge's own to what it does not take. Its texts go to the client: they must not hold anything
// that a client should not know, nor quotes.
type refusal struct {
	status        int
	code, message string
	header        field // a further one
}

func refuse(status int, code, message string) *refusal {
	return &refusal{status: status, code: code, message: message}
}
