// Package plans keeps which plan a client is on, and which limits were agreed with it alone.
//
// What operators say of a client is a list of quotas, kept in a store that edges share. An edge has
// all of it in memory: a Builder takes in what changes, and makes a Snapshot of it, which is
// immutable and the only thing that a request looks at. A quota that begins or ends at a time makes
// the next Snapshot then. A Loader reads the store in the background. No request waits for a store.
//
// A client is known by a keyed digest of what it sends (counter.Source), so nothing here holds a
// key.
//
// Memory: 100 bytes for a client whose only quota is a plan, because all clients on one plan share
// one record; 300 more for one with individual limits. A change copies one of 1,024 shards: of a
// million clients, a thousand entries.
package plans

import (
	"cmp"
	"container/heap"
	"maps"
	"math"
	"slices"
	"time"

	"sluice/counter"
)

// MaxLimits is how many individual limits clients may have under one rule: each is counted apart,
// and the PoP knows them all. Of more, the rest have the limit of their plan.
const MaxLimits = 20_000

// MaxQuotas is how many quotas one client may have that are not over: each change of them looks at
// all.
const MaxQuotas = 100

// A Quota is what operators say of a client under a rule, or under all of them, for a while. It is
// comparable.
type Quota struct {
	Rule  string // "": all
	Plan  string // "": as otherwise
	Limit uint32 // under Rule; 0: that of the plan
	Start int64  // Unix milliseconds; 0: it has always been in force
	End   int64  // the same; 0: it has no end
}

// in reports whether the quota is in force at a time.
func (q *Quota) in(at int64) bool { return q.Start <= at && (q.End == 0 || at < q.End) }

// State is the state of a client's i-th quota at a time.
func (c *Client) State(i int, at int64) State {
	q := &c.quotas[i]
	after := func(at int64) bool { // than q one began that is in force
		return slices.ContainsFunc(c.quotas[i+1:], func(o Quota) bool {
			return o.Rule == q.Rule && o.in(at)
		})
	}
	switch {
	case q.End != 0 && q.End <= at:
		return Over
	case q.Start > at:
		return ToCome
	case !after(at):
		return InForce
	case slices.ContainsFunc(c.quotas[i+1:], func(o Quota) bool {
		return o.Rule == q.Rule && o.End > at && q.in(o.End) && !after(o.End)
	}):
		return Suspended
	}
	return Replaced
}

// A State is how a quota of a client stands among the others.
type State string

const (
	InForce   State = "in force"
	ToCome    State = "to come"
	Over      State = "over"
	Suspended State = "suspended" // until others end: then it is in force again
	Replaced  State = "replaced"  // for as long as it lasts
)

// A Client is what is known of one. It is immutable; nil is one of which nothing was said.
type Client struct {
	quotas []Quota // by rule, and by when they begin
	now    []Quota // those in force: of each rule the one that began last
}

// Under is the plan of the client under a rule, and the limit that was agreed with it there; "" and
// 0: none was said.
func (c *Client) Under(rule string) (plan string, limit uint32) {
	if c == nil {
		return "", 0
	}
	for i := range c.now {
		switch q := &c.now[i]; q.Rule {
		case rule:
			return cmp.Or(q.Plan, plan), q.Limit
		case "": // comes first
			plan = q.Plan
		}
	}
	return plan, 0
}

// Quotas are all that were said of the client, also those that are over or to come.
func (c *Client) Quotas() []Quota {
	if c == nil {
		return nil
	}
	return c.quotas
}

const shards = 1 << 10

func shardOf(s counter.Source) int {
	var room [counter.SourceSize]byte
	b := s.AppendBinary(room[:0])
	return (int(b[1]) | int(b[2])<<8) % shards // of a keyed digest, which no client can choose
}

// A Snapshot is which client is on which plan at a time. It is immutable; nil is one without
// clients.
type Snapshot struct {
	shards [shards]map[counter.Source]*Client
	limits map[string][]uint32
	count  int
	next   int64 // when it ends without a change
}

// Of is what is known of a client; nil: nothing.
func (s *Snapshot) Of(client counter.Source) *Client {
	if s == nil {
		return nil
	}
	return s.shards[shardOf(client)][client]
}

// Limits are those that clients have of their own under a rule, ascending, at most MaxLimits.
func (s *Snapshot) Limits(rule string) []uint32 {
	if s == nil {
		return nil
	}
	return s.limits[rule]
}

// Clients is of how many something was said.
func (s *Snapshot) Clients() int {
	if s == nil {
		return 0
	}
	return s.count
}

// All ranges over what is known.
func (s *Snapshot) All(each func(counter.Source, *Client) bool) {
	for i := range s.shards {
		for source, client := range s.shards[i] {
			if !each(source, client) {
				return
			}
		}
	}
}

// Next is when a quota begins or ends; the zero Time: none will.
func (s *Snapshot) Next() time.Time {
	if s == nil || s.next == math.MaxInt64 {
		return time.Time{}
	}
	return time.UnixMilli(s.next)
}

// A Builder takes quotas in. It is for one goroutine. The zero Builder is empty.
type Builder struct {
	shards [shards]map[counter.Source]*Client
	shown  [shards]bool // a Snapshot has this very map
	count  int
	plain  map[Quota]*Client // those with nothing but one quota without a time
	limits map[ruleLimit]int // how many clients have it now
	moved  bool              // limits have changed since the last Snapshot
	last   map[string][]uint32
	times  moments
	now    int64
}

type ruleLimit struct {
	rule  string
	limit uint32
}

// A moment is when a quota of a client begins or ends.
type moment struct {
	at     int64
	client counter.Source
}

type moments []moment

func (m moments) Len() int           { return len(m) }
func (m moments) Less(i, j int) bool { return m[i].at < m[j].at }
func (m moments) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }
func (m *moments) Push(v any)        { *m = append(*m, v.(moment)) }
func (m *moments) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}

// Put adds a quota, replacing one of the same client and rule that begins at the same time, or
// removes that.
func (b *Builder) Put(client counter.Source, q Quota, removed bool) {
	shard := shardOf(client)
	was := b.shards[shard][client]
	list := slices.DeleteFunc(slices.Clone(was.Quotas()),
		func(o Quota) bool { return o.Rule == q.Rule && o.Start == q.Start })
	if !removed {
		list = append(list, q)
		slices.SortFunc(list, func(a, b Quota) int {
			return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Start, b.Start))
		})
		b.remember(client, q)
	}
	b.set(client, was, list)
}

// remember has a later Snapshot see that a quota begins or ends.
func (b *Builder) remember(client counter.Source, q Quota) {
	for _, at := range []int64{q.Start, q.End} {
		if at > b.now {
			heap.Push(&b.times, moment{at, client})
		}
	}
	if len(b.times) > 4096+4*b.count { // most are of quotas that were taken away
		b.schedule()
	}
}

// schedule finds all moments that are to come.
func (b *Builder) schedule() {
	b.times = b.times[:0]
	for i := range b.shards {
		for source, c := range b.shards[i] {
			for _, q := range c.quotas {
				for _, at := range []int64{q.Start, q.End} {
					if at > b.now {
						b.times = append(b.times, moment{at, source})
					}
				}
			}
		}
	}
	heap.Init(&b.times)
}

// rewind has what is known be as it was at a time: the clock was ahead, and what had ended then has
// not.
func (b *Builder) rewind(to int64) {
	b.now = to
	for i := range b.shards {
		for source, c := range b.shards[i] {
			if slices.ContainsFunc(c.quotas, func(q Quota) bool {
				return q.Start != 0 || q.End != 0
			}) {
				b.set(source, c, c.quotas)
			}
		}
	}
	b.schedule()
}

// set stores what is in force for a client from b.now on.
func (b *Builder) set(client counter.Source, was *Client, list []Quota) {
	shard := shardOf(client)
	if b.shown[shard] {
		b.shards[shard], b.shown[shard] = maps.Clone(b.shards[shard]), false
	}
	if b.shards[shard] == nil {
		b.shards[shard] = make(map[counter.Source]*Client)
	}
	b.tally(was, -1)
	if was != nil {
		b.count--
	}
	if len(list) == 0 {
		delete(b.shards[shard], client)
		return
	}
	now := b.client(list)
	b.shards[shard][client] = now
	b.count++
	b.tally(now, 1)
}

func (b *Builder) client(list []Quota) *Client {
	plain := len(list) == 1 && list[0].Start == 0 && list[0].End == 0
	if plain {
		if c := b.plain[list[0]]; c != nil {
			return c
		}
	}
	c := &Client{quotas: list}
	for _, q := range list {
		switch n := len(c.now); {
		case !q.in(b.now):
		case n > 0 && c.now[n-1].Rule == q.Rule:
			c.now[n-1] = q
		default:
			c.now = append(c.now, q)
		}
	}
	if plain && list[0].Limit == 0 { // plans are few, limits may be many and go again
		if b.plain == nil {
			b.plain = make(map[Quota]*Client)
		}
		b.plain[list[0]] = c
	}
	return c
}

// tally counts how many clients have a limit.
func (b *Builder) tally(c *Client, by int) {
	if c == nil {
		return
	}
	for i := range c.now {
		q := &c.now[i]
		if q.Limit == 0 {
			continue
		}
		if b.limits == nil {
			b.limits = make(map[ruleLimit]int)
		}
		k := ruleLimit{q.Rule, q.Limit}
		before := b.limits[k]
		if b.limits[k] = before + by; before+by == 0 {
			delete(b.limits, k)
		}
		b.moved = b.moved || before == 0 || before+by == 0
	}
}

// Snapshot is what is known as it is at a time. One before that of the last Snapshot costs a look
// at every client.
func (b *Builder) Snapshot(at time.Time) *Snapshot {
	if now := at.UnixMilli(); now < b.now {
		b.rewind(now)
	} else {
		b.now = now
	}
	for len(b.times) > 0 && b.times[0].at <= b.now {
		client := heap.Pop(&b.times).(moment).client
		if was := b.shards[shardOf(client)][client]; was != nil {
			b.set(client, was, was.quotas)
		}
	}
	if b.moved || b.last == nil {
		b.moved, b.last = false, make(map[string][]uint32)
		for k := range b.limits {
			b.last[k.rule] = append(b.last[k.rule], k.limit)
		}
		for rule, list := range b.last {
			slices.Sort(list)
			b.last[rule] = list[:min(len(list), MaxLimits)]
		}
	}
	s := &Snapshot{shards: b.shards, limits: b.last, count: b.count, next: math.MaxInt64}
	for i := range b.shown {
		b.shown[i] = true
	}
	if len(b.times) > 0 {
		s.next = b.times[0].at
	}
	return s
}
