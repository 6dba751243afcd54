package inflight

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"sluice/counter"
)

var (
	start = time.Unix(1_800_000_000, 0)
	a     = counter.SourceOf(netip.MustParseAddr("192.0.2.1"), 32, 64)
	b     = counter.SourceOf(netip.MustParseAddr("192.0.2.2"), 32, 64)
)

// An edge alone: so many at once, each source and rule by itself, and nothing is left of what has ended.
func TestAlone(t *testing.T) {
	table := New(Options{})
	two, other := &Concurrency{"two", 2}, &Concurrency{"other", 1}
	var held []Slot
	for _, step := range []struct {
		rule    *Concurrency
		source  counter.Source
		leave   int // first, of those that have a slot; less than 0: none
		entered bool
	}{
		{two, a, -1, true},
		{two, a, -1, true},
		{two, a, -1, false},
		{two, b, -1, true},
		{other, a, -1, true},
		{other, a, -1, false},
		{two, a, 0, true},
		{two, a, -1, false},
	} {
		if step.leave >= 0 {
			table.Leave(&held[step.leave])
			table.Leave(&held[step.leave])
		}
		p, entered := table.Enter(step.rule, step.source, true, start)
		if entered != step.entered || p.Reply != nil {
			t.Fatalf("%+v: entered %v, reply %v", step, entered, p.Reply)
		}
		if entered {
			held = append(held, p)
		}
	}
	if by, keys := table.Held(); by["two"] != 3 || by["other"] != 1 || keys != 3 {
		t.Errorf("%v of %d keys", by, keys)
	}
	if table.Leave(&held[2]); fmt.Sprint(table.Held()) != "map[other:1 two:2] 2" { // b, of which nothing is left, between two that stay
		t.Error(table.Held())
	}
	if table.Leave(&held[1]); fmt.Sprint(table.Held()) != "map[other:1 two:1] 2" {
		t.Error(table.Held())
	}
	for i := range held {
		table.Leave(&held[i])
	}
	if by, keys := table.Held(); len(by) != 0 || keys != 0 {
		t.Errorf("left: %v of %d keys", by, keys)
	}
}

// tier is nodes that count, and what is on its way to them and back.
type tier struct {
	t      *testing.T
	now    time.Time
	random *rand.Rand
	nodes  []map[string]uint64
	up     []bool
	edges  []*edge
	sent   int // commands

	far time.Duration // how much longer a round trip takes
}

type edge struct {
	*Table
	tier    *tier
	skew    time.Duration
	gone    bool
	paused  bool
	arrives []answer
	waits   []*Slot // for the tier
	holds   []*Slot
	moves   time.Time // when it finds out that a node is lost
}

// An answer is an exchange that comes back at a time.
type answer struct {
	at      time.Time
	x       *Exchange
	carried int // so many parts its node has carried out
	totals  [2]uint64
	out     [2]Outcome
}

func newTier(t *testing.T, edges, nodes int, seed uint64, skew time.Duration) *tier {
	w := &tier{t: t, now: start, random: rand.New(rand.NewPCG(seed, 1))}
	for range nodes {
		w.nodes, w.up = append(w.nodes, make(map[string]uint64)), append(w.up, true)
	}
	for i := range edges {
		e := &edge{Table: New(Options{Tier: true}), tier: w}
		if edges > 1 {
			e.skew = skew * time.Duration(2*i-edges+1) / time.Duration(2*(edges-1)) // from -skew/2 to skew/2
		}
		w.edges = append(w.edges, e)
	}
	return w
}

// nodeOf is the first node, or the second once the edge has found out that the first is lost.
func (e *edge) nodeOf(counter.Source) int {
	if e.moves.IsZero() || e.tier.now.Before(e.moves) {
		return 0
	}
	return 1
}

// step lets a millisecond pass.
func (w *tier) step() {
	w.now = w.now.Add(time.Millisecond)
	for _, i := range w.random.Perm(len(w.edges)) {
		e := w.edges[i]
		if e.gone || e.paused {
			continue
		}
		for _, x := range e.Due(make([]*Exchange, 0, 8), w.now.Add(e.skew), w.now.Equal(e.moves), e.nodeOf) {
			e.arrives = append(e.arrives, answer{at: w.now.Add(w.far + time.Duration(1+w.random.IntN(3))*time.Millisecond), x: x})
		}
	}
	for _, i := range w.random.Perm(len(w.edges)) { // nodes carry out what has arrived, and answers come back, in whatever order edges are
		e := w.edges[i]
		rest := e.arrives[:0]
		for _, r := range e.arrives {
			for r.carried < len(r.x.Parts) && w.random.IntN(2) == 0 { // those of several edges mixed
				w.carry(&r, r.carried)
				r.carried++
			}
			if r.carried < len(r.x.Parts) || e.paused || w.now.Before(r.at) {
				rest = append(rest, r)
				continue
			}
			for p := len(r.x.Parts) - 1; p >= 0; p-- {
				e.Answered(r.x, p, r.out[p], r.totals[p])
			}
		}
		e.arrives = rest
	}
}

// carry carries out a part of an exchange on its node.
func (w *tier) carry(r *answer, i int) {
	p := r.x.Parts[i]
	if !w.up[r.x.Node] {
		r.out[i] = Unknown
		return
	}
	node := w.nodes[r.x.Node]
	key := fmt.Sprint(r.x.Rule, r.x.Source, p.Epoch)
	w.sent++
	if p.Create {
		if w.sent++; node[key] == 0 {
			node[key] = 1 << 32 // there, and 0
		}
	}
	if node[key] == 0 {
		r.out[i] = Missing
		return
	}
	n := int64(node[key]-1<<32) + int64(p.Delta)
	node[key] = uint64(max(n, 0)) + 1<<32
	r.out[i], r.totals[i] = Counted, uint64(max(n, 0))
}

func (w *tier) held() (n int) {
	for _, e := range w.edges {
		if !e.gone {
			n += len(e.holds)
		}
	}
	return n
}

// work has edges take in answers, end requests, and get new ones, each with some chance.
func (e *edge) work(r *Concurrency, comes, ends float64) {
	w := e.tier
	if e.gone || e.paused {
		return
	}
	waits := e.waits[:0]
	for _, p := range e.waits {
		select {
		case <-p.Reply:
		default:
			waits = append(waits, p)
			continue
		}
		switch e.Confirm(p, w.now) {
		case counter.Admit:
			e.holds = append(e.holds, p)
		case counter.NoAnswer: // as under on_store_failure: closed
			e.Leave(p)
		}
	}
	e.waits = waits
	holds := e.holds[:0]
	for _, p := range e.holds {
		if w.random.Float64() >= ends {
			holds = append(holds, p)
			continue
		}
		e.Leave(p)
	}
	e.holds = holds
	for w.random.Float64() < comes {
		if p, entered := e.Enter(r, a, true, w.now); entered {
			e.waits = append(e.waits, &p)
		}
	}
}

// An edge learns from the tier how many slots a source has on all of them, also one that has none, and takes none by
// that.
func TestLook(t *testing.T) {
	r, w := &Concurrency{"r", 20}, newTier(t, 3, 1, 1, 300*time.Millisecond)
	var places []Slot
	enter := func(e *edge, n int) {
		for range n {
			p, entered := e.Enter(r, a, false, w.now)
			if !entered {
				t.Fatal("no slot")
			}
			places = append(places, p)
		}
	}
	wants := func(want int, here ...int) {
		t.Helper()
		for range 300 {
			w.step()
		}
		for range 40 { // at every time of an epoch
			looks := make([]Look, len(w.edges))
			for i, e := range w.edges {
				looks[i] = e.Look(r, a)
			}
			for range 50 {
				w.step()
			}
			for i, e := range w.edges {
				select {
				case <-looks[i].Reply:
				default:
					t.Fatal("no reply")
				}
				if all, own := e.Of(r, a, looks[i]); all != want || own != here[i] {
					t.Errorf("%v: edge %d knows %d, of them %d here; want %d and %d", w.now, i, all, own, want, here[i])
				}
			}
		}
	}
	wants(0, 0, 0, 0)
	enter(w.edges[0], 1)
	enter(w.edges[1], 4)
	wants(5, 1, 4, 0)
	w.edges[0].Leave(&places[0])
	wants(4, 0, 4, 0)
	lost := w.edges[1].Look(r, a)
	if all, here := w.edges[1].Of(r, a, lost); all != 4 || here != 4 {
		t.Errorf("%d, of them %d here, before the tier has answered", all, here)
	}
	for i := range places {
		w.edges[1].Leave(&places[i])
	}
	for range 3000 {
		w.step()
	}
	for i, e := range w.edges {
		if _, keys := e.Held(); keys != 0 {
			t.Errorf("edge %d keeps %d keys", i, keys)
		}
	}
}

// Over edges whose clocks differ, however many come at once, no more are in flight than the limit; nearly as many are while more come; and
// of what has ended nothing is left, on edges nor in the tier.
func TestTogether(t *testing.T) {
	for seed := range uint64(30) {
		r := &Concurrency{"r", int32(1 + seed%20)}
		w := newTier(t, 1+int(seed%8), 1, seed, time.Duration(seed%3)*150*time.Millisecond)
		most, full, steps := 0, 0, 4000
		for range steps {
			for _, e := range w.edges {
				e.work(r, 0.7, 0.01)
			}
			w.step()
			n := w.held()
			if most = max(most, n); n*10 >= int(r.Limit)*8 {
				full++
			}
		}
		if most > int(r.Limit) || most < int(r.Limit) {
			t.Errorf("seed %d: %d edges had %d in flight, want %d", seed, len(w.edges), most, r.Limit)
		}
		if full < steps/2 {
			t.Errorf("seed %d: %d edges had four fifths of %d in flight in %d of %d steps", seed, len(w.edges), r.Limit, full, steps)
		}
		for range 3000 {
			for _, e := range w.edges {
				e.work(r, 0, 0.05)
			}
			w.step()
		}
		for i, e := range w.edges {
			if by, keys := e.Held(); keys != 0 || e.Behind() {
				t.Errorf("seed %d: edge %d still has %v of %d keys", seed, i, by, keys)
			}
		}
		for key, n := range w.nodes[0] {
			_, decides, _ := epochs(w.now)
			for k := decides - 1; k <= decides+1; k++ {
				if key == fmt.Sprint(r.Name, a, k) && n != 1<<32 {
					t.Errorf("seed %d: %d are left in the tier", seed, n-1<<32)
				}
			}
		}
	}
}

// The vain tries of many edges at once, far from the tier, do not keep slots empty that have come free.
func TestFloodOfManyEdges(t *testing.T) {
	for _, limit := range []int32{1, 20} {
		w, r := newTier(t, 32, 1, 1, 0), &Concurrency{"r", limit}
		w.far = 4 * time.Millisecond
		used, steps := 0, 4000
		for range steps {
			for _, e := range w.edges {
				e.work(r, 0.7, 0.01)
			}
			w.step()
			used += w.held()
		}
		if percent := 100 * used / steps / int(limit); percent < 60 {
			t.Errorf("%d%% of %d slots are used", percent, limit)
		}
		if perEdge := w.sent * 1000 / steps / len(w.edges); perEdge > 80 {
			t.Errorf("%d commands a second from each edge", perEdge)
		}
	}
}

// What an edge held that died is free again within an epoch and a half, and not before: its requests may still be at the origin.
func TestEdgeDies(t *testing.T) {
	gone := 0
	for seed := range uint64(20) {
		r := &Concurrency{"r", 20}
		w := newTier(t, 3, 1, seed, 20*time.Millisecond)
		for range 3000 + seed*50 {
			for _, e := range w.edges {
				e.work(r, 0.7, 0.01)
			}
			w.step()
		}
		died := len(w.edges[0].holds)
		w.edges[0].gone = true
		after := 0
		for ; after < 3000 && w.held() < int(r.Limit); after++ {
			for _, e := range w.edges {
				e.work(r, 0.7, 0.01)
			}
			if w.step(); w.held() > int(r.Limit) {
				t.Errorf("seed %d: %d in flight", seed, w.held())
			}
		}
		gone += died
		if after > 1600 {
			t.Errorf("seed %d: what one held, %d, was free after %d ms", seed, died, after)
		}
	}
	if gone < 20 {
		t.Errorf("those that died held %d", gone)
	}
}

// An edge that was stopped finds its slots given to others. What it holds counts again at once, so nobody is admitted
// until there is room.
func TestEdgePauses(t *testing.T) {
	r := &Concurrency{"r", 20}
	w := newTier(t, 8, 1, 3, 20*time.Millisecond)
	run := func(ms int, comes, ends float64) {
		for range ms {
			for _, e := range w.edges {
				e.work(r, comes, ends)
			}
			w.step()
		}
	}
	run(2000, 0.7, 0.01)
	stopped := len(w.edges[0].holds)
	w.edges[0].paused = true
	run(3000, 0.7, 0.01)
	if w.held() < 20 || stopped == 0 {
		t.Fatalf("%d in flight, %d of them stopped", w.held(), stopped)
	}
	w.edges[0].paused = false
	run(20, 0, 0)
	before := w.held()
	if run(200, 0.7, 0); w.held() != before {
		t.Errorf("%d in flight, then %d", before, w.held())
	}
	for range 3000 {
		if run(1, 0.7, 0.01); w.held() > before {
			t.Fatalf("%d in flight, above %d", w.held(), before)
		}
		before = max(20, w.held())
	}
	if before > 20 {
		t.Errorf("%d in flight", before)
	}
}

// The numbers of a lost node are said again at another at once; those of one that has forgotten them, with the next epoch.
func TestNodeLost(t *testing.T) {
	for name, lose := range map[string]func(w *tier){
		"down": func(w *tier) {
			w.up[0] = false
			for i, e := range w.edges {
				e.moves = w.now.Add(time.Duration(1+3*i) * time.Millisecond)
			}
		},
		"restarted": func(w *tier) { clear(w.nodes[0]) },
	} {
		r := &Concurrency{"r", 20}
		w := newTier(t, 8, 2, 1, 20*time.Millisecond)
		run := func(ms int, ends float64) {
			for range ms {
				for _, e := range w.edges {
					e.work(r, 0.3, ends)
				}
				w.step()
			}
		}
		run(2000, 0.01)
		lose(w)
		run(20, 0)
		if n := w.held(); name == "down" && n > 20 {
			t.Errorf("%s: %d in flight", name, n)
		}
		run(2000, 0.01)
		for range 2000 {
			if run(1, 0.01); w.held() > 20 {
				t.Fatalf("%s: two seconds later %d in flight", name, w.held())
			}
		}
	}
}

// A tier that never answers: a request that gives up waiting keeps the slot as far as this edge knows, and gives it
// back like any other.
func TestSilence(t *testing.T) {
	w := newTier(t, 1, 1, 1, 0)
	e, r := w.edges[0], &Concurrency{"r", 2}
	var places []Slot
	for range 3 {
		if p, entered := e.Enter(r, a, true, w.now); entered {
			if answer := e.Confirm(&p, w.now); answer != counter.NoAnswer {
				t.Errorf("answer %v", answer)
			}
			places = append(places, p)
		}
	}
	if len(places) != 2 {
		t.Fatalf("%d have entered", len(places))
	}
	for i := range places {
		e.Leave(&places[i])
	}
	for range 1100 {
		w.step()
	}
	if by, keys := e.Held(); keys != 0 {
		t.Errorf("left: %v", by)
	}
}

// answered carries out what is due, at a node that has so many of others. Meanwhile something happens.
func answered(t *Table, wall time.Time, others uint64, meanwhile func()) {
	due := t.Due(make([]*Exchange, 0, 8), wall, false, func(counter.Source) int { return 0 })
	meanwhile()
	for _, x := range due {
		for i := range x.Parts {
			by, _ := t.Held()
			t.Answered(x, i, Counted, others+uint64(by[x.Rule]))
		}
	}
}

// Who was just refused by the tier is refused for a while without asking it, and twice as long each time, up to a bound, until one is admitted.
// Who does not ask goes by this edge's own count.
func TestRefusedForAWhile(t *testing.T) {
	table, r, now := New(Options{Tier: true}), &Concurrency{"r", 2}, start.Add(500*time.Millisecond)
	ask := func(others uint64) counter.Answer {
		t.Helper()
		p, entered := table.Enter(r, a, true, now)
		if !entered {
			t.Fatalf("refused after %v without asking", now.Sub(start))
		}
		for range 2 { // the second time nothing is due
			answered(table, now, others, func() {})
		}
		got := table.Confirm(&p, now)
		if again := table.Confirm(&p, now); again != counter.NoAnswer {
			t.Errorf("confirmed twice: %v", again)
		}
		if got == counter.Reject {
			if table.Leave(&p); len(table.dirty) == 0 { // it has none
				t.Error("the tier does not learn that the slot is given back")
			}
		}
		return got
	}
	for i, want := range []time.Duration{25, 50, 100, 100, 0, 25, 50} {
		want *= time.Millisecond
		if want == 0 {
			if got := ask(1); got != counter.Admit {
				t.Errorf("step %d: %v, want a slot", i, got)
			}
			continue
		}
		if got := ask(2); got != counter.Reject {
			t.Errorf("step %d: %v, want none", i, got)
		}
		if _, entered := table.Enter(r, a, true, now.Add(want-1)); entered {
			t.Errorf("step %d: the tier is asked again before %v", i, want)
		}
		now = now.Add(want)
	}
	now = now.Add(-1)
	p, entered := table.Enter(r, a, false, now)
	if !entered {
		t.Error("who does not ask is refused for what the tier has said")
	}
	table.Leave(&p)
	if _, entered := table.Enter(r, a, true, now); !entered {
		t.Error("a slot has come free here, and the tier is not read")
	}
}

// A request that went on without an answer holds a slot, also against those that wait for the same answer.
func TestUnconfirmedRequestHoldsASlot(t *testing.T) {
	for limit, want := range map[int32]counter.Answer{2: counter.Reject, 3: counter.Admit} {
		table, r := New(Options{Tier: true}), &Concurrency{"r", limit}
		first, _ := table.Enter(r, a, true, start)
		second, _ := table.Enter(r, a, true, start)
		answered(table, start.Add(500*time.Millisecond), 1, func() {
			if got := table.Confirm(&first, start); got != counter.NoAnswer {
				t.Errorf("before there is an answer: %v", got)
			}
		})
		if got := table.Confirm(&second, start); got != want {
			t.Errorf("of %d, one is another edge's and one went on: %v, want %v", limit, got, want)
		}
	}
}

// The tier gets nothing about requests that ended before the exchange.
func TestLeavesBeforeTheExchange(t *testing.T) {
	for name, leave := range map[string]func(*Table, *Slot){
		"before an answer": (*Table).Leave,
		"having gone on without": func(t *Table, p *Slot) {
			t.Confirm(p, start)
			t.Leave(p)
		},
	} {
		table := New(Options{Tier: true})
		p, _ := table.Enter(&Concurrency{"r", 2}, a, true, start)
		reply := p.Reply
		leave(table, &p)
		if due := table.Due(make([]*Exchange, 0, 8), start.Add(500*time.Millisecond), false, func(counter.Source) int { return 0 }); len(due) > 0 {
			t.Errorf("%s: %d exchanges, of %+v", name, len(due), due[0].Parts)
		}
		select {
		case <-reply:
		default:
			t.Errorf("%s: its reply stays open", name)
		}
	}
}

// What has changed is looked at once, whoever changed it, and only if there is a tier.
func TestWakes(t *testing.T) {
	for _, tier := range []bool{false, true} {
		woken, want := 0, map[bool]int{true: 1}[tier]
		table, r := New(Options{Tier: tier, Wake: func() { woken++ }}), &Concurrency{"r", 100}
		for range 10 {
			p, _ := table.Enter(r, a, false, start)
			table.Enter(r, a, false, start)
			table.Leave(&p)
		}
		if woken != want || len(table.dirty) != want {
			t.Errorf("with a tier %v: woken %d times, %d to look at; want %d", tier, woken, len(table.dirty), want)
		}
	}
}

// What a request costs the tier: four commands where its key is known, six where not, and a live key one or two a second.
func TestCommands(t *testing.T) {
	w := newTier(t, 1, 1, 1, 0)
	w.now = start.Add(200 * time.Millisecond) // two epochs are kept
	e, r := w.edges[0], &Concurrency{"r", 10}
	enter := func() *Slot {
		p, _ := e.Enter(r, a, true, w.now)
		for range 20 {
			w.step()
		}
		if got := e.Confirm(&p, w.now); got != counter.Admit {
			t.Fatalf("answer %v", got)
		}
		return &p
	}
	count := func(what string, least, most int, f func()) {
		t.Helper()
		before := w.sent
		f()
		for range 20 {
			w.step()
		}
		if n := w.sent - before; n < least || n > most {
			t.Errorf("%s: %d commands, want %d to %d", what, n, least, most)
		}
	}
	var first *Slot
	count("the first of a key", 4, 4, func() { first = enter() })
	count("another, from its beginning to its end", 4, 4, func() { e.Leave(enter()) })
	count("ten seconds of a key", 10, 30, func() {
		for range 10_000 {
			w.step()
		}
	})
	w.now = w.now.Truncate(time.Second).Add(100 * time.Millisecond)
	w.step()
	count("its end", 2, 2, func() { e.Leave(first) })
	count("one that comes back", 4, 4, func() { e.Leave(enter()) })
}

// A request on one edge allocates nothing, of a known key or not.
func TestNoAllocation(t *testing.T) {
	table, r := New(Options{}), &Concurrency{"r", 10}
	if n := testing.AllocsPerRun(100, func() {
		p, _ := table.Enter(r, a, true, start)
		table.Leave(&p)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkEnterLeave(b *testing.B) {
	table := New(Options{})
	r := &Concurrency{"r", 10}
	b.ReportAllocs()
	for range b.N {
		p, _ := table.Enter(r, a, true, start)
		table.Leave(&p)
	}
}

// What may have been carried out, or not, leaves too much in the tier until the epoch ends, and never too little.
func TestUnknown(t *testing.T) {
	table, r := New(Options{Tier: true}), &Concurrency{"r", 10}
	now := start.Add(500 * time.Millisecond) // one epoch is kept
	node := func(counter.Source) int { return 0 }
	send := func(o Outcome, total uint64) (delta int32) {
		for _, x := range table.Due(make([]*Exchange, 0, 8), now, false, node) {
			delta = x.Parts[0].Delta
			table.Answered(x, 0, o, total)
		}
		return delta
	}
	var places [4]Slot
	for i := range places {
		places[i], _ = table.Enter(r, a, i != 1, now)
		if i == 0 {
			send(Counted, 1)
		}
	}
	if d := send(Unknown, 0); d != 3 {
		t.Errorf("%d are said, want 3", d)
	}
	table.Leave(&places[3])
	if d := send(Counted, 1); d != 0 {
		t.Errorf("%d are said in the epoch that failed", d)
	}
	confirm, _ := table.Enter(r, a, true, now)
	if d := send(Counted, 7); d != 3 || table.Confirm(&confirm, now) != counter.Admit {
		t.Errorf("%d are said when one more asks, want 3: all but the one that was counted", d)
	}
	table.Leave(&confirm)
	for i := range places {
		table.Leave(&places[i])
	}
	now = now.Add(time.Second)
	if send(Counted, 0); len(table.list) != 0 {
		t.Error("an entry is left")
	}
	p, _ := table.Enter(r, a, false, now)
	send(Counted, 1)
	table.Leave(&p)
	q, _ := table.Enter(r, a, false, now)
	if d := send(Counted, 1); d != 0 {
		t.Errorf("%d are said of one that came for one that went", d)
	}
	table.Leave(&q)
	if d := send(Unknown, 0); d != -1 {
		t.Errorf("%d are said, want -1", d)
	}
	if d := send(Counted, 0); d != 0 {
		t.Errorf("what may have been taken is taken again: %d", d)
	}
}

// A node that has no memory for a number is not asked for it without end: once for a request, and once an epoch for what is held.
func TestNoMemory(t *testing.T) {
	table, r := New(Options{Tier: true}), &Concurrency{"r", 10}
	now := start.Add(500 * time.Millisecond) // one epoch is kept
	stored := 0
	send := func() {
		for range 100 {
			for _, x := range table.Due(make([]*Exchange, 0, 8), now, false, func(counter.Source) int { return 0 }) {
				stored++
				for i := range x.Parts {
					table.Answered(x, i, Missing, 0)
				}
			}
		}
	}
	p, _ := table.Enter(r, a, true, now)
	if send(); stored != 1 {
		t.Errorf("a request: %d exchanges, want 1", stored)
	}
	select {
	case <-p.Reply:
	default:
		t.Error("a request waits for what never comes")
	}
	stored, now = 0, now.Add(time.Second)
	if send(); stored > 2 {
		t.Errorf("what is held: %d exchanges in an epoch, want 2", stored)
	}
	table.Leave(&p)
	if send(); table.Waiting() {
		now = now.Add(time.Second)
		if send(); table.Waiting() {
			t.Error("an entry is left")
		}
	}
}

// A clock that steps back by an hour while nodes settle leaves failure policies in charge for no longer than they were to be.
func TestSettlesOverAStep(t *testing.T) {
	table, r := New(Options{Tier: true}), &Concurrency{"r", 10}
	node := func(counter.Source) int { return 0 }
	now := start.Add(500 * time.Millisecond)
	table.Due(nil, now, false, node)
	table.Due(nil, now, true, node)
	for _, step := range []struct {
		at   time.Duration
		want counter.Answer
	}{{50 * time.Millisecond, counter.NoAnswer}, {-time.Hour, counter.Admit}} {
		at := now.Add(step.at)
		p, _ := table.Enter(r, a, true, at)
		for _, x := range table.Due(make([]*Exchange, 0, 8), at, false, node) {
			for i := range x.Parts {
				table.Answered(x, i, Counted, 1)
			}
		}
		if got := table.Confirm(&p, at); got != step.want {
			t.Errorf("%v: answer %v, want %v", step.at, got, step.want)
		}
		table.Leave(&p)
	}
}

// Who has given up waiting and has left is not counted against who still waits for the same answer.
func TestGivesUpAndLeaves(t *testing.T) {
	table, r := New(Options{Tier: true}), &Concurrency{"r", 2}
	now := start.Add(500 * time.Millisecond)
	first, _ := table.Enter(r, a, true, now)
	second, _ := table.Enter(r, a, true, now)
	out := table.Due(make([]*Exchange, 0, 8), now, false, func(counter.Source) int { return 0 })
	if got := table.Confirm(&first, now); got != counter.NoAnswer {
		t.Fatalf("before there is an answer: %v", got)
	}
	table.Leave(&first)
	table.Answered(out[0], 0, Counted, 3) // another edge has one
	if got := table.Confirm(&second, now); got != counter.Admit {
		t.Errorf("with one slot left: %v", got)
	}
}

// TestRoomIsUsedUp: requests that take the answer of a round have slots as long as there is room, in whatever order they come; a round that
// ends without an answer says so.
func TestRoomIsUsedUp(t *testing.T) {
	for left, want := range map[int64][]counter.Answer{
		9:  {counter.Admit, counter.Admit, counter.Admit},
		2:  {counter.Admit, counter.Admit, counter.Reject},
		-3: {counter.Reject, counter.Reject, counter.Reject},
	} {
		table, r, now := New(Options{Tier: true}), &Concurrency{Name: "r", Limit: 10}, time.Unix(100, 0)
		var slots [3]Slot
		for i := range slots {
			slots[i], _ = table.Enter(r, counter.SourceOf(netip.MustParseAddr("192.0.2.1"), 32, 64), true, now)
		}
		slots[0].round.rank(left)
		for i := range slots {
			if got := table.Confirm(&slots[i], now); got != want[i] {
				t.Errorf("room for %d: request %d: %d, want %d", left, i, got, want[i])
			}
		}
		if b := slots[0].round; b != nil {
			t.Error("an answered slot still waits")
		}
		late, _ := table.Enter(&Concurrency{Name: "other", Limit: 1}, counter.SourceOf(netip.MustParseAddr("192.0.2.1"), 32, 64), true, now)
		if got := table.Confirm(&late, now); got != counter.NoAnswer || late.round.waiting != 0 {
			t.Errorf("without an answer: %d, and %d wait", got, late.round.waiting)
		}
	}
}
