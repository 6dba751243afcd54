package pop

import (
	"errors"
	"slices"
	"time"

	"sluice/counter"
	"sluice/counter/exact"
	"sluice/counter/inflight"
	"sluice/pop/record"
	"sluice/pop/wire"
)

// flight is a command that has not been answered, and what for.
type flight struct {
	what    purpose
	late    bool // its node was given up meanwhile, and its hits with it
	tries   uint8
	slot    uint8
	takes   bool // aPresence: a slot, which was free
	paid    bool // reports have set its cost aside (perRequest), or it is none of theirs
	node    int32
	counter counter.Counter
	part    counter.Part
	epoch   uint64         // aReport: Machine.epoch when it was sent
	record  *record.Record // of a bit
	reads   *reads
	number  uint64 // of a log that is begun
	batch   []byte // of the log

	inFlight *inflight.Exchange // anInFlight: the exchange, and which of its parts
	of       int                // and aWords: the line of the secret

	exact *exact.Exchange // anExactRead, anExactWrite
}

type purpose uint8

const (
	noFlight purpose = iota // no flight
	aReport
	anEcho // of a report, at the new place of a source
	aRead
	aWaitedRead // a read that a request waits for
	aBit
	aBitRead
	aStaleRead
	aNumber // of an item of the log
	aBatch  // an item
	aLogRead
	aDelete
	aProbe
	aPresence
	aSlotsRead
	aWords     // of the operators' list
	aMarksRead // who is there under another secret
	aMark      // whose answer nobody heeds
	anEmptyAdd // before an incr; nobody heeds its answer
	aTakeBack  // nor this one's
	anInFlight
	anExactRead
	anExactWrite
)

func (m *Machine) send(c wire.Command, f flight) {
	f.node = int32(c.Node)
	m.nodes[c.Node].flying++
	if c.Report && !f.paid {
		m.spend()
	}
	if n := len(m.free); n > 0 {
		c.Tag, m.free = m.free[n-1], m.free[:n-1]
		m.flights[c.Tag] = f
	} else {
		c.Tag = uint64(len(m.flights))
		m.flights = append(m.flights, f)
	}
	m.out = append(m.out, c)
}

// sendWords sends a command of a node's copy of the operators' list.
func (m *Machine) sendWords(c wire.Command, line int) {
	f := flight{what: aWords, of: line}
	if c.Op == wire.Delete {
		f.what = aDelete
	}
	m.send(c, f)
}

func (m *Machine) answered(r *wire.Result, now time.Time) {
	f := m.flights[r.Tag]
	m.flights[r.Tag] = flight{}
	m.free = append(m.free, r.Tag)
	n := &m.nodes[f.node]
	n.flying--
	if m.ending && r.Report && !r.Op.Reads() && r.Status == wire.Done { // its node is not given up, however late its probes are: what is on its way to it would be lost
		m.confirmed = true
		m.Nodes.Carried(int(f.node), now)
	}
	switch f.what {
	case aReport:
		m.reported(f, r, now)
	case anEcho:
		m.echoed(f, r, now)
	case aRead, aWaitedRead, aStaleRead:
		m.readsDone(f, r, now)
	case aBit:
		m.bitAnswered(f, r, now)
	case aBitRead:
		m.bitRead(f, r, now)
	case aNumber:
		m.numberAnswered(f, r, now)
	case aBatch:
		m.batchAnswered(f, r, now)
	case aLogRead:
		m.logAnswered(r, now)
	case aProbe:
		m.probeAnswered(r, now)
	case aPresence:
		m.slotAnswered(f, r, now)
	case aSlotsRead:
		m.slotsRead(r, now)
	case aWords:
		if c, follows := m.Operators.Answered(&n.words[f.of], r, now); follows {
			m.sendWords(c, f.of)
		}
	case aMarksRead:
		m.marksRead(r, now)
	case anInFlight:
		m.inFlightSaid(f, r)
	case anExactRead:
		m.exactRead(f, r, now)
	case anExactWrite:
		m.exactWritten(f, r)
	}
}

// Quiet reports whether an answer that comes at now brings nothing: a node that is up is up, its log is as far as was known, and no edge
// has a word of operators. One Step that is given several such answers leaves the machine as a Step for each would, and sends the
// same; so a simulation of months may take the answers to a poll together. It belongs to Step's goroutine.
func (m *Machine) Quiet(r *wire.Result, now time.Time) bool {
	n := &m.nodes[r.Node]
	if r.Status != wire.Done || n.flying > maxFlying/2 { // else reports wait for each answer
		return false
	}
	switch f := &m.flights[r.Tag]; f.what {
	case aProbe:
		if !m.Nodes.Steady(r.Node, now) {
			return false
		}
		head, ok := wire.ParseNumber(r.Values[0])
		return r.Values[0] == nil || ok && m.plausible(head, now) && n.log.Knows(head)
	case aLogRead:
		return n.log.Settled() && !slices.ContainsFunc(r.Values, func(item []byte) bool { return item != nil })
	case aWords:
		return n.words[f.of].Looking() && r.Values[0] == nil && m.Operators.Len() == 0
	case aPresence:
		return !f.takes
	}
	return false
}

// maxFlying is how many commands may be under way to a node before further reports wait for answers: so many that a round trip of
// a millisecond carries two million a second, and so few that their bytes stay in a processor's cache. A pipeline takes eight times as many.
const maxFlying = 2048

// maxTries ends a race between edges that add, and a node that forgets, for a counter. Hits that lose it wait for the next
// report.
const maxTries = 4

func (m *Machine) reported(f flight, r *wire.Result, now time.Time) {
	c, p := f.counter, f.part
	if f.epoch < m.epoch(c.Rule, c.Source) {
		return // the source was lifted since, and its counter forgotten with all that was under way
	}
	if f.late { // already given up; a total is welcome all the same
		if r.Status == wire.Done && r.Op == wire.Incr {
			m.actOn(c, m.counters.Read(c, p.Group, r.Number, now), now)
		}
		return
	}
	switch r.Status {
	case wire.Done:
		total := p.Known
		if r.Op == wire.Incr {
			total = r.Number
		}
		standing := m.counters.Counted(c, p, total, now)
		m.actOn(c, standing, now)
		// At the end nobody is there to use what a read would bring.
		if standing.Past && !m.ending && (r.Op == wire.Incr || m.affords(c.Rule, 0)) {
			oldest, newest := m.counters.Groups(c.Rule, now, m.secret.Phase(c.Source))
			name := m.secret.CounterName(c, f.epoch)
			m.read(r.Node, aRead, c, f.epoch, &name, oldest, newest-1, p.Sum(c.Rule))
		}
		m.echo(f, r)
	case wire.NotThere:
		if f.tries >= maxTries {
			m.counters.Returned(c, p, now)
			return
		}
		op := wire.Add
		if r.Op == wire.Add {
			op = wire.Incr
		}
		p.There = false
		m.sendPart(r.Node, op, r.Key, c, p, f.epoch, f.tries+1)
	case wire.Unsent:
		if errors.Is(r.Err, wire.ErrFull) {
			m.counters.Full(c, p, now)
			return
		}
		if errors.Is(r.Err, wire.ErrNotNumber) { // somebody else wrote it: away with it, and the next report makes it anew
			m.stats.forged.Add(1)
			m.send(wire.Command{Node: r.Node, Op: wire.Delete, Report: true, Key: r.Key}, flight{what: aDelete})
		}
		m.counters.Returned(c, p, now)
	case wire.Unknown:
		m.counters.Lost(c, p, now)
		m.echo(f, r)
	}
}
