package pop

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/counter"
	"sluice/mitigation"
	"sluice/pop/secret"
)

// Word is what an operator says of a source under a rule. Words never share a queue with what attackers cause: they are a list of
// their own, of which every node and every edge has a copy (carry.go).
type Word struct {
	Rule   string // as configured, so that it means the same when the rule is edited
	Source counter.Source
	Kind   WordKind
	Start  time.Time
	End    time.Time // of a Block; a Lift has none
	Reason string    // at most MaxReason bytes
}

// WordKind is what a Word does.
type WordKind uint8

const (
	Block WordKind = iota + 1
	Lift           // ends the mitigation and forgets the counts
)

// Bounds of the list.
const (
	MaxWords  = 10_000
	MaxReason = 256

	maxWordBytes = 900_000
	maxList      = 1 << 20 // memcached's own largest item
	maxRuleName  = 64
)

// ErrListFull says that the operators' list has no room for another word: some of it must end first.
var ErrListFull = errors.New("pop: the list of operators' blocks and lifts is full")

// ErrWord says that nobody can mean this: there is no such source, or no such name of a rule.
var ErrWord = errors.New("pop: not a word of an operator")

// ErrWords says that something is no list of operators' words, or not under the PoP's secret.
var ErrWords = errors.New("pop: not an authentic list of operators' words")

// wordName is what a word is about: there is one for each.
type wordName struct {
	rule   string
	source counter.Source
}

// entry is the word that counts for a name.
//
// Two lists are merged entry by entry: of two words the one with the higher generation stands, of two of one generation that of
// the higher edge. What was ever lifted is merged apart from that, so that a block that knows nothing of a lift does not undo it.
// So merging is a join: in whatever order, and however often, lists come together, the result is the same.
type entry struct {
	Word
	generation uint64 // one more than the highest its edge had seen, and not less than the clock's milliseconds
	edge       uint64

	// epoch is the generation of the last lift. What was counted or started in an earlier one is void: keys in the tier are
	// derived with it, so that nobody reads the old numbers, and nothing need be deleted.
	epoch uint64
	// kept is how long the entry must be: for as long as anything could live that it voids, or any word whose place it took,
	// because an edge that was away comes back with that.
	kept time.Time
}

// over reports whether the entry says nothing any more.
func (e *entry) over(now time.Time) bool { return !now.Before(e.kept) }

// newer reports whether the word of e stands against that of o. Of two ends of one word, which clocks may cause, the earlier does.
func (e *entry) newer(o *entry) bool {
	return cmp.Or(cmp.Compare(e.generation, o.generation), cmp.Compare(e.edge, o.edge), o.End.Compare(e.End)) > 0
}

// join merges o into e and reports whether that changed it.
func (e *entry) join(o *entry) (changed bool) {
	epoch, kept := max(e.epoch, o.epoch), e.kept
	if o.kept.After(kept) {
		kept = o.kept
	}
	changed = epoch != e.epoch || kept != e.kept
	if o.newer(e) {
		*e, changed = *o, true
	}
	e.epoch, e.kept = epoch, kept
	return changed
}

// size is how many bytes the entry takes.
func (e *entry) size() int { return entryFixed + len(e.Rule) + len(e.Reason) }

const entryFixed = 1 + 5*8 + 8 + counter.SourceSize + 1 + 2

// words is the list. It knows no lock.
type words struct {
	entries map[wordName]*entry
	bytes   int
	highest uint64 // generation ever seen
}

// add says a word that is newer than all that this edge knows of. voids is how long anything that a lift voids can live.
func (w *words) add(word Word, edge uint64, voids time.Duration, now time.Time) (generation uint64, err error) {
	_, good := counter.SourceFromBinary(word.Source.AppendBinary(nil))
	if !good || word.Rule == "" || len(word.Rule) > maxRuleName || word.Kind < Block || word.Kind > Lift {
		return 0, fmt.Errorf("%w: rule %q, source %s", ErrWord, word.Rule, word.Source)
	}
	word.Reason = strings.ToValidUTF8(word.Reason[:min(len(word.Reason), MaxReason)], "")
	e := entry{Word: word, generation: max(w.highest+1, uint64(max(now.UnixMilli(), 0))), edge: edge, kept: word.End}
	if word.Kind == Lift {
		e.epoch, e.kept, e.End = e.generation, now.Add(voids), time.Time{}
	}
	name := wordName{word.Rule, word.Source}
	old, size := w.entries[name], e.size()
	if old != nil {
		size -= old.size()
	}
	full := func() bool { return old == nil && len(w.entries) >= MaxWords || w.bytes+size > maxWordBytes }
	if full() {
		if w.purge(now); w.entries[name] == nil && old != nil {
			old, size = nil, e.size()
		}
		if full() {
			return 0, ErrListFull
		}
	}
	w.put(name, e)
	return e.generation, nil
}

// put merges an entry and reports whether that changed anything.
func (w *words) put(name wordName, e entry) (changed bool) {
	w.highest = max(w.highest, e.generation)
	old := w.entries[name]
	if old == nil {
		if w.entries == nil {
			w.entries = make(map[wordName]*entry)
		}
		w.entries[name] = &e
		w.bytes += e.size()
		return true
	}
	w.bytes -= old.size()
	changed = old.join(&e)
	w.bytes += old.size()
	return changed
}

// merge takes in another list and returns the names for which something has changed, and whether the other list lacks
// something that this one has. Ends are bounded, because clocks may be wrong. Beyond the bounds of a list, the oldest words are dropped, by all edges the same.
func (w *words) merge(other []entry, now time.Time) (changed []wordName, lacks bool) {
	there := make(map[wordName]*entry, len(other))
	for i := range other {
		e := other[i]
		there[wordName{e.Rule, e.Source}] = &other[i]
		if e.over(now) {
			continue
		}
		if latest := now.Add(mitigation.MaxTimeout + clockSkew); e.End.After(latest) {
			e.End = latest
		}
		if latest := now.Add(longestKept + clockSkew); e.kept.After(latest) {
			e.kept = latest
		}
		name := wordName{e.Rule, e.Source}
		if w.put(name, e) {
			changed = append(changed, name)
		}
	}
	if len(w.entries) > MaxWords || w.bytes > maxWordBytes {
		w.purge(now)
		w.dropOldest()
	}
	for name, e := range w.entries {
		if o := there[name]; !e.over(now) && (o == nil || func() bool { c := *o; return c.join(e) }()) {
			return changed, true
		}
	}
	return changed, false
}

const (
	clockSkew   = 2 * time.Second       // between edges
	longestKept = 5 * counter.MaxWindow // what a counter of the longest window lives, with one sub-window, in groups of four
)

// purge drops what says nothing any more.
func (w *words) purge(now time.Time) {
	for name, e := range w.entries {
		if e.over(now) {
			w.drop(name)
		}
	}
}

func (w *words) drop(name wordName) {
	w.bytes -= w.entries[name].size()
	delete(w.entries, name)
}

// dropOldest drops as many words as are too many: two edges that were apart may each have filled their list.
func (w *words) dropOldest() {
	list := slices.SortedFunc(maps.Values(w.entries), func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.generation, b.generation), cmp.Compare(a.edge, b.edge))
	})
	for _, e := range list {
		if len(w.entries) <= MaxWords && w.bytes <= maxWordBytes {
			return
		}
		w.drop(wordName{e.Rule, e.Source})
	}
}

// marks says how far somebody who has this list knows what each edge has said: the highest generation of each, the latest first
// and maxMarks of them. Lists travel whole; so whoever has a word has all that its edge had said, and had heard, until then.
func (w *words) marks() []mark {
	highest := make(map[uint64]uint64)
	for _, e := range w.entries {
		highest[e.edge] = max(highest[e.edge], e.generation)
	}
	list := make([]mark, 0, len(highest))
	for edge, g := range highest {
		list = append(list, mark{edge, g})
	}
	slices.SortFunc(list, func(a, b mark) int {
		return cmp.Or(cmp.Compare(b.generation, a.generation), cmp.Compare(a.edge, b.edge))
	})
	return list[:min(len(list), maxMarks)]
}

type mark struct{ edge, generation uint64 }

const maxMarks = 16

// tag stands for the contents of a list: its MAC.
type tag [secret.MACSize]byte

const wordsMagic = "sluice words 1\n"

// encode returns the list in the form in which it travels, the same for the same words: magic, number of entries, entries by rule and
// source, and a MAC under the PoP's secret. What is over is dropped first.
func (w *words) encode(s secret.Secret, now time.Time) []byte {
	w.purge(now)
	type named struct {
		*entry
		source [counter.SourceSize]byte
	}
	list := make([]named, 0, len(w.entries))
	for _, e := range w.entries {
		n := named{entry: e}
		e.Source.AppendBinary(n.source[:0])
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b named) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), bytes.Compare(a.source[:], b.source[:]))
	})
	b := make([]byte, 0, len(wordsMagic)+4+w.bytes+secret.MACSize)
	b = append(b, wordsMagic...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
	for _, e := range list {
		b = e.append(b)
	}
	return s.Seal(secret.Words, b)
}

func (e *entry) append(b []byte) []byte {
	b = append(b, byte(e.Kind))
	b = binary.BigEndian.AppendUint64(b, e.generation)
	b = binary.BigEndian.AppendUint64(b, e.edge)
	b = secret.AppendTime(b, e.Start)
	b = secret.AppendTime(b, e.End)
	b = binary.BigEndian.AppendUint64(b, e.epoch)
	b = secret.AppendTime(b, e.kept)
	b = e.Source.AppendBinary(b)
	b = append(append(b, byte(len(e.Rule))), e.Rule...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(e.Reason)))
	return append(b, e.Reason...)
}

// decodeWords reads what encode wrote: all, or nothing and an error.
func decodeWords(s secret.Secret, b []byte) (list []entry, id tag, err error) {
	if len(b) > maxList {
		return nil, id, ErrWords
	}
	in, ok := s.Open(secret.Words, b)
	if !ok || string(in.Next(len(wordsMagic))) != wordsMagic {
		return nil, id, ErrWords
	}
	copy(id[:], b[len(b)-secret.MACSize:])
	n := int(in.Number(4))
	if n > MaxWords {
		return nil, id, fmt.Errorf("%w: %d of them", ErrWords, n)
	}
	list = make([]entry, 0, n)
	for range n {
		var e entry
		e.Kind = WordKind(in.Number(1))
		e.generation, e.edge = in.Number(8), in.Number(8)
		e.Start, e.End = in.Time(), in.Time()
		e.epoch, e.kept = in.Number(8), in.Time()
		e.Source, ok = counter.SourceFromBinary(in.Next(counter.SourceSize))
		e.Rule = string(in.Next(int(in.Number(1))))
		e.Reason = string(in.Next(int(in.Number(2))))
		if !ok || in.Bad() || e.Kind < Block || e.Kind > Lift || e.Rule == "" || len(e.Rule) > maxRuleName || len(e.Reason) > MaxReason {
			return nil, id, fmt.Errorf("%w: entry %d", ErrWords, len(list))
		}
		list = append(list, e)
	}
	if !in.Whole() {
		return nil, id, fmt.Errorf("%w: more than it should be", ErrWords)
	}
	return list, id, nil
}

// A head is what a node says of its list: which it is. It is read twice a second, the list when it is another.
func sealHead(s secret.Secret, id tag) []byte { return s.Seal(secret.Head, id[:]) }

func openHead(s secret.Secret, b []byte) (id tag, ok bool) {
	in, ok := s.Open(secret.Head, b)
	copy(id[:], in.Next(len(id)))
	return id, ok && in.Whole()
}
