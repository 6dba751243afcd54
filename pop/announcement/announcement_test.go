package announcement

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/mitigation"
	"sluice/pop/across"
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

// edge is an Announcer with all that it works with, and a node of its own.
type edge struct {
	*Announcer
	t        *testing.T
	rule     mitigation.Rule
	counters *counter.Table
	bits     *mitigation.Table
	logs     *log.Logs
	node     *poptest.Node
	sent     []wire.Command // of bits
	with     []*Bit
	decided  []across.Block
}

func newEdge(t *testing.T, limit uint32) *edge {
	t.Helper()
	r, err := algorithm.NewSliding("login", limit, time.Minute, 12, algorithm.Nearest)
	if err != nil {
		t.Fatal(err)
	}
	e := &edge{t: t, rule: mitigation.Rule{Name: "login", Counter: r, Timeout: time.Minute}, logs: log.New(key), node: poptest.New(0),
		counters: counter.New(counter.Options{Counters: 100, Tier: true}), bits: mitigation.New(100, func() {})}
	nodes, err := placement.New([]string{"node:11211"}, key, began)
	if err != nil {
		t.Fatal(err)
	}
	list := operators.New(operators.Config{Secret: key, ID: 1, Counters: e.counters, Blocks: e.bits, Jitter: func(d time.Duration) time.Duration { return d }}, began)
	e.logs.Grow(1)
	e.Announcer = New(Config{Secret: key, ID: 1, Counters: e.counters.Reports(), Blocks: e.bits, Operators: list, Nodes: nodes, Logs: e.logs,
		Send:    func(c wire.Command, b *Bit) { e.sent, e.with = append(e.sent, c), append(e.with, b) },
		Decided: func(b across.Block) { e.decided = append(e.decided, b) }})
	e.SetRules([]mitigation.Rule{e.rule})
	return e
}

func (e *edge) counter(n byte) counter.Counter {
	return counter.Counter{Rule: e.rule.Counter, Source: address(n)}
}

func (e *edge) key(n byte) mitigation.Key {
	return mitigation.Key{Rule: e.rule.Counter.ID, Source: address(n)}
}

// logged writes what has gathered for the log, and returns the kinds of its records.
func (e *edge) logged() string {
	e.t.Helper()
	c, b, due := e.logs.Write(0, began.Add(time.Hour))
	var kinds []string
	for due {
		if c.Op == wire.Set {
			for sealed, rest := record.Cut(c.Value); sealed != nil; sealed, rest = record.Cut(rest) {
				r, ok := record.Open(key, sealed)
				if !ok {
					e.t.Fatal("a record that is not ours")
				}
				kinds = append(kinds, r.Kind.String())
			}
		}
		r := e.node.Do(began, c)
		c, due = e.logs.Written(b, &r, true, began, began)
	}
	return strings.Join(kinds, " ")
}

// TestActOn is what follows from where a counter stands after an answer, at once and a while later.
func TestActOn(t *testing.T) {
	for _, test := range []struct {
		name  string
		reply counter.Reply
		poor  bool   // the budget is used up
		now   string // in the log
		later string // and bits, without a word of others
	}{
		{"far from its limit", counter.Reply{}, false, "", ""},
		{"this edge brought it to half", counter.Reply{Stage: algorithm.Half, Crossed: true}, false, "standing", ""},
		{"another did", counter.Reply{Stage: algorithm.Half}, false, "", "standing"},
		{"this edge left nothing", counter.Reply{Stage: algorithm.Full, Crossed: true}, false, "standing", ""},
		{"this edge may ask when hits came", counter.Reply{WantTimes: true, CrossedTimes: true}, false, "ask", ""},
		{"another is to ask", counter.Reply{WantTimes: true}, false, "", "ask"},
		{"no budget for half", counter.Reply{Stage: algorithm.Half, Crossed: true}, true, "", ""},
		{"no budget for a question", counter.Reply{WantTimes: true, CrossedTimes: true}, true, "", ""},
		{"what is left is paid for", counter.Reply{Stage: algorithm.Full, Crossed: true}, true, "standing", ""},
	} {
		e := newEdge(t, 100)
		for test.poor && e.Budget.Affords(e.rule.Counter, 1) {
			e.Budget.Spend()
		}
		e.ActOn(e.counter(1), test.reply, began)
		if got := e.logged(); got != test.now {
			t.Errorf("%s: %q in the log at once, want %q", test.name, got, test.now)
		}
		if e.Waiting() != (test.later != "") {
			t.Errorf("%s: waiting %v", test.name, e.Waiting())
		}
		e.Resume(began.Add(time.Second))
		if got := e.logged(); got != test.later || e.Waiting() {
			t.Errorf("%s: %q in the log later, want %q", test.name, got, test.later)
		}
		if len(e.sent) > 0 {
			t.Errorf("%s: sent %v", test.name, e.sent)
		}
	}
}

// TestOthersSaidIt: what was left for a while is dropped when another edge has done it.
func TestOthersSaidIt(t *testing.T) {
	e, other := newEdge(t, 100), newEdge(t, 100)
	other.config.ID = 2
	e.ActOn(e.counter(1), counter.Reply{Stage: algorithm.Half}, began)
	e.ActOn(e.counter(1), counter.Reply{WantTimes: true}, began)
	e.Apply(other.state(record.RequestTimes, other.counter(1), began), began)
	e.Resume(began.Add(time.Second))
	if got := e.logged(); got != "" {
		t.Errorf("%q in the log", got)
	}
}

// TestBits is what follows when a block of a request is to be announced, by what is at its key already.
func TestBits(t *testing.T) {
	record := func(kind record.Kind, limit uint32, end time.Duration) []byte {
		rule := newEdge(t, 5).rule.Counter
		return (&record.Record{Kind: kind, Rule: key.RuleDigest(rule), Source: address(1), Start: began.Add(-time.Minute), End: began.Add(end), Limit: limit}).Seal(key)
	}
	for _, test := range []struct {
		name   string
		there  []byte // at the key
		status wire.Status
		ops    string
		log    string
		peers  int
	}{
		{"nothing is there", nil, wire.Done, "add", "block", 1},
		{"nobody knows", nil, wire.Unknown, "add", "block", 1},
		{"another edge was first", record(0, 5, time.Minute), wire.NotThere, "add get", "", 0},
		{"that one has ended", record(0, 5, -time.Second), wire.NotThere, "add get set", "block", 1},
		{"that one is of a stricter limit", record(0, 4, time.Minute), wire.NotThere, "add get set", "block", 1},
		{"it is no bit", record(1, 5, time.Minute), wire.NotThere, "add get set", "block", 1},
		{"it was written by no edge", []byte("x"), wire.NotThere, "add get set", "block", 1},
		{"it is gone", nil, wire.NotThere, "add get set", "block", 1},
	} {
		e := newEdge(t, 5)
		e.bits.Start(e.key(1), mitigation.Bit{Start: began, End: began.Add(30 * time.Second), Version: e.rule.Version()}, began)
		e.AnnounceBlocks(began)
		var ops []string
		for i := 0; i < len(e.sent); i++ {
			c := e.sent[i]
			ops = append(ops, c.Op.String())
			r := wire.Result{Command: c}
			switch c.Op {
			case wire.Add:
				r.Status = test.status
			case wire.Get:
				r.Values = [][]byte{test.there}
			}
			e.Answered(e.with[i], &r, began)
		}
		if got := strings.Join(ops, " "); got != test.ops {
			t.Errorf("%s: %s, want %s", test.name, got, test.ops)
		}
		if got := e.logged(); got != test.log || len(e.decided) != test.peers {
			t.Errorf("%s: %q in the log, want %q; %d told to peers", test.name, got, test.log, len(e.decided))
		}
	}
}

// TestLearn is which records put a block into force, and until when.
func TestLearn(t *testing.T) {
	ours := newEdge(t, 5).rule.Counter
	sound := record.Record{Rule: key.RuleDigest(ours), Source: address(1), Start: began, End: began.Add(30 * time.Second), Limit: 5}
	with := func(change func(r *record.Record)) record.Record {
		r := sound
		change(&r)
		return r
	}
	for _, test := range []struct {
		name string
		r    record.Record
		ends time.Duration // 0: it is none
	}{
		{"a block", sound, 30 * time.Second},
		{"of a rule that is not in force", with(func(r *record.Record) { r.Rule++ }), 0},
		{"of a stricter limit", with(func(r *record.Record) { r.Limit = 4 }), 0},
		{"that has ended", with(func(r *record.Record) { r.Start, r.End = began.Add(-time.Minute), began.Add(-time.Second) }), 0},
		{"without end", with(func(r *record.Record) { r.End = began.Add(time.Hour) }), 67 * time.Second},
		{"from before", with(func(r *record.Record) { r.Start, r.End = began.Add(-time.Hour), began.Add(time.Hour) }), 0},
		{"of a peer", with(func(r *record.Record) { r.By = mitigation.ByPeer }), 30 * time.Second},
	} {
		e := newEdge(t, 5)
		started := e.Apply(test.r, began)
		bit, there := e.bits.Get(e.key(1), began)
		if started != (test.ends > 0) || there != started || there && !bit.End.Equal(began.Add(test.ends)) {
			t.Errorf("%s: started %v, ends %v", test.name, started, bit.End.Sub(began))
		}
	}
	e := newEdge(t, 5)
	e.Peers(false)
	if e.Apply(with(func(r *record.Record) { r.By = mitigation.ByPeer }), began) || !e.Apply(sound, began) {
		t.Error("an edge that believes no peers")
	}
}

// TestTimesOnce: when another edge's hits came is taken in once, and never this edge's own.
func TestTimesOnce(t *testing.T) {
	e := newEdge(t, 100)
	times := counter.Times{SubWindow: uint32(began.Unix() / 5)}
	times.Hits[0] = 3
	r := record.Record{Kind: record.Times, Rule: key.RuleDigest(e.rule.Counter), Source: address(1), Start: began, Edge: 1, Times: []counter.Times{times}}
	e.Apply(r, began)
	if len(e.times) != 0 {
		t.Error("this edge's own were taken in")
	}
	r.Edge = 2
	e.Apply(r, began)
	from := takenFrom{e.key(1), 2}
	if taken := e.times[from]; taken.Take(times.SubWindow) {
		t.Error("they are taken in again")
	}
	e.Sweep(began.Add(time.Hour))
	if len(e.times) != 0 {
		t.Error("they are remembered for ever")
	}
}

// TestBudget: reports earn, commands spend, and what is saved is shared by all edges.
func TestBudget(t *testing.T) {
	e := newEdge(t, 100)
	e.SetEdges(4)
	for range 1000 {
		e.Budget.Earn(e.rule.Counter)
	}
	if e.Budget.left != mostSaved/4 || !e.Budget.Affords(e.rule.Counter, mostSaved/4) || e.Budget.Affords(e.rule.Counter, mostSaved/4+1) {
		t.Errorf("%v is saved", e.Budget.left)
	}
	for range 10 * mostSaved {
		e.Budget.Spend()
	}
	if e.Budget.left != -mostSaved || e.Budget.Left() {
		t.Errorf("%v is left", e.Budget.left)
	}
	few := newEdge(t, 3)
	few.Budget.Spend()
	if all := few.Budget.Affords(few.rule.Counter, 1); !all {
		t.Error("nothing is afforded of a full budget")
	}
	for range mostSaved / 5 {
		few.Budget.Spend()
	}
	if few.Budget.Affords(few.rule.Counter, 1) || !few.Budget.Affords(e.rule.Counter, 1) {
		t.Error("a rule of a few hits takes what was saved")
	}
}

// TestImpose is which blocks of another PoP come into force.
func TestImpose(t *testing.T) {
	sound := across.Block{Rule: "login", Counts: "login", Source: address(1), Start: began, End: began.Add(10 * time.Second), Limit: 5, Window: time.Minute}
	with := func(change func(b *across.Block)) across.Block {
		b := sound
		change(&b)
		return b
	}
	var got, want []string
	for _, test := range []struct {
		b    across.Block
		want across.Outcome
	}{
		{sound, across.Imposed},
		{with(func(b *across.Block) { b.Rule = "other" }), across.NoRule},
		{with(func(b *across.Block) { b.Counts = "other" }), across.NoRule},
		{with(func(b *across.Block) { b.Limit = 4 }), across.Looser},
		{with(func(b *across.Block) { b.Window = 2 * time.Minute }), across.Looser},
		{with(func(b *across.Block) { b.Window = 30 * time.Second }), across.Imposed},
	} {
		e := newEdge(t, 5)
		got, want = append(got, fmt.Sprint(e.AddPeerBlock("x", test.b, began, began))), append(want, fmt.Sprint(test.want))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestVoidBits: a verdict that waited while its rule was loosened, or was removed, is not written to the tier; one that waited
// while its rule became stricter is.
func TestVoidBits(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(r *mitigation.Rule)
		ops    int
	}{
		{"unchanged", func(*mitigation.Rule) {}, 1},
		{"a lower limit", func(r *mitigation.Rule) { r.Counter = r.Counter.With(4, algorithm.Nearest) }, 1},
		{"a longer timeout", func(r *mitigation.Rule) { r.Timeout = time.Hour }, 1},
		{"a higher limit", func(r *mitigation.Rule) { r.Counter = r.Counter.With(6, algorithm.Nearest) }, 0},
		{"a shorter timeout", func(r *mitigation.Rule) { r.Timeout = time.Second }, 0},
		{"removed", func(r *mitigation.Rule) { r.Counter = newEdge(t, 20_000).rule.Counter }, 0},
	} {
		e := newEdge(t, 5)
		e.bits.Start(e.key(1), mitigation.Bit{Start: began, End: began.Add(30 * time.Second), Version: e.rule.Version()}, began)
		rule := e.rule
		test.change(&rule)
		e.SetRules([]mitigation.Rule{rule})
		e.AnnounceBlocks(began)
		if got := e.logged(); len(e.sent) != test.ops || got != "" {
			t.Errorf("%s: sent %v, and %q in the log, want %d commands", test.name, e.sent, got, test.ops)
		}
	}
}
