package sim

import (
	"sluice/pop/record"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// Cost is the commands that edges have sent to nodes. Bytes are those of keys and values, as they
// were sent and answered; a number has 20.
type Cost struct {
	// Caused by requests: neither for reading the log, nor for presence and health
	Commands, Bytes uint64
	LogRecords      uint64 // written to the log
	// Bytes of the log's items, as they were stored, and in the answers to all readers
	LogWritten, LogRead uint64
}

const numberBytes = 20

// sent counts a command.
func (c *Cost) sent(cmd *wire.Command) {
	if !cmd.Report {
		return
	}
	c.Commands++
	c.Bytes += uint64(len(cmd.Key) + len(cmd.Value))
	if cmd.Op == wire.Incr || cmd.Op == wire.Decr {
		c.Bytes += numberBytes
	}
	if cmd.Op == wire.Set && secret.NamesLogItem(cmd.Key) {
		c.LogRecords += uint64(record.Count(cmd.Value))
		c.LogWritten += uint64(len(cmd.Value))
	}
}

// answered counts what an answer brings.
func (c *Cost) answered(r *wire.Result) {
	bytes := uint64(0)
	for _, v := range r.Values {
		bytes += uint64(len(v))
	}
	switch {
	case r.Report && (r.Op == wire.Incr || r.Op == wire.Decr):
		c.Bytes += numberBytes
	case r.Report:
		c.Bytes += bytes
	case r.Way == wire.Log:
		c.LogRead += bytes
	}
}

// Minus is what was spent since it was d.
func (c Cost) Minus(d Cost) Cost {
	return Cost{c.Commands - d.Commands, c.Bytes - d.Bytes, c.LogRecords - d.LogRecords,
		c.LogWritten - d.LogWritten, c.LogRead - d.LogRead}
}
