package sim

import (
	"time"

	"sluice/pop/poptest"
	"sluice/pop/wire"
)

const (
	patience = time.Second     // as long as an edge waits for an answer
	unrest   = 5 * time.Second // in which edges notice whatever happened to a node
)

// Kill ends a node as SIGKILL ends a process: what it holds is gone, and what is on its way to it
// comes to nothing.
func (w *World) Kill(node int) {
	w.Nodes[node].Kill()
	for _, h := range w.held[node] {
		w.lose(h)
	}
	w.held[node] = nil
	w.died[node] = w.now
	w.restless = w.now.Add(unrest)
}

// Restart brings a node up empty, whether it was killed or not.
func (w *World) Restart(node int) error {
	w.Kill(node)
	return w.Nodes[node].Restart()
}

// Hang stops a node as SIGSTOP does: it takes what it is sent, and answers nothing.
func (w *World) Hang(node int) {
	w.Nodes[node].Hang()
	w.restless = w.now.Add(unrest)
}

// Resume lets a hung node go on. It carries out what it was sent and edges still wait for.
func (w *World) Resume(node int) {
	w.Nodes[node].Resume()
	kept := w.held[node]
	w.held[node] = nil
	for _, h := range kept {
		b := w.batch(h.edge, h.life)
		b.sent, b.nodes, b.results = h.sent, append(b.nodes, node), append(b.results,
			wire.Result{Command: h.command})
		w.arrive(b)
	}
	w.restless = w.now.Add(unrest)
}

// Stop ends an edge: with flush it reports what it has, as after SIGTERM, otherwise what it has is
// lost.
func (w *World) Stop(edge int, flush bool) {
	e := w.Edges[edge]
	if e.gone {
		return
	}
	if flush {
		e.Flush()
	}
	e.gone, e.busy = true, false
}

// Start starts an edge that was stopped, with empty tables. One that runs is killed first.
func (w *World) Start(edge int) error {
	e := w.Edges[edge]
	observe := e.Blocks.Observe
	if err := e.begin(); err != nil {
		return err
	}
	e.Blocks.Observe = observe
	e.tick = w.now
	w.restless = w.now.Add(unrest)
	return nil
}

// Cut takes an edge off the nodes, and Mend puts it back. What is on its way still comes.
func (w *World) Cut(edge int) { w.Edges[edge].cut = true }

// Mend lets an edge that was Cut reach the nodes again.
func (w *World) Mend(edge int) {
	w.Edges[edge].cut = false
	w.restless = w.now.Add(unrest)
}

// Runs reports whether an edge runs.
func (w *World) Runs(edge int) bool { return !w.Edges[edge].gone }

// arrive lets commands reach their nodes, and sends the answers on their way. A command that had
// left before its node was killed may or may not have been carried out, as far as the edge can see;
// one to a node that is down never leaves. A hung node keeps it.
func (w *World) arrive(b *batch) {
	answered := b.results[:0]
	for i, node := range b.nodes {
		c := b.results[i].Command
		r := w.carry(c, node)
		switch {
		case r.Status == wire.Unknown:
			w.held[node] = append(w.held[node], held{b.edge, b.life, b.sent, c})
			continue
		case b.sent.Before(w.died[node]):
			r = wire.Result{Command: c, Status: wire.Unknown, Err: poptest.ErrDown}
		}
		w.answered(&r)
		answered = append(answered, r)
	}
	b.results, b.answers = answered, true
	w.push(b)
}

// carry has a node carry out a command.
func (w *World) carry(c wire.Command, node int) wire.Result {
	if w.config.Carry != nil {
		return w.config.Carry(c, w.Nodes[node], w.now)
	}
	return w.Nodes[node].Do(w.now, c)
}

// lose tells an edge that the outcome of a command is unknown.
func (w *World) lose(h held) {
	b := w.batch(h.edge, h.life)
	b.answers, b.results = true, append(b.results, wire.Result{Command: h.command,
		Status: wire.Unknown, Err: poptest.ErrHung})
	w.push(b)
}

// StepClock steps the wall clock of an edge, by which it begins when it is next started. What it
// measures time by goes on evenly.
func (w *World) StepClock(edge int, by time.Duration) {
	w.Edges[edge].stepped += by
	w.restless = w.now.Add(unrest)
}

// Pause holds up an edge: until then it sees no answer and makes no step, as after SIGSTOP.
func (w *World) Pause(edge int, until time.Time) {
	w.Edges[edge].paused = until
	w.restless = until.Add(unrest)
}
