package marks

import (
	"time"

	"sluice/pop/wire"
)

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
	b.nodes[i].next = now.Add(jitter(Every))
	return wire.Command{Node: i, Op: wire.Get, Key: b.Keys}, true
}

// Looked takes in the answer to a Look, and returns the command that leaves this edge's own mark,
// whose answer is not used.
func (b *Detector) Looked(r *wire.Result, name, address string, now,
	wall time.Time) (c wire.Command, follows bool) {
	if r.Status != wire.Done {
		return c, false
	}
	key := b.Read(r.Values, now, wall)
	b.nodes[r.Node].own = key
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
