package shedding

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var start = time.Unix(1_800_000_000, 0)

// An origin in virtual time: so many workers, the first to come is served first, each request takes what service says.
type origin struct {
	workers, busy int
	service       func(at time.Time) time.Duration
	queue         []*request
}

type request struct {
	came, ends time.Time
	level      Level
	edge       *Limiter // nil: it was let through unasked
}

// A world is limiters before one origin, and clients that come at a steady rate.
type world struct {
	t      *testing.T
	now    time.Time
	origin origin
	edges  []*Limiter // none: requests go on unasked
	flows  []flow
	next   []time.Time
	under  ends

	came, shed [Levels]int
	well       [Levels]int // answered within patience
	worst      [Levels]time.Duration
	patience   time.Duration
}

type flow struct {
	level Level
	rate  float64 // a second
}

type ends []*request

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].ends.Before(e[j].ends) }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(*request)) }
func (e *ends) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

func newWorld(t *testing.T, edges, workers int, service func(time.Time) time.Duration, flows ...flow) *world {
	w := &world{t: t, now: start, origin: origin{workers: workers, service: service}, flows: flows, patience: 2 * time.Second}
	for range edges {
		w.edges = append(w.edges, New(Config{}))
	}
	for i := range flows {
		w.next = append(w.next, start.Add(time.Duration(i)*time.Millisecond))
	}
	return w
}

// run lets the world go on for d, and counts anew.
func (w *world) run(d time.Duration) {
	w.came, w.shed, w.well, w.worst = [Levels]int{}, [Levels]int{}, [Levels]int{}, [Levels]time.Duration{}
	for until := w.now.Add(d); ; {
		first := 0
		for i := range w.next {
			if w.next[i].Before(w.next[first]) {
				first = i
			}
		}
		if len(w.under) > 0 && w.under[0].ends.Before(w.next[first]) {
			if w.under[0].ends.After(until) {
				break
			}
			w.end(heap.Pop(&w.under).(*request))
			continue
		}
		if w.next[first].After(until) {
			break
		}
		w.now = w.next[first]
		w.next[first] = w.now.Add(time.Duration(float64(time.Second) / w.flows[first].rate))
		w.arrive(w.flows[first].level)
	}
}

func (w *world) arrive(level Level) {
	r := &request{came: w.now, level: level}
	n := w.came[level]
	w.came[level]++
	if len(w.edges) > 0 {
		r.edge = w.edges[n%len(w.edges)]
		if entered, _ := r.edge.Enter(level, false, w.now); !entered {
			w.shed[level]++
			return
		}
	}
	w.origin.queue = append(w.origin.queue, r)
	w.serve()
}

func (w *world) serve() {
	o := &w.origin
	for o.busy < o.workers && len(o.queue) > 0 {
		r := o.queue[0]
		o.queue = o.queue[1:]
		o.busy++
		r.ends = w.now.Add(o.service(w.now))
		heap.Push(&w.under, r)
	}
}

func (w *world) end(r *request) {
	w.now = r.ends
	w.origin.busy--
	took := w.now.Sub(r.came)
	if w.worst[r.level] = max(w.worst[r.level], took); took <= w.patience {
		w.well[r.level]++
	}
	if r.edge != nil {
		r.edge.Leave(Answered, r.came, w.now)
	}
	w.serve()
}

func (w *world) inFlight() int { return w.origin.busy + len(w.origin.queue) }

func (w *world) String() string {
	out := fmt.Sprintf("in flight %d", w.inFlight())
	for _, e := range w.edges {
		out += fmt.Sprintf(", limit %d base %v", e.Status().Limit, e.Status().Base)
	}
	for _, l := range byPriority {
		out += fmt.Sprintf("; %v: %d came, %d shed, %d well, worst %v", l, w.came[l], w.shed[l], w.well[l], w.worst[l])
	}
	return out
}

func always(d time.Duration) func(time.Time) time.Duration {
	return func(time.Time) time.Duration { return d }
}

// An origin that slows to a tenth under a flood keeps its critical clients, and without a limit loses all of them.
func TestCriticalRequestsOutliveAFlood(t *testing.T) {
	service := 10 * time.Millisecond
	slows := func(time.Time) time.Duration { return service }
	run := func(edges int) *world {
		service = 10 * time.Millisecond
		w := newWorld(t, edges, 16, slows, flow{Critical, 20}, flow{Default, 20}, flow{Sheddable, 400})
		if w.run(20 * time.Second); w.shed != ([Levels]int{}) {
			t.Errorf("%d edges, a sound origin: %v", edges, w)
		}
		service *= 10
		w.run(65 * time.Second)
		return w
	}
	w := run(1)
	if w.well[Critical] < w.came[Critical]*99/100 || w.shed[Critical] > 0 {
		t.Errorf("critical: %v", w)
	}
	if w.well[Default] < w.came[Default]*9/10 || w.well[Sheddable] < 65*160/2 {
		t.Errorf("others: %v", w)
	}
	service = 10 * time.Millisecond
	w.run(20 * time.Second)
	if w.run(20 * time.Second); w.shed != ([Levels]int{}) {
		t.Errorf("twenty seconds after the origin is well again: %v", w)
	}
	if w = run(0); w.well[Critical] > w.came[Critical]/10 {
		t.Errorf("without a limit: %v", w)
	}
}

// Under a load that lasts the limit settles above what keeps the workers busy, and does not follow its own queue up.
func TestTheLimitDoesNotFollowItsQueue(t *testing.T) {
	for _, c := range []struct{ edges, workers, rate int }{{1, 4, 500}, {1, 16, 1000}, {1, 100, 5000}, {4, 100, 5000}, {8, 16, 1000}} {
		w := newWorld(t, c.edges, c.workers, always(50*time.Millisecond), flow{Default, float64(c.rate)})
		w.run(2 * time.Minute)
		for range 6 {
			w.run(30 * time.Second)
			if in := w.inFlight(); in > max(3*c.workers, 5*c.edges*DefaultMin/2) || w.well[Default] < c.workers*20*30*9/10 {
				t.Errorf("%+v: %v", c, w)
			}
		}
	}
}

// Many requests in hand are no reason by themselves, nor are pages that differ in latency by a factor of a hundred.
func TestASoundOriginIsLeftAlone(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	mixed := func(time.Time) time.Duration {
		if random.IntN(20) == 0 {
			return time.Second
		}
		return 10 * time.Millisecond
	}
	for name, c := range map[string]struct {
		service func(time.Time) time.Duration
		rate    float64
	}{"slow": {always(time.Second), 200}, "mixed": {mixed, 2000}} {
		w := newWorld(t, 1, 10_000, c.service, flow{Sheddable, 20})
		w.run(time.Minute)
		w.flows[0].rate = c.rate
		w.run(time.Minute) // the limit grows with who comes
		if w.run(5 * time.Minute); w.shed[Sheddable] > w.came[Sheddable]/1000 {
			t.Errorf("%s: %v", name, w)
		}
	}
}

// Whoever asks a sound origin for some quick pages every ten seconds does not have the others shed by that: it costs them a probe at most.
func TestQuickAnswersShedFew(t *testing.T) {
	for _, burst := range []int{40, 100, 300} {
		quick, shed := false, 0
		w := newWorld(t, 1, 1000, func(time.Time) time.Duration {
			if quick {
				return time.Millisecond
			}
			return 50 * time.Millisecond
		}, flow{Default, 800})
		run := func(d time.Duration) {
			w.run(d)
			shed += w.shed[Default]
		}
		run(15 * time.Second) // bursts do not meet a probe
		for range 3 {
			for range burst / 10 {
				quick = true
				for range 10 {
					w.arrive(Default)
				}
				quick = false
				run(1300 * time.Microsecond)
			}
			w.flows[0].rate = 1200 // the limit is in use
			run(5 * time.Second)
			w.flows[0].rate = 800
			run(5 * time.Second)
		}
		if shed > 100 {
			t.Errorf("bursts of %d: %d of 30,000 were shed; %v", burst, shed, w)
		}
	}
}

// What an answer, or none, tells of the origin. The limit falls by latency alone, and by nothing that tells of another time.
func TestWhatIsTimed(t *testing.T) {
	l := New(Config{Min: 10, Max: 40})
	now := start
	round := func(o Outcome, took time.Duration) int {
		began, n := now, l.Status().Limit
		for range n {
			l.Enter(Critical, false, began)
		}
		now = now.Add(took)
		for range n {
			l.Leave(o, began, now)
		}
		return l.Status().Limit
	}
	for i, step := range []struct {
		outcome Outcome
		took    time.Duration
		limit   int
		base    time.Duration
	}{
		{Unmeasured, time.Millisecond, 40, 0},
		{Unended, time.Second, 40, 0}, // nothing is known to hold it against
		{Answered, 10 * time.Millisecond, 40, 10 * time.Millisecond},
		{Unended, 15 * time.Millisecond, 40, 10 * time.Millisecond}, // it may have been as fast as ever
		{Unmeasured, time.Second, 40, 10 * time.Millisecond},
		{Unended, 50 * time.Millisecond, 26, 10 * time.Millisecond},   // half of 40 and its root
		{Answered, 8 * time.Millisecond, 31, 9750 * time.Microsecond}, // an eighth of the way
	} {
		if got := round(step.outcome, step.took); got != step.limit || l.Status().Base != step.base || l.Status().InFlight != 0 {
			t.Errorf("step %d: %+v, want limit %d and base %v", i, l.Status(), step.limit, step.base)
		}
	}
	l.Configure(Config{Min: 2, Max: 5})
	if got := l.Status().Limit; got != 5 {
		t.Errorf("with other bounds: %d", got)
	}
}

// Critical requests that are more by themselves than what a probe leaves to the others keep them out for a moment, not for ever: the base
// cannot be measured then.
func TestAProbeThatCannotDrainEnds(t *testing.T) {
	service := 50 * time.Millisecond
	w := newWorld(t, 1, 1000, func(time.Time) time.Duration { return service }, flow{Critical, 900}, flow{Default, 100})
	w.run(20 * time.Second)
	service = 80 * time.Millisecond // a new release, say: nothing waits
	w.run(time.Minute)
	if w.shed[Critical] > 0 || w.shed[Default] > w.came[Default]/5 {
		t.Error(w)
	}
}

// A request that has a place by the time that it gives up has it to give back.
func TestAbandon(t *testing.T) {
	l := New(Config{Min: 1, Max: 1})
	l.Enter(Default, true, start)
	_, a := l.Enter(Sheddable, true, start)
	_, b := l.Enter(Critical, true, start)
	l.Leave(Unmeasured, start, start)
	select {
	case <-b.Ready:
	default:
		t.Error("the critical one waits on")
	}
	if !l.Abandon(b, true, start) || l.Abandon(a, false, start) {
		t.Error("who has a place is not who was told")
	}
	l.Leave(Unmeasured, start, start)
	if s := l.Status(); s.InFlight != 0 || s.Waiting != 0 || s.Shed != ([Levels]uint64{Sheddable: 1}) {
		t.Errorf("%+v", s)
	}
}

// A place that is lent is one less under way, also for who waits, and one more again at its return; once the request is over nothing is lent.
func TestLend(t *testing.T) {
	l := New(Config{Min: 1, Max: 1})
	l.Enter(Critical, false, start)
	p := l.Entered()
	_, w := l.Enter(Critical, true, start)
	p.Return() // nothing was lent
	p.Lend()
	select {
	case <-w.Ready:
	default:
		t.Error("who waits is not let in")
	}
	if p.Return(); l.Status().InFlight != 2 {
		t.Errorf("after it has returned: %+v", l.Status())
	}
	l.Leave(Unmeasured, start, start)
	for range 2 { // it is over while it is lent, and the body is still coming
		p.Lend()
		p.End()
		p.Lend()
		p.Return()
		if l.Status().InFlight != 1 {
			t.Errorf("at its end: %+v", l.Status())
		}
	}
	if l.Leave(Unmeasured, start, start); l.Status().InFlight != 0 {
		t.Errorf("%+v", l.Status())
	}
}

func TestNoAllocation(t *testing.T) {
	l := New(Config{})
	if n := testing.AllocsPerRun(1000, func() {
		l.Enter(Default, true, start)
		l.Leave(Answered, start, start.Add(time.Millisecond))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkEnterLeave(b *testing.B) {
	l := New(Config{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if entered, _ := l.Enter(Default, false, start); entered {
				l.Leave(Answered, start, start.Add(time.Millisecond))
			}
		}
	})
}
