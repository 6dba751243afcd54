package sim

import (
	"sluice/pop"
	"sluice/pop/record"
	"sluice/pop/secret"
)

// Cost is what edges have asked of nodes. Bytes are those of keys and values, as they were sent and answered; a number has 20.
type Cost struct {
	Commands, Bytes     uint64 // caused by requests: neither for reading the log, nor for presence and health
	LogRecords          uint64 // written to the log
	LogWritten, LogRead uint64 // bytes of the log's items, as they were stored, and in the answers to all readers
}

const numberBytes = 20

// sent counts a command.
func (c *Cost) sent(cmd *pop.Command) {
	if !cmd.Report {
		return
	}
	c.Commands++
	c.Bytes += uint64(len(cmd.Key) + len(cmd.Value))
	if cmd.Op == pop.Incr {
		c.Bytes += numberBytes
	}
	if cmd.Op == pop.Set && secret.NamesLogItem(cmd.Key) {
		c.LogRecords += uint64(record.Count(cmd.Value))
		c.LogWritten += uint64(len(cmd.Value))
	}
}

// answered counts what an answer brings.
func (c *Cost) answered(r *pop.Result) {
	bytes := uint64(0)
	for _, v := range r.Values {
		bytes += uint64(len(v))
	}
	switch {
	case r.Report && r.Op == pop.Incr:
		c.Bytes += numberBytes
	case r.Report:
		c.Bytes += bytes
	case r.Way == pop.Log:
		c.LogRead += bytes
	}
}

// Minus is what was spent since it was d.
func (c Cost) Minus(d Cost) Cost {
	return Cost{c.Commands - d.Commands, c.Bytes - d.Bytes, c.LogRecords - d.LogRecords, c.LogWritten - d.LogWritten, c.LogRead - d.LogRead}
}
