// Package presence finds out which edges share a tier. There are as many slots in it as edges can
// share counters; each edge keeps one filled, for as long as it lives, with what it publishes about
// itself. An edge that finds none free counts alone until there is one, and does not disturb the
// others. All edges meet at one node (placement.Nodes.Fixed), where each fills its slot and reads
// all of them about once a second: Keep returns what to send; Slots.Answered and Slots.Taken take
// in the answers. Nothing here does I/O or reads a clock.
package presence

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"sluice/counter"
	"sluice/counter/member"
	"sluice/pop/operatorlog"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

// Kept is how long a slot stays filled.
const Kept = 4 * time.Second

// keptAlone is how long that of an edge without others does: nobody else could tell the one after
// it which time it had.
const keptAlone = time.Minute

// keptEnded is how long the last presence of an edge does: longer than a round (Slots.some).
const keptEnded = 3 * Kept

// ClocksApart is how far edges' times may be apart: what all that they compare tolerates.
const ClocksApart = 2 * time.Second

const (
	slots = counter.MaxEdges
	// A number once seen is believed so long: a lost node must not halve it
	hold    = 10 * time.Second
	near    = 3                // the free slots of which an edge takes one
	inTurn  = 2                // free slots that are read in turn
	atOnce  = 13               // slots that are read together, unless an edge comes
	readFor = 10 * time.Minute // as long as a slot is read after it was filled
	maxName = 64
	maxSize = 8 + 8 + 1 + 3*(1+maxName) + 4*8 + 2*1 + 16*(operatorlog.MaxMarks+MaxRefused) +
		secret.MACSize
)

// Edge is what an edge publishes about itself.
type Edge struct {
	ID       uint64
	sequence uint64 // each presence has a higher one
	Name     string
	Marks    []operatorlog.Mark // of the operators' list that it has put into force
	// Of these what it could not: changes of rules that it does not understand, MaxRefused at most
	Refused []operatorlog.Mark
	Ends    bool // it has stopped deciding: its last presence
	member.About
}

// MaxRefused is how many refused changes an edge publishes, the newest.
const MaxRefused = 8

// peer is what this edge has learned of another. What was recorded and is said once more does not
// count: the sequence number must grow.
type peer struct {
	Edge
	slot     int       // where it last said something new: its own
	received time.Time // and when
}

// alive reports whether the edge counts as there, as its slot was when last read: of a large PoP that
// is not with each read, and an answer may be lost.
func (p *Slots) alive(e *peer) bool {
	return !e.Ends && p.looked[e.slot].Sub(e.received) < Kept
}

// Slots is what an edge knows of the slots.
type Slots struct {
	Keys string // of all slots, and of what is read with them, for a Get of all
	// View is what says that somebody looks at the whole PoP, as last read; nil: nobody does. It is
	// read with the slots, so it costs no command.
	View []byte

	// Wall is the time that edges agree by, which each presence tells. It never goes back.
	Wall func(now time.Time) time.Time

	secret   secret.Secret
	id       uint64
	keys     []string
	index    map[string]int // of keys
	viewKey  string
	node     int       // where they were
	heard    time.Time // when an answer last came
	came     time.Time // when an edge was last found that was not known
	turn     int       // of the free slots that are read in turn
	after    int       // the filled slot that was read last in turn
	slot     int       // ours, or -1
	full     bool
	held     bool // a slot was ours once, or is of the process that this one replaces
	taken    bool // this edge has taken a slot that was another's, and not read since whose it is
	sequence uint64
	peers    map[uint64]*peer
	read     []*peer     // the edges whose presence is in the slots, as last read
	free     []int       // as last read
	filled   []bool      // all of them: with something
	last     []time.Time // and when each last had something,
	looked   []time.Time // and was last read
	room     time.Time   // since when there has been a free slot, while full
	highest  int
	highTime time.Time

	next    time.Time // when the slots are read again
	spoke   time.Time // when our slot was last filled
	changed bool      // what this edge publishes has, since
	// By how much the latest time in the slots was ahead of this edge's; 0: it was not
	ahead time.Duration
	first bool // they were read for the first time
	ours  bool // this edge's slot has what it has written
	// By Overdue, and until it reports something this edge need not know which edges there are
	idle bool
}

// New is for the edge with an ID.
func New(s secret.Secret, id uint64) Slots {
	p := Slots{secret: s, id: id, slot: -1, keys: make([]string, slots),
		Wall: func(now time.Time) time.Time { return now }, read: make([]*peer,
			slots), filled: make([]bool, slots), last: make([]time.Time, slots),
		looked: make([]time.Time, slots), peers: make(map[uint64]*peer)}
	for i := range p.keys {
		p.keys[i] = s.SlotKey(i)
	}
	p.viewKey, p.index = s.ViewKey(), make(map[string]int)
	for i, key := range p.keys {
		p.index[key] = i
	}
	p.Keys = strings.Join(p.keys, " ") + " " + p.viewKey
	return p
}

// Key is that of this edge's slot; "": it has none.
func (p *Slots) Key() string {
	if p.slot < 0 {
		return ""
	}
	return p.keys[p.slot]
}

// PoP names the slots: edges of another PoP, or under another secret, have others.
func (p *Slots) PoP() string { return p.keys[0] }

// Member reports whether this edge has a slot, or had one: it counts together with the others, also
// while it finds none free.
func (p *Slots) Member() bool { return p.held || p.slot >= 0 }

// Succeed makes this edge a member from the start: the process that it replaces is one, and leaves
// it its place by its end. Until then 65 processes may report. That is one more than a lane has
// room for if each adds 256 hits of a source to it at once (package lanes), which is over any
// limit.
func (p *Slots) Succeed() { p.held = true }

// Full reports whether all slots are others', so that this edge counts alone.
func (p *Slots) Full() bool { return p.full }

// Highest is how many edges there have been lately, this one included; 0 before the slots were
// read.
func (p *Slots) Highest() int { return p.highest }

// Others calls f with each other edge.
func (p *Slots) Others(f func(Edge)) {
	for _, e := range p.peers {
		if !e.Ends {
			f(e.Edge)
		}
	}
}

// Ended reports whether an edge has said lately that it ends.
func (p *Slots) Ended(id uint64) bool {
	e := p.peers[id]
	return e != nil && e.Ends
}

// Encode returns the value for the slot.
func (p *Slots) Encode(now time.Time, e Edge) []byte {
	p.sequence = max(p.sequence+1, uint64(max(p.Wall(now).UnixMilli(), 0)))
	size, texts := 64+16*(len(e.Marks)+len(e.Refused))+secret.MACSize, [...]string{e.Name,
		e.Address, e.Version}
	for i, text := range texts {
		texts[i] = text[:min(len(text), maxName)]
		size += len(texts[i])
	}
	b := binary.BigEndian.AppendUint64(make([]byte, 0, size), p.id)
	b = append(binary.BigEndian.AppendUint64(b, p.sequence), flag(e.Ends))
	for _, text := range texts {
		b = append(append(b, byte(len(text))), text...)
	}
	b = secret.AppendTime(secret.AppendTime(b, e.Started), e.Since)
	b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, e.ConfigHash), e.Generation)
	for _, marks := range [][]operatorlog.Mark{e.Marks, e.Refused} {
		b = append(b, byte(len(marks)))
		for _, k := range marks {
			b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, k.Edge),
				k.Generation)
		}
	}
	return p.secret.Seal(secret.Presence, b)
}

func flag(is bool) byte {
	if is {
		return 1
	}
	return 0
}

func (p *Slots) open(b []byte) (e Edge, ok bool) {
	if len(b) > maxSize {
		return e, false
	}
	in, ok := p.secret.Open(secret.Presence, b)
	if !ok {
		return e, false
	}
	e.ID, e.sequence, e.Ends = in.Number(8), in.Number(8), in.Number(1) == 1
	for _, text := range []*string{&e.Name, &e.Address, &e.Version} {
		*text = string(in.Next(int(in.Number(1))))
	}
	e.Started, e.Since = in.Time(), in.Time()
	e.ConfigHash, e.Generation = in.Number(8), in.Number(8)
	for _, marks := range []*[]operatorlog.Mark{&e.Marks, &e.Refused} {
		for range in.Number(1) {
			*marks = append(*marks, operatorlog.Mark{Edge: in.Number(8), Generation: in.Number(8)})
		}
	}
	return e, in.Whole()
}

// Read takes in what is in all slots, and returns how many hold what no edge of the PoP has
// written. wall is now by the wall clock.
func (p *Slots) Read(values [][]byte, now, wall time.Time) (forged int) {
	p.begin()
	for i, v := range values {
		if p.take(i, v, now, wall) {
			forged++
		}
	}
	p.end(now)
	return forged
}

func (p *Slots) begin() { p.ahead, p.first, p.ours = 0, p.highest == 0, false }

// take takes in what is in one slot, and reports whether no edge of the PoP has written it.
func (p *Slots) take(i int, v []byte, now, wall time.Time) (forged bool) {
	p.filled[i], p.read[i], p.looked[i] = v != nil, nil, now
	if v == nil {
		return false
	}
	p.last[i] = now
	e, ok := p.open(v)
	if !ok {
		return true
	}
	if e.ID == p.id {
		p.ours = p.ours || i == p.slot
		return false
	}
	// An old copy is behind, so it changes nothing
	p.ahead = max(p.ahead, time.UnixMilli(int64(e.sequence)).Sub(wall))
	// A sequence number goes on with the clock; one that is behind is an old copy of an edge that is
	// gone.
	recent := int64(e.sequence) >= wall.Add(-2*Kept).UnixMilli()
	known := p.peers[e.ID]
	switch {
	case known != nil && e.sequence > known.sequence:
		if e.Ends && !known.Ends {
			p.highest-- // it is not lost: its share falls to the others at once
		}
		known.Edge, known.slot, known.received = e, i, now
	case known == nil && recent:
		known = &peer{e, i, now}
		p.peers[e.ID], p.came = known, now
	}
	p.read[i] = known
	return false
}

// end takes in that all of a read were taken. A slot is free if its edge writes nothing new or has
// another one, or if no edge of the PoP has filled it.
func (p *Slots) end(now time.Time) {
	ours := p.ours
	p.free = p.free[:0]
	for i, e := range p.read { // once all are read: an old copy may come before the new one
		if taken := ours && i == p.slot || e != nil && e.slot == i && p.alive(e); !taken {
			p.free = append(p.free, i)
		}
	}
	p.held, p.taken = p.held || ours, false
	if !ours && p.slot >= 0 {
		if e := p.read[p.slot]; e != nil && e.slot == p.slot && p.alive(e) {
			p.slot = -1 // taken by another; one that is empty, or has garbage, is filled again
		}
	}
	edges := 1
	for id, e := range p.peers {
		switch {
		case p.alive(e):
			edges++
		// An edge that has ended is remembered for longer than an old copy of it counts as recent
		case !e.Ends || now.Sub(e.received) > 3*Kept:
			delete(p.peers, id)
		}
	}
	if edges >= p.highest || now.Sub(p.highTime) > hold {
		p.highest, p.highTime = edges, now
	}
}

// Behind is by how much this edge is to put its time forward, after the slots were read. An edge
// that begins goes to the latest time that was told, be it of an edge that is gone, so that it
// dates no hit into a time that was counted already; and no further, or edges that begin one after
// the other would go on and on. Later it goes where others are, within half the time between two
// presences, unless ClocksApart covers that.
func (p *Slots) Behind() time.Duration {
	if p.first {
		return p.ahead
	}
	if by := p.ahead + every/2; by >= ClocksApart {
		return by
	}
	return 0
}

// Choose returns which slot to fill, if this edge needs one and may have one, and whether it is
// empty. random keeps edges from choosing the same. An edge that has found the PoP full lets others
// go first that only have to come back to theirs, because their node was lost: it waits until there
// has been room for a while. To the slot of an edge that has said that it ends nobody comes back:
// the process that replaces it, by the same name, takes it at once, and others two reads later.
func (p *Slots) Choose(name string, random uint64,
	now time.Time) (slot int, key string, empty, ok bool) {
	switch {
	case p.slot >= 0:
		return 0, "", false, false
	case len(p.free) == 0:
		p.full, p.room = !p.held, time.Time{}
		return 0, "", false, false
	case p.full && p.room.IsZero():
		p.room = now
	}
	for i := range p.free { // from a random one on, because all who wait may take one now
		slot := p.free[(uint64(i)+random)%uint64(len(p.free))]
		if e := p.read[slot]; p.full && e != nil && e.slot == slot && e.Ends && (e.Name == name ||
			now.Sub(p.room) >= 2*every) {
			return slot, p.keys[slot], false, true
		}
	}
	if p.full && now.Sub(p.room) < hold {
		return 0, "", false, false
	}
	slot = p.free[random%uint64(min(len(p.free), near))] // where others look for it
	return slot, p.keys[slot], !p.filled[slot], true
}

// Take notes that a slot is filled. Another edge may have done the same: whose it is the next read
// says.
func (p *Slots) Take(slot int) { p.slot, p.full, p.room = slot, false, time.Time{} }

const (
	every = time.Second
	// While this edge waits for a slot, or for others to have what was said here
	hasty = 100 * time.Millisecond
)

// Due reports whether it is time to Keep.
func (p *Slots) Due(now time.Time) bool { return !now.Before(p.next) }

// Keep reads the others' slots at the node where edges meet, and writes this edge's. awaited says
// that a request waits for the answer. Below 0 there is no node, and nothing to send.
//
// While no edge comes and nobody looks, and unless it was held up itself, it reads the slots that are filled or were
// lately (of a large PoP a part with each read), those that the next edge takes one of, and a few
// others in turn, because an edge of an older version may take any. A slot that is empty now may be
// an edge's all the same: the node has restarted, or the edge was held up.
func (p *Slots) Keep(node int, self Edge, awaited bool, now time.Time) (list []wire.Command) {
	p.next, p.idle = now.Add(every), false
	if p.Key() == "" && !p.full || awaited {
		p.next = now.Add(hasty)
	}
	if node < 0 {
		return nil
	}
	keys := p.Keys
	if p.Key() != "" && !p.taken && !awaited && p.View == nil && node == p.node && now.Sub(p.came) >= hold &&
		now.Sub(p.heard) < Kept {
		keys = p.some(now)
	}
	p.node = node
	// First the slots are read, and then this edge's is filled: two edges that took one slot, because
	// the node had restarted, would each find what it has just written
	list = append(list, wire.Command{Node: node, Op: wire.Get, Key: keys})
	if p.Key() != "" && !p.taken && (now.Sub(p.spoke) >= every/2 || p.changed) {
		p.spoke, p.changed = now, false
		list = append(list, p.Fill(node, self, now))
	}
	return list
}

// some are the keys of slots to read while no edge comes. A large PoP has more that are filled than
// are read at once.
func (p *Slots) some(now time.Time) string {
	var b strings.Builder
	write := func(slot int) { b.WriteString(p.keys[slot]); b.WriteByte(' ') }
	var filled []int
	write(p.slot)
	free, few := 0, 1
	for i := range slots {
		switch {
		case i == p.slot:
		case now.Sub(p.last[i]) < readFor:
			filled = append(filled, i)
		case free < near, i/inTurn == p.turn:
			write(i)
			free, few = free+1, few+1
		}
	}
	p.turn = (p.turn + 1) % (slots / inTurn)
	first, _ := slices.BinarySearch(filled, p.after+1)
	for i := range min(atOnce-few, len(filled)) {
		p.after = filled[(first+i)%len(filled)]
		write(p.after)
	}
	b.WriteString(p.viewKey)
	return b.String()
}

// Hasty reports whether the slots are to be read sooner than usual: this edge has none yet, or what it
// publishes has changed.
func (p *Slots) Hasty() bool { return p.changed || p.taken || p.Key() == "" && !p.full }

// Fill is the command that fills this edge's slot.
func (p *Slots) Fill(node int, self Edge, now time.Time) wire.Command {
	return p.fill(node, wire.Set, p.Key(), self, now)
}

func (p *Slots) fill(node int, op wire.Op, key string, self Edge, now time.Time) wire.Command {
	kept := Kept
	switch {
	case p.highest == 1:
		kept = keptAlone
	case self.Ends:
		kept = keptEnded
	}
	return wire.Command{Node: node, Op: op, Key: key, Value: p.Encode(now, self),
		Expire: wire.Seconds(kept)}
}

// Overdue reports whether this edge's slot should have been filled some time ago, because Keep was
// not called; then it is to be filled. The slots are read when this edge next reports something
// (Wake).
func (p *Slots) Overdue(late time.Duration, now time.Time) bool {
	if p.Key() == "" || now.Sub(p.spoke) < every+late {
		return false
	}
	p.spoke, p.next, p.idle = now, now.Add(every), true
	return true
}

// Wake reports whether the slots have not been read for a while because nothing happened; it makes
// Keep due.
func (p *Slots) Wake(now time.Time) bool {
	if p.idle {
		p.next = now
	}
	return p.idle
}

// Changed notes that what this edge publishes has changed; it makes Keep due.
func (p *Slots) Changed(now time.Time) { p.next, p.changed = now, true }

// Answered takes in what is in the slots, and returns the command that takes a free one, if this
// edge needs one and may have it; Taken takes in the outcome. forged is how many slots hold what no
// edge of the PoP has written.
func (p *Slots) Answered(r *wire.Result, self Edge, random uint64, now,
	wall time.Time) (c wire.Command, slot int, takes bool, forged int) {
	if p.heard = now; p.came.IsZero() {
		p.came = now
	}
	p.begin()
	for i, key := range r.Keys() {
		if slot, is := p.index[key]; !is {
			p.View = r.Values[i]
		} else if p.take(slot, r.Values[i], now, wall) {
			forged++
		}
	}
	p.end(now)
	slot, key, empty, takes := p.Choose(self.Name, random, now)
	if takes {
		op := wire.Add
		if !empty {
			// Another edge that takes it at the same time notices with the next read, before either
			// fills it again
			op, p.taken = wire.Set, true
			if soon := now.Add(hasty); soon.Before(p.next) {
				p.next = soon
			}
		}
		c = p.fill(r.Node, op, key, self, now)
	}
	return c, slot, takes, forged
}

// Taken takes in whether a slot that was free is this edge's now.
func (p *Slots) Taken(slot int, ok bool, now time.Time) {
	switch {
	case p.Key() != "":
	case !ok:
		p.next = now
	default:
		p.Take(slot)
		p.spoke = now
	}
}

// Met is how many other edges there are, but for one of a name: an edge's own process before it is
// no company.
func (p *Slots) Met(but string) (n int) {
	p.Others(func(e Edge) {
		if e.Name != but {
			n++
		}
	})
	return n
}
