package pop

import (
	"encoding/binary"
	"strings"
	"time"

	"sluice/counter"
	"sluice/pop/secret"
	"sluice/pop/words"
)

// Edges learn from slots who shares the tier: each keeps one filled, for as long as it lives. There are as many as edges can share
// counters; an edge that finds none free counts alone until there is one, and disturbs nobody.
const (
	slots         = counter.MaxEdges
	presenceEvery = time.Second
	presenceHasty = 100 * time.Millisecond // while this edge waits for a slot, or for others to have a word of its operators
	presenceKept  = 4 * time.Second
	edgesHold     = 10 * time.Second // a number once seen is believed so long: a lost node must not halve it
	wordsWait     = 3 * time.Second  // how long operators wait
	maxName       = 64
)

type presence struct {
	slot     int // ours, or -1
	full     bool
	held     bool // a slot was ours once
	keys     []string
	all      string // keys, for a Get
	next     time.Time
	told     time.Time // when our slot was last filled
	sequence uint64    // of what we say: each presence has a higher one
	peers    map[uint64]peer
	room     time.Time // since when there has been a free slot, while full
	edges    int
	highest  int
	highTime time.Time
}

// present is what an edge says of itself.
type present struct {
	id       uint64
	sequence uint64
	name     string
	marks    []words.Mark // of the operators' list that it has put into force
}

// peer is what this edge has heard of another. What was recorded and is said once more does not count: the number must grow.
type peer struct {
	present
	heard time.Time // when it last said something new
}

func newPresence(s secret.Secret) presence {
	p := presence{slot: -1, keys: make([]string, slots), peers: make(map[uint64]peer)}
	for i := range p.keys {
		p.keys[i] = s.SlotKey(i)
	}
	p.all = strings.Join(p.keys, " ")
	return p
}

func (p present) seal(s secret.Secret) []byte {
	name := p.name[:min(len(p.name), maxName)]
	b := binary.BigEndian.AppendUint64(nil, p.id)
	b = binary.BigEndian.AppendUint64(b, p.sequence)
	b = append(append(b, byte(len(name))), name...)
	for _, k := range p.marks {
		b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, k.Edge), k.Generation)
	}
	return s.Seal(secret.Presence, b)
}

func openPresent(s secret.Secret, b []byte) (p present, ok bool) {
	if len(b) > 17+maxName+16*words.MaxMarks+secret.MACSize {
		return p, false
	}
	in, ok := s.Open(secret.Presence, b)
	if !ok {
		return p, false
	}
	p.id, p.sequence = in.Number(8), in.Number(8)
	p.name = string(in.Next(int(in.Number(1))))
	for in.More() {
		p.marks = append(p.marks, words.Mark{Edge: in.Number(8), Generation: in.Number(8)})
	}
	return p, !in.Bad()
}

// keepSlot says that this edge is there and asks who else is. All edges do so on the same node.
func (m *Machine) keepSlot(now time.Time) {
	p := &m.presence
	if now.Before(p.next) {
		return
	}
	p.next = now.Add(presenceEvery)
	if p.slot < 0 && !p.full || m.awaited(now) {
		p.next = now.Add(presenceHasty)
	}
	node := m.placeFixed()
	if node < 0 {
		return
	}
	if p.slot >= 0 && (now.Sub(p.told) >= presenceEvery/2 || m.operators.news) {
		p.told, m.operators.news = now, false
		m.send(Command{Node: node, Op: Set, Key: p.keys[p.slot], Value: m.self(now), Expire: seconds(presenceKept)}, flight{what: aPresence})
	}
	m.send(Command{Node: node, Op: Get, Key: p.all}, flight{what: aSlotsRead})
}

// self is what this edge says of itself.
func (m *Machine) self(now time.Time) []byte {
	p := &m.presence
	p.sequence = max(p.sequence+1, uint64(max(now.UnixMilli(), 0)))
	return present{m.id, p.sequence, m.name(), m.operators.applied}.seal(m.secret)
}

// awaited reports whether operators may be waiting for others to have a word that was said here.
func (m *Machine) awaited(now time.Time) bool {
	m.operators.mu.Lock()
	defer m.operators.mu.Unlock()
	return !m.operators.latest.IsZero() && now.Sub(m.operators.latest) < wordsWait
}

// placeFixed is the node that everybody agrees on for what belongs to no source.
func (m *Machine) placeFixed() int {
	best := -1
	for i := range m.nodes {
		if n := &m.nodes[i]; n.up && n.role&current != 0 && (best < 0 || n.hash > m.nodes[best].hash) {
			best = i
		}
	}
	return best
}

// slotsRead counts the edges and takes a free slot if this one has none, or lost it to another. A slot whose edge does not say
// anything new or has another one, or that somebody has filled who is no edge of the PoP, is free.
func (m *Machine) slotsRead(r *Result, now time.Time) {
	if r.Status != Done {
		return
	}
	p := &m.presence
	ours, free, seen := false, make([]int, 0, slots), make(map[uint64]bool)
	for i, v := range r.Values {
		e, ok := openPresent(m.secret, v)
		if v != nil && !ok {
			m.stats.forged.Add(1)
		}
		switch {
		case ok && e.id == m.id:
			ours = ours || i == p.slot
			continue
		case ok:
			if known, there := p.peers[e.id]; there && e.sequence > known.sequence || !there && m.recent(e.sequence, now) {
				p.peers[e.id] = peer{e, now}
			}
			known, there := p.peers[e.id]
			ok = there && now.Sub(known.heard) < presenceKept && !seen[e.id]
			seen[e.id] = true
		}
		if !ok {
			free = append(free, i)
		}
	}
	if !ours && p.slot >= 0 && r.Values[p.slot] != nil {
		p.slot = -1 // taken by another; an empty one is filled again
	}
	for id, e := range p.peers {
		if now.Sub(e.heard) >= presenceKept {
			delete(p.peers, id)
		}
	}
	m.takeSlot(r, free, now)
	p.edges = len(p.peers) + 1
	if p.edges >= p.highest || now.Sub(p.highTime) > edgesHold {
		p.highest, p.highTime = p.edges, now
	}
	m.stats.edges.Store(int64(min(p.highest, slots)))
	if m.config.Edges == 0 {
		m.counters.SetEdges(p.highest)
	}
	m.publishOthers()
}

// recent reports whether a sequence number, which goes on with the clock, is of now and not one that somebody has kept of an edge that is gone.
func (m *Machine) recent(sequence uint64, now time.Time) bool {
	return int64(sequence) >= m.wall(now).Add(-2*presenceKept).UnixMilli()
}

// takeSlot takes one of the free slots, if this edge needs one. An edge that has found the PoP full lets others go first that only have
// to come back to theirs, because their node was lost: it waits until there has been room for a while.
func (m *Machine) takeSlot(r *Result, free []int, now time.Time) {
	p := &m.presence
	if p.slot >= 0 {
		return
	}
	if len(free) == 0 {
		p.room = time.Time{}
		m.setFull(!p.held)
		return
	}
	if p.full {
		if p.room.IsZero() {
			p.room = now
		}
		if now.Sub(p.room) < edgesHold {
			return
		}
	}
	m.random++
	slot := free[mix(m.id^m.random)%uint64(len(free))] // not all the same one
	c := Command{Node: r.Node, Op: Add, Key: p.keys[slot], Value: m.self(now), Expire: seconds(presenceKept)}
	if r.Values[slot] != nil {
		c.Op = Set // whoever takes it at the same time finds out by the next reading of the slots
	}
	m.send(c, flight{what: aPresence, slot: uint8(slot), takes: true})
}

// slotAnswered keeps a slot that was free.
func (m *Machine) slotAnswered(f flight, r *Result, now time.Time) {
	p := &m.presence
	if !f.takes || p.slot >= 0 {
		return
	}
	if r.Status != Done {
		p.next = now
		return
	}
	p.slot, p.told, p.held = int(f.slot), now, true
	m.setFull(false)
}

// setFull begins or ends counting alone.
func (m *Machine) setFull(full bool) {
	p := &m.presence
	if full == p.full {
		return
	}
	p.full, p.room = full, time.Time{}
	m.stats.full.Store(full)
	m.moved = true // what waits has another place now
}

// publishOthers lets Spread know who is there.
func (m *Machine) publishOthers() {
	o := &m.operators
	o.mu.Lock()
	defer o.mu.Unlock()
	o.others = o.others[:0]
	for id, e := range m.presence.peers {
		name := e.name
		if name == "" {
			name = hexID(id)
		}
		o.others = append(o.others, other{name, e.marks})
	}
}
