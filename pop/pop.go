// Package pop makes one limiter of the edges of a point of presence: it carries what they count to
// a small tier of memcached nodes, and back what the others have counted.
//
// A source's counters and bits are on one node, chosen by a hash of the source. An edge counts at
// once, in memory; then it reports its new hits with incr, whose answer is the PoP's total, so the
// report is also the query. What gathers for a counter while a report is under way is the next
// report: a source costs at most one increment per edge and round trip. When a total, or an edge's
// own verdict, says that a source is over its limit, a mitigation bit is set and written to a log
// of numbered items, of which every edge keeps reading the next.
//
// Machine decides all this without sockets, goroutines or clock, in the manner of etcd's raft: Step
// takes in what happened, works on the two tables it shares with the request path, and returns what
// to send. pop/memcached runs a Machine against real nodes; a simulation runs the same Machine in
// virtual time.
//
// # The rooms
//
// The Machine itself does three things: Step, which knows what was sent and not yet answered, and
// polls nodes (machine.go); and it reports (report.go). All else is in rooms that know nothing of
// it. Arrows point down and are imports; those to secret and wire are left out, and so are those
// that others imply.
//
//	                 pop: step, flights, report
//	          ┌─────────────────┼──────────────────┐
//	      exchange              │                marks
//	what requests wait for      │        who is there under another secret
//	          └──────────── announcement
//	               what edges tell each other of
//	               a source, and learn of it
//	      ┌────────────────┬────┴───────────┬────────────────┐
//	  operators        placement           log            across
//	their list, and    which node       the mitigation    what PoPs
//	what is in force   has a source     log               tell each other
//	      │                                 │
//	  presence                           record
//	who shares the tier                what is in the log
//	      │
//	operatorlog
//	the list itself
//
// wire is the commands to a node, and its answers; secret is keys and MACs. Each of these packages
// takes the time and answers, and returns commands, or sends them by the one function that it was
// given (announcement, exchange: what they send may follow from an answer deep in them).
//
// A command goes out through Machine.send, which gives it a tag and notes the flight. Its answer
// comes back through Step, and Machine.answered hands it to the package that sent the command.
package pop

import (
	"sluice/counter"
	"sluice/counter/buckets"
	"sluice/counter/exact"
	"sluice/counter/inflight"
	"sluice/mitigation"
	"sluice/pop/across"
	"sluice/pop/operatorlog"
	"sluice/pop/secret"
)

// Config is what a Machine works with. All fields but PoP, Edges, Rules, Received, Decided, Counted
// and Viewed are required.
type Config struct {
	PoP      string   // its name, under which its edges leave marks on the nodes; "": they do not
	Nodes    []string // host:port of the memcached nodes, at every edge the same in any order
	Secret   secret.Secret
	ID       uint64 // of this edge, random
	Name     string // of this edge, for operators; the first 64 bytes are used
	Edges    int    // how many edges share the tier; 0: learned from their presence
	Rules    bool   // changes of rules travel: the secret cannot be guessed
	Counters *counter.Table
	Blocks   *mitigation.Table
	// Received is called with operators' orders about sources at other edges, as they come into
	// force here. It must not block, or call the Machine.
	Received func(operatorlog.Order)
	// Decided is called with each block that this edge announces to the PoP as the first, for PoPs
	// that are its peers; nil: there are none. It must not block, or call the Machine.
	Decided func(across.Block)
	// Counted is called likewise, with what the PoP has counted of a source near its limit.
	Counted func(across.Count)
	// Viewed is told, about once a second, at which node edges meet, and what is there that says
	// that somebody looks at the whole PoP; nil: nothing. It must not block, or call the Machine.
	Viewed func(node int, item []byte)
	// InFlight is the requests in flight on this edge, which it reports to the tier; nil: it does
	// not.
	InFlight *inflight.Table
	// Exact is the requests of this edge under rules whose instants are kept in the tier; nil:
	// there are none.
	Exact *exact.Table
}

// MachineStats is what a Machine has seen since it was made.
type MachineStats struct {
	Propagation     *buckets.Histogram // from a verdict elsewhere until it was in force here
	Forged          uint64             // values in the tier that no edge of the PoP wrote
	LogRecords      uint64             // that this edge wrote to the mitigation log
	LogLost         uint64             // that it could not write
	Edges           int                // that share the tier
	Full            bool               // the PoP is full, and this edge counts alone
	OperatorEntries int                // of the operators' list: blocks, lifts, changes of rules
}

// Stats is what the Machine and its rooms have seen.
func (m *Machine) Stats() MachineStats {
	written, lost, forged := m.logs.Stats()
	return MachineStats{
		Full: m.Nodes.Full(), OperatorEntries: m.Operators.Len(),
		Propagation: m.Announcer.Propagation,
		Forged:      m.forged.Load() + m.Operators.Forged() + m.Exchanges.Forged() + forged,
		LogRecords:  written, LogLost: lost,
		Edges: int(max(m.edges.Load(), 1)),
	}
}
