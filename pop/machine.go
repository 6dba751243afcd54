package pop

import (
	"fmt"
	"sync/atomic"
	"time"

	"sluice/counter"
	"sluice/mitigation"
	"sluice/pop/announcement"
	"sluice/pop/exchange"
	"sluice/pop/log"
	"sluice/pop/marks"
	"sluice/pop/operators"
	"sluice/pop/placement"
	"sluice/pop/presence"
	"sluice/pop/wire"
)

// The story of a block, told in the README, as the Machine of edge 1 has it. Three edges share one
// node of memcached, under a rule of 100 requests a minute that blocks for a minute:
//
//  1. At 12:00:00.000 a request of 192.0.2.7 comes to edge 1, which knows of 98 in the last minute:
//     of its own, and of those that edges 2 and 3 have reported.
//  2. The limiter lets it pass as the 99th, and the table of counters has a hit to report. The
//     Machine has no part in this.
//  3. At 12:00:00.001 Step finds the counter among those with hits to report (Machine.report, in
//     report.go), and returns an increment for the source's node.
//  4. At 12:00:00.002 the answer comes in as an Event: 101. Edges 2 and 3 have let requests pass in
//     the same instant. The Machine notes the total (Machine.reported, in report.go) and has the
//     Announcer act on it, which begins a block in the table of blocks (package announcement: ActOn,
//     block).
//  5. The Announcer sends the command that sets the block's bit (setBit) in the same Step. Once
//     that is answered (Answered), the Machine writes an item with the block to the node's log
//     (Machine.writeLogs). A block that a request itself began, at edge 1, waits in the table until
//     the next Step takes it (AnnounceBlocks), and goes the same way.
//  6. By 12:00:00.020 edge 3 has read the next number of the log (Machine.poll, Machine.answered),
//     and its table has the block: the next request of 192.0.2.7 there is refused in memory.
//
// When a node dies, probes of it go unanswered, and it is taken for down. A node that answers slowly
// while another does not is taken for down too (package placement: Probe, Probed). Its sources have
// other nodes from the next report on, and what was under way to it is counted as lost
// (Machine.giveUp). Each edge keeps its own hits and its blocks all the same.

// Machine is the PoP as one edge sees it. Step and Flush belong to one goroutine; SetRules, Alone,
// Unreported and Stats may be called from anywhere. Each of its packages says which of its methods
// may be, and all others belong to Step.
type Machine struct {
	Operators      *operators.List         // what operators have said
	Nodes          *placement.Nodes        // which of them has a source, and which are up
	Announcer      *announcement.Announcer // what edges send each other about sources
	Exchanges      *exchange.Exchanges     // what requests wait for
	ForeignSecrets *marks.Detector         // edges that count under another secret

	config   Config
	counters counter.Reports
	presence presence.Slots
	logs     *log.Logs

	nodes     []node
	unplaced  queue // to be reported when a node is up
	flights   flights
	out       []wire.Command
	arena     wire.Arena // of what is in out
	dirty     []counter.Counter
	random    uint64
	attention attention
	ending    bool // Flush was called
	confirmed bool // and hits have been confirmed since the last sweep
	swept     time.Time
	cleaned   time.Time
	edges     atomic.Int64  // that share the tier
	member    atomic.Bool   // this edge is one of them
	forged    atomic.Uint64 // values that the rooms have not seen
}

// NewMachine makes a Machine that holds all nodes up until they prove otherwise.
func NewMachine(c Config, now time.Time) (*Machine, error) {
	if c.Edges > counter.MaxEdges {
		return nil, fmt.Errorf("pop: %d edges: at most %d share a tier", c.Edges, counter.MaxEdges)
	}
	nodes, err := placement.New(c.Nodes, c.Secret, now)
	if err != nil {
		return nil, err
	}
	m := &Machine{
		config: c, Nodes: nodes, ForeignSecrets: marks.New(c.PoP, c.Secret, c.ID, now),
		counters: c.Counters.Reports(), presence: presence.New(c.Secret, c.ID),
		logs: log.New(c.Secret), swept: now, cleaned: now, attention: attention{request: now},
	}
	m.Operators = operators.New(operators.Config{
		Secret: c.Secret, ID: c.ID, Name: c.Name, Changes: c.Rules, Counters: c.Counters,
		Blocks: c.Blocks, Received: c.Received, Jitter: m.jitter,
	}, now)
	m.Announcer = announcement.New(announcement.Config{
		Secret: c.Secret, ID: c.ID, Edges: c.Edges, Counters: m.counters, Blocks: c.Blocks,
		Operators: m.Operators, Nodes: nodes, Logs: m.logs, Decided: c.Decided, Counted: c.Counted,
		Send: func(c wire.Command, b *announcement.Bit) { m.send(c, flight{what: aBit, bit: b}) },
	})
	m.Exchanges = exchange.New(exchange.Config{
		Secret: c.Secret, Counters: m.counters, InFlight: c.InFlight, Exact: c.Exact,
		Operators: m.Operators, Nodes: nodes, Announcer: m.Announcer,
		Send: func(c wire.Command, a exchange.Request) {
			m.send(c, flight{what: anExchange, request: a, paid: !a.Read()})
		},
	})
	m.presence.Wall = m.wall
	m.addNodes()
	if c.Edges > 0 {
		m.counters.SetEdges(c.Edges)
	}
	return m, nil
}

// addNodes makes room for nodes that have been added to the list.
func (m *Machine) addNodes() {
	for len(m.nodes) < m.Nodes.Len() {
		m.nodes = append(m.nodes, node{operatorList: m.Operators.Nodes()})
	}
	m.logs.Grow(len(m.nodes))
	m.ForeignSecrets.Grow(len(m.nodes))
}

// SetRules replaces the rules in force. Bits of other rules are not announced and not learned.
func (m *Machine) SetRules(rules []mitigation.Rule) {
	m.Announcer.SetRules(rules)
	m.Exchanges.SetRules(rules)
}

// Event is what happened since the last Step: answers that came. An empty one says that time
// passed, or that the tables have something new.
type Event struct {
	Results []wire.Result
}

// Tick is how often a Machine is stepped at least while something waits that nothing wakes it for;
// StepIn returns what it wants at a time.
const Tick = 20 * time.Millisecond

const (
	sweepEvery = 100 * time.Millisecond
	cleanEvery = time.Second
)

// Step takes in an event and returns what to send; the slice is valid until the next call. Every
// command must be answered by one Result, whatever happens to it.
func (m *Machine) Step(now time.Time, e Event) []wire.Command {
	m.out = m.out[:0]

	// Nodes come and go.
	for _, left := range m.Nodes.Advance(now) {
		m.giveUp(left, now)
	}
	m.addNodes()

	// What the nodes have answered (4 of the story), and what follows from it.
	for i := range e.Results {
		m.answered(&e.Results[i], now)
	}
	m.Nodes.NoteAlone(now)
	m.Exchanges.SendReads()
	if m.Operators.Apply(now) {
		m.presence.Changed(now)
	}

	// What changes at the nodes without this edge (6), and what is over.
	m.poll(now)
	m.sweep(now)

	// What requests wait for, what they have counted (3), and whom that blocks (5).
	m.Exchanges.Step(now)
	m.report(now)
	m.Announcer.AnnounceBlocks(now)
	m.Announcer.AnnounceCounts()
	m.Announcer.Resume(now)
	m.writeLogs(now)
	return m.out
}

// answered hands an answer to the package that sent the command.
func (m *Machine) answered(r *wire.Result, now time.Time) {
	f := m.flights.end(r.Tag)
	n := &m.nodes[f.node]
	n.flying--
	if r.Status == wire.Done || r.Status == wire.NotThere {
		m.Nodes.Carried(int(f.node))
	}
	if m.ending && r.Report && !r.Op.Reads() && r.Status == wire.Done {
		m.confirmed = true
	}
	switch f.what {
	case aReport:
		m.reported(f, r, now)
	case anEcho:
		m.echoed(f, r, now)
	case anExchange:
		m.Exchanges.Answered(f.request, r, now)
	case aBit:
		m.Announcer.Answered(f.bit, r, now)
	case aBatch:
		up := m.Nodes.IsUp(r.Node)
		if c, follows := m.logs.Written(f.batch, r, up, now, m.wall(now)); follows {
			m.sendBatch(c, f.batch)
		}
	case aLogRead:
		records, missed := m.logs.Looked(r, now)
		m.Announcer.LearnAll(records, now)
		if missed {
			m.counters.Missed(now)
		}
	case aProbe:
		done := r.Status == wire.Done
		if m.Nodes.Probed(r.Node, done, r.Took, now) {
			m.giveUp(r.Node, now)
		}
		if done && m.logs.HeadRead(r.Node, r.Values[0], now, m.wall(now)) {
			m.counters.Missed(now)
		}
	case aPresence:
		m.slotsAnswered(f, r, now)
	case anOperatorList:
		if c, follows := m.Operators.Answered(&n.operatorList[f.of], r, now); follows {
			m.sendOperatorList(c, int(f.of))
		}
	case aMarksRead:
		m.marksRead(r, now)
	}
}

// giveUp takes in that a node is lost: what was under way to it is, and its sources move to other
// nodes with the next report.
func (m *Machine) giveUp(i int, now time.Time) {
	for tag := range m.flights.list {
		f := &m.flights.list[tag]
		if int(f.node) == i && f.what == aReport && !f.late &&
			f.epoch >= m.Operators.Epoch(f.counter.Rule, f.counter.Source) {
			m.counters.Lost(f.counter, f.part, now)
			f.late = true
		}
	}
}

// slotsAnswered takes in which edges share the tier, or that this edge has a slot.
func (m *Machine) slotsAnswered(f flight, r *wire.Result, now time.Time) {
	done := r.Status == wire.Done
	switch {
	case r.Op == wire.Get && done && !m.ending:
		c, slot, takes, forged := m.presence.Answered(r, m.self(), m.chance(), now, m.wall(now))
		if takes {
			m.send(c, flight{what: aPresence, of: uint8(slot + 1)})
		}
		m.forged.Add(uint64(forged))
		m.setEdges(m.presence.Highest())
		m.followClock(now)
		m.Operators.SetOthers(&m.presence, now)
		if m.config.Viewed != nil {
			m.config.Viewed(r.Node, m.presence.View)
		}
	case f.of > 0:
		m.presence.Taken(int(f.of-1), done, now)
	}
	m.Nodes.SetFull(m.presence.Full())
	m.member.Store(m.presence.Member())
}

// marksRead takes in the marks of a node, and leaves this edge's own.
func (m *Machine) marksRead(r *wire.Result, now time.Time) {
	if m.ending {
		return
	}
	self := m.Operators.Self()
	if c, follows := m.ForeignSecrets.Looked(r, self.Name, self.Address, now, m.wall(now)); follows {
		m.send(c, flight{})
		m.noteSecrets(now)
	}
}

// poll reads from nodes what changes without this edge: whether they are well, what is in their log
// and their copy of the operators' list, and which other edges there are.
func (m *Machine) poll(now time.Time) {
	look := m.attend(now)
	for i := range m.nodes {
		if !m.Nodes.InUse(i) {
			continue
		}
		due, lost := m.Nodes.Probe(i, look, now)
		if lost {
			m.giveUp(i, now)
		}
		if due { // a read of the last number of its log
			m.send(m.logs.Head(i), flight{what: aProbe})
		}
		if !m.Nodes.IsUp(i) {
			continue
		}
		for line := range m.nodes[i].operatorList {
			if c, due := m.Operators.Look(&m.nodes[i].operatorList[line], i, now); due {
				m.sendOperatorList(c, line)
			}
		}
		if !m.ending {
			if c, due := m.ForeignSecrets.Look(i, m.jitter, now); due {
				m.send(c, flight{what: aMarksRead})
			}
		}
		if c, due := m.logs.Look(i, now); due {
			m.send(c, flight{what: aLogRead})
		}
	}
	m.keepSlot(now)
}

// keepSlot renews this edge's slot and reads the others', if it is time to.
func (m *Machine) keepSlot(now time.Time) {
	if m.ending || !m.presence.Due(now) {
		return
	}
	for _, c := range m.presence.Keep(m.Nodes.Fixed(), m.self(), m.Operators.Awaited(now), now) {
		m.send(c, flight{what: aPresence})
	}
}

// self is what this edge publishes about itself.
func (m *Machine) self() presence.Edge {
	self := m.Operators.Self()
	self.Ends = m.ending
	return self
}

// sweep finds hits that can wait no longer, and forgets what is over. The last report takes as many
// rounds as a counter's hits need, so as long as nodes confirm hits of it, the next round follows.
func (m *Machine) sweep(now time.Time) {
	every := sweepEvery
	if m.confirmed {
		every = Tick
	}
	if now.Sub(m.swept) >= every {
		m.swept, m.confirmed = now, false
		if m.Nodes.Up() {
			m.counters.Sweep(now, m.ending)
		}
	}
	if now.Sub(m.cleaned) >= cleanEvery {
		m.cleaned = now
		m.config.Blocks.Sweep(now) // a slice, because requests wait for this goroutine
		m.Operators.Sweep(now)
		m.noteSecrets(now)
		m.Announcer.Sweep(now)
	}
}

// writeLogs writes to the logs what has gathered for them.
func (m *Machine) writeLogs(now time.Time) {
	for i := range m.nodes {
		if c, b, due := m.logs.Write(i, now); due {
			m.sendBatch(c, b)
		}
	}
}

// Flush begins the last report: everything that has not been reported goes, however little it
// matters. As much of it as may be under way is what Flush returns, and Step goes on with the rest,
// for as long as it is called. Unreported returns how much that is.
func (m *Machine) Flush(now time.Time) []wire.Command {
	m.out = m.out[:0]
	m.ending, m.swept = true, now
	m.depart(now)
	m.counters.Sweep(now, true)
	m.report(now)
	m.Announcer.AnnounceBlocks(now)
	m.writeLogs(now)
	return m.out
}

// depart removes this edge's marks from the nodes, and writes into its slot that it ends, so that
// no edge waits for it.
func (m *Machine) depart(now time.Time) {
	for i := range m.nodes {
		if !m.Nodes.IsUp(i) {
			continue
		}
		if c, due := m.ForeignSecrets.Withdraw(i); due {
			m.send(c, flight{})
		}
	}
	if node := m.Nodes.Fixed(); node >= 0 && m.presence.Key() != "" {
		m.send(m.presence.Fill(node, m.self(), now), flight{what: aPresence})
	}
}

// Presence is the command that fills this edge's slot once more, if no Step has done so in time;
// its answer is not used. An owner that does not step an idle Machine must carry it out, or the
// other edges take a living one for gone. The Machine reads which others are there when it next
// reports something. Presence belongs to Step's goroutine.
func (m *Machine) Presence(now time.Time) (c wire.Command, overdue bool) {
	node := m.Nodes.Fixed()
	if m.ending || node < 0 || !m.presence.Overdue(placement.StepLate, now) {
		return c, false
	}
	return m.presence.Fill(node, m.self(), now), true
}

// StepIn is how soon the machine wants to be stepped when nothing happens.
func (m *Machine) StepIn(now time.Time) time.Duration {
	least := m.lookIn(now)
	if m.Waiting() || m.presence.Hasty() || m.Operators.Awaited(now) || !m.Nodes.Well() {
		least = min(least, Tick)
	}
	if m.counters.Gathering() {
		every := sweepEvery
		if m.confirmed {
			every = Tick
		}
		least = min(least, max(m.swept.Add(every).Sub(now), 0))
	}
	return m.Announcer.In(m.Exchanges.In(m.logs.In(least, now), now), now)
}

// Waiting reports whether the machine has left something for later, so that it is to be stepped
// though nothing happens.
func (m *Machine) Waiting() bool {
	return m.logs.Waiting() || m.Announcer.Waiting() || m.Exchanges.Waiting()
}

// Quiet reports whether an answer that comes at now brings nothing: a node that is up is up, its
// log is as far as was known, and no edge has a word of operators. One Step that is given several
// such answers leaves the machine as a Step for each would, and sends the same; so a simulation of
// months may take the answers to a poll together. It belongs to Step's goroutine.
func (m *Machine) Quiet(r *wire.Result, now time.Time) bool {
	n := &m.nodes[r.Node]
	if r.Status != wire.Done || n.flying > maxFlying/2 { // else reports wait for each answer
		return false
	}
	switch f := &m.flights.list[r.Tag]; f.what {
	case aProbe: // else the next follows at once, or it is late
		return now.Sub(m.attention.looked) < Soonest && m.Nodes.Steady(r.Node, now) && m.logs.HeadIsCurrent(r.Node, r.Values[0], m.wall(now))
	case aLogRead:
		return m.logs.FindsNothing(r)
	case anOperatorList:
		return n.operatorList[f.of].Looking() && r.Values[0] == nil && m.Operators.Len() == 0
	case aPresence:
		return r.Op != wire.Get && f.of == 0
	}
	return false
}

// The commands under way.

// flight is a command that has not been answered, and what for.
type flight struct {
	what    purpose
	late    bool // its node was given up meanwhile, and its hits with it
	tries   uint8
	paid    bool  // its cost has been set aside (announcement.Budget), or reports do not pay for it
	of      uint8 // aPresence: the slot, which was free, from 1; anOperatorList: the secret's line
	node    int32
	counter counter.Counter // aReport, anEcho
	part    counter.Part
	epoch   uint64            // of the counter when it was sent
	bit     *announcement.Bit // aBit
	batch   *log.Batch        // aBatch
	request exchange.Request  // anExchange
}

type purpose uint8

const (
	unheeded purpose = iota // the answer is not used, or there is no flight
	aReport
	anEcho // of a report, to the new node of a source
	anExchange
	aBit
	aBatch // of the log
	aLogRead
	aProbe
	aPresence
	anOperatorList // of the operators' list
	aMarksRead
)

// flights are by tag.
type flights struct {
	list []flight
	free []uint64
}

func (l *flights) begin(f flight) (tag uint64) {
	if n := len(l.free); n > 0 {
		tag, l.free = l.free[n-1], l.free[:n-1]
		l.list[tag] = f
		return tag
	}
	l.list = append(l.list, f)
	return uint64(len(l.list) - 1)
}

func (l *flights) end(tag uint64) flight {
	f := l.list[tag]
	l.list[tag] = flight{}
	l.free = append(l.free, tag)
	return f
}

func (m *Machine) send(c wire.Command, f flight) {
	f.node = int32(c.Node)
	m.nodes[c.Node].flying++
	if c.Report && !f.paid {
		m.Announcer.Budget.Spend()
	}
	c.Tag = m.flights.begin(f)
	m.out = append(m.out, c)
}

// sendOperatorList sends a command of a node's copy of the operators' list.
func (m *Machine) sendOperatorList(c wire.Command, line int) {
	f := flight{what: anOperatorList, of: uint8(line)}
	if c.Op == wire.Delete {
		f = flight{}
	}
	m.send(c, f)
}

// sendBatch sends a command of a batch of the log.
func (m *Machine) sendBatch(c wire.Command, b *log.Batch) {
	f := flight{what: aBatch, batch: b, paid: b.Paid}
	if c.Op == wire.Delete {
		f = flight{}
	}
	m.send(c, f)
}

// Edges, clocks, and what the Machine knows of itself.

// setEdges takes in how many edges share the tier.
func (m *Machine) setEdges(n int) {
	m.edges.Store(int64(min(n, counter.MaxEdges)))
	if m.config.Edges == 0 {
		m.counters.SetEdges(n)
	}
	m.logs.SetEdges(n)
	m.Announcer.SetEdges(n)
	m.Exchanges.SetEdges(n)
}

// noteSecrets takes in which edges are there, under this secret and others.
func (m *Machine) noteSecrets(now time.Time) {
	m.ForeignSecrets.Note(m.presence.Met(m.Operators.Self().Name), now)
}

// wall is the time of the PoP: edges agree by it on sub-windows, and on the times that they send
// each other. It begins with the wall clock, and never goes back.
func (m *Machine) wall(now time.Time) time.Time { return m.counters.Wall(now) }

// followClock puts this edge's time forward to that of another edge that is further: they must
// agree on sub-windows. So steps of wall clocks change nothing, whether one steps or all are put
// right together, and an edge that begins with another time, or was suspended, joins the others, or
// they join it. Nobody goes back, since hits would be dated into a time that was counted already.
func (m *Machine) followClock(now time.Time) {
	by := m.presence.Behind()
	if by == 0 {
		return
	}
	for tag := range m.flights.list {
		f := &m.flights.list[tag]
		switch f.what {
		case aReport:
			if !f.late {
				m.counters.Lost(f.counter, f.part, now)
			}
			f.what = unheeded
		case anEcho:
			f.what = unheeded
		case anExchange:
			f.request.ClockStepped()
		}
	}
	m.counters.Adjust(by, m.Nodes.Up(), now)
	m.Exchanges.ClockStepped()
}

// Membership names the PoP that this edge is one of, for the process that replaces it; "": it is
// not, because all slots are others'. It may be called from anywhere.
func (m *Machine) Membership() string {
	if !m.member.Load() {
		return ""
	}
	return m.presence.PoP()
}

// Succeed takes over the Membership of the process that this one replaces, before the first Step.
// In a full PoP this edge counts together with the others at once, and gets a slot when the older
// process has ended.
func (m *Machine) Succeed(membership string) {
	if membership == m.presence.PoP() {
		m.presence.Succeed()
	}
}

// jitter is a time a little below d that differs between edges and from time to time.
func (m *Machine) jitter(d time.Duration) time.Duration {
	return d*3/4 + time.Duration(m.chance()%uint64(d/4))
}

// chance is a number that differs between edges and from time to time.
func (m *Machine) chance() uint64 {
	m.random++
	return placement.Mix(m.config.ID ^ m.random)
}

// Alone returns how many edges shared the tier, as last known, and since when no node is left, as
// Step noticed; the zero time: one is.
func (m *Machine) Alone() (edges int, since time.Time) {
	if since = m.Nodes.Alone(); since.IsZero() {
		return 0, since
	}
	return max(m.config.Edges, int(m.edges.Load()), 1), since
}

// Unreported returns how many hits the tier has not confirmed, and how many it never received, or
// may not have: those that were lost since the table was made. It may be called from anywhere.
func (m *Machine) Unreported() (hits, lost uint64) {
	s := m.counters.Stats()
	return s.Unreported, s.LostUnknown + s.LostFull + s.LostExpired + s.LostBacklog +
		s.LostSaturated + s.LostEvicted
}
