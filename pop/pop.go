// Package pop makes one limiter of the edges of a point of presence: it carries what they count to a small tier of memcached
// nodes, and back what the others have counted.
//
// A source's counters and bits are on one node, chosen by a hash of the source. An edge counts at once, in memory; then it
// reports its new hits with incr, whose answer is the PoP's total, so the report is also the query. What gathers for a
// counter while a report is under way is the next report: a source costs at most one increment per edge and round trip.
// When a total, or an edge's own verdict, says that a source is over its limit, a mitigation bit is set and appended to a
// log that every edge reads forty times a second.
//
// Machine decides all this without sockets, goroutines or clock, in the manner of etcd's raft: Step is told what happened,
// works on the two tables it shares with the request path, and returns what to send. Tier runs a Machine against
// real nodes; a simulation runs the same Machine in virtual time.
package pop

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"sluice/counter"
	"sluice/mitigation"
)

// Config is what a Machine works with. All fields but Edges are required.
type Config struct {
	Nodes    []string // host:port of the memcached nodes; every edge of the PoP must have the same, in any order
	Secret   Secret
	ID       uint64 // of this edge, random
	Edges    int    // how many edges share the tier; 0: learned from their presence
	Counters *counter.Table
	Bits     *mitigation.Table
}

// Rule is what the PoP must know of a rule.
type Rule struct {
	Counter *counter.Rule
	Timeout time.Duration // of a mitigation; 0: the rule throttles and has no bits
}

type knownRule struct {
	Rule
	digest uint64
}

type ruleSet struct {
	byID     map[uint32]*knownRule
	byDigest map[uint64]*knownRule
}

// Machine is the PoP as one edge sees it. Step and Flush belong to one goroutine; SetRules, Ask, Health, Up and Stats may be called
// from anywhere.
type Machine struct {
	config   Config
	secret   Secret
	id       uint64
	counters *counter.Table
	bits     *mitigation.Table
	rules    atomic.Pointer[ruleSet]
	health   atomic.Pointer[[]bool]
	nodes    []node
	presence presence
	logKeys  logKeys
	lifted   map[mitigation.Key]time.Time

	asks    asks
	flights []flight // by tag
	free    []uint64
	out     []Command
	dirty   []counter.Counter
	news    []mitigation.News
	swept   time.Time
	cleaned time.Time
	stats   machineStats
}

// asks are the counters that requests wait for.
type asks struct {
	mu   sync.Mutex
	list []counter.Counter
}

// NewMachine makes a Machine that holds all nodes up until they prove otherwise.
func NewMachine(c Config, now time.Time) (*Machine, error) {
	if len(c.Nodes) == 0 {
		return nil, fmt.Errorf("pop: no memcached node")
	}
	m := &Machine{
		config: c, secret: c.Secret, id: c.ID, counters: c.Counters, bits: c.Bits,
		presence: newPresence(c.Secret), logKeys: logKeys{secret: c.Secret}, lifted: make(map[mitigation.Key]time.Time), swept: now, cleaned: now,
	}
	for _, name := range c.Nodes {
		m.nodes = append(m.nodes, newNode(name, now))
	}
	if c.Edges > 0 {
		m.counters.SetEdges(c.Edges)
	}
	m.SetRules(nil)
	m.publish()
	return m, nil
}

// SetRules replaces the rules in force. Bits of other rules are not announced and not learned.
func (m *Machine) SetRules(rules []Rule) {
	set := &ruleSet{byID: make(map[uint32]*knownRule, len(rules)), byDigest: make(map[uint64]*knownRule, len(rules))}
	for _, r := range rules {
		k := &knownRule{r, m.secret.ruleDigest(r.Counter)}
		set.byID[r.Counter.ID] = k
		set.byDigest[k.digest] = k
	}
	m.rules.Store(set)
}

// Event is what happened since the last Step: answers that came. An empty one says that time passed, or that the tables
// have something new.
type Event struct {
	Results []Result
}

// Tick is how often a Machine must be stepped when nothing happens.
const Tick = 20 * time.Millisecond

const (
	sweepEvery = 100 * time.Millisecond
	cleanEvery = time.Second
)

// Step takes in an event and returns what to send; the slice is valid until the next call. Every command must be answered by
// one Result, whatever happens to it.
func (m *Machine) Step(now time.Time, e Event) []Command {
	m.out = m.out[:0]
	for _, r := range e.Results {
		m.answered(r, now)
	}
	for i := range m.nodes {
		m.probe(i, now)
	}
	m.meet(now)
	if now.Sub(m.swept) >= sweepEvery {
		m.swept = now
		if m.Up() {
			m.counters.Sweep(now, false)
		}
	}
	if now.Sub(m.cleaned) >= cleanEvery {
		m.cleaned = now
		m.bits.Sweep(now)
		for k, at := range m.lifted {
			if now.Sub(at) > 2*logKept {
				delete(m.lifted, k)
			}
		}
	}
	m.ask(now)
	m.report(now)
	m.tell(now)
	m.writeLogs(now)
	return m.out
}

// Flush returns the last report: everything that has not been reported, however little it matters.
func (m *Machine) Flush(now time.Time) []Command {
	m.out = m.out[:0]
	m.counters.Sweep(now, true)
	m.report(now)
	m.tell(now)
	m.writeLogs(now)
	return m.out
}

// report sends what counters have gathered to their nodes.
func (m *Machine) report(now time.Time) {
	m.dirty = m.dirty[:0]
	for i := range m.nodes {
		n := &m.nodes[i]
		m.dirty = append(m.dirty, n.waiting...) // placed anew: the node may have died
		n.waiting = n.waiting[:0]
	}
	m.dirty = m.counters.Dirty(m.dirty)
	for _, c := range m.dirty {
		node := m.place(c.Source)
		if node < 0 {
			continue // it counts here, and is swept up when a node is back
		}
		if n := &m.nodes[node]; n.flying >= maxFlying {
			n.waiting = append(n.waiting, c) // its hits gather; there are no more of them than the table has works
			continue
		}
		rep, ok := m.counters.Take(c, now)
		if !ok {
			continue
		}
		for _, p := range rep.Parts[:rep.N] {
			op := Add
			if p.Heard {
				op = Incr
			}
			m.sendPart(node, op, c, p, 0)
		}
		if rep.Past {
			m.look(node, c, rep.Oldest, rep.Newest-1)
		}
	}
}

// Ask asks the tier about a counter that this edge does not know, because a request waits for the answer
// (counter.Table.Await). It may be called from anywhere; a Step follows it up.
func (m *Machine) Ask(c counter.Counter) {
	m.asks.mu.Lock()
	defer m.asks.mu.Unlock()
	if len(m.asks.list) < maxAsks { // who finds the list full goes on without an answer, as after the longest wait
		m.asks.list = append(m.asks.list, c)
	}
}

const maxAsks = 1 << 14

func (m *Machine) ask(now time.Time) {
	m.asks.mu.Lock()
	m.dirty = append(m.dirty[:0], m.asks.list...)
	m.asks.list = m.asks.list[:0]
	m.asks.mu.Unlock()
	for _, c := range m.dirty {
		if node := m.place(c.Source); node >= 0 {
			oldest, newest := c.Rule.Groups(now, m.secret.Phase(c.Source))
			m.look(node, c, oldest, newest)
		}
	}
}

// look reads what the PoP has counted in some groups of a window, and whether the source is mitigated: other edges may know
// more than this one of a source that it sees for the first time, or again.
func (m *Machine) look(node int, c counter.Counter, oldest, newest uint32) {
	keys := make([]string, 0, 8)
	keys = append(keys, m.secret.bitKey(c))
	for g := newest; ; g-- {
		keys = append(keys, m.secret.counterKey(c, g))
		if g == oldest {
			break
		}
	}
	m.send(Command{Node: node, Op: Get, Report: true, Keys: keys}, flight{what: aLook, counter: c, part: counter.Part{Group: newest}})
}

// sendPart reports a group: incr where the tier is thought to have a number, else add of all that is known, in 20 digits so
// that later increments stay in place.
func (m *Machine) sendPart(node int, op Op, c counter.Counter, p counter.Part, tries int) {
	cmd := Command{Node: node, Op: op, Report: true, Key: m.secret.counterKey(c, p.Group)}
	if op == Incr {
		cmd.Delta = p.Hits
	} else {
		cmd.Value = fmt.Appendf(make([]byte, 0, 20), "%020d", p.Known)
		cmd.Expire = seconds(c.Rule.Lifetime()) + 2
	}
	m.send(cmd, flight{what: aReport, counter: c, part: p, tries: tries})
}

// tell announces the mitigations that this edge has started or lifted.
func (m *Machine) tell(now time.Time) {
	m.news = m.bits.News(m.news[:0])
	for _, n := range m.news {
		m.announce(n, now)
	}
}

// flight is a command that has not been answered, and what for.
type flight struct {
	what    purpose
	node    int
	late    bool // its node was given up meanwhile, and its hits with it
	tries   int
	slot    int
	counter counter.Counter
	part    counter.Part
	record  record
}

type purpose uint8

const (
	landed purpose = iota // no flight
	aReport
	aLook
	aBit
	aBitLook
	aLog
	aDelete
	aProbe
	aPresence
	aRollCall
)

func (m *Machine) send(c Command, f flight) {
	f.node = c.Node
	m.nodes[c.Node].flying++
	if n := len(m.free); n > 0 {
		c.Tag, m.free = m.free[n-1], m.free[:n-1]
		m.flights[c.Tag] = f
	} else {
		c.Tag = uint64(len(m.flights))
		m.flights = append(m.flights, f)
	}
	m.out = append(m.out, c)
}

func (m *Machine) answered(r Result, now time.Time) {
	f := m.flights[r.Tag]
	m.flights[r.Tag] = flight{}
	m.free = append(m.free, r.Tag)
	m.nodes[f.node].flying--
	switch f.what {
	case aReport:
		m.reported(f, r, now)
	case aLook:
		m.looked(f, r, now)
	case aBit:
		m.bitAnswered(f, r, now)
	case aBitLook:
		m.bitLooked(f, r, now)
	case aLog:
		m.logAnswered(f, r, now)
	case aProbe:
		m.probeAnswered(r, now)
	case aPresence:
		m.slotAnswered(f, r)
	case aRollCall:
		m.rollCalled(r, now)
	}
}

// maxFlying is how many commands may be under way to a node before further reports wait for answers: half of what its
// pipeline takes, so that none of the rest is turned away.
const maxFlying = Backlog / 2

// maxTries ends a race between edges that add, and a node that forgets, for a counter. Hits that lose it wait for the next
// report.
const maxTries = 4

func (m *Machine) reported(f flight, r Result, now time.Time) {
	c, p := f.counter, f.part
	if f.late { // already given up; a total is welcome all the same
		if r.Status == Done && r.Op == Incr {
			m.judge(c, m.counters.Read(c, p.Group, r.Number, now), now)
		}
		return
	}
	switch r.Status {
	case Done:
		total := p.Known
		if r.Op == Incr {
			total = r.Number
		}
		m.judge(c, m.counters.Counted(c, p, total, now), now)
	case NotThere:
		if f.tries >= maxTries {
			m.counters.Returned(c, p, now)
			return
		}
		op := Add
		if r.Op == Add {
			op = Incr
		}
		m.sendPart(r.Node, op, c, p, f.tries+1)
	case Unsent:
		if errors.Is(r.Err, ErrNotNumber) { // somebody else wrote it: away with it, and the next report makes it anew
			m.stats.forged.Add(1)
			m.send(Command{Node: r.Node, Op: Delete, Key: r.Key}, flight{what: aDelete})
		}
		m.counters.Returned(c, p, now)
	case Unknown:
		m.counters.Lost(c, p, now)
	}
}

func (m *Machine) looked(f flight, r Result, now time.Time) {
	if r.Status != Done {
		return
	}
	c := f.counter
	if bit := r.Values[0]; bit != nil {
		if rec, ok := m.secret.open(bit); !ok {
			m.stats.forged.Add(1)
		} else if rec.source == c.Source && rec.rule == m.secret.ruleDigest(c.Rule) {
			m.learn(rec, now)
		}
	}
	var groups [8]uint64
	for i, v := range r.Values[1:] {
		total, ok := parseTotal(v)
		if v != nil && !ok {
			m.stats.forged.Add(1)
		}
		groups[i] = total
	}
	m.judge(c, m.counters.Learn(c, f.part.Group, groups[:len(r.Values)-1], now), now)
}

// parseTotal reads a number as memcached keeps it: digits, with spaces behind where a longer number stood.
func parseTotal(v []byte) (n uint64, ok bool) {
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

// judge acts on what a counter says after an answer. If it has come near its limit, or to it, the log tells all edges how it
// stands: they report what they have held back, and even one that has never seen the source knows when to refuse it. If the PoP's total is over the limit, a
// mitigation starts: the requests that made it so went through several edges at once, and none of them saw it.
func (m *Machine) judge(c counter.Counter, standing counter.Standing, now time.Time) {
	if standing.News {
		if node := m.place(c.Source); node >= 0 {
			rec := record{kind: aCount, rule: m.secret.ruleDigest(c.Rule), source: c.Source, start: now}
			rec.newest, rec.groups = m.counters.Snapshot(c, now)
			m.appendLog(node, rec)
		}
	}
	if !standing.Over {
		return
	}
	rule := m.rules.Load().byID[c.Rule.ID]
	if rule == nil || rule.Timeout == 0 {
		return
	}
	key := mitigation.Key{Rule: c.Rule.ID, Source: c.Source}
	if !m.bits.Until(key, now).IsZero() {
		return
	}
	v, _ := m.counters.Peek(c.Rule, c.Source, now)
	end := mitigation.End(v, rule.Timeout, now)
	if end.IsZero() {
		return
	}
	bit := mitigation.Bit{Start: now, End: end, By: mitigation.ByPoP}
	if m.bits.Start(key, bit, now) {
		m.announce(mitigation.News{Key: key, Bit: bit}, now)
	}
}
