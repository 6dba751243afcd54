package mitigation

import "time"

// Terms are what a verdict is reached under. A verdict outlives them: it waits in a request under
// way, among the Unsent, in the tier, or in a process that hands over to another, while its rule
// changes. So it carries them wherever it goes.
type Terms struct {
	Limit            uint32 // hits in a window
	Timeout, Longest time.Duration
}

// TermsOf are those of a rule by its limit, timeout and repeat.
func TermsOf(limit uint32, timeout time.Duration, r Repeat) Terms {
	return Terms{limit, timeout, r.Longest(timeout)}
}

// Void reports whether a verdict under other terms is none under t, because t allows more: a source
// that went over a lower limit may be within this one, and one that was mitigated for longer may be
// free by now.
func (t Terms) Void(others Terms) bool {
	return others.Limit < t.Limit || others.Timeout > t.Timeout || others.Longest > t.Longest
}

// SetTerms sets which rules are in force from now on, by their IDs, and drops what is void under
// them: verdicts under rules that are not, and those that Terms.Void. It returns them. No verdict
// that is void starts from here on, wherever it comes from and however late. What operators say is
// no verdict, and stays.
func (t *Table) SetTerms(terms map[uint32]Terms) (void map[Key]Bit) {
	t.terms.Store(&terms)
	defer t.loosened.Add(1)
	void = make(map[Key]Bit)
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock() // a writer that has read the old terms has put its bit there by now
		for e := range s.all() {
			if _, h := t.shardOf(e.key); t.void(e.key, e.common.By, e.common.Terms) {
				void[e.key] = t.bit(e)
				s.drop(h, e.key)
			}
		}
		s.mu.Unlock()
	}
	return void
}

// void reports whether a bit is a verdict that the rules in force do not give.
func (t *Table) void(k Key, by By, under Terms) bool {
	all := t.terms.Load()
	if all == nil || by == ByAdmin {
		return false
	}
	terms, inForce := (*all)[k.Rule]
	return !inForce || terms.Void(under)
}
