// Package viewer carries what edges show of themselves to the one that is asked for the whole PoP,
// over the tier, while somebody looks.
//
//	the asked    a notice: "somebody looks, and asks this" ---> the node where edges meet
//	every edge   reads that with who is there (pop.Config.Viewed), and while it is there shows its part once a second ---> the same node
//	the asked    reads the parts of all that are there (edge/view adds them)
//
// While nobody looks that costs no command, because the notice is one more key of a read that is
// made anyway. While somebody does, it costs each edge one set a second, of view.MaxSize at most,
// and the asked edge, for however many operators, a read and a write of the notice in renewed and,
// each time that somebody asks, a get for each eight edges, twice a second at most. An edge that
// takes long to make its part makes it less often, so that it spends a twentieth of its time at
// most. Items live for seconds. No request causes any of it.
package viewer

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/edge/view"
	"sluice/pop/presence"
	"sluice/pop/secret"
	"sluice/pop/wire"
)

const (
	shownEvery = time.Second
	readEvery  = 500 * time.Millisecond // parts, at most
	readSoon   = 100 * time.Millisecond // while the first are awaited
	looks      = 6 * time.Second        // the notice lives so long, and what was asked
	renewed    = 3 * time.Second        // so often it is written while somebody looks
	// So long an edge goes by it after each read, which comes about once a second
	holds = 2500 * time.Millisecond
	// late is how long after it was to be expected a part is not shown any more: its edge hangs, or
	// is gone.
	late = 4 * time.Second
	// awaited is how long who looks waits for an edge that has not answered: until it has read the
	// notice, a second at most, and has shown itself.
	awaited = 2500 * time.Millisecond
	keeps   = time.Minute // a part of another time is one that somebody has kept
	// Parts of MaxSize in one get, which has to arrive in a quarter of a second
	readAt   = 8
	askedFor = 8   // questions at a time
	maxAsked = 128 // bytes of one
	maxEdges = 8   // that look at a time
	answered = 16  // questions at a time, of all that look
)

// Tier is what is asked of the PoP, as functions.
type Tier struct {
	Secret secret.Secret
	Do     func(context.Context, wire.Command) wire.Result
	Edges  func() []presence.Edge // this one first
	Silent func() []string        // names of those that went lately without saying that they end
}

// Viewer is one edge's part of it. Its exported fields are set before Run.
type Viewer struct {
	ID   uint64 // of this edge
	Name string
	Tier *Tier // nil: it counts alone, and is the whole PoP
	// Own is this edge's part, with the answers to what is asked.
	Own func(asked []string, now time.Time) *view.Part

	mu     sync.Mutex
	node   int // where edges meet, if placed
	placed bool
	notice notice               // as last read
	until  time.Time            // somebody looks at another edge
	asked  map[string]time.Time // here, and when last
	looked time.Time            // when somebody last looked here
	began  time.Time            // since when somebody does
	wrote  time.Time            // when the notice was last written
	wake   chan struct{}        // to show something at once
	parts  map[uint64]*seen
	read   time.Time

	reading sync.Mutex // one reads for all
}

// seen is an edge's latest part.
type seen struct {
	part *view.Part
	at   time.Time // when it was new here, less how old it was as far as clocks tell
}

// notice says who looks and what they ask.
type notice struct {
	Lookers []looker `json:"lookers"`
}

type looker struct {
	Edge  uint64    `json:"edge"`
	At    time.Time `json:"at"`
	Asked []string  `json:"asked,omitempty"`
}

// New makes a Viewer.
func New() *Viewer {
	return &Viewer{asked: make(map[string]time.Time), parts: make(map[uint64]*seen),
		wake: make(chan struct{}, 1)}
}

// Notice takes in what stands at the node where edges meet; nil: nobody looks.
func (v *Viewer) Notice(node int, item []byte) {
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.node, v.placed = node, true
	n, ok := v.open(item, now)
	if !ok {
		v.notice = notice{}
		return
	}
	known, showed := v.questions(now), now.Before(v.until)
	v.notice = n
	if !slices.ContainsFunc(n.Lookers, func(l looker) bool { return l.Edge != v.ID }) {
		return // this edge need not show itself to itself
	}
	v.until = now.Add(holds)
	if !showed || slices.ContainsFunc(v.questions(now),
		func(q string) bool { return !slices.Contains(known, q) }) {
		v.hurry()
	}
}

// open reads a notice. What is not authentic, or is from another time, is none.
func (v *Viewer) open(item []byte, now time.Time) (n notice, ok bool) {
	if len(item) > view.MaxSize {
		return notice{}, false
	}
	in, ok := v.Tier.Secret.OpenAt(secret.View, v.Tier.Secret.ViewKey(), item)
	if !ok || json.Unmarshal(in.Rest(), &n) != nil {
		return notice{}, false
	}
	n.Lookers = slices.DeleteFunc(n.Lookers, func(l looker) bool {
		return now.Sub(l.At).Abs() > keeps
	})
	n.Lookers = n.Lookers[:min(len(n.Lookers), maxEdges)]
	for i := range n.Lookers {
		l := &n.Lookers[i]
		l.Asked = slices.DeleteFunc(l.Asked[:min(len(l.Asked), askedFor)],
			func(q string) bool { return len(q) > maxAsked })
	}
	return n, len(n.Lookers) > 0
}

// questions are all that is asked. mu is locked.
func (v *Viewer) questions(now time.Time) (all []string) {
	for _, l := range v.notice.Lookers {
		if l.Edge != v.ID {
			all = append(all, l.Asked...)
		}
	}
	all = append(all, v.ours(now)...)
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), answered)]
}

// ours are the questions that were asked here lately, the latest first. mu is locked.
func (v *Viewer) ours(now time.Time) (list []string) {
	for q, at := range v.asked {
		if now.Sub(at) > looks {
			delete(v.asked, q)
		} else {
			list = append(list, q)
		}
	}
	slices.SortFunc(list, func(a, b string) int {
		return cmp.Or(v.asked[b].Compare(v.asked[a]), cmp.Compare(a, b))
	})
	return list[:min(len(list), askedFor)]
}

func (v *Viewer) hurry() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// Run shows this edge to all that look, until ctx is done.
func (v *Viewer) Run(ctx context.Context) {
	if v.Tier == nil {
		return
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var rested time.Time // after a part that took long, not even a new question is answered before
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.wake:
			if rest := time.Until(rested); rest > 0 {
				timer.Reset(rest)
				continue
			}
		case <-timer.C:
		}
		v.mu.Lock()
		now := time.Now()
		node, shows, asked := v.node, v.placed && now.Before(v.until), v.questions(now)
		v.mu.Unlock()
		next := time.Hour // until it is woken
		if shows {
			if next = v.show(ctx, node, asked, now); next > shownEvery {
				rested = now.Add(next)
			}
		}
		timer.Reset(next)
	}
}

// show writes this edge's part, and returns when to write the next.
func (v *Viewer) show(ctx context.Context, node int, asked []string, now time.Time) time.Duration {
	p := v.Own(asked, now)
	p.Edge, p.Name = v.ID, v.Name
	next := max(shownEvery, 20*time.Since(now))
	p.Next = next
	text, err := p.Pack()
	if err != nil {
		return next // the edges that look say that this one shows nothing
	}
	key := v.Tier.Secret.PartKey(v.ID)
	item := v.Tier.Secret.SealAt(secret.View, key, text)
	v.Tier.Do(ctx, wire.Command{Node: node, Op: wire.Set, Key: key, Value: item,
		Expire: wire.Seconds(next + late), Way: wire.List})
	return next
}

// Look is the whole PoP, with the answers of all edges to a question; "": none is asked. It waits
// for those that have not answered, for awaited at most; who is known to be missing is not waited
// for.
func (v *Viewer) Look(ctx context.Context, question string) *view.PoP {
	now := time.Now()
	var others []view.Seen
	if v.Tier != nil {
		end := v.want(question, now)
		for all := false; ; {
			v.announce(ctx, time.Now())
			v.fetch(ctx)
			if others, all = v.others(question, time.Now()); all || !time.Now().Before(end) ||
				ctx.Err() != nil {
				break
			}
			again := time.NewTimer(readSoon)
			select {
			case <-ctx.Done():
			case <-again.C:
			}
			again.Stop()
		}
	}
	var asked []string
	if question != "" {
		asked = []string{question}
	}
	own := v.Own(asked, time.Now())
	own.Edge, own.Name = v.ID, v.Name
	return &view.PoP{Parts: append([]view.Seen{{Edge: view.Edge{ID: fmt.Sprintf("%016x", v.ID),
		Name: v.Name}, Part: own}}, others...)}
}

// want notes that somebody looks here. It returns until when to wait for those that have not
// answered.
func (v *Viewer) want(question string, now time.Time) (end time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now.Sub(v.looked) > looks {
		v.began, v.wrote = now, time.Time{}
	}
	v.looked, end = now, v.began.Add(awaited)
	if question != "" && len(question) <= maxAsked {
		if at, known := v.asked[question]; !known || now.Sub(at) > looks {
			end = now.Add(awaited)
			v.wrote = time.Time{}
		}
		v.asked[question] = now
	}
	return end
}

// announce writes to all edges that somebody looks here, unless they know. Others may look at the
// same moment, so the notice is written over what was read.
func (v *Viewer) announce(ctx context.Context, now time.Time) {
	v.mu.Lock()
	node, due := v.node, v.placed && now.Sub(v.wrote) >= renewed
	ours := looker{Edge: v.ID, At: now, Asked: v.ours(now)}
	if due {
		v.wrote = now
	}
	v.mu.Unlock()
	if !due {
		return
	}
	key := v.Tier.Secret.ViewKey()
	for range maxEdges {
		had := v.Tier.Do(ctx, wire.Command{Node: node, Op: wire.Gets, Key: key, Way: wire.Small})
		if had.Status != wire.Done {
			return
		}
		n := notice{Lookers: []looker{ours}}
		other, _ := v.open(had.Values[0], now)
		for _, l := range other.Lookers {
			if l.Edge != v.ID && now.Sub(l.At) <= looks && len(n.Lookers) < maxEdges {
				n.Lookers = append(n.Lookers, l)
			}
		}
		text, _ := json.Marshal(n) // it is made of texts and numbers
		put := wire.Command{Node: node, Op: wire.Add, Key: key,
			Value: v.Tier.Secret.SealAt(secret.View, key, text), Expire: wire.Seconds(looks),
			Way: wire.Small}
		if had.Values[0] != nil {
			put.Op, put.Delta = wire.Cas, had.Number
		}
		if v.Tier.Do(ctx, put).Status != wire.NotThere {
			return
		}
	}
}

// fetch reads the parts of all other edges that are there, unless that was done a moment ago.
func (v *Viewer) fetch(ctx context.Context) {
	v.reading.Lock()
	defer v.reading.Unlock()
	v.mu.Lock()
	now := time.Now()
	every, node, placed := readEvery, v.node, v.placed
	if now.Sub(v.began) < awaited || slices.ContainsFunc(v.ours(now),
		func(q string) bool { return now.Sub(v.asked[q]) < awaited }) {
		every = readSoon
	}
	recent := now.Sub(v.read) < every
	v.mu.Unlock()
	if recent || !placed {
		return
	}
	var ids []uint64
	for _, e := range v.Tier.Edges() {
		if e.ID != v.ID {
			ids = append(ids, e.ID)
		}
	}
	for some := range slices.Chunk(ids, readAt) {
		keys := make([]string, len(some))
		for i, id := range some {
			keys[i] = v.Tier.Secret.PartKey(id)
		}
		r := v.Tier.Do(ctx, wire.Command{Node: node, Op: wire.Get, Key: strings.Join(keys, " "),
			Way: wire.List})
		if r.Status != wire.Done {
			continue
		}
		for i, id := range some {
			v.take(id, keys[i], r.Values[i], time.Now())
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.read = time.Now()
}

// take takes in what an edge shows. What is not authentic, another's, or not newer than what is
// known is not there.
func (v *Viewer) take(id uint64, key string, item []byte, now time.Time) {
	in, ok := v.Tier.Secret.OpenAt(secret.View, key, item)
	if !ok {
		return
	}
	packed := in.Rest()
	p, err := view.Unpack(packed)
	if err != nil || p.Edge != id || now.Sub(p.At).Abs() > keeps {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	had := v.parts[id]
	if had != nil && !p.At.After(had.part.At) {
		return
	}
	p.Next = min(max(p.Next, shownEvery), keeps)
	age := time.Duration(0)
	if had == nil || now.Sub(v.read) > keeps { // else it was not there when parts were read before
		age = min(max(now.Sub(p.At), 0), p.Next+late)
	}
	v.parts[id] = &seen{part: p, at: now.Add(-age)}
}

// others are what other edges show, and whether all that is awaited of them is there.
func (v *Viewer) others(question string, now time.Time) (list []view.Seen, all bool) {
	edges, silent := v.Tier.Edges(), v.Tier.Silent()
	all = true
	v.mu.Lock()
	defer v.mu.Unlock()
	there := map[uint64]bool{v.ID: true}
	for _, e := range edges {
		if there[e.ID] {
			continue
		}
		there[e.ID] = true
		s := view.Seen{Edge: view.Edge{ID: fmt.Sprintf("%016x", e.ID), Name: e.Name}}
		switch had := v.parts[e.ID]; {
		case !v.placed:
			s.Missing = "no node of the tier answers here"
		case had == nil:
			s.Missing,
				all = "it has shown nothing: it is of an older version, hangs, has just started, or its clock is more than a minute off", false
		default:
			age := now.Sub(had.at)
			if s.Age = age.Seconds(); age > had.part.Next+late {
				s.Missing,
					all = "it shows nothing any more: it hangs, cannot reach the tier, or its clock is more than a minute off", false
				break
			}
			s.Part = had.part
			if _, answers := had.part.Answers[question]; question != "" && !answers {
				all = false
			}
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b view.Seen) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	for _, name := range silent {
		if !slices.ContainsFunc(list, func(s view.Seen) bool { return s.Name == name }) {
			s := view.Seen{Edge: view.Edge{Name: name,
				Missing: "it ended without notice: killed, hung, or cut off from the tier"}}
			for id, had := range v.parts {
				if had.part.Name == name {
					s.ID, s.Age = fmt.Sprintf("%016x", id), now.Sub(had.at).Seconds()
				}
			}
			list = append(list, s)
		}
	}
	for id, had := range v.parts {
		if !there[id] && now.Sub(had.at) > 10*keeps {
			delete(v.parts, id)
		}
	}
	return list, all
}
