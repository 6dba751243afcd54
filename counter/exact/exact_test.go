package exact

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
)

var (
	start = time.Unix(1_800_000_000, 0)
	a     = counter.SourceOf(netip.MustParseAddr("192.0.2.1"), 32, 64)
	b     = counter.SourceOf(netip.MustParseAddr("192.0.2.2"), 32, 64)
)

func newRule(t testing.TB, limit uint32, window time.Duration, closed bool) *Spec {
	t.Helper()
	r, err := algorithm.NewExact("pay", limit, window, 12)
	if err != nil {
		t.Fatal(err)
	}
	return NewSpec(r, closed, false)
}

// world is edges with clocks of their own, a node that keeps values and versions of them, and an origin that notes when requests arrive.
type world struct {
	t        *testing.T
	now      time.Time
	random   *rand.Rand
	rule     *Spec
	values   map[uint32]stored
	versions uint64
	edges    []*edge
	arrived  []time.Time // at the origin, by its clock
	verdicts [4]int
	commands int

	patience time.Duration // of a request
	down     bool
	unknown  float64       // how often nobody knows what became of a write
	slow     time.Duration // how long a request is under way at most
	local    bool          // who gets no answer is decided about by what its edge knows
	long     time.Duration // and at least
	takes    float64       // how often an answer does not count
}

type stored struct {
	value   []byte
	version uint64
}

type edge struct {
	*Table
	w       *world
	skew    time.Duration
	flights []flight
	waits   []*waiter
	way     []under
	gone    bool
}

// flight is a command on its way to the node, then its answer on the way back.
type flight struct {
	at      time.Time
	x       *Exchange
	done    bool // by the node
	write   []byte
	add     bool
	version uint64
	there   bool
	body    []byte
	outcome Outcome
	lost    bool
}

type waiter struct {
	k     Ticket
	until time.Time
}

// under is a request that will arrive at the origin.
type under struct {
	k  Ticket
	at time.Time
}

func newWorld(t *testing.T, seed uint64, edges int, r *Spec, skew time.Duration) *world {
	w := &world{t: t, now: start, random: rand.New(rand.NewPCG(seed, 7)), rule: r, values: make(map[uint32]stored), patience: 5 * time.Millisecond}
	for i := range edges {
		e := &edge{w: w, Table: newTable()}
		if edges > 1 {
			e.skew = skew * time.Duration(i) / time.Duration(edges-1)
		}
		w.edges = append(w.edges, e)
	}
	w.keep()
	return w
}

func newTable() *Table {
	return New(Options{Bucket: func(s counter.Source) uint32 { return number(s) }})
}

// keep makes the values that are not there, as edges do.
func (w *world) keep() {
	for n := range uint32(3) {
		if _, there := w.values[n]; !there {
			w.store(n, Fresh(w.clock(w.random.IntN(len(w.edges)))))
		}
	}
}

func (w *world) clock(edge int) time.Time { return w.now.Add(w.edges[edge].skew) }

func (w *world) store(n uint32, value []byte) {
	w.versions++
	w.values[n] = stored{value, w.versions}
}

// number is the bucket of a source.
func number(s counter.Source) uint32 {
	if s == a {
		return 1
	}
	return 2
}

func tag(r *Spec, s counter.Source) uint64 { return uint64(number(s)) }

// step lets a millisecond pass.
func (w *world) step() {
	w.now = w.now.Add(time.Millisecond)
	for _, i := range w.random.Perm(len(w.edges)) {
		if e := w.edges[i]; !e.gone {
			e.step(w.clock(i))
		}
	}
}

func (e *edge) step(clock time.Time) {
	w := e.w
	node := func(*Spec, uint32) int {
		if w.down {
			return -1
		}
		return 0
	}
	for _, x := range e.Due(make([]*Exchange, 0, 8), clock, node) {
		e.flights = append(e.flights, flight{x: x, at: w.later()})
	}
	flights := e.flights
	e.flights = nil
	for _, f := range flights {
		switch {
		case w.now.Before(f.at):
			e.flights = append(e.flights, f)
		case !f.done:
			e.flights = append(e.flights, w.carry(f))
		case f.write == nil:
			write := e.Read(f.x, f.body, f.there, !f.lost, tag, clock)
			if write != nil {
				e.flights = append(e.flights, flight{x: f.x, at: w.later(), write: write, add: !f.there, version: f.version})
			}
		default:
			e.Written(f.x, f.outcome, clock)
		}
	}
	waits := e.waits
	e.waits = nil
	for _, q := range waits {
		switch answer := e.Confirm(&q.k, clock); {
		case answer == counter.NoAnswer && w.now.Before(q.until):
			e.waits = append(e.waits, q)
		case answer == counter.NoAnswer && w.local:
			if e.Locally(&q.k, clock) {
				e.admitted(q.k)
			}
		case answer == counter.NoAnswer:
			e.Cancel(&q.k)
			w.verdicts[counter.NoAnswer]++
		default:
			if w.verdicts[answer]++; answer == counter.Admit {
				e.admitted(q.k)
			}
		}
	}
	way := e.way
	e.way = nil
	for _, u := range way {
		switch {
		case w.now.Before(u.at):
			e.way = append(e.way, u)
		case w.random.Float64() < w.takes:
			e.Cancel(&u.k)
		default:
			w.arrived = append(w.arrived, w.now)
			e.Done(&u.k)
		}
	}
}

func (e *edge) admitted(k Ticket) {
	d := e.w.long
	if w := e.w; w.slow > 0 && w.random.IntN(3) == 0 {
		d = time.Duration(w.random.Int64N(int64(w.slow)))
	}
	e.way = append(e.way, under{k, e.w.now.Add(d)})
}

// request has one come to an edge.
func (e *edge) request(s counter.Source) {
	w := e.w
	k := e.Enter(w.rule, s, !w.down, w.now.Add(e.skew))
	e.waits = append(e.waits, &waiter{k, w.now.Add(w.patience)})
}

func (w *world) later() time.Time {
	return w.now.Add(time.Duration(w.random.IntN(2)) * time.Millisecond)
}

// carry has the node do what it is asked, and the answer go back, or be lost.
func (w *world) carry(f flight) flight {
	f.done, f.at = true, w.later()
	w.commands++
	n := f.x.Bucket
	have, there := w.values[n]
	lost := w.random.Float64() < w.unknown
	switch {
	case w.down:
		f.lost, f.outcome = true, Unsent
	case f.write == nil:
		f.body, f.there, f.version, f.lost = have.value, there, have.version, lost
	case f.add && there, !f.add && (!there || have.version != f.version):
		if f.outcome = Conflict; lost {
			f.outcome = Unknown
		}
	case lost && w.random.IntN(2) == 0:
		f.outcome = Unknown // before it was carried out
	default:
		w.store(n, f.write)
		if f.outcome = Stored; lost {
			f.outcome = Unknown
		}
	}
	return f
}

// most is the most requests that arrived at the origin within a window.
func (w *world) most(window time.Duration) (most int) {
	slices.SortFunc(w.arrived, time.Time.Compare)
	from := 0
	for i, at := range w.arrived {
		for at.Sub(w.arrived[from]) >= window {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

// run lets requests of a come for a while, about so many a millisecond.
func (w *world) run(d time.Duration, rate int, each func()) {
	for end := w.now.Add(d); w.now.Before(end); {
		for range w.random.IntN(2*rate + 1) {
			if e := w.edges[w.random.IntN(len(w.edges))]; !e.gone {
				e.request(a)
			}
		}
		if each != nil {
			each()
		}
		w.step()
	}
}

// Whatever happens to nodes, commands and edges, and with clocks that differ by more than half of Margin, an origin never gets more than the
// limit of a source in any window, by its own exact log; and while nothing happens it gets the limit.
func TestNeverMoreThanTheLimit(t *testing.T) {
	for seed := range uint64(12) {
		window := []time.Duration{MinWindow, 4 * time.Second, 20 * time.Second}[seed/3%3]
		r := newRule(t, []uint32{1, 3, 10, 50}[seed%4], window, true)
		w := newWorld(t, seed, []int{1, 3, 8}[seed%3], r, Margin(window)*13/20)
		w.run(window+2*Margin(window), 0, nil)
		w.slow = time.Duration(seed%5) * 3 * time.Second
		w.takes = float64(seed%2) * 0.1
		w.run(5*window/2, 2, nil)
		if calm := w.most(window); calm != r.Limit && w.slow == 0 && w.takes == 0 {
			t.Errorf("seed %d: %d arrived in a window while nothing happened, want %d", seed, calm, r.Limit)
		}
		w.unknown = 0.02
		w.run(30*time.Second, 1, func() {
			switch w.random.IntN(4000) {
			case 0: // the node restarts, at once or later
				clear(w.values)
				w.down = w.random.IntN(2) == 0
			case 1:
				w.down = false
			case 2: // it evicts
				delete(w.values, number(a))
			case 3: // an edge dies, with all that is under way there, and another begins
				e := w.edges[w.random.IntN(len(w.edges))]
				e.Table, e.flights, e.waits, e.way = newTable(), nil, nil, nil
			}
			if !w.down && w.random.IntN(300) == 0 {
				w.keep()
			}
		})
		if n := w.most(window); n > r.Limit {
			t.Errorf("seed %d, %d edges, limit %d: %d arrived in a window", seed, len(w.edges), r.Limit, n)
		}
		if w.verdicts[counter.Admit] == 0 || w.verdicts[counter.Reject] == 0 {
			t.Errorf("seed %d: %v", seed, w.verdicts)
		}
	}
}

// looks is what each edge knows when it has asked the tier.
func (w *world) looks(s counter.Source) (all []int) {
	for _, e := range w.edges {
		e.Look(w.rule, s)
	}
	w.run(100*time.Millisecond, 0, nil)
	for i, e := range w.edges {
		v, _ := e.Peek(w.rule, s, w.clock(i))
		all = append(all, int(v.Estimate))
	}
	return all
}

// A request that is under way counts once, however long it takes, and for a window from when it was there; one that does not count leaves nothing,
// on no edge.
func TestUnderWay(t *testing.T) {
	const window = 4 * time.Second
	w := newWorld(t, 1, 3, newRule(t, 3, window, false), 300*time.Millisecond)
	w.patience, w.long = time.Second, 20*time.Second
	w.run(time.Second, 0, nil)
	w.edges[0].request(a)
	w.edges[0].request(b)
	for range 9 {
		w.run(2*time.Second, 0, nil)
		for _, s := range []counter.Source{a, b} {
			if got := w.looks(s); !slices.Equal(got, []int{1, 1, 1}) {
				t.Fatalf("after %v: %v count", w.now.Sub(start), got)
			}
		}
	}
	w.run(3*time.Second, 0, nil)
	if got := w.looks(a); len(w.arrived) != 2 || !slices.Equal(got, []int{1, 1, 1}) {
		t.Errorf("%d have arrived, and %v count", len(w.arrived), got)
	}
	if w.run(window+Margin(window), 0, nil); !slices.Equal(w.looks(a), []int{0, 0, 0}) {
		t.Error("it counts for longer than the window")
	}
	for seed := range uint64(5) {
		w := newWorld(t, seed, 3, newRule(t, 5, time.Hour, false), 300*time.Millisecond)
		w.slow, w.takes = 3*time.Second, 1
		w.run(20*time.Second, 1, nil)
		if w.verdicts[counter.Admit] < 20 {
			t.Errorf("seed %d: %v", seed, w.verdicts)
		}
		w.run(5*time.Second, 0, nil)
		if got := w.looks(a); !slices.Equal(got, []int{0, 0, 0}) {
			t.Errorf("seed %d: %v are left of what did not count", seed, got)
		}
	}
}

// A source whose requests come evenly, at ten elevenths of its limit, is never refused, however short the window is.
func TestEvenlyWithin(t *testing.T) {
	for _, window := range []time.Duration{MinWindow, 5 * time.Second, time.Minute} {
		const limit = 10
		w := newWorld(t, 1, 3, newRule(t, limit, window, false), 0)
		for n := range 5 * limit {
			w.edges[n%3].request(a)
			w.run((window+Margin(window))/limit+5*time.Millisecond, 0, nil)
		}
		if w.verdicts[counter.Admit] != 5*limit {
			t.Errorf("%d in %v: %v of %d", limit, window, w.verdicts, 5*limit)
		}
	}
}

// A request is not admitted by an instant that is old by the time that the tier has it, and does not count.
func TestStoredLate(t *testing.T) {
	const window = MinWindow
	for _, late := range []bool{false, true} {
		w := newWorld(t, 1, 1, newRule(t, 1, window, false), 0)
		k := w.edges[0].Enter(w.rule, a, true, start)
		x := w.edges[0].Due(make([]*Exchange, 0, 1), start, func(*Spec, uint32) int { return 0 })[0]
		write := w.edges[0].Read(x, w.values[x.Bucket].value, true, true, tag, start)
		w.store(x.Bucket, write)
		w.now = start.Add(Margin(window) / 4)
		if late {
			w.now = w.now.Add(time.Microsecond)
		}
		w.edges[0].Written(x, Stored, w.now)
		want := counter.Admit
		if late {
			want = counter.NoAnswer
		}
		if got := w.edges[0].Confirm(&k, w.now); got != want {
			t.Fatalf("late %v: %v, want %v", late, got, want)
		}
		if w.edges[0].Cancel(&k); late {
			if got := w.looks(a); !slices.Equal(got, []int{0}) {
				t.Errorf("%v count", got)
			}
		}
	}
}

// A table says when the instant of a request that is under way is to be moved on.
func TestIn(t *testing.T) {
	const window = MinWindow
	w := newWorld(t, 1, 1, newRule(t, 3, window, false), 0)
	w.patience, w.long = time.Second, time.Minute
	e := w.edges[0]
	if got := e.In(time.Hour, w.now); got != time.Hour {
		t.Errorf("nothing is under way: %v", got)
	}
	e.request(a)
	if got := e.In(time.Hour, w.now); got != 0 {
		t.Errorf("a request waits: %v", got)
	}
	w.run(10*time.Millisecond, 0, nil)
	if got := e.In(time.Hour, w.now); got <= 30*time.Millisecond || got > Margin(window)/4 {
		t.Errorf("one is under way: %v", got)
	}
}

// Under local a value that was lost is put together again by edges that know it; one that none knows lets the limit through once more.
func TestPutBack(t *testing.T) {
	w := newWorld(t, 1, 3, newRule(t, 5, time.Hour, false), 0)
	w.run(time.Second, 1, nil)
	for n, forget := range []bool{false, true} {
		w.run(100*time.Millisecond, 0, nil)
		clear(w.values)
		for _, e := range w.edges {
			if forget {
				e.Table, e.flights, e.waits, e.way = newTable(), nil, nil, nil
			}
		}
		w.run(5*time.Second, 1, nil)
		if want := 5 * (n + 1); len(w.arrived) != want {
			t.Errorf("%d have arrived, want %d", len(w.arrived), want)
		}
	}
}

// A value is read as it was written, and nothing else is one.
func TestValue(t *testing.T) {
	v := value{since: start.UnixMicro(), sources: []source{
		{7, []int64{1}}, {1 << 63, []int64{start.UnixMicro(), start.UnixMicro(), start.UnixMicro() + 5_000_000}}, {3, nil},
	}}
	b := v.append(nil)
	got, ok := parse(b)
	if !ok || got.since != v.since || len(got.sources) != 2 || !slices.Equal(got.sources[1].at, v.sources[1].at) || got.sources[1].tag != 1<<63 {
		t.Errorf("%+v, %v", got, ok)
	}
	for n := range b {
		if cut, ok := parse(b[:n]); ok && len(cut.sources) == 2 {
			t.Errorf("%d bytes of %d are a value", n, len(b))
		}
	}
	if fresh, ok := parse(Fresh(start)); !ok || fresh.since != v.since || len(fresh.sources) > 0 {
		t.Errorf("%+v, %v", fresh, ok)
	}
	var at []int64
	for i := range int64(1000) {
		at = append(at, start.UnixMicro()+i*3_600_000)
	}
	if n := len((&value{sources: []source{{1, at}}}).append(nil)); n > 4100 {
		t.Errorf("a thousand instants of an hour take %d bytes", n)
	}
}

// What is in the tier may be anything: it is read, or is no value.
func FuzzValue(f *testing.F) {
	f.Add(Fresh(start))
	f.Add((&value{sources: []source{{1, []int64{1, 2, 3}}}}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, ok := parse(b); ok {
			again, ok := parse(v.append(nil))
			if !ok || again.since != v.since {
				t.Errorf("%x is read as %+v, and that as %+v", b, v, again)
			}
		}
	})
}
