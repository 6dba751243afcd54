package exactlog

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

// epoch is the start of an interval.
const epoch = int64(425_000_000) * interval

var rule = RuleRef{Counter: 7, Name: "r", Limit: 5, Window: 10 * time.Second, Sub: time.Second}

func at(s float64) int64 { return epoch + int64(s*1e6) }

// batch is what an edge noted of source 1, in the interval of the first entry.
func batch(edge uint64, entries ...Entry) *Batch {
	return &Batch{Edge: edge, Number: entries[0].At / interval, Groups: []Group{{Rule: rule, Source: 1, Entries: entries}}}
}

func hit(s float64) Entry  { return Entry{At: at(s), Kind: Counted} }
func over(s float64) Entry { return Entry{At: at(s), Kind: Refused} }

// What a judge says is what an obvious twin says, who keeps everything and judges each decision by itself.
func TestAgreesWithTheObvious(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var j Judge
	var all []item
	batches := [3]*Batch{}
	var want Figures
	now, last := 0.0, 0.0
	for n := range 5000 {
		if now += random.ExpFloat64() * 3; random.IntN(3) == 0 {
			now = float64(int(now/10)*10) + random.ExpFloat64()/500 // many together, or a window apart
			now = max(now, last+5e-6)
		}
		last = now
		e := uint64(random.IntN(3))
		entry := hit(now)
		if random.IntN(3) == 0 {
			entry = over(now)
		}
		all = append(all, item{Entry: entry, edge: e})
		if batches[e] == nil {
			batches[e] = batch(e, entry)
			batches[e].Groups[0].Entries = nil
		}
		g := &batches[e].Groups[0]
		g.Entries = append(g.Entries, entry)
		if n%50 == 49 {
			for i, b := range batches {
				if b != nil {
					j.Add(b)
				}
				batches[i] = nil
			}
			j.Advance(at(now + 0.5))
			now, last = now+1, now+1
		}
	}
	for i, d := range all {
		exact, least, most := obvious(all, i, tolerance, 0)
		want.Decisions++
		switch {
		case exact > 5 && d.Kind == Counted:
			want.Allowed++
		case exact <= 5 && d.Kind == Refused:
			want.Limited++
		}
		if (least > 5) != (most > 5) {
			want.Uncertain++
		}
		_, least, most = obvious(all, i, clocks, rule.Sub.Microseconds())
		if least > 5 && d.Kind == Counted || most <= 5 && d.Kind == Refused {
			want.Unexplained++
		}
	}
	got := *j.Rules()["r"]
	got.Lags = nil
	if got != want || want.Allowed == 0 || want.Limited == 0 || want.Uncertain == 0 || want.Unexplained == 0 || want.Unexplained == want.Allowed+want.Limited {
		t.Errorf("%+v, want %+v", got, want)
	}
	if len(j.logs[logKey{7, 1}].hits) > 100 {
		t.Errorf("%d hits are kept", len(j.logs[logKey{7, 1}].hits))
	}
	if j.Advance(at(now + 100)); j.Logs() != 0 || j.hits != 0 {
		t.Errorf("%d logs, %d hits are left", j.Logs(), j.hits)
	}
}

// obvious counts the hits of a decision's window one by one.
func obvious(all []item, i int, clocks, sub int64) (exact, least, most int) {
	d, from := all[i], all[i].At-10e6
	exact, least, most = 1, 1, 1
	for k, h := range all {
		own, before := h.edge == d.edge, k < i
		if h.Kind != Counted || h.At <= from-clocks-sub || h.At > d.At+clocks || own && (!before || h.At <= from-sub) {
			continue
		}
		most++
		if h.At > from && before {
			exact++
		}
		if own && h.At > from+sub || !own && h.At > from+clocks+sub && h.At <= d.At-clocks {
			least++
		}
	}
	return exact, least, most
}

// A crossing is noticed by each edge in its own time: at once by one that refuses the first request that is over, or admits none.
func TestLags(t *testing.T) {
	var j Judge
	j.Add(batch(1, hit(0), hit(0.1), hit(0.2), hit(0.3), hit(0.4), over(0.5)))
	j.Add(batch(2, hit(0.52), Entry{At: at(0.6), Kind: Blocked, Start: at(0.5)}, Entry{At: at(0.7), Kind: Blocked, Start: at(0.5)}))
	j.Add(batch(3, Entry{At: at(3), Kind: Blocked, Start: at(0.5)}))
	j.Advance(at(4))
	f := j.Rules()["r"]
	buckets, n, sum := f.Lags.Snapshot()
	if n != 3 || math.Abs(sum-0.1) > 1e-9 || buckets[0] != 2 || buckets[0.1] != 3 {
		t.Errorf("%d lags, %v s: %v", n, sum, buckets)
	}
	if f.Decisions != 7 || f.Allowed != 1 || f.Limited != 0 {
		t.Errorf("%+v", f)
	}
}

// A block that no refusal has begun is a decision: right while more than the limit has been admitted.
func TestBlockByTheTotal(t *testing.T) {
	f := func(hits int, start float64, decisions, limited, unexplained uint64) {
		t.Helper()
		var j Judge
		var entries []Entry
		for i := range hits {
			entries = append(entries, hit(float64(i)/10))
		}
		j.Add(batch(1, entries...))
		j.Add(batch(2, Entry{At: at(start + 2), Kind: Blocked, Start: at(start)}))
		j.Advance(at(20))
		if got := j.Rules()["r"]; got.Decisions != decisions || got.Limited != limited || got.Unexplained != unexplained {
			t.Errorf("%d hits: %+v", hits, got)
		}
	}
	f(6, 0.6, 7, 0, 1) // admitted over the limit
	f(5, 0.6, 6, 1, 1)
	f(6, 11, 7, 1, 1) // the window is over, but by less than a sub-window
	f(6, 12, 7, 1, 2)
}

// What may lack hits is not judged; but that more than the limit was admitted is sure.
func TestIncomplete(t *testing.T) {
	six := []Entry{hit(0), hit(0.1), hit(0.2), hit(0.3), hit(0.4), hit(0.5), over(0.6)}
	f := func(what string, spoil func(*Judge, *Batch)) {
		t.Helper()
		var j Judge
		b := batch(1, six...)
		spoil(&j, b)
		j.Add(b)
		j.Advance(at(4))
		if got := j.Rules()["r"]; got.Decisions != 1 || got.Allowed != 1 || j.Skipped.Incomplete != 6 {
			t.Errorf("%s: %+v, %+v", what, got, j.Skipped)
		}
		later := batch(1, over(15))
		j.Add(later)
		if j.Advance(at(16)); j.Rules()["r"].Limited != 1 {
			t.Errorf("%s: a window later: %+v", what, j.Rules()["r"])
		}
	}
	f("it has just begun", func(j *Judge, _ *Batch) { j.Begin(at(0)) })
	f("a batch did not come", func(j *Judge, _ *Batch) { j.Missing(at(0)) })
	f("there was no room for a group", func(_ *Judge, b *Batch) { b.Gap = true })
	f("there was no room for hits", func(_ *Judge, b *Batch) { b.Groups[0].Gap = true })
	f("a hit came late", func(j *Judge, b *Batch) { j.Advance(at(3)) })
}

// After a lift nothing before it counts.
func TestLift(t *testing.T) {
	var j Judge
	j.Add(batch(1, hit(0), hit(0.1), hit(0.2), hit(0.3), hit(0.4), Entry{At: at(0.5), Kind: Lifted}, hit(3), over(3.1)))
	j.Advance(at(4))
	if f := j.Rules()["r"]; f.Decisions != 7 || f.Allowed != 0 || f.Limited != 1 {
		t.Errorf("%+v", f)
	}
}

// However much comes, a judge keeps to its bounds.
func TestBounds(t *testing.T) {
	var j Judge
	for i := range 2 * maxLogs {
		b := batch(1, hit(0))
		b.Groups[0].Source = uint64(i)
		b.Groups[0].Rule.Name = string(rune(i % (2 * maxRules)))
		j.Add(b)
	}
	if j.Logs() > maxLogs || len(j.Rules()) > maxRules || j.Skipped.Full == 0 {
		t.Errorf("%d logs, %d rules, %+v", j.Logs(), len(j.Rules()), j.Skipped)
	}
}

func someBatch() *Batch {
	other := RuleRef{Counter: 8, Name: "other", Limit: 4096, Window: time.Hour}
	return &Batch{Edge: 1 << 60, Number: epoch / interval, Began: at(-5), OneIn: 1024, Last: true, Gap: true, Groups: []Group{
		{Rule: rule, Source: 1 << 50, Gap: true, Entries: []Entry{{At: at(-0.25), Kind: Counted, Estimate: 1.5}, {At: at(1), Kind: Refused, Estimate: 6}}},
		{Rule: other, Source: 3, Entries: []Entry{{At: at(1), Kind: Blocked, Start: at(-100)}, {At: at(2), Kind: Lifted}, {At: at(4), Kind: Passed, Estimate: 3}}},
		{Rule: rule, Source: 4, Entries: []Entry{hit(3.999999)}},
	}}
}

// A batch is read as it was written, and what is cut short or longer is none.
func TestBatch(t *testing.T) {
	b := someBatch()
	text := b.Append(nil)
	got, err := ReadBatch(text)
	if err != nil || !reflect.DeepEqual(got, b) {
		t.Fatalf("%+v, %v", got, err)
	}
	for n := range text {
		if _, err := ReadBatch(text[:n]); err == nil {
			t.Errorf("%d of %d bytes are a batch", n, len(text))
		}
	}
	if _, err := ReadBatch(append(text, 0)); err == nil {
		t.Error("a byte more is a batch")
	}
}

// The largest batch is no longer than what is read.
func TestLargestBatch(t *testing.T) {
	b := &Batch{Number: epoch / interval}
	for i := range MaxGroups {
		r := rule
		r.Counter, r.Name, r.Limit = math.MaxUint64-uint64(i), string(make([]byte, 64)), math.MaxUint32
		b.Groups = append(b.Groups, Group{Rule: r, Source: math.MaxUint64, Entries: slices.Repeat([]Entry{{At: at(9), Kind: Blocked, Start: at(-360 * 86400)}}, MaxEntries/MaxGroups)})
	}
	if text := b.Append(nil); len(text) > MaxSize {
		t.Errorf("%d bytes, and at most %d are read", len(text), MaxSize)
	} else if _, err := ReadBatch(text); err != nil {
		t.Error(err)
	}
}

func FuzzReadBatch(f *testing.F) {
	f.Add(someBatch().Append(nil))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := ReadBatch(text)
		if err != nil {
			return
		}
		again, err := ReadBatch(b.Append(nil))
		if err != nil || !reflect.DeepEqual(b, again) {
			t.Errorf("%+v becomes %+v, %v", b, again, err)
		}
		var j Judge
		j.Add(b)
		j.Advance(b.Ends())
	})
}
