// Package events keeps what has happened at an edge lately, for operators: which sources were
// blocked and why, what operators did and from where, which nodes went and came, what was reloaded.
//
// Events are kept in rings of a fixed size, the oldest go first. Kinds that clients can cause
// without end (Block, Lift, Warning) have a separate ring, so that an attack pushes out nothing
// else, and are sampled: at most Rate of each in a second are kept and passed on, and the next one
// has the number of those that were not. What operators do is never sampled. All of them are
// counted.
package events

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Kind is the kind of an event.
type Kind string

// The kinds of events.
const (
	Block Kind = "block" // the limiter started to mitigate a source
	// A mitigation ended before its time, without an operator's word
	Lift Kind = "lift"
	// An operator did something: a block, a lift, a rule, a list, a reload
	Operator Kind = "operator"
	// A rule changed on this edge, because another edge of the PoP said so
	Rule        Kind = "rule"
	Node        Kind = "node"        // a node of the tier went or came
	Tier        Kind = "tier"        // the edge counts alone, or with the PoP again
	Edge        Kind = "edge"        // another edge of the PoP went or came
	Etcd        Kind = "etcd"        // etcd went or came, or has what cannot be read
	Peer        Kind = "peer"        // blocks cannot be sent to another PoP, or can be again
	Reload      Kind = "reload"      // the configuration was read again, or could not be
	Certificate Kind = "certificate" // a certificate was read again, could not be, or ends soon
	List        Kind = "list"        // a named list of addresses has changed, or cannot be read
	// A database of countries or autonomous systems was read again, or could not be
	Geo     Kind = "geo"
	Origin  Kind = "origin"  // a server of an origin went or came
	Warning Kind = "warning" // what an operator should look at
	Process Kind = "process" // start, drain, in-place upgrade, stop
)

// Kinds lists every kind, in the order of their declaration.
func Kinds() []Kind {
	return []Kind{Block, Lift, Operator, Rule, Node, Tier, Edge, Etcd, Peer, Reload, Certificate,
		List, Geo, Origin, Warning, Process}
}

// Rate is how many events of a sampled kind are kept in a second.
const Rate = 10

// Event is one thing that has happened. Fields that do not apply are left out.
type Event struct {
	Number uint64     `json:"number"` // counts up by one; set by Add
	Time   time.Time  `json:"time"`
	Kind   Kind       `json:"kind"`
	Level  slog.Level `json:"level"`            // as in the log; the zero value is INFO
	Text   string     `json:"text"`             // a sentence for people
	Rule   string     `json:"rule,omitempty"`   // the rule's name
	Source string     `json:"source,omitempty"` // as counter.Source writes it, or a prefix
	// Of an operator: the name that was given, unchecked
	Who string `json:"who,omitempty"`
	// Of an operator: the address he came from, or the edge he spoke to
	From string `json:"from,omitempty"`
	Old  string `json:"old,omitempty"` // what was, of a change
	New  string `json:"new,omitempty"` // what is
	// Of a block: what the source had in the window,
	Estimate float64   `json:"estimate,omitempty"`
	Limit    uint32    `json:"limit,omitempty"` // of so many,
	Until    time.Time `json:"until,omitzero"`  // and when it ends
	// Events of this kind before it that were not kept
	Skipped uint64 `json:"skipped,omitempty"`
	// Of a block of who is counted by a key: its first characters, where the rule shows them
	KeyStart string `json:"key_start,omitempty"`
	// Of a block: which of the rule's limits, where it has several; none: the first
	Policy string `json:"policy,omitempty"`
	// Of a block by this edge: what the request came by that brought it on
	Protocol string  `json:"protocol,omitempty"`
	Changed  []Field `json:"changed,omitempty"` // of a change: which fields
}

// Field is one that has changed.
type Field struct {
	Field string `json:"field"` // by its name in the file, as match.path
	From  string `json:"from"`  // "": there was none, or the default
	To    string `json:"to"`    // "": there is none, or the default
}

// sampled are the kinds that clients can cause.
func (k Kind) sampled() bool { return k == Block || k == Lift || k == Warning }

// A Log keeps the latest events. It is safe for concurrent use. A nil Log keeps nothing.
type Log struct {
	notify func(Event)

	mu     sync.Mutex
	rings  [2]ring // of kinds that are sampled, and of the others
	last   uint64  // number of the newest; 0: none yet
	counts map[Kind]*count
}

// A ring is the latest events; the nth that was added is at n % len.
type ring struct {
	events []Event
	added  uint64
}

func (r *ring) add(e Event) {
	r.events[r.added%uint64(len(r.events))] = e
	r.added++
}

// since appends the events after the one of the given number, the newest first.
func (r *ring) since(number uint64, to []Event) []Event {
	for n := r.added; n > 0 && n+uint64(len(r.events)) > r.added; n-- {
		e := r.events[(n-1)%uint64(len(r.events))]
		if e.Number <= number {
			break
		}
		to = append(to, e)
	}
	return to
}

type count struct {
	total, skipped uint64
	second         int64 // the last one in which an event was kept
	kept           int   // and how many were
}

// New makes a Log of the latest size events of kinds that clients cause, and as many others. If
// notify is not nil it is called with each event that is kept, in order; it must not block or call
// the Log.
func New(size int, notify func(Event)) *Log {
	l := &Log{notify: notify, rings: [2]ring{{events: make([]Event, size)},
		{events: make([]Event, size)}}, counts: make(map[Kind]*count)}
	for _, k := range Kinds() {
		l.counts[k] = new(count)
	}
	return l
}

// Add keeps an event, or counts it only, if it is of a sampled kind and its second is full. e.Time
// must be set.
func (l *Log) Add(e Event) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counts[e.Kind]
	if c == nil {
		panic("events: no such kind: " + string(e.Kind))
	}
	c.total++
	if e.Kind.sampled() {
		if !c.room(e.Time) {
			c.skipped++
			return
		}
		c.kept++
		e.Skipped, c.skipped = c.skipped, 0
	}
	l.last++
	e.Number = l.last
	l.ringOf(e.Kind).add(e)
	if l.notify != nil {
		l.notify(e)
	}
}

// room reports whether one more may be kept in the second of t.
func (c *count) room(t time.Time) bool {
	if s := t.Unix(); s != c.second {
		c.second, c.kept = s, 0
	}
	return c.kept < Rate
}

// Wants reports whether Add would keep an event of this kind at t. One that it would not keep is
// counted: there is no need to make it.
func (l *Log) Wants(k Kind, t time.Time) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.counts[k]
	if k.sampled() && !c.room(t) {
		c.total++
		c.skipped++
		return false
	}
	return true
}

// Restore puts the events of the process before this one, the newest first, before those of this
// one, which get new numbers: it is for the time before anybody reads the log. Nobody is notified
// of them, and they are not counted, as that process has done both. Events of kinds that this
// version does not know are left out.
func (l *Log) Restore(list []Event) {
	if l == nil {
		return
	}
	own := l.Since(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.rings {
		clear(l.rings[i].events)
		l.rings[i].added = 0
	}
	l.last = 0
	for _, e := range slices.Backward(list) {
		if l.counts[e.Kind] != nil {
			l.last = max(l.last, e.Number)
			l.ringOf(e.Kind).add(e)
		}
	}
	for _, e := range slices.Backward(own) {
		l.last++
		e.Number = l.last
		l.ringOf(e.Kind).add(e)
	}
}

// Adopt keeps an event of another process on this one's place as the newest. Nobody is notified of
// it, and it is not counted.
func (l *Log) Adopt(e Event) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts[e.Kind] == nil {
		return
	}
	l.last++
	e.Number = l.last
	l.ringOf(e.Kind).add(e)
}

// ringOf is where events of a kind are kept.
func (l *Log) ringOf(k Kind) *ring {
	if k.sampled() {
		return &l.rings[0]
	}
	return &l.rings[1]
}

// Since returns the events after the one of the given number that are still kept, the newest first;
// all of them for 0.
func (l *Log) Since(number uint64) []Event {
	list := []Event{}
	if l == nil {
		return list
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.rings {
		list = l.rings[i].since(number, list)
	}
	slices.SortFunc(list, func(a, b Event) int { return cmp.Compare(b.Number, a.Number) })
	return list
}

// After returns those events that happened after t, the newest first.
func (l *Log) After(t time.Time) []Event {
	return slices.DeleteFunc(l.Since(0), func(e Event) bool { return !e.Time.After(t) })
}

// Count is how many events of a kind there have been, those that were not kept included.
func (l *Log) Count(k Kind) uint64 {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[k].total
}
