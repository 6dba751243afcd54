// Package pop makes one limiter of the edges of a point of presence: it carries what they count to a small tier of memcached
// nodes, and back what the others have counted.
//
// A source's counters and bits are on one node, chosen by a hash of the source. An edge counts at once, in memory; then it
// reports its new hits with incr, whose answer is the PoP's total, so the report is also the query. What gathers for a
// counter while a report is under way is the next report: a source costs at most one increment per edge and round trip.
// When a total, or an edge's own verdict, says that a source is over its limit, a mitigation bit is set and written to a
// log of numbered items, of which every edge reads the next again and again.
//
// Machine decides all this without sockets, goroutines or clock, in the manner of etcd's raft: Step is told what happened,
// works on the two tables it shares with the request path, and returns what to send. pop/memcached
// runs a Machine against real nodes; a simulation runs the same Machine in virtual time.
//
// What it works with is in rooms that know nothing of it: wire (what a node is asked, and answers), secret (keys and MACs), record
// (what edges tell each other), log (reading a node's log), words (the operators' list), operators (that list on an edge, and in force),
// presence (who shares the tier), marks (who uses it under another secret), later (what is left for a while), across (what PoPs tell each other), placement
// (which node has a source, and which had it before).
package pop

import (
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/counter/exact"
	"sluice/counter/inflight"
	"sluice/mitigation"
	"sluice/pop/across"
	"sluice/pop/histogram"
	"sluice/pop/operators"
	"sluice/pop/placement"
	"sluice/pop/presence"
	"sluice/pop/record"
	"sluice/pop/secret"
	"sluice/pop/wire"
	"sluice/pop/words"
)

// Config is what a Machine works with. All fields but PoP, Edges, Rules, Heard and Decided are required.
type Config struct {
	PoP      string   // its name, under which its edges leave marks on the nodes; "": they do not
	Nodes    []string // host:port of the memcached nodes; every edge of the PoP must have the same, in any order and spelling
	Secret   secret.Secret
	ID       uint64 // of this edge, random
	Name     string // of this edge, for operators; the first 64 bytes are used
	Edges    int    // how many edges share the tier; 0: learned from their presence
	Rules    bool   // changes of rules travel: nobody can guess the secret
	Counters *counter.Table
	Bits     *mitigation.Table
	// Heard is told what operators say of sources at other edges, as it comes into force here. It must not block, or call the Machine.
	Heard func(words.Word)
	// Decided is told each block that this edge announces to the PoP as the first, for PoPs that are its peers; nil: there are none. It must
	// not block, or call the Machine.
	Decided func(across.Block)
	// InFlight is the requests in flight on this edge, which the others are told of; nil: they are not.
	InFlight *inflight.Table
	// Exact is the requests of this edge under rules that are kept in the tier, each by itself; nil: there are none.
	Exact *exact.Table
}

// Rule is what the PoP must know of a rule.
type Rule = mitigation.Rule

type knownRule struct {
	Rule
	digest uint64
}

// bit is a mitigation under the rule that the PoP starts.
func (r *knownRule) bit(start, end time.Time) mitigation.Bit {
	return mitigation.Bit{Start: start, End: end, By: mitigation.ByPoP, Shadow: r.Shadow || r.Tried, Memory: r.Repeat.Memory(), Terms: r.Terms()}
}

type ruleSet struct {
	byID     map[uint32]*knownRule
	byDigest map[uint64]*knownRule
	byName   map[string][]*knownRule
}

// Machine is the PoP as one edge sees it. Step and Flush belong to one goroutine; SetRules, Ask, Health, Up and Stats may be called
// from anywhere.
type Machine struct {
	Operators *operators.List  // what operators have said; what of it belongs to one goroutine is Step's
	Nodes     *placement.Nodes // which of them has a source, and which are up

	config   Config
	secret   secret.Secret
	id       uint64
	counters counter.Reports
	bits     *mitigation.Table
	rules    atomic.Pointer[ruleSet]
	nodes    []node
	peers    peers
	marks    board
	headKey  string // of the numbers of a node's log
	times    map[takenFrom]record.Taken

	asks      asks
	flights   []flight // by tag
	free      []uint64
	out       []wire.Command
	arena     wire.Arena // of what is in out
	spare     []*reads
	dirty     []counter.Counter
	backs     []counter.Back
	news      []mitigation.News
	random    uint64
	tasks     tasks
	unplaced  queue // to be reported when a node is up
	ending    bool  // Flush was called
	confirmed bool  // and hits have been confirmed since the last sweep
	swept     time.Time
	cleaned   time.Time
	budget    float64 // commands; see perRequest
	stats     machineStats

	peersOff atomic.Bool // blocks of other PoPs are neither told nor learned

	exchanges []*inflight.Exchange // of a Step
	placed    *[]bool              // the health of nodes at the last; nil: all is to be said anew

	exact exactKeeper
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
		Nodes: nodes, config: c, secret: c.Secret, id: c.ID, counters: c.Counters.Reports(), bits: c.Bits,
		peers: peers{Slots: presence.New(c.Secret, c.ID)}, headKey: c.Secret.LogHeadKey(),
		times: make(map[takenFrom]record.Taken), swept: now, cleaned: now, budget: mostSaved,
	}
	m.Operators = operators.New(operators.Config{Secret: c.Secret, ID: c.ID, Name: c.Name, Changes: c.Rules, Counters: c.Counters, Bits: c.Bits,
		Heard: c.Heard, Jitter: m.jitter}, now)
	m.addNodes()
	if c.Edges > 0 {
		m.counters.SetEdges(c.Edges)
	}
	m.newBoard(now)
	m.SetRules(nil)
	return m, nil
}

// SetRules replaces the rules in force. Bits of other rules are not announced and not learned.
func (m *Machine) SetRules(rules []Rule) {
	set := &ruleSet{byID: make(map[uint32]*knownRule, len(rules)), byDigest: make(map[uint64]*knownRule, len(rules)),
		byName: make(map[string][]*knownRule, len(rules))}
	named := make(operators.Rules, len(rules))
	for _, r := range rules {
		if r.Name == "" {
			r.Name = r.Counter.Name
		}
		k := &knownRule{r, m.secret.RuleDigest(r.Counter)}
		set.byID[r.Counter.ID] = k
		set.byDigest[k.digest] = k
		set.byName[r.Name] = append(set.byName[r.Name], k)
		named[r.Name] = append(named[r.Name], &k.Rule)
	}
	m.Operators.SetRules(named) // first: who finds a rule here has its words as well
	m.rules.Store(set)
}

// Event is what happened since the last Step: answers that came. An empty one says that time passed, or that the tables
// have something new.
type Event struct {
	Results []wire.Result
}

// Tick is about how often a Machine is stepped when nothing happens; what it wants at a time StepIn says.
const Tick = 20 * time.Millisecond

const (
	sweepEvery = 100 * time.Millisecond
	cleanEvery = time.Second
)

// Step takes in an event and returns what to send; the slice is valid until the next call. Every command must be answered by
// one Result, whatever happens to it.
func (m *Machine) Step(now time.Time, e Event) []wire.Command {
	m.out = m.out[:0]
	if step := m.counters.Stepped(now); step != 0 {
		m.ClockStepped(step, now)
	}
	for _, left := range m.Nodes.Advance(now) {
		m.giveUp(left, now)
	}
	m.addNodes()
	for i := range e.Results {
		m.answered(&e.Results[i], now)
	}
	m.Nodes.NoteAlone(now)
	m.sendReads(aRead)
	if m.Operators.Apply(now) {
		m.peers.next, m.peers.news = now, true
	}
	m.poll(now)
	m.sweep(now)
	m.readForRequests(now)
	m.tellInFlight(now)
	m.exchangeExact(now)
	m.report(now)
	m.announceBlocks(now)
	m.resume(now)
	m.writeLogs(now)
	return m.out
}

// Flush begins the last report: everything that has not been reported goes, however little it matters. As much of it as may be
// under way is what Flush returns, and Step goes on with the rest, for as long as it is called. Unreported says how much that is.
func (m *Machine) Flush(now time.Time) []wire.Command {
	m.out = m.out[:0]
	m.ending, m.swept = true, now
	m.takeMarks()
	m.depart(now)
	m.counters.Sweep(now, true)
	m.report(now)
	m.announceBlocks(now)
	m.writeLogs(now)
	return m.out
}

// poll asks nodes what nobody but they can tell: whether they are well, what is in their log and their copy of the operators' list, and
// who else is there.
func (m *Machine) poll(now time.Time) {
	for i := range m.nodes {
		n := &m.nodes[i]
		if !m.Nodes.InUse(i) {
			continue
		}
		m.probe(i, now)
		if m.Nodes.IsUp(i) {
			for line := range n.words {
				if c, due := m.Operators.Look(&n.words[line], i, now); due {
					m.sendWords(c, line)
				}
			}
			m.readMarks(i, now)
		}
		m.readLog(i, now)
	}
	m.keepSlot(now)
}

// sweep finds hits that can wait no longer, and forgets what is over. The last report takes as many rounds as a counter's hits need, so
// as long as nodes confirm hits of it, the next round follows.
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
		m.bits.Sweep(now)
		m.Operators.Sweep(now)
		m.noteSecrets(now)
		maps.DeleteFunc(m.times, func(_ takenFrom, taken record.Taken) bool { return now.After(taken.Until) })
	}
}

// Unreported says how many hits the tier has not confirmed, and how many it will never be told of, or may not have been: those that
// were lost since the table was made. It may be called from anywhere.
func (m *Machine) Unreported() (hits, lost uint64) {
	s := m.counters.Stats()
	return s.Unreported, s.LostUnknown + s.LostFull + s.LostExpired + s.LostBacklog + s.LostSaturated + s.LostEvicted
}

// announceBlocks tells the tier of the mitigations that this edge has started. One that has been lifted since is no news, and neither is one of a
// source that was lifted in this very Step: its verdict fell before.
func (m *Machine) announceBlocks(now time.Time) {
	m.news = m.bits.News(m.news[:0])
	for _, n := range m.news {
		if !m.Operators.Settling(n.Key) && !m.bits.Until(n.Key, now).IsZero() {
			m.setBit(n.Key, n.Bit, now)
		}
	}
}

// epoch is the generation of the last lift of a source under a rule (operators.List.Epoch).
func (m *Machine) epoch(rule *algorithm.Rule, source counter.Source) uint64 {
	if !m.Operators.AnyEpoch() {
		return 0
	}
	id := rule.ID
	if known := m.rules.Load().byID[id]; known != nil && known.Of != 0 {
		id = known.Of // all variants have the epoch of their rule
	}
	return m.Operators.Epoch(mitigation.Key{Rule: id, Source: source})
}

// wall is what the wall clock says: by it edges agree on sub-windows, and on what they tell each other.
func (m *Machine) wall(now time.Time) time.Time { return m.counters.Wall(now) }

// ClockStepped takes in that the wall clock has stepped. Step does so by itself where the clock's readings have a monotonic part. What is
// under way is given up: it is counted under the old time.
func (m *Machine) ClockStepped(by time.Duration, now time.Time) {
	for tag := range m.flights {
		f := &m.flights[tag]
		switch f.what {
		case aReport:
			if !f.late {
				m.counters.Lost(f.counter, f.part, now)
			}
			f.what = aDelete // whose answer nobody heeds
		case anEcho:
			f.what = aDelete
		case aRead, aWaitedRead:
			f.what = aStaleRead
		}
	}
	m.counters.Adjust(by, m.Nodes.Up(), now)
	m.placed = nil // edges say what is in flight in other numbers now, one after the other
}

// machineStats is what a Machine has seen.
type machineStats struct {
	propagation histogram.Histogram
	forged      atomic.Uint64
	logRecords  atomic.Uint64
	logLost     atomic.Uint64
	edges       atomic.Int64
}

// MachineStats is what a Machine has seen since it was made.
type MachineStats struct {
	Propagation *histogram.Histogram // from a verdict on another edge until it was in force on this one
	Forged      uint64               // values in the tier that were not of the form, or not authentic
	LogRecords  uint64               // that this edge wrote to the mitigation log
	LogLost     uint64               // that it could not write
	Edges       int                  // that share the tier
	Full        bool                 // the PoP has as many edges as can share it, and this one counts alone until one leaves
	Words       int                  // of operators that the list holds: blocks, lifts that must be kept, changes of rules
}

// Stats may be called from anywhere.
func (m *Machine) Stats() MachineStats {
	return MachineStats{
		Full: m.Nodes.Full(), Words: m.Operators.Len(),
		Propagation: &m.stats.propagation, Forged: m.stats.forged.Load() + m.Operators.Forged(), LogRecords: m.stats.logRecords.Load(), LogLost: m.stats.logLost.Load(),
		Edges: int(max(m.stats.edges.Load(), 1)),
	}
}
