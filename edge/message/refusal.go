package message

// A Field is a line of a header.
type Field struct {
	Name  string
	Value []byte
}

// A Refusal is an answer of the edge's own to what it does not take. Its texts go to the client:
// they must not hold anything that a client should not know, nor quotes.
type Refusal struct {
	Status        int
	Code, Message string
	Header        Field // a further one
}

func Refuse(status int, code, message string) *Refusal {
	return &Refusal{Status: status, Code: code, Message: message}
}

// With adds a line to the answer's header, and returns r.
func (r *Refusal) With(name, value string) *Refusal {
	r.Header = Field{Name: name, Value: []byte(value)}
	return r
}
