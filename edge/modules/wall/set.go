package wall

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"sluice/edge/wall/record"
)

// again is how long after the last message about an entry its knocks mean nothing: connections that
// the kernel accepted before are closed by the edge as well. A later knock means that the kernel
// has lost the entry.
const again = time.Second

// A set is what the kernel should refuse. It has no I/O and no clock.
type set struct {
	blocked func(netip.Prefix, time.Time) time.Time
	lease   time.Duration
	granted int // entries
	room    int // entries that other edges leave to this one
	entries map[netip.Prefix]*entry
	waiting map[netip.Prefix]uint64 // knocks since the last report of sources that found no room
	turned  uint64                  // knocks that found none
	out     []record.Record         // to the helper
	renewed time.Time
}

// An entry is a prefix that the kernel refuses.
type entry struct {
	since    time.Time
	sent     time.Time // when the helper was sent it last
	ends     time.Time // when its lease in the kernel does
	until    time.Time // the block's end
	knocked  time.Time // when it did last, here or in the kernel
	attempts uint64    // SYNs that were refused
	counted  uint64    // what the kernel's counter of the entry was last
	lately   uint64    // of them, between the last two reports
}

func (s *set) init(blocked func(netip.Prefix, time.Time) time.Time) {
	s.blocked = blocked
	s.clear()
}

// clear forgets everything: there is no helper.
func (s *set) clear() {
	s.entries, s.waiting, s.out, s.granted, s.room = make(map[netip.Prefix]*entry),
		make(map[netip.Prefix]uint64), nil, 0, 0
}

// start begins with an empty set, at a helper that grants this lease and as many entries.
func (s *set) start(lease time.Duration, room int) {
	s.clear()
	s.lease, s.granted, s.room = lease, room, room
}

// take returns what is to be sent to the helper, once.
func (s *set) take() []record.Record {
	list := s.out
	s.out = nil
	return list
}

// knock takes in that a source that may be blocked has connected.
func (s *set) knock(p netip.Prefix, now time.Time) {
	e := s.entries[p]
	switch {
	case e != nil && now.Sub(e.sent) < again && now.Before(e.ends):
		e.knocked = now
	case e == nil && len(s.entries) >= s.room:
		s.turned++
		s.wait(p)
	default:
		s.add(p, now)
	}
}

// moreWaiting is how many more may wait than there is room for.
const moreWaiting = 1024

// wait counts a knock of a source for which there is no room. When too many wait, each loses a
// knock, and a source without any leaves: a source that knocks often stays, however many others
// there are (Misra and Gries, 1982).
func (s *set) wait(p netip.Prefix) {
	if _, there := s.waiting[p]; there || len(s.waiting) < s.granted+moreWaiting {
		s.waiting[p]++
		return
	}
	for p, n := range s.waiting {
		if s.waiting[p] = n - 1; n == 1 {
			delete(s.waiting, p)
		}
	}
}

// add has the kernel refuse a prefix, or go on doing so, if it is blocked.
func (s *set) add(p netip.Prefix, now time.Time) {
	until := s.blocked(p, now)
	lease := min(s.lease, until.Sub(now))
	if until.IsZero() || lease < time.Millisecond {
		s.remove(p)
		return
	}
	e := s.entries[p]
	if e == nil {
		e = &entry{since: now, knocked: now}
		s.entries[p] = e
	}
	e.sent, e.ends, e.until = now, now.Add(lease), until
	s.out = append(s.out, record.Record{Op: record.Add, Prefix: p, A: uint64(lease.Milliseconds())})
}

// remove has the kernel refuse a prefix no more.
func (s *set) remove(p netip.Prefix) {
	if s.entries[p] != nil {
		delete(s.entries, p)
		s.out = append(s.out, record.Record{Op: record.Delete, Prefix: p})
	}
}

// drop forgets an entry that the helper did not take.
func (s *set) drop(p netip.Prefix) { delete(s.entries, p) }

// full takes in that the helper has no room: other edges use it as well.
func (s *set) full(p netip.Prefix) {
	if e := s.entries[p]; e != nil {
		delete(s.entries, p)
		s.turned++
	}
	s.room = max(len(s.entries), 1)
}

// reconcile deletes entries whose block was lifted, and shortens those whose block was.
func (s *set) reconcile(now time.Time) {
	for p, e := range s.entries {
		switch until := s.blocked(p, now); {
		case until.IsZero():
			s.remove(p)
		case until.Before(e.ends):
			s.add(p, now)
		}
	}
}

// renew renews leases of which three eighths are left. It does so an eighth of a lease apart, so
// that many are renewed at once, which is cheaper for the helper and the kernel than one by one.
func (s *set) renew(now time.Time) {
	if now.Sub(s.renewed) < s.lease/8 {
		return
	}
	s.renewed = now
	for p, e := range s.entries {
		switch left := e.ends.Sub(now); {
		case left > s.lease*3/8:
		case e.until.After(e.ends):
			s.add(p, now)
		case left <= 0:
			delete(s.entries, p) // the block is over, and so is the entry
		}
	}
}

// counted takes in the kernel's counter of an entry: how many SYNs it has refused.
func (s *set) counted(p netip.Prefix, n uint64, now time.Time) {
	e := s.entries[p]
	if e == nil {
		return
	}
	if n < e.counted {
		e.counted = 0 // the kernel has counted anew
	}
	if e.lately = n - e.counted; e.lately > 0 {
		e.knocked = now
	}
	e.attempts += e.lately
	e.counted = n
}

// tidy makes room after a report: it gives up sources that have not knocked for a lease and, where
// others wait, those that knock at most half as often as they do.
func (s *set) tidy(now time.Time) {
	s.room = s.granted
	for p, e := range s.entries {
		if now.Sub(e.knocked) >= s.lease {
			s.remove(p)
		}
	}
	if len(s.waiting) == 0 {
		return
	}
	heavy := slices.SortedFunc(maps.Keys(s.waiting), func(a, b netip.Prefix) int {
		return cmp.Or(cmp.Compare(s.waiting[b], s.waiting[a]), a.Addr().Compare(b.Addr()))
	})
	light := slices.SortedFunc(maps.Keys(s.entries), func(a, b netip.Prefix) int {
		return cmp.Or(cmp.Compare(s.entries[a].lately, s.entries[b].lately),
			a.Addr().Compare(b.Addr()))
	})
	for _, p := range heavy {
		if len(s.entries) >= s.room {
			if len(light) == 0 || 2*s.entries[light[0]].lately > s.waiting[p] {
				break
			}
			s.remove(light[0])
			light = light[1:]
		}
		s.add(p, now)
	}
	clear(s.waiting)
}
