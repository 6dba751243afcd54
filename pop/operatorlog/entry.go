package operatorlog

import (
	"cmp"
	"fmt"
	"time"

	"sluice/counter"
)

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
