package wire

import (
	"errors"
	"strings"
	"time"
)

// Op is the operation of a Command. All of them are commands of memcached's classic text protocol,
// because nothing else passes through twemproxy.
type Op uint8

const (
	Incr   Op = iota // add Delta to the number at Key
	Add              // store Value at Key unless there is one
	Set              // store Value at Key
	Delete           // remove Key
	Get              // read what is at some keys
	Decr             // take Delta from the number at Key, which stops at 0
	Gets             // read what is at one key, and which version it is
	Cas              // store Value at Key if Delta is still its version
	Ops              // how many there are
)

func (o Op) String() string {
	return [...]string{"incr", "add", "set", "delete", "get", "decr", "gets", "cas"}[o]
}

// Reads reports whether an Op changes nothing.
func (o Op) Reads() bool { return o == Get || o == Gets }

// Command is one command for one node.
type Command struct {
	// 1 to 250 bytes of printable ASCII; Get: up to MaxKeys of them with single spaces between them
	Key    string
	Value  []byte // Add, Set, Cas
	Delta  uint64 // Incr, Decr; Cas: the version that a Gets has read
	Tag    uint64 // comes back in the Result
	Node   int    // index into the machine's nodes
	Expire int32  // Add, Set, Cas: seconds until memcached forgets, up to 30 days; 0: never
	Op     Op
	Way    Way
	// Caused by a request, so there may be many: goes over the node's pipeline, else by its Way
	Report bool
}

// Seconds is a span of time as an Expire: at least a second, and as long as memcached takes for a
// span at most.
func Seconds(d time.Duration) int32 {
	return int32(min(max((d+time.Second-1)/time.Second, 1), 30*24*3600))
}

// Way is the connection of a command that is no Report. What takes long, or what attackers cause,
// must not hold up the rest.
type Way uint8

const (
	Small Way = iota // a node's health, presence, and marks: all that is read again and again
	Log              // reads of the mitigation log
	List             // the operators' list
	Ways             // how many there are
)

// MaxKeys is how many keys a Get may have.
const MaxKeys = 100

// Keys are the keys of a Get.
func (c *Command) Keys() []string { return strings.Split(c.Key, " ") }

// Status is what became of a Command.
type Status uint8

const (
	Done Status = iota // stored, incremented, deleted, or read
	// Incr, Decr, Delete: no such key. Add: there is one already. Cas: none, or of another version
	NotThere
	// Certainly not carried out: no connection, node down, or the node said so
	Unsent
	Unknown // sent, and no usable answer: it may have been carried out or not
)

func (s Status) String() string { return [...]string{"done", "not_there", "unsent", "unknown"}[s] }

// Errors by which a node has certainly done nothing; the Result is Unsent.
var (
	// ErrNotNumber answers an Incr when what is at its key is not a number: it was written by no
	// edge, and only a Delete helps.
	ErrNotNumber = errors.New("wire: the value at the key is not a number")
	// ErrFull says that the node has no memory for the item.
	ErrFull = errors.New("wire: node is out of memory for this item")
)

// Result answers one Command.
type Result struct {
	Command
	Status Status
	Number uint64   // Incr, Decr: the new number; Gets: the version of the value
	Values [][]byte // Get, Gets: one for each key, nil where there is none
	Err    error    // for Unsent and Unknown: what happened
	// From the command to its answer, where the answer waited since then; 0: it comes as it came
	Took time.Duration
}

// Arena is where keys and values of reports are written, because a thousand small pieces of memory
// cost more than a large one. It is free when the last of them is.
type Arena struct {
	text   strings.Builder
	values []byte
}

const arenaSize = 4096

// Write returns what it is given, as a string.
func (a *Arena) Write(text []byte) string {
	if a.text.Cap()-a.text.Len() < len(text) {
		a.text.Reset()
		a.text.Grow(arenaSize)
	}
	from := a.text.Len()
	a.text.Write(text)
	return a.text.String()[from:]
}

// Number is a value of 20 digits.
func (a *Arena) Number(n uint64) []byte {
	const digits = 20
	if cap(a.values)-len(a.values) < digits {
		a.values = make([]byte, 0, arenaSize)
	}
	from := len(a.values)
	a.values = a.values[:from+digits]
	value := a.values[from : from+digits : from+digits]
	for i := len(value) - 1; i >= 0; i-- {
		value[i] = byte('0' + n%10)
		n /= 10
	}
	return value
}

// ParseNumber reads a number as memcached keeps it: digits, with spaces behind where a longer
// number stood.
func ParseNumber(v []byte) (n uint64, ok bool) {
	for len(v) > 0 && v[len(v)-1] == ' ' {
		v = v[:len(v)-1]
	}
	if len(v) == 0 || len(v) > 20 {
		return 0, false
	}
	for _, d := range v {
		if d < '0' || d > '9' || n > (1<<63)/10 {
			return 0, false
		}
		n = n*10 + uint64(d-'0')
	}
	return n, true
}
