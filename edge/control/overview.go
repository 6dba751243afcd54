package control

import (
	"cmp"
	"slices"
	"time"

	"sluice/edge/rules"
	"sluice/mitigation"
)

// Overview is an extract of the mitigations in force, and what operators allow and deny.
type Overview struct {
	Blocked, Shadow Extract // by rules in force, and by shadow rules, which refuse nobody
	Allowed, Denied []Listed
}

// Extract is some mitigations of many.
type Extract struct {
	InForce  int          `json:"in_force"`
	Matching int          `json:"matching"` // of them, those that were looked for
	List     []Mitigation `json:"list"`     // of these: those of operators first, then the newest
}

// bitEntry is a bit and whose it is.
type bitEntry struct {
	key mitigation.Key
	bit mitigation.Bit
}

// before orders what is shown first.
func (e bitEntry) before(o bitEntry) int {
	if m, n := e.bit.By == mitigation.ByAdmin, o.bit.By == mitigation.ByAdmin; m != n {
		if m {
			return -1
		}
		return 1
	}
	return cmp.Or(o.bit.Start.Compare(e.bit.Start), cmp.Compare(e.key.Rule, o.key.Rule))
}

// firsts keeps the first n of the entries that it is given.
type firsts struct {
	n    int
	kept []bitEntry
	full bool // kept[n-1] is the last that matters
}

func (f *firsts) add(e bitEntry) {
	if f.full && e.before(f.kept[f.n-1]) >= 0 {
		return
	}
	if f.kept = append(f.kept, e); len(f.kept) >= 2*f.n {
		f.cut()
	}
}

func (f *firsts) cut() {
	slices.SortStableFunc(f.kept, bitEntry.before)
	f.kept = f.kept[:min(f.n, len(f.kept))]
	f.full = len(f.kept) == f.n
}

// Overview returns at most n of the mitigations that match, and of those of shadow rules. A nil
// match is all, and is cheaper: what is not shown is not spelled out.
func (c *Admin) Overview(n int, match func(*Mitigation) bool, now time.Time) Overview {
	o := Overview{Allowed: []Listed{}, Denied: []Listed{}}
	names, in := c.names(), c.with.View()
	shown := func(e bitEntry) Mitigation { return names[e.key.Rule].shown(e.key.Source, e.bit) }
	enforced, shadow := firsts{n: n}, firsts{n: n}
	for key, bit := range c.with.Limiter.Blocks.All(now) {
		to, first := &o.Blocked, &enforced
		switch named, known := names[key.Rule]; {
		case key.Rule == mitigation.Allowed:
			o.Allowed = append(o.Allowed, Listed{Prefix: key.Source.String(), Start: bit.Start,
				End: bit.End, Reason: bit.Reason})
			continue
		case key.Rule == mitigation.Denied:
			o.Denied = append(o.Denied, Listed{Prefix: key.Source.String(), Start: bit.Start,
				End: bit.End, Reason: bit.Reason})
			continue
		case !known, key.Rule == mitigation.Site,
			key.Source == rules.Everybody && in.ended(named.rule):
			continue
		case named.mode == rules.Shadow:
			to, first = &o.Shadow, &shadow
		}
		to.InForce++
		e := bitEntry{key, bit}
		if match != nil {
			if m := shown(e); !match(&m) {
				continue
			}
		}
		to.Matching++
		first.add(e)
	}
	for to, first := range map[*Extract]*firsts{&o.Blocked: &enforced, &o.Shadow: &shadow} {
		first.cut()
		to.List = []Mitigation{}
		for _, e := range first.kept {
			m := shown(e)
			c.inKernel(&m, e.key.Source)
			c.describe(&in, &m, e.key.Source)
			// Of a wider prefix than a client's, each address may be somewhere else
			if p, is := e.key.Source.Prefix(); is && in.Sources.Of(p.Addr()) == e.key.Source {
				m.Known = known(in.Facts, p.Addr())
			}
			to.List = append(to.List, m)
		}
	}
	return o
}
