// Package marks shows an edge which others use its nodes under another secret. Every name in the
// tier is keyed with the PoP's secret, so edges with different secrets do not see each other: each
// group counts alone, and a source gets its limit once in each. So beside all that is keyed each
// edge leaves a mark on each node, under a name that follows from the PoP's name alone: its ID,
// when it wrote, and a digest of each line of its secret (Secret.Digests, which reveals nothing of
// it). PoPs of other names do not read each other's marks.
//
// Anyone that reaches a node can write marks, so nothing is counted, believed or blocked by them.
// They warn; and Trial holds back, from the start of its process on, an edge that seems to be the
// odd one out. Nothing here does I/O or reads a clock.
//
//	node   64 slots; every two seconds or a little sooner an edge reads those that are filled and some in turn, or for a minute after its
//	       start and after one that it did not know all of them, then fills its own: four commands in three seconds,
//	       per edge and node, at most, whatever requests do
//	alive  who wrote something newer than what was read before, in the last eight seconds: what is merely kept is nobody's mark
package marks

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"sluice/counter"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

const (
	// Every is how often an edge reads the marks of a node, and leaves its own.
	Every = 2 * time.Second
	// Kept is how long a mark stays on a node, and its edge counts as alive.
	Kept = 4 * Every

	slots   = counter.MaxEdges
	maxText = 64
	maxSize = 1024
)

// Mark is what an edge publishes about itself in the open.
type Mark struct {
	ID      uint64   `json:"id"`
	Written int64    `json:"written"` // milliseconds; grows
	Digests []string `json:"secrets"` // of the lines of its secret: it counts under the first
	Name    string   `json:"name"`
	Address string   `json:"address"`
}

// Edge is one that is alive and counts apart from this one.
type Edge struct {
	Mark
	// Rotating says that they have a line of their secrets in common: operators' orders reach both.
	Rotating bool
}

// seen is what was read of an edge.
type seen struct {
	Mark
	began      int64     // Written, as first read
	read, grew time.Time // last, by our clock: when there was a mark, and when it was a new one
}

// Detector is what an edge knows of the marks on all nodes. Secrets may be called from anywhere,
// all else belongs to one goroutine.
type Detector struct {
	Keys string // of all slots of a node, for a Get; "": this edge leaves no marks, and reads none

	keys    []string
	id      uint64
	digests []string
	own     Mark  // this edge's, last
	began   int64 // Mark.Written of its first
	edges   map[uint64]*seen
	nodes   []node
	trial   Trial
	came    time.Time // when an edge was last found that was not known
	secrets atomic.Pointer[Secrets]
}

// node is what is known of the marks on one.
type node struct {
	next time.Time // when to read them again
	own  string    // the key of this edge's; "": it has none
	// Of all slots, as last read; nil: they were not
	values [][]byte
	last   []time.Time // and when each last had something
	turn   int         // of the slots that are read in turn
}

const (
	// inTurn is how many slots are read in turn, beside those that are filled, once an edge has had
	// trialFor to find out who is there, and as long again after each that it finds. Marks only warn.
	inTurn = 4
	// readFor is how long a slot is read after it was filled: the edges of a node that has restarted
	// fill theirs again.
	readFor = 10 * time.Minute
)

// New is for the edge with an ID, of the PoP of that name, whose process begins now. Without a name
// it leaves no marks.
func New(pop string, s secret.Secret, id uint64, now time.Time) *Detector {
	b := &Detector{id: id, digests: s.Digests(), edges: make(map[uint64]*seen),
		trial: Trial{Began: now}, came: now}
	b.secrets.Store(&Secrets{Digests: b.digests})
	if pop == "" {
		return b
	}
	h := sha256.Sum256([]byte("sluice marks\x00" + pop))
	for i := range slots {
		b.keys = append(b.keys, fmt.Sprintf("m%s%02x", base64.RawURLEncoding.EncodeToString(h[:16]),
			i))
	}
	b.Keys = strings.Join(b.keys, " ")
	return b
}

// Read takes in the slots of a node, and returns the key of the one to fill: that of this edge's
// own mark, if it has one, else one that no living edge has. wall is now by the wall clock.
func (b *Detector) Read(values [][]byte, now, wall time.Time) (key string) {
	b.forget(now)
	first := int(b.id % slots) // edges that start together look for room in different slots
	own, free := -1, -1
	for n := range values {
		i := (first + n) % slots
		switch m, ok := open(values[i]); {
		case ok && m.ID == b.id:
			own = i
		case ok && b.take(m, now, wall):
		case free < 0:
			free = i
		}
	}
	switch {
	case own >= 0:
		return b.keys[own]
	case free >= 0:
		return b.keys[free]
	}
	return b.keys[first] // they are all taken, more than can share a tier
}

// take takes in a mark, and reports whether its edge is alive.
func (b *Detector) take(m Mark, now, wall time.Time) bool {
	e := b.edges[m.ID]
	switch {
	case e == nil:
		e = &seen{Mark: m, began: m.Written}
		b.edges[m.ID] = e
		// Else it is old, or its clock is wrong: it is alive once it writes another
		if m.Written >= wall.Add(-Kept).UnixMilli() {
			e.grew = now
		}
	case m.Written > e.Written:
		e.Mark, e.grew = m, now
	}
	e.read = now
	return e.alive(now)
}

func (e *seen) alive(now time.Time) bool { return !e.grew.IsZero() && now.Sub(e.grew) <= Kept }

// forget drops edges whose marks are on no node any more: so there are never more than a few for
// each slot.
func (b *Detector) forget(now time.Time) {
	for id, e := range b.edges {
		if now.Sub(e.read) > Kept {
			delete(b.edges, id)
		}
	}
}

// Own returns this edge's mark.
func (b *Detector) Own(wall time.Time, name, address string) []byte {
	b.own = Mark{b.id, max(b.own.Written+1, wall.UnixMilli()), b.digests, printable(name),
		printable(address)}
	b.began = cmp.Or(b.began, b.own.Written)
	text, _ := json.Marshal(b.own) // it has nothing that JSON lacks
	return text
}

func open(text []byte) (m Mark, ok bool) {
	if text == nil || len(text) > maxSize || json.Unmarshal(text, &m) != nil ||
		len(m.Digests) == 0 || len(m.Digests) > secret.MaxLines {
		return m, false
	}
	for i, d := range m.Digests {
		m.Digests[i] = printable(d)
	}
	m.Name, m.Address = printable(m.Name), printable(m.Address)
	return m, true
}

// printable returns what operators may be shown of text that anyone can write.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text[:min(len(text), maxText)])
}

// location is where an edge runs, by its mark. An edge whose process has been replaced has two
// marks there, of which the older grows no more.
type location struct{ name, address string }

func (m *Mark) location() location { return location{m.Name, m.Address} }

// Apart are the living edges that count under another secret than this one: strangers first, then
// by digest, name and address. Apart leaves out the marks of replaced processes, so that a secret
// that was put right is no longer reported.
func (b *Detector) Apart(now time.Time) (list []Edge) {
	replaced := map[location]int64{b.own.location(): b.began}
	for _, e := range b.edges {
		if e.alive(now) {
			replaced[e.location()] = max(replaced[e.location()], e.began)
		}
	}
	for _, e := range b.edges {
		if !e.alive(now) || e.Digests[0] == b.digests[0] || e.Written < replaced[e.location()] {
			continue
		}
		common := slices.ContainsFunc(e.Digests,
			func(d string) bool { return slices.Contains(b.digests, d) })
		list = append(list, Edge{e.Mark, common})
	}
	slices.SortFunc(list, func(a, b Edge) int {
		if a.Rotating != b.Rotating {
			if a.Rotating {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(a.Digests[0], b.Digests[0]), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Address, b.Address), cmp.Compare(b.Written, a.Written))
	})
	// While a process is being replaced both are there, and are one edge.
	return slices.CompactFunc(list, func(a, b Edge) bool {
		return a.Digests[0] == b.Digests[0] && a.location() == b.location()
	})
}

// Secrets is under which secret an edge counts, and which edges of its PoP count under another, by
// marks that anyone could have written.
type Secrets struct {
	Digests []string // of the lines of this edge's secret: it counts under the first
	Apart   []Edge   // those that are alive; strangers first
	Held    bool     // this edge should get no requests: Trial
}

// Grow makes room for so many nodes.
func (b *Detector) Grow(nodes int) {
	for len(b.nodes) < nodes {
		b.nodes = append(b.nodes, node{})
	}
}

// Look reads the marks on a node, if it is time to: jitter makes that a little sooner than Every.
// None of this counts as caused by requests.
func (b *Detector) Look(i int, jitter func(time.Duration) time.Duration,
	now time.Time) (c wire.Command, due bool) {
	if b.Keys == "" || now.Before(b.nodes[i].next) {
		return c, false
	}
	n := &b.nodes[i]
	keys, late := b.Keys, now.Sub(n.next)
	n.next = now.Add(jitter(Every))
	if n.values != nil && now.Sub(b.came) >= trialFor && late < Kept {
		keys = b.some(n, now)
	}
	return wire.Command{Node: i, Op: wire.Get, Key: keys}, true
}

// some are the keys of slots to read while no edge comes.
func (b *Detector) some(n *node, now time.Time) string {
	var list []string
	for i, key := range b.keys {
		if now.Sub(n.last[i]) < readFor || key == n.own || i/inTurn == n.turn {
			list = append(list, key)
		}
	}
	n.turn = (n.turn + 1) % (slots / inTurn)
	return strings.Join(list, " ")
}

// Looked takes in the answer to a Look, and returns the command that leaves this edge's own mark,
// whose answer is not used.
func (b *Detector) Looked(r *wire.Result, name, address string, now,
	wall time.Time) (c wire.Command, follows bool) {
	if r.Status != wire.Done {
		return c, false
	}
	n := &b.nodes[r.Node]
	if n.values == nil {
		n.values, n.last = make([][]byte, slots), make([]time.Time, slots)
	}
	for i, key := range r.Keys() {
		slot := slices.Index(b.keys, key)
		if n.values[slot] = r.Values[i]; r.Values[i] != nil {
			n.last[slot] = now
		}
	}
	known := len(b.edges)
	key := b.Read(n.values, now, wall)
	if len(b.edges) > known {
		b.came = now
	}
	n.own = key
	return wire.Command{Node: r.Node, Op: wire.Set, Key: key, Value: b.Own(wall, name, address),
		Expire: wire.Seconds(Kept)}, true
}

// Withdraw takes this edge's mark off a node, if there is one.
func (b *Detector) Withdraw(i int) (c wire.Command, due bool) {
	key := b.nodes[i].own
	b.nodes[i].own = ""
	return wire.Command{Node: i, Op: wire.Delete, Key: key}, key != ""
}

// Note takes in how many other edges there are under this edge's secret, for Secrets.
func (b *Detector) Note(met int, now time.Time) {
	if b.Keys == "" {
		return
	}
	s := &Secrets{Digests: b.digests, Apart: b.Apart(now)}
	s.Held = b.trial.Held(met, s.Apart, now)
	b.secrets.Store(s)
}

// Secrets is what the marks say.
func (b *Detector) Secrets() *Secrets { return b.secrets.Load() }

// Trial decides whether an edge should get no requests, because it is the odd one out: it has met
// no other edge under its own secret, and at least two living ones share another. With one stranger
// it is unknown which of the two is wrong, so both warn and serve; so do all where each has a
// secret of its own.
//
// A process is on trial for its first minute, until it has met another edge under its secret
// (presence, which is authentic; of another name, because its own process before it is no company).
// An edge that is held back stays so until it meets one, or the strangers are gone. After that
// marks hold back nothing, for as long as the process lives, because anyone that reaches a node can
// forge them. A secret is read at the start alone, so an edge that was right stays right.
//
// So an attacker that can write to the nodes cannot take an edge out of service. At worst he keeps
// out one that starts meanwhile, for as long as he goes on, if it is the only one, or if he also
// deletes what the others say of themselves as fast as they say it.
type Trial struct {
	Began time.Time // the process

	over bool
}

// trialFor is so long that an edge with a wrong secret has read the others' marks several times.
const trialFor = time.Minute

// Held takes in how many other edges have been met under this edge's secret, and which count apart.
func (t *Trial) Held(met int, apart []Edge, now time.Time) bool {
	if t.over = t.over || met > 0; t.over {
		return false
	}
	held, same := false, make(map[string]int)
	for _, e := range apart {
		if e.Rotating {
			continue
		}
		same[e.Digests[0]]++
		held = held || same[e.Digests[0]] >= 2
	}
	t.over = !held && now.Sub(t.Began) >= trialFor
	return held
}
