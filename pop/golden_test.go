package pop_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/counter/exact"
	"sluice/counter/inflight"
	"sluice/edge/edgetest/golden"
	"sluice/edge/limiter"
	"sluice/mitigation"
	"sluice/pop/across"
	"sluice/pop/operatorlog"
	"sluice/pop/poptest"
	"sluice/pop/record"
	"sluice/pop/secret"
	"sluice/pop/sim"
	"sluice/pop/wire"
)

// goldenRules are one of each kind that the tier tells apart.
func goldenRules(t *testing.T) map[string]limiter.Rule {
	of := func(r *algorithm.Spec, err error) limiter.Rule {
		must(t, err)
		return limiter.Rule{Rule: mitigation.Rule{Counter: r, Timeout: time.Minute}}
	}
	all := map[string]limiter.Rule{
		"sliding": of(algorithm.NewSliding("sliding", 3, time.Minute, 12, algorithm.Nearest)),
		"lower":   of(algorithm.NewSliding("lower", 20, time.Minute, 4, algorithm.Lower)),
		"plain":   of(algorithm.NewSliding("plain", 20, time.Minute, 1, algorithm.Nearest)),
		"wide":    of(algorithm.NewSliding("wide", 1_000_000, time.Hour, 12, algorithm.Nearest)),
		"fixed":   of(algorithm.NewFixed("fixed", 20, time.Minute)),
		"bucket":  of(algorithm.NewBucket("bucket", 60, time.Minute, 12, 5, 0)),
		"queue":   of(algorithm.NewBucket("queue", 60, time.Minute, 12, 1, 4)),
		"exact":   of(algorithm.NewExact("exact", 3, time.Minute, 12)),
		"slots":   of(algorithm.NewSliding("slots", 1_000_000, time.Minute, 12, algorithm.Nearest)),
	}
	r := all["exact"]
	r.Exact = exact.NewSpec(r.Counter, false, false)
	all["exact"] = r
	r = all["slots"]
	r.InFlight, r.Uncounted = &inflight.Concurrency{Name: "slots", Limit: 5}, true
	all["slots"] = r
	return all
}

var goldenNames = strings.Fields("sliding lower plain wide fixed bucket queue exact slots")

var goldenSources = []counter.Source{
	counter.SourceOf(netip.MustParseAddr("192.0.2.1"), 32, 64),
	counter.SourceOf(netip.MustParseAddr("192.0.2.1"), 24, 64),
	counter.SourceOf(netip.MustParseAddr("2001:db8:1:2:3::4"), 32, 64),
	counter.SourceOfDigest([16]byte([]byte("a digest, 16 long"))),
}

func goldenSecret() secret.Secret { return secret.Of([]byte("a fixed secret")).At("ams1") }

// Names in the tier, and what follows from a source: edges of two versions must agree about each.
func TestNamesInTheTier(t *testing.T) {
	var b strings.Builder
	s, rules := goldenSecret(), goldenRules(t)
	row := func(what string, value any) { fmt.Fprintf(&b, "%-46s %v\n", what, value) }
	row("digests", strings.Join(s.Digests(), " "))
	row("key of clients' values", fmt.Sprintf("%x", s.Bytes()))
	row("via", fmt.Sprintf("%016x", s.Via()))
	row("log head", s.LogHeadKey())
	row("log item 1715688000000", s.LogItemKey(1715688000000))
	for _, slot := range []int{0, 1, 63} {
		row(fmt.Sprintf("presence slot %d", slot), s.SlotKey(slot))
	}
	list, head := s.OperatorListKeys()
	row("operators' list", list)
	row("operators' list, head", head)
	row("view", s.ViewKey())
	row("view, part of edge 1", s.PartKey(1))
	for _, source := range goldenSources {
		at := func(what string) string { return what + " of " + source.String() }
		row(at("binary"), fmt.Sprintf("%x", source.AppendBinary(nil)))
		row(at("placement"), fmt.Sprintf("%016x", s.PlacementHash(source)))
		row(at("phase"), s.Phase(source))
		row(at("bucket of instants"), s.Bucket(source))
		name := s.InFlightName("slots", source)
		row(at("in flight under slots, epoch 7,"), name.Key(7))
		row(at("instants under exact, tag"), fmt.Sprintf("%016x", s.ExactTag("exact", source, 0)))
		row(at("instants under exact, tag, lifted,"), fmt.Sprintf("%016x", s.ExactTag("exact", source, 9)))
	}
	name := s.ExactName("exact")
	row("instants under exact, bucket 7", name.Key(7))
	for _, rule := range goldenNames {
		r := rules[rule].Counter
		row("identity of rule "+rule, fmt.Sprintf("%q", r.Identity()))
		row("digest of rule "+rule, fmt.Sprintf("%016x", s.RuleDigest(r)))
		c := counter.Counter{Rule: r, Source: goldenSources[0]}
		for _, epoch := range []uint64{0, 9} {
			name := s.CounterName(c, epoch)
			row(fmt.Sprintf("counter, rule %s, epoch %d, group 7", rule, epoch), name.Key(7))
			row(fmt.Sprintf("bit, rule %s, epoch %d", rule, epoch), s.BitKey(c, epoch))
		}
	}
	golden.Check(t, "names.txt", []byte(b.String()))
}

// Values, sealed: records of the log and at a bit's key, the operators' list and its head, and a
// message of a peer.
func TestSealedValues(t *testing.T) {
	var b strings.Builder
	s, rules := goldenSecret(), goldenRules(t)
	row := func(what string, value []byte) { fmt.Fprintf(&b, "%s\n%s\n", what, shown(value)) }
	for i, source := range goldenSources {
		r := record.Record{Rule: s.RuleDigest(rules["sliding"].Counter), Source: source, Epoch: uint64(i),
			Start: noon, End: noon.Add(time.Minute), Limit: 3, By: mitigation.ByEdge,
			Newest: 9, Groups: []uint64{1, 2 << 16}, Edge: 5, Times: []counter.Times{{SubWindow: 40}}}
		r.Times[0].Hits[0], r.Times[0].Hits[3] = 1, 300
		for r.Kind = record.Block; r.Kind <= record.OtherPoPs; r.Kind++ {
			row(fmt.Sprintf("record %v of %v", r.Kind, source), r.Seal(s))
		}
	}
	row("an item of two records", record.Append(record.Append(nil, []byte("one")), []byte("another")))
	var words operatorlog.List
	for _, o := range []operatorlog.Order{
		orderToBlock(goldenSources[0], noon),
		{Rule: "*", Source: goldenSources[1], Kind: operatorlog.Block, Start: noon, End: noon.Add(time.Hour)},
		{Rule: "sliding", Source: goldenSources[2], Kind: operatorlog.Lift, Start: noon},
		{Rule: "sliding", Kind: operatorlog.Change, Start: noon, Text: `{"limit":5}`},
	} {
		_, err := words.Add(o, 5, time.Hour, noon)
		must(t, err)
	}
	list := words.Encode(s, noon)
	row("operators' list", list)
	_, id, err := operatorlog.Decode(s, list)
	must(t, err)
	row("operators' list, head", operatorlog.SealHead(s, id))
	key := across.KeyOf([]byte("the peers' secret"))
	m := across.Message{From: "ams1", To: "fra1", Edge: "5", At: noon,
		Blocks: []across.Block{{Rule: "sliding", Counts: "source", Source: goldenSources[0],
			Start: noon, End: noon.Add(time.Minute), Limit: 3, Window: time.Minute}},
		Counts: []across.Count{{Rule: "sliding", Counts: "source", Source: goldenSources[2],
			Window: time.Minute, Began: noon, Sub: 5 * time.Second, Hits: []uint32{2, 1}}}}
	body, signature := key.Seal(&m)
	fmt.Fprintf(&b, "message of a peer\n  %s\n  %s\n  %s\n", body, signature, key.Ticket("fra1", noon))
	golden.Check(t, "values.txt", []byte(b.String()))
}

// orderToBlock is an operator's block.
func orderToBlock(source counter.Source, now time.Time) operatorlog.Order {
	return operatorlog.Order{Rule: "sliding", Source: source, Kind: operatorlog.Block,
		Start: now, End: now.Add(time.Hour), Reason: "because", Who: "anna", From: "10.0.0.1"}
}

// shown writes a value: text as it is, and all else 32 bytes a line.
func shown(b []byte) string {
	if !slices.ContainsFunc(b, func(c byte) bool { return c < ' ' || c > '~' }) {
		return "  " + string(b)
	}
	var lines []string
	for line := range slices.Chunk(b, 32) {
		lines = append(lines, fmt.Sprintf("  %x", line))
	}
	return strings.Join(lines, "\n")
}

// What two edges send their nodes in a few seconds, in which all happens that they write. Of what
// they read, and of buckets of instants, which edges refresh one by one, only the first is there.
func TestCommandsToTheTier(t *testing.T) {
	var b strings.Builder
	s, rules := goldenSecret(), goldenRules(t)
	seen := make(map[string]bool)
	var list []limiter.Rule
	for _, name := range goldenNames {
		list = append(list, rules[name])
	}
	w, err := sim.New(sim.Config{Edges: 2, Nodes: 2, RTT: time.Millisecond, Counters: 1000, Secret: s,
		PoP: "ams1", Wait: 20 * time.Millisecond,
		Carry: func(c wire.Command, node *poptest.Node, now time.Time) wire.Result {
			r := node.Do(now, c)
			key := c.Key
			if keys := c.Keys(); len(keys) > 4 {
				key = fmt.Sprintf("%s (and %d more)", keys[0], len(keys)-1)
			}
			what := fmt.Sprintf("%s %c", c.Op, key[0])
			if often := c.Op == wire.Get || what == "add x"; often && seen[what] {
				return r
			}
			seen[what] = true
			fmt.Fprintf(&b, "%s node %d %s %s", clock(now), c.Node, c.Op, key)
			if c.Op == wire.Incr || c.Op == wire.Decr {
				fmt.Fprintf(&b, " %x", c.Delta)
			}
			fmt.Fprintf(&b, " expire %d way %d: %s\n", c.Expire, c.Way, r.Status)
			if len(c.Value) > 0 {
				fmt.Fprintln(&b, shown(c.Value))
			}
			return r
		},
	}, list, noon)
	must(t, err)
	say := func(what string) { fmt.Fprintf(&b, "# %s\n", what) }
	pass(w, 3*time.Second) // until all buckets of instants are there
	say("a request under each rule")
	var held []*limiter.Decision
	for i := range list {
		d := new(limiter.Decision)
		d.Add(&list[i], goldenSources[i%len(goldenSources)])
		w.Edges[i%2].Decide(d)
		held = append(held, d)
		w.Run(w.Now().Add(10 * time.Millisecond))
	}
	for i, d := range held {
		w.Edges[i%2].Leave(d)
	}
	say("more than the limit")
	for range 5 {
		for i := range 2 {
			w.Edges[i].Request(&list[0], goldenSources[0])
			w.Run(w.Now().Add(10 * time.Millisecond))
		}
	}
	say("operators block, lift and change a rule")
	for _, o := range []operatorlog.Order{
		orderToBlock(goldenSources[2], w.Now()),
		{Rule: "sliding", Source: goldenSources[0], Kind: operatorlog.Lift, Start: w.Now()},
		{Rule: "sliding", Kind: operatorlog.Change, Start: w.Now(), Text: `{"limit":5}`},
	} {
		_, err := w.Edges[0].Order(o)
		must(t, err)
		pass(w, 100*time.Millisecond)
	}
	say("an edge ends")
	w.Stop(1, true)
	pass(w, 2*time.Second)
	golden.Check(t, "commands.txt", []byte(b.String()))
}
