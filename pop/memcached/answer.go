package memcached

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"sluice/pop/wire"
)

const (
	maxLine  = 2048    // memcached's own longest line
	maxValue = 1 << 20 // memcached's own largest item
)

// errAnswer is the reason for a dropped connection when the node's bytes are no answer to the
// command. From there on it is unknown which answer belongs to which command.
var errAnswer = errors.New("memcached: wrong answer")

func wrongAnswer(op wire.Op, line []byte) error {
	return fmt.Errorf("%w to %s: %.80q", errAnswer, op, line)
}

// answers reads answers of memcached's classic text protocol. It holds what it has of a Get whose
// answer is still coming in.
type answers struct {
	none   [wire.MaxKeys][]byte // what a Get of keys that are not there brings; never written
	values [][]byte             // nil before the first value
	keys   []string             // of the Get, once there is a value
	// The key expected next: nodes answer in the order of the keys, twemproxy not quite
	next int
}

// read reads the answer to r.Command from in and fills in r. It returns how many bytes of in it
// consumed, and whether the answer is complete; if not, call it again with what follows those
// bytes. After an error the connection is of no use any more.
func (a *answers) read(in []byte, r *wire.Result) (used int, complete bool, err error) {
	if r.Op.Reads() {
		return a.readValues(in, r)
	}
	line, used, err := cutLine(in)
	if line == nil || err != nil {
		return 0, false, err
	}
	switch r.Op {
	case wire.Incr, wire.Decr:
		if n, ok := parseNumber(line); ok {
			r.Status, r.Number = wire.Done, n
			return used, true, nil
		}
		if string(line) == "NOT_FOUND" {
			r.Status = wire.NotThere
			return used, true, nil
		}
	case wire.Delete:
		switch string(line) {
		case "DELETED":
			r.Status = wire.Done
			return used, true, nil
		case "NOT_FOUND":
			r.Status = wire.NotThere
			return used, true, nil
		}
	case wire.Cas:
		switch string(line) {
		case "STORED":
			r.Status = wire.Done
			return used, true, nil
		case "EXISTS", "NOT_FOUND":
			r.Status = wire.NotThere
			return used, true, nil
		}
	case wire.Add, wire.Set:
		switch string(line) {
		case "STORED":
			r.Status = wire.Done
			return used, true, nil
		case "NOT_STORED":
			if r.Op != wire.Set {
				r.Status = wire.NotThere
				return used, true, nil
			}
		}
	}
	if r.Err = refusal(line); r.Err != nil {
		r.Status = wire.Unsent
		return used, true, nil
	}
	return 0, false, wrongAnswer(r.Op, line)
}

// refusal recognises the error lines by which memcached has certainly done nothing, and after which
// the next answer follows as usual. Any other error line may stand for anything: twemproxy sends
// one for a command that timed out and may have been carried out.
func refusal(line []byte) error {
	switch {
	case string(line) == "CLIENT_ERROR cannot increment or decrement non-numeric value":
		return wire.ErrNotNumber
	case bytes.HasPrefix(line, []byte("SERVER_ERROR out of memory")),
		string(line) == "SERVER_ERROR object too large for cache":
		return wire.ErrFull
	}
	return nil
}

// readValues reads as many of a Get's values as in holds.
func (a *answers) readValues(in []byte, r *wire.Result) (used int, complete bool, err error) {
	for {
		line, n, err := cutLine(in[used:])
		if line == nil || err != nil {
			return used, false, err
		}
		if string(line) == "END" {
			r.Status, r.Values = wire.Done, a.values
			if a.values == nil {
				r.Values = a.none[:1+strings.Count(r.Key, " ")]
			}
			a.values = nil
			return used + n, true, nil
		}
		if a.values == nil {
			if err := refusal(line); errors.Is(err, wire.ErrFull) {
				r.Status, r.Err = wire.Unsent, err
				return used + n, true, nil
			}
		}
		key, size, version, ok := parseValueLine(line)
		if !ok || r.Op == wire.Gets && version == 0 {
			return used, false, wrongAnswer(wire.Get, line)
		}
		if a.values == nil {
			a.keys, a.next = r.Keys(), 0
			a.values = make([][]byte, len(a.keys))
		}
		i, ok := a.asked(key)
		if !ok {
			return used, false, wrongAnswer(wire.Get, line)
		}
		body := in[used+n:]
		if len(body) < size+2 {
			return used, false, nil // the line will be read again when its value is here
		}
		if body[size] != '\r' || body[size+1] != '\n' {
			return used, false, wrongAnswer(wire.Get, line)
		}
		a.values[i] = append(make([]byte, 0, size), body[:size]...)
		a.next, r.Number = i+1, version
		used += n + size + 2
	}
}

// asked finds which of the keys a value is for, if it is one of them and has not been answered yet.
func (a *answers) asked(key []byte) (int, bool) {
	for range a.keys {
		if a.next >= len(a.keys) {
			a.next = 0
		}
		if a.values[a.next] == nil && a.keys[a.next] == string(key) {
			return a.next, true
		}
		a.next++
	}
	return 0, false
}

// cutLine gives the first line of in without its end, and its length with it; a nil line if it is
// not complete yet.
func cutLine(in []byte) (line []byte, used int, err error) {
	i := bytes.IndexByte(in[:min(len(in), maxLine)], '\n')
	switch {
	case i < 0 && len(in) >= maxLine:
		return nil, 0, fmt.Errorf("%w: a line of more than %d bytes: %.40q", errAnswer, maxLine, in)
	case i < 0:
		return nil, 0, nil
	case i == 0 || in[i-1] != '\r':
		return nil, 0, fmt.Errorf("%w: a line without its carriage return: %.40q", errAnswer,
			in[:i+1])
	}
	return in[:i-1], i + 1, nil
}

// parseNumber reads an unsigned number of 64 bits. Spaces may follow it: memcached overwrites a
// longer number without shortening it.
func parseNumber(b []byte) (n uint64, ok bool) {
	i := 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		d := uint64(b[i] - '0')
		if n > (1<<64-1)/10 || n*10 > (1<<64-1)-d {
			return 0, false
		}
		n = n*10 + d
	}
	if i == 0 || i > 20 {
		return 0, false
	}
	for _, c := range b[i:] {
		if c != ' ' {
			return 0, false
		}
	}
	return n, true
}

// parseValueLine reads "VALUE key flags bytes [unique]" and refuses what no item can be. A version
// of 0 is none.
func parseValueLine(line []byte) (key []byte, size int, version uint64, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte("VALUE "))
	if !ok {
		return nil, 0, 0, false
	}
	key, rest, _ = bytes.Cut(rest, []byte(" "))
	flags, rest, _ := bytes.Cut(rest, []byte(" "))
	length, unique, more := bytes.Cut(rest, []byte(" "))
	if _, ok := digits(flags); !ok {
		return nil, 0, 0, false
	}
	if more {
		if version, ok = digits(unique); !ok {
			return nil, 0, 0, false
		}
	}
	n, ok := digits(length)
	if !ok || n > maxValue || !legalKey(string(key)) {
		return nil, 0, 0, false
	}
	return key, int(n), version, true
}

// digits is parseNumber where no space may follow.
func digits(b []byte) (uint64, bool) {
	if len(b) == 0 || b[len(b)-1] == ' ' {
		return 0, false
	}
	return parseNumber(b)
}

// legalKey reports whether memcached takes the key, and, because a key is written as it is, whether
// it could smuggle a second command.
func legalKey(key string) bool {
	if len(key) == 0 || len(key) > 250 {
		return false
	}
	return printable(key)
}

// printable reports whether all of a text is printable ASCII without spaces. It looks at eight
// bytes at a time.
func printable(text string) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; len(text) >= 8; text = text[8:] {
		x := uint64(text[0]) | uint64(text[1])<<8 | uint64(text[2])<<16 | uint64(text[3])<<24 |
			uint64(text[4])<<32 | uint64(text[5])<<40 | uint64(text[6])<<48 | uint64(text[7])<<56
		if ((x-'!'*ones)&^x|(x+ones)|x)&tops != 0 { // a byte below '!'; DEL; one above
			return false
		}
	}
	for i := range len(text) {
		if text[i] < '!' || text[i] > '~' {
			return false
		}
	}
	return true
}
