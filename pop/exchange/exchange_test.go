package exchange

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/counter/exact"
	"sluice/counter/inflight"
	"sluice/mitigation"
	"sluice/pop/announcement"
	"sluice/pop/log"
	"sluice/pop/operators"
	"sluice/pop/placement"
	"sluice/pop/poptest"
	"sluice/pop/record"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

var (
	began = time.Unix(1_700_000_000, 0)
	key   = secret.Of([]byte("test"))
)

func address(n byte) counter.Source {
	return counter.SourceOf(netip.AddrFrom4([4]byte{192, 0, 2, n}), 32, 64)
}

// edge is Exchanges with all that they work with, and a node of its own.
type edge struct {
	*Exchanges
	counters *counter.Table
	bits     *mitigation.Table
	rule     *algorithm.Spec
	exact    *exact.Spec
	node     *poptest.Node
	sent     []wire.Command
	request  []Request
}

func newEdge(t *testing.T) *edge {
	t.Helper()
	e := &edge{counters: counter.New(counter.Options{Counters: 100, Tier: true}), bits: mitigation.New(100, nil), node: poptest.New(0)}
	var err error
	if e.rule, err = algorithm.NewSliding("login", 5, time.Minute, 12, algorithm.Nearest); err != nil {
		t.Fatal(err)
	}
	pay, err := algorithm.NewExact("pay", 5, time.Minute, 12)
	if err != nil {
		t.Fatal(err)
	}
	e.exact = exact.NewSpec(pay, false, false)
	nodes, err := placement.New([]string{"node:11211"}, key, began)
	if err != nil {
		t.Fatal(err)
	}
	list := operators.New(operators.Config{Secret: key, ID: 1, Counters: e.counters, Blocks: e.bits, Jitter: func(d time.Duration) time.Duration { return d }}, began)
	logs := log.New(key)
	logs.Grow(1)
	announcer := announcement.New(announcement.Config{Secret: key, ID: 1, Counters: e.counters.Reports(), Blocks: e.bits, Operators: list, Nodes: nodes, Logs: logs,
		Send: func(wire.Command, *announcement.Bit) { t.Error("a bit was sent") }})
	e.Exchanges = New(Config{Secret: key, Counters: e.counters.Reports(), InFlight: inflight.New(inflight.Options{Tier: true}), Operators: list, Nodes: nodes, Announcer: announcer,
		Exact: exact.New(exact.Options{Bucket: key.Bucket}),
		Send:  func(c wire.Command, a Request) { e.sent, e.request = append(e.sent, c), append(e.request, a) }})
	rules := []mitigation.Rule{{Counter: e.rule, Timeout: time.Minute}, {Counter: pay, Exact: e.exact}}
	announcer.SetRules(rules)
	e.SetRules(rules)
	return e
}

// step takes a Step, has the node answer all that is asked, and returns the commands.
func (e *edge) step(now time.Time) string {
	e.Step(now)
	return e.answer(now)
}

func (e *edge) answer(now time.Time) string {
	var ops []string
	for i := 0; i < len(e.sent); i++ {
		ops = append(ops, e.sent[i].Op.String())
		r := e.node.Do(now, e.sent[i])
		e.Answered(e.request[i], &r, now)
	}
	e.sent, e.request = nil, nil
	return strings.Join(ops, " ")
}

// bucketsKept has all buckets of exact rules added.
func (e *edge) bucketsKept(t *testing.T) time.Time {
	t.Helper()
	for d := time.Duration(0); d <= 2*time.Second; d += 10 * time.Millisecond {
		e.step(began.Add(d))
	}
	if got := e.node.Items(); got != exact.Buckets {
		t.Fatalf("%d buckets were added, want %d", got, exact.Buckets)
	}
	return began.Add(2 * time.Second)
}

// TestReadForRequest: a counter that a request waits for is read, its bit with it, and what is there is learned.
func TestReadForRequest(t *testing.T) {
	e := newEdge(t)
	now := e.bucketsKept(t)
	c := counter.Counter{Rule: e.rule, Source: address(1)}
	bit := &record.Record{Rule: key.RuleDigest(e.rule), Source: c.Source, Start: now, End: now.Add(30 * time.Second), Limit: 5}
	e.node.Do(now, wire.Command{Op: wire.Set, Key: key.BitKey(c, 0), Value: bit.Seal(key)})
	e.Fetch(c)
	if got := e.step(now); got != "get" {
		t.Errorf("asked %q", got)
	}
	if end := e.bits.Until(mitigation.Key{Rule: e.rule.ID, Source: c.Source}, now); !end.Equal(now.Add(30 * time.Second)) {
		t.Errorf("blocked until %v", end)
	}
	if got := e.step(now); got != "" {
		t.Errorf("asked %q again", got)
	}
}

// TestReadsGoTogether, as many as a line has room for; what was asked before the clock stepped is not taken in.
func TestReadsGoTogether(t *testing.T) {
	e := newEdge(t)
	now := e.bucketsKept(t)
	for n := range byte(100) {
		e.Fetch(counter.Counter{Rule: e.rule, Source: address(n)})
	}
	e.Step(now)
	if len(e.sent) < 2 || len(e.sent) > 50 {
		t.Errorf("%d commands", len(e.sent))
	}
	for i, c := range e.sent {
		if len(c.Key) > maxReadKeys+maxReadKey || len(c.Keys()) > wire.MaxKeys {
			t.Errorf("%d keys in %d bytes", len(c.Keys()), len(c.Key))
		}
		if a := &e.request[i]; !a.Read() || a.kind != waited {
			t.Errorf("asked as %v", a.kind)
		}
	}
	c := counter.Counter{Rule: e.rule, Source: address(1)}
	bit := &record.Record{Rule: key.RuleDigest(e.rule), Source: c.Source, Start: now, End: now.Add(time.Minute), Limit: 5}
	e.node.Do(now, wire.Command{Op: wire.Set, Key: key.BitKey(c, 0), Value: bit.Seal(key)})
	for i := range e.request {
		e.request[i].ClockStepped()
	}
	e.answer(now)
	if !e.bits.Until(mitigation.Key{Rule: e.rule.ID, Source: c.Source}, now).IsZero() {
		t.Error("an answer from before the clock stepped was taken in")
	}
}

// TestForgedReads are counted, and not learned.
func TestForgedReads(t *testing.T) {
	e := newEdge(t)
	now := e.bucketsKept(t)
	c := counter.Counter{Rule: e.rule, Source: address(1)}
	e.node.Do(now, wire.Command{Op: wire.Set, Key: key.BitKey(c, 0), Value: []byte("x")})
	_, newest := e.counters.Reports().Groups(e.rule, now, key.Phase(c.Source))
	name := key.CounterName(c, 0)
	e.node.Do(now, wire.Command{Op: wire.Set, Key: name.Key(newest), Value: []byte("many")})
	e.Fetch(c)
	if e.step(now); e.Forged() != 2 {
		t.Errorf("%d forged", e.Forged())
	}
}

// TestInFlight: a request under way is said to the tier, once, and so is its end.
func TestInFlight(t *testing.T) {
	e := newEdge(t)
	now := e.bucketsKept(t)
	rule := &inflight.Concurrency{Name: "slow", Limit: 3}
	place, _ := e.config.InFlight.Enter(rule, address(1), true, now)
	if !e.Waiting() {
		t.Error("nothing waits")
	}
	if got := e.step(now); !strings.HasPrefix(got, "add incr") {
		t.Errorf("asked %q", got)
	}
	select {
	case <-place.Reply:
	default:
		t.Error("nobody told the request that waits")
	}
	if e.config.InFlight.Confirm(&place, now) != counter.Admit {
		t.Error("it is one of three, and has no place")
	}
	e.config.InFlight.Leave(&place)
	if got := e.step(now); !strings.Contains(got, "decr") {
		t.Errorf("asked %q at its end", got)
	}
	for _, a := range e.request {
		if a.Read() {
			t.Error("reports pay for it")
		}
	}
}

// TestExact: a request that is kept in the tier reads its bucket and writes it back; one whose bucket another edge has changed meanwhile reads again.
func TestExact(t *testing.T) {
	e := newEdge(t)
	now := e.bucketsKept(t)
	ticket := e.config.Exact.Enter(e.exact, address(1), true, now)
	if got := e.step(now); got != "gets cas" {
		t.Errorf("asked %q", got)
	}
	if e.config.Exact.Confirm(&ticket, now) != counter.Admit {
		t.Error("it is not admitted")
	}
	e.config.Exact.Enter(e.exact, address(1), true, now)
	e.Step(now)
	r := e.node.Do(now, e.sent[0])
	value := key.SealAt(secret.Exact, r.Key, exact.Fresh(now))
	e.node.Do(now, wire.Command{Op: wire.Set, Key: r.Key, Value: value})
	e.Answered(e.request[0], &r, now)
	e.sent, e.request = e.sent[1:], e.request[1:]
	if got := e.answer(now) + " " + e.step(now); got != "cas gets cas" {
		t.Errorf("asked %q after a conflict", got)
	}
}

// TestBucketsAreKept: all are added at first, slowly again after that, and no others once the rule is gone.
func TestBucketsAreKept(t *testing.T) {
	e := newEdge(t)
	e.SetEdges(2)
	now := e.bucketsKept(t)
	added := 0
	for d := time.Duration(0); d < keepEvery; d += 100 * time.Millisecond {
		added += len(strings.Fields(e.step(now.Add(d))))
	}
	if added < exact.Buckets/2-2 || added > exact.Buckets/2+2 {
		t.Errorf("one of two edges added %d in %v, want half of %d", added, keepEvery, exact.Buckets)
	}
	e.SetRules(nil)
	if got := e.step(now.Add(2 * keepEvery)); got != "" {
		t.Errorf("asked %q without a rule", got)
	}
}
