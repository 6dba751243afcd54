package judge

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"sluice/loadgen/trace"
)

// Limiter is the limiter in virtual time, as whoever has one hands it in.
type Limiter struct {
	// Advance lets time pass until at, since the run's start: reports travel, mitigations spread.
	// Nil: nothing of the kind.
	Advance func(at time.Duration)
	// Decide answers a request of a source at an edge, at the time it was advanced to.
	Decide func(edge int, source int32) Decision
	// InForce gives what mitigations have come into force on which edges since it was last asked,
	// in the order of time. Nil: nobody keeps count.
	InForce func() []InForce
}

// VirtualOptions says how a simulation runs.
type VirtualOptions struct {
	Edges int
	// Requests of a connection, after which the source may meet another edge; 0: 20
	PerConnection int
	Seed          uint64 // of the edges that connections meet
	// Running returns which edges run at the time that the limiter was advanced to, as a set of
	// bits; nil: all, always.
	Running func() uint64
	// Reach is as in Options: it also returns which edges a source's connections may meet.
	Reach func(source int32, at time.Duration) uint64
	// Progress, if not nil, is called now and then with how many requests are done.
	Progress func(done int)
}

// connection is where a source's requests go until it ends.
type connection struct {
	edge int32
	left int32
	last time.Duration
}

// idleClose is how long a connection lives without a request.
const idleClose = time.Minute

// Simulate sends a trace through a limiter in virtual time and judges every decision as it falls.
// It returns early, with what it has, when ctx is done.
func Simulate(ctx context.Context, t *trace.Trace, mode Mode, o Options, v VirtualOptions,
	l Limiter) (Figures, error) {
	if v.PerConnection == 0 {
		v.PerConnection = 20
	}
	o.Edges, o.Reach = v.Edges, v.Reach
	estimator, deployed := NewEstimatorJudge(o), NewDeployedJudge(o)
	rng := rand.New(rand.NewPCG(v.Seed, 0x5eed))
	connections := make([]connection, len(t.Sources))
	takeForced := func() {
		if l.InForce != nil {
			for _, f := range l.InForce() {
				deployed.InForce(f)
			}
		}
	}
	all := uint64(math.MaxUint64) >> (64 - v.Edges)
	for i := range t.Requests {
		if i&0xfff == 0 {
			if ctx.Err() != nil {
				return Figures{}, ctx.Err()
			}
			if v.Progress != nil {
				v.Progress(i)
			}
		}
		r := &t.Requests[i]
		if l.Advance != nil {
			l.Advance(r.At)
			takeForced()
		}
		running := all
		if v.Running != nil {
			running = v.Running()
			deployed.Running(running)
		}
		if v.Reach != nil {
			running &= v.Reach(r.Source, r.At)
		}
		c := &connections[r.Source]
		if c.left == 0 || r.At-c.last > idleClose || running>>c.edge&1 == 0 {
			*c = connection{edge: pickEdge(rng, running, v.Edges), left: int32(v.PerConnection)}
		}
		c.left--
		c.last = r.At
		d := l.Decide(int(c.edge), r.Source)
		d.At, d.Source, d.Edge, d.Role = r.At, r.Source, int16(c.edge), t.Role(i)
		if mode == Estimator {
			estimator.Decide(&d)
		} else {
			deployed.Decide(&d)
			takeForced()
		}
	}
	if mode == Estimator {
		return estimator.Figures(), nil
	}
	if l.Advance != nil && len(t.Requests) > 0 {
		l.Advance(t.Requests[len(t.Requests)-1].At + time.Second)
		takeForced()
	}
	return deployed.Figures(), nil
}

// pickEdge chooses among the running edges, each as likely as the other; among all, if none runs.
func pickEdge(rng *rand.Rand, running uint64, edges int) int32 {
	for {
		if e := rng.IntN(edges); running>>e&1 == 1 || running == 0 {
			return int32(e)
		}
	}
}
