// Package operatorlog is the list of what operators say: blocks and lifts of sources, and changes of
// rules. Every node of the tier and every edge has a copy, and edges add entries. Two copies are
// merged entry by entry: the higher generation stands, of one generation the higher edge; what was
// ever lifted is merged apart from that, so that a block that was given without knowledge of a lift
// does not undo it. Of a rule the latest MaxVersions changes are kept, each an entry, and the
// newest stands. So merging is a join: in whatever order, and however often, copies come together,
// the result is the same. The list is small, and travels whole, sealed under the PoP's secret.
// Nothing here does I/O or reads a clock.
package operatorlog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/counter"
	"sluice/mitigation"
	"sluice/pop/secret"
)

// Order is an operator's order. OperatorList never share a queue with what attackers cause: they
// are a list of their own. Reason has at most MaxReason bytes, Text MaxText, Who MaxWho and From
// MaxFrom.
type Order = mitigation.Order

// Kind is what a Order does.
type Kind = mitigation.OrderKind

const (
	Block  = mitigation.OrderBlock
	Lift   = mitigation.OrderLift
	Change = mitigation.OrderChange
)

// Bounds of the list.
const (
	MaxEntries = 10_000
	MaxReason  = 256
	MaxWho     = 64
	MaxFrom    = 128
	// MaxText bounds a change of a rule, MaxVersions how many of the latest changes of a rule are
	// kept.
	MaxText     = 4096
	MaxVersions = 10

	maxBytes    = 900_000
	maxEncoded  = 1 << 20 // memcached's own largest item
	maxRuleName = 64
)

// ErrFull says that the operators' list has no room for another entry: some must end first.
var ErrFull = errors.New("words: the list of what operators said is full")

// ErrLong says that a change of a rule takes more than MaxText bytes.
var ErrLong = errors.New("words: the change is too long")

// ErrOrder says that an order cannot be meant: there is no such source, or no such name of a rule.
var ErrOrder = errors.New("words: not a word of an operator")

// ErrList says that something is no list of operators' entries, or not under the PoP's secret.
var ErrList = errors.New("words: not an authentic list of operators' words")

// List is a copy of the list. The zero List is empty. It is not safe for concurrent use.
type List struct {
	entries map[Name]*Entry
	changes map[string][]*Entry // of each rule, the newest first
	bytes   int
	highest uint64 // generation ever seen
}

// Len is how many entries there are, lifts that must be kept included.
func (l *List) Len() int { return len(l.entries) }

// At is the entry of a name, or nil.
func (l *List) At(name Name) *Entry { return l.entries[name] }

// All ranges over the entries.
func (l *List) All() iter.Seq2[Name, *Entry] { return maps.All(l.entries) }

// Changes returns the changes of rules: by rule, the newest first.
func (l *List) Changes() (all []Entry) {
	for _, rule := range slices.Sorted(maps.Keys(l.changes)) {
		for _, e := range l.changes[rule] {
			all = append(all, *e)
		}
	}
	return all
}

// possible reports whether an operator can have said a word.
func possible(w *Order) bool {
	if w.Rule == "" || len(w.Rule) > maxRuleName || len(w.Reason) > MaxReason ||
		len(w.Text) > MaxText || len(w.Who) > MaxWho || len(w.From) > MaxFrom {
		return false
	}
	if w.Kind == Change {
		return w.Source == counter.Source{} && w.Reason+w.Who+w.From == ""
	}
	_, good := counter.SourceFromBinary(w.Source.AppendBinary(nil))
	return good && w.Kind >= Block && w.Kind <= Lift && w.Text == ""
}

// Add makes an entry that is newer than all that this edge has. voids is how long anything that a
// lift voids can live. To a list that is full the changes of rules that others have replaced make
// room, the oldest first.
func (l *List) Add(order Order, edge uint64, voids time.Duration, now time.Time) (Mark, error) {
	if len(order.Text) > MaxText {
		return Mark{}, fmt.Errorf("%w: %d bytes, and there may be %d", ErrLong, len(order.Text),
			MaxText)
	}
	order.Reason, order.Who, order.From = cut(order.Reason, MaxReason), cut(order.Who,
		MaxWho), cut(order.From, MaxFrom)
	if !possible(&order) {
		return Mark{}, fmt.Errorf("%w: rule %q, source %s", ErrOrder, order.Rule, order.Source)
	}
	e := Entry{Order: order, generation: max(l.highest+1, uint64(max(now.UnixMilli(), 0))),
		edge: edge, kept: order.End}
	if order.Kind == Lift {
		e.Epoch, e.kept, e.End = e.generation, now.Add(voids), time.Time{}
	}
	full := func() bool {
		old, n, size := l.entries[e.name()], len(l.entries), l.bytes+e.size()
		if old != nil {
			n, size = n-1, size-old.size()
		}
		return n >= MaxEntries || size > maxBytes
	}
	if full() {
		l.purge(now)
		list, replaced := l.byWorth()
		for _, o := range list[:replaced] {
			if full() {
				l.drop(o)
			}
		}
		if full() {
			return Mark{}, ErrFull
		}
	}
	l.put(e)
	return e.Mark(), nil
}

// cut is the text as far as there is room for it.
func cut(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// put merges an entry and reports whether that changed anything.
func (l *List) put(e Entry) (changed bool) {
	l.highest = max(l.highest, e.generation)
	name := e.name()
	old := l.entries[name]
	if old != nil {
		l.bytes -= old.size()
		changed = old.join(&e)
		l.bytes += old.size()
		return changed
	}
	if l.entries == nil {
		l.entries, l.changes = make(map[Name]*Entry), make(map[string][]*Entry)
	}
	if e.Kind == Change {
		list := l.changes[e.Rule]
		at, _ := slices.BinarySearchFunc(list, &e, func(a, b *Entry) int { return older(b, a) })
		if at == MaxVersions {
			return false
		}
		if len(list) == MaxVersions {
			l.drop(list[MaxVersions-1])
		}
		l.changes[e.Rule] = slices.Insert(l.changes[e.Rule], at, &e)
	}
	l.entries[name] = &e
	l.bytes += e.size()
	return true
}

// Merge takes in another list and returns the names for which something has changed, and whether
// the other list lacks something that this one has. Ends are bounded, because clocks may be wrong.
// Beyond the bounds of a list, the oldest words are dropped, by all edges the same.
func (l *List) Merge(other []Entry, now time.Time) (changed []Name, lacks bool) {
	there := make(map[Name]*Entry, len(other))
	over := make(map[string]*Entry) // of the changes of a rule that are over, the newest
	for i := range other {
		e := &other[i]
		there[e.name()] = e
		if o := over[e.Rule]; e.Kind == Change && e.Over(now) && (o == nil || older(o, e) < 0) {
			over[e.Rule] = e
		}
	}
	latest := now.Add(longest + ClockSkew)
	for _, e := range other {
		// What it had replaced does not come back
		if o := over[e.Rule]; e.Over(now) || e.Kind == Change && o != nil && older(&e, o) < 0 {
			continue
		}
		if e.End.After(latest) {
			e.End = latest
		}
		if e.kept.After(latest) {
			e.kept = latest
		}
		if l.put(e) {
			changed = append(changed, e.name())
		}
	}
	if len(l.entries) > MaxEntries || l.bytes > maxBytes {
		l.purge(now)
		list, _ := l.byWorth()
		for _, e := range list {
			if len(l.entries) <= MaxEntries && l.bytes <= maxBytes {
				break
			}
			l.drop(e)
		}
	}
	for name, e := range l.entries {
		if o := there[name]; !e.Over(now) && !l.lapsed(e, now) &&
			(o == nil || func() bool { c := *o; return c.join(e) }()) {
			return changed, true
		}
	}
	return changed, false
}

const (
	ClockSkew = 2 * time.Second // between edges
	// More than a counter of the longest window lives: five windows, with one sub-window, in groups
	// of four
	longestKept = mitigation.MaxBlock

	// LongestAway is how long an edge may be away, or a node keep its list, so that nothing comes
	// back with it that a Change with an end has replaced.
	LongestAway = 30 * 24 * time.Hour

	// longest is how long a word may be in force that has an end, or is kept.
	longest = max(LongestAway, longestKept)
)

// lapsed reports whether an entry is a change that one has replaced that is over: it does not come
// back.
func (l *List) lapsed(e *Entry, now time.Time) bool {
	return e.Kind == Change && slices.ContainsFunc(l.changes[e.Rule],
		func(o *Entry) bool { return o.Over(now) && older(e, o) < 0 })
}

// purge drops entries without effect.
func (l *List) purge(now time.Time) {
	var over []*Entry
	for _, e := range l.entries {
		if e.Over(now) || l.lapsed(e, now) {
			over = append(over, e)
		}
	}
	for _, e := range over {
		l.drop(e)
	}
}

func (l *List) drop(e *Entry) {
	l.bytes -= e.size()
	delete(l.entries, e.name())
	if e.Kind != Change {
		return
	}
	list := slices.DeleteFunc(l.changes[e.Rule],
		func(o *Entry) bool { return o.Mark() == e.Mark() })
	if l.changes[e.Rule] = list; len(list) == 0 {
		delete(l.changes, e.Rule)
	}
}

// byWorth is the entries in the order in which they are dropped if there are too many, as when two
// edges that were apart have each filled their list: changes of rules that others have replaced, so
// many, words on sources, and the rules last; the oldest first.
func (l *List) byWorth() (list []*Entry, replaced int) {
	worth := make(map[*Entry]int, len(l.entries))
	for _, e := range l.entries {
		if e.Kind != Change {
			worth[e] = 1
		}
	}
	for _, changes := range l.changes {
		for _, e := range inForce(changes) {
			worth[e] = 2
		}
	}
	list = slices.SortedFunc(maps.Values(l.entries), func(a, b *Entry) int {
		return cmp.Or(cmp.Compare(worth[a], worth[b]), older(a, b))
	})
	return list, len(list) - len(worth)
}

// inForce are of the changes of a rule, the newest first, those to the oldest that the newest was
// not made over: that is in force beside it, but for what those between have set anew. Nothing is
// that is older than one that means the whole rule.
func inForce(changes []*Entry) []*Entry {
	seen, oldest := make(map[string]bool), 0
	for i, e := range changes {
		before := seen[fmt.Sprintf("%d-%016x", e.generation, e.edge)]
		if !before {
			oldest = i
		}
		var fields struct{ Sets, Seen []string }
		if err := json.Unmarshal([]byte(e.Text), &fields); err != nil || len(fields.Sets) == 0 {
			break
		}
		for _, id := range fields.Seen {
			seen[id] = seen[id] || before || i == 0
		}
	}
	return changes[:oldest+1]
}

// Marks says how far an edge that has this list has each edge's entries: the highest generation of
// each, the latest first and maxMarks of them. Lists travel whole; so an edge that has an entry has
// all that its edge had written, and had received, until then.
func (l *List) Marks() []Mark {
	highest := make(map[uint64]uint64)
	for _, e := range l.entries {
		highest[e.edge] = max(highest[e.edge], e.generation)
	}
	list := make([]Mark, 0, len(highest))
	for edge, g := range highest {
		list = append(list, Mark{edge, g})
	}
	slices.SortFunc(list, func(a, b Mark) int {
		return cmp.Or(cmp.Compare(b.Generation, a.Generation), cmp.Compare(a.Edge, b.Edge))
	})
	return list[:min(len(list), MaxMarks)]
}

// Mark identifies an entry.
type Mark struct{ Edge, Generation uint64 }

// Compare orders by age, the older first: by generation, then by edge.
func (m Mark) Compare(o Mark) int {
	return cmp.Or(cmp.Compare(m.Generation, o.Generation), cmp.Compare(m.Edge, o.Edge))
}

const MaxMarks = 16

// Digest stands for the contents of a list: its MAC.
type Digest [secret.MACSize]byte

// magic is what a list begins with.
const magic = "sluice words 2\n"

// Encode returns the list in the form in which it travels, the same for the same words: magic,
// number of entries, entries by rule and source, and a MAC under the PoP's secret. What is over is
// dropped first.
func (l *List) Encode(s secret.Secret, now time.Time) []byte {
	l.purge(now)
	type named struct {
		*Entry
		source [counter.SourceSize]byte
	}
	list := make([]named, 0, len(l.entries))
	for _, e := range l.entries {
		n := named{Entry: e}
		e.Source.AppendBinary(n.source[:0])
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b named) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), bytes.Compare(a.source[:], b.source[:]),
			older(a.Entry, b.Entry))
	})
	b := make([]byte, 0, len(magic)+4+l.bytes+secret.MACSize)
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
	for _, e := range list {
		b = e.append(b)
	}
	return s.Seal(secret.OperatorList, b)
}

func (e *Entry) append(b []byte) []byte {
	b = append(b, byte(e.Kind))
	b = binary.BigEndian.AppendUint64(b, e.generation)
	b = binary.BigEndian.AppendUint64(b, e.edge)
	b = secret.AppendTime(b, e.Start)
	b = secret.AppendTime(b, e.End)
	b = binary.BigEndian.AppendUint64(b, e.Epoch)
	b = secret.AppendTime(b, e.kept)
	b = e.Source.AppendBinary(b)
	b = append(append(b, byte(len(e.Rule))), e.Rule...)
	text := e.Reason + e.Text // it has one of them
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	b = append(b, text...)
	b = append(append(b, byte(len(e.Who))), e.Who...)
	return append(append(b, byte(len(e.From))), e.From...)
}

// Decode reads what encode wrote, under the PoP's secret or the one before: all, or nothing and an
// error.
func Decode(s secret.Secret, b []byte) (list []Entry, id Digest, err error) {
	if len(b) > maxEncoded {
		return nil, id, ErrList
	}
	in, ok := s.OpenAny(secret.OperatorList, b)
	if !ok || string(in.Next(len(magic))) != magic {
		return nil, id, ErrList
	}
	copy(id[:], b[len(b)-secret.MACSize:])
	n := int(in.Number(4))
	if n > MaxEntries {
		return nil, id, fmt.Errorf("%w: %d of them", ErrList, n)
	}
	list = make([]Entry, 0, n)
	for range n {
		var e Entry
		e.Kind = Kind(in.Number(1))
		e.generation, e.edge = in.Number(8), in.Number(8)
		e.Start, e.End = in.Time(), in.Time()
		e.Epoch, e.kept = in.Number(8), in.Time()
		e.Source, _ = counter.SourceFromBinary(in.Next(counter.SourceSize))
		e.Rule = string(in.Next(int(in.Number(1))))
		text := string(in.Next(int(in.Number(2))))
		if e.Kind == Change {
			e.Text = text
		} else {
			e.Reason = text
		}
		e.Who = string(in.Next(int(in.Number(1))))
		e.From = string(in.Next(int(in.Number(1))))
		if in.Bad() || !possible(&e.Order) {
			return nil, id, fmt.Errorf("%w: entry %d", ErrList, len(list))
		}
		list = append(list, e)
	}
	if !in.Whole() {
		return nil, id, fmt.Errorf("%w: more than it should be", ErrList)
	}
	return list, id, nil
}

// A head is the version of a node's list. It is read twice a second, the list when it is another.
func SealHead(s secret.Secret, id Digest) []byte { return s.Seal(secret.Head, id[:]) }

func OpenHead(s secret.Secret, b []byte) (id Digest, ok bool) {
	in, ok := s.Open(secret.Head, b)
	copy(id[:], in.Next(len(id)))
	return id, ok && in.Whole()
}

// Name is what a word is about: there is one for each. Of the changes of a rule each has its own.
type Name struct {
	Rule   string
	Source counter.Source
	Change Mark
}

// Entry is the word that counts for a name.
type Entry struct {
	Order
	// One more than the highest its edge had seen, and not less than the clock's milliseconds
	generation uint64
	edge       uint64

	// Epoch is the generation of the last lift. What was counted or started in an earlier one is
	// void: keys in the tier are derived with it, so that the old numbers are not read, and nothing
	// need be deleted.
	Epoch uint64
	// kept is how long the entry must be: for as long as anything could live that it voids, or any
	// entry that it replaced, because an edge that was away comes back with that.
	kept time.Time
}

// ChangeEntry is the entry of a change of a rule that others keep as well: they know its mark.
func ChangeEntry(change Order, mark Mark) (Entry, error) {
	if change.Kind != Change || !possible(&change) {
		return Entry{}, fmt.Errorf("%w: rule %q", ErrOrder, change.Rule)
	}
	return Entry{Order: change, generation: mark.Generation, edge: mark.Edge, kept: change.End}, nil
}

// Over reports whether the entry has no effect any more. Most changes of rules hold for ever.
func (e *Entry) Over(now time.Time) bool {
	return !now.Before(e.kept) && (e.Kind != Change || !e.kept.IsZero())
}

// Mark identifies the entry.
func (e *Entry) Mark() Mark { return Mark{e.edge, e.generation} }

func (e *Entry) name() Name {
	if e.Kind == Change {
		return Name{Rule: e.Rule, Change: e.Mark()}
	}
	return Name{Rule: e.Rule, Source: e.Source}
}

// older orders by age.
func older(a, b *Entry) int { return a.Mark().Compare(b.Mark()) }

// newer reports whether the word of e stands against that of o. Of two ends of one word, which
// clocks may cause, the earlier does.
func (e *Entry) newer(o *Entry) bool {
	return cmp.Or(older(e, o), o.End.Compare(e.End)) > 0
}

// join merges o into e and reports whether that changed it.
func (e *Entry) join(o *Entry) (changed bool) {
	epoch, kept := max(e.Epoch, o.Epoch), e.kept
	if o.kept.After(kept) {
		kept = o.kept
	}
	changed = epoch != e.Epoch || kept != e.kept
	if o.newer(e) {
		*e, changed = *o, true
	}
	e.Epoch, e.kept = epoch, kept
	return changed
}

// size is how many bytes the entry takes.
func (e *Entry) size() int {
	return entryFixed + len(e.Rule) + len(e.Reason) + len(e.Text) + len(e.Who) + len(e.From)
}

const entryFixed = 1 + 5*8 + 8 + counter.SourceSize + 1 + 2 + 1 + 1
