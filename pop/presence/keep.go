package presence

import (
	"time"

	"sluice/pop/wire"
)

const (
	every = time.Second
	// While this edge waits for a slot, or for others to have what was said here
	hasty = 100 * time.Millisecond
)

// Due reports whether it is time to Keep.
func (p *Slots) Due(now time.Time) bool { return !now.Before(p.next) }

// Keep writes this edge's slot to the node where edges meet, and reads the others'. awaited says
// that a request waits for the answer. Below 0 there is no node, and nothing to send.
func (p *Slots) Keep(node int, self Edge, awaited bool, now time.Time) (list []wire.Command) {
	p.next, p.idle = now.Add(every), false
	if p.Key() == "" && !p.full || awaited {
		p.next = now.Add(hasty)
	}
	if node < 0 {
		return nil
	}
	if p.Key() != "" && !p.taken && (now.Sub(p.spoke) >= every/2 || p.changed) {
		p.spoke, p.changed = now, false
		list = append(list, p.Fill(node, self, now))
	}
	return append(list, wire.Command{Node: node, Op: wire.Get, Key: p.Keys})
}

// Fill is the command that fills this edge's slot.
func (p *Slots) Fill(node int, self Edge, now time.Time) wire.Command {
	return p.fill(node, wire.Set, p.Key(), self, now)
}

func (p *Slots) fill(node int, op wire.Op, key string, self Edge, now time.Time) wire.Command {
	kept := Kept
	if p.highest == 1 {
		kept = keptAlone
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
	forged = p.Read(r.Values[:slots], now, wall)
	p.View = r.Values[slots]
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
