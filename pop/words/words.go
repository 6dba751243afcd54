// Package words is the list of what operators say of sources: blocks and lifts. Every node of the tier and every edge has a copy, and
// says things of its own. Two copies are merged entry by entry: the higher generation stands, of one generation the higher edge; what
// was ever lifted is merged apart from that, so that a block that knows nothing of a lift does not undo it. So merging is a join: in
// whatever order, and however often, copies come together, the result is the same. The list is small, and travels whole, sealed under
// the PoP's secret. Nothing here does I/O or reads a clock.
package words

import (
	"bytes"
	"cmp"
	"encoding/binary"
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

// Word is what an operator says of a source under a rule. Words never share a queue with what attackers cause: they are a list of
// their own.
type Word struct {
	Rule   string // as configured, so that it means the same when the rule is edited
	Source counter.Source
	Kind   Kind
	Start  time.Time
	End    time.Time // of a Block; a Lift has none
	Reason string    // at most MaxReason bytes
}

// Kind is what a Word does.
type Kind uint8

const (
	Block Kind = iota + 1
	Lift       // ends the mitigation and forgets the counts
)

// Bounds of the list.
const (
	MaxEntries = 10_000
	MaxReason  = 256

	maxBytes    = 900_000
	maxEncoded  = 1 << 20 // memcached's own largest item
	maxRuleName = 64
)

// ErrFull says that the operators' list has no room for another word: some of it must end first.
var ErrFull = errors.New("words: the list of operators' blocks and lifts is full")

// ErrWord says that nobody can mean this: there is no such source, or no such name of a rule.
var ErrWord = errors.New("words: not a word of an operator")

// ErrList says that something is no list of operators' words, or not under the PoP's secret.
var ErrList = errors.New("words: not an authentic list of operators' words")

// Name is what a word is about: there is one for each.
type Name struct {
	Rule   string
	Source counter.Source
}

// Entry is the word that counts for a name.
type Entry struct {
	Word
	generation uint64 // one more than the highest its edge had seen, and not less than the clock's milliseconds
	edge       uint64

	// Epoch is the generation of the last lift. What was counted or started in an earlier one is void: keys in the tier are
	// derived with it, so that nobody reads the old numbers, and nothing need be deleted.
	Epoch uint64
	// kept is how long the entry must be: for as long as anything could live that it voids, or any word whose place it took,
	// because an edge that was away comes back with that.
	kept time.Time
}

// Over reports whether the entry says nothing any more.
func (e *Entry) Over(now time.Time) bool { return !now.Before(e.kept) }

// newer reports whether the word of e stands against that of o. Of two ends of one word, which clocks may cause, the earlier does.
func (e *Entry) newer(o *Entry) bool {
	return cmp.Or(cmp.Compare(e.generation, o.generation), cmp.Compare(e.edge, o.edge), o.End.Compare(e.End)) > 0
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
func (e *Entry) size() int { return entryFixed + len(e.Rule) + len(e.Reason) }

const entryFixed = 1 + 5*8 + 8 + counter.SourceSize + 1 + 2

// List is a copy of the list. The zero List is empty. It is not safe for concurrent use.
type List struct {
	entries map[Name]*Entry
	bytes   int
	highest uint64 // generation ever seen
}

// Len is how many entries there are, lifts that must be kept included.
func (l *List) Len() int { return len(l.entries) }

// At is the entry of a name, or nil.
func (l *List) At(name Name) *Entry { return l.entries[name] }

// All ranges over the entries.
func (l *List) All() iter.Seq2[Name, *Entry] { return maps.All(l.entries) }

// Add says a word that is newer than all that this edge knows of. voids is how long anything that a lift voids can live.
func (l *List) Add(word Word, edge uint64, voids time.Duration, now time.Time) (generation uint64, err error) {
	_, good := counter.SourceFromBinary(word.Source.AppendBinary(nil))
	if !good || word.Rule == "" || len(word.Rule) > maxRuleName || word.Kind < Block || word.Kind > Lift {
		return 0, fmt.Errorf("%w: rule %q, source %s", ErrWord, word.Rule, word.Source)
	}
	word.Reason = strings.ToValidUTF8(word.Reason[:min(len(word.Reason), MaxReason)], "")
	e := Entry{Word: word, generation: max(l.highest+1, uint64(max(now.UnixMilli(), 0))), edge: edge, kept: word.End}
	if word.Kind == Lift {
		e.Epoch, e.kept, e.End = e.generation, now.Add(voids), time.Time{}
	}
	name := Name{word.Rule, word.Source}
	old, size := l.entries[name], e.size()
	if old != nil {
		size -= old.size()
	}
	full := func() bool { return old == nil && len(l.entries) >= MaxEntries || l.bytes+size > maxBytes }
	if full() {
		if l.purge(now); l.entries[name] == nil && old != nil {
			old, size = nil, e.size()
		}
		if full() {
			return 0, ErrFull
		}
	}
	l.put(name, e)
	return e.generation, nil
}

// put merges an entry and reports whether that changed anything.
func (l *List) put(name Name, e Entry) (changed bool) {
	l.highest = max(l.highest, e.generation)
	old := l.entries[name]
	if old == nil {
		if l.entries == nil {
			l.entries = make(map[Name]*Entry)
		}
		l.entries[name] = &e
		l.bytes += e.size()
		return true
	}
	l.bytes -= old.size()
	changed = old.join(&e)
	l.bytes += old.size()
	return changed
}

// Merge takes in another list and returns the names for which something has changed, and whether the other list lacks
// something that this one has. Ends are bounded, because clocks may be wrong. Beyond the bounds of a list, the oldest words are dropped, by all edges the same.
func (l *List) Merge(other []Entry, now time.Time) (changed []Name, lacks bool) {
	there := make(map[Name]*Entry, len(other))
	for i := range other {
		e := other[i]
		there[Name{e.Rule, e.Source}] = &other[i]
		if e.Over(now) {
			continue
		}
		if latest := now.Add(mitigation.MaxBlock + ClockSkew); e.End.After(latest) {
			e.End = latest
		}
		if latest := now.Add(longestKept + ClockSkew); e.kept.After(latest) {
			e.kept = latest
		}
		name := Name{e.Rule, e.Source}
		if l.put(name, e) {
			changed = append(changed, name)
		}
	}
	if len(l.entries) > MaxEntries || l.bytes > maxBytes {
		l.purge(now)
		l.dropOldest()
	}
	for name, e := range l.entries {
		if o := there[name]; !e.Over(now) && (o == nil || func() bool { c := *o; return c.join(e) }()) {
			return changed, true
		}
	}
	return changed, false
}

const (
	ClockSkew   = 2 * time.Second     // between edges
	longestKept = mitigation.MaxBlock // more than a counter of the longest window lives: five windows, with one sub-window, in groups of four
)

// purge drops what says nothing any more.
func (l *List) purge(now time.Time) {
	for name, e := range l.entries {
		if e.Over(now) {
			l.drop(name)
		}
	}
}

func (l *List) drop(name Name) {
	l.bytes -= l.entries[name].size()
	delete(l.entries, name)
}

// dropOldest drops as many words as are too many: two edges that were apart may each have filled their list.
func (l *List) dropOldest() {
	list := slices.SortedFunc(maps.Values(l.entries), func(a, b *Entry) int {
		return cmp.Or(cmp.Compare(a.generation, b.generation), cmp.Compare(a.edge, b.edge))
	})
	for _, e := range list {
		if len(l.entries) <= MaxEntries && l.bytes <= maxBytes {
			return
		}
		l.drop(Name{e.Rule, e.Source})
	}
}

// Marks says how far somebody who has this list knows what each edge has said: the highest generation of each, the latest first
// and maxMarks of them. Lists travel whole; so whoever has a word has all that its edge had said, and had heard, until then.
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

type Mark struct{ Edge, Generation uint64 }

const MaxMarks = 16

// Digest stands for the contents of a list: its MAC.
type Digest [secret.MACSize]byte

const magic = "sluice words 1\n"

// Encode returns the list in the form in which it travels, the same for the same words: magic, number of entries, entries by rule and
// source, and a MAC under the PoP's secret. What is over is dropped first.
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
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), bytes.Compare(a.source[:], b.source[:]))
	})
	b := make([]byte, 0, len(magic)+4+l.bytes+secret.MACSize)
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
	for _, e := range list {
		b = e.append(b)
	}
	return s.Seal(secret.Words, b)
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
	b = binary.BigEndian.AppendUint16(b, uint16(len(e.Reason)))
	return append(b, e.Reason...)
}

// Decode reads what encode wrote: all, or nothing and an error.
func Decode(s secret.Secret, b []byte) (list []Entry, id Digest, err error) {
	if len(b) > maxEncoded {
		return nil, id, ErrList
	}
	in, ok := s.Open(secret.Words, b)
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
		e.Source, ok = counter.SourceFromBinary(in.Next(counter.SourceSize))
		e.Rule = string(in.Next(int(in.Number(1))))
		e.Reason = string(in.Next(int(in.Number(2))))
		if !ok || in.Bad() || e.Kind < Block || e.Kind > Lift || e.Rule == "" || len(e.Rule) > maxRuleName || len(e.Reason) > MaxReason {
			return nil, id, fmt.Errorf("%w: entry %d", ErrList, len(list))
		}
		list = append(list, e)
	}
	if !in.Whole() {
		return nil, id, fmt.Errorf("%w: more than it should be", ErrList)
	}
	return list, id, nil
}

// A head is what a node says of its list: which it is. It is read twice a second, the list when it is another.
func SealHead(s secret.Secret, id Digest) []byte { return s.Seal(secret.Head, id[:]) }

func OpenHead(s secret.Secret, b []byte) (id Digest, ok bool) {
	in, ok := s.Open(secret.Head, b)
	copy(id[:], in.Next(len(id)))
	return id, ok && in.Whole()
}
