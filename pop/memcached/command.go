package memcached

import (
	"strconv"
	"strings"

	"sluice/pop/wire"
)

// appendCommand writes c as the classic text protocol has it.
func appendCommand(b []byte, c *wire.Command) []byte {
	b = append(b, c.Op.String()...)
	b = append(b, ' ')
	b = append(b, c.Key...)
	switch c.Op {
	case wire.Incr, wire.Decr:
		b = append(b, ' ')
		b = strconv.AppendUint(b, c.Delta, 10)
	case wire.Add, wire.Set, wire.Cas:
		b = append(b, " 0 "...)
		b = strconv.AppendInt(b, int64(c.Expire), 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, int64(len(c.Value)), 10)
		if c.Op == wire.Cas {
			b = append(b, ' ')
			b = strconv.AppendUint(b, c.Delta, 10)
		}
		b = append(b, "\r\n"...)
		b = append(b, c.Value...)
	}
	return append(b, "\r\n"...)
}

// check finds a command that must not be written: what a key may smuggle in would shift every later
// answer.
func check(c *wire.Command) error {
	rest, more := c.Key, c.Op == wire.Get
	for n := 1; ; n++ {
		key := rest
		if more {
			key, rest, more = strings.Cut(rest, " ")
		}
		switch {
		case !legalKey(key):
			return errKey
		case !more:
			return nil
		case n == wire.MaxKeys:
			return errKeys
		}
	}
}
