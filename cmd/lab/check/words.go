package check

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/process"
	"sluice/loadgen/replay"
	"sluice/loadgen/trace"
)

const (
	// wordsWithin is how long an operator's word may take until it is in force on every edge.
	wordsWithin = 2 * time.Second
	// wordsGiveUp is when the check looks no longer.
	wordsGiveUp = 10 * time.Second
	wordsApart  = 50 * time.Millisecond // one word and the next
	wordsWarm   = time.Second           // of the attack, before the first word
	wordsLook   = 20 * time.Millisecond // between two requests of a source of which a word was said
	wordsList   = 200 * time.Millisecond
	wordsAttack = time.Minute // at most: it ends with the words
	wordsRules  = 10          // that are changed in turn
)

// A WordsScale is how large Words is.
type WordsScale struct {
	Attack float64 // new blocks a second
	Words  int     // blocks, as many lifts, and as many changes of rules
	// Least is the part of Attack that must be reached: less is another test.
	Least float64
}

// WordsScales are the full form of Words and a short one, of some seconds.
func WordsScales(short bool) WordsScale {
	if short {
		return WordsScale{Attack: 50, Words: 10, Least: 0.5}
	}
	return WordsScale{Attack: 1050, Words: 100, Least: 1000. / 1050}
}

// Rule is the rule of the site that goes with it: a source that was lifted may send a request to every edge.
func (WordsScale) Rule(edges int) lab.RuleConfig {
	return lab.RuleConfig{Limit: uint32(edges), Window: time.Second, MitigationTimeout: 2 * time.Second, Mode: judge.Deployed}
}

// Words checks that attackers cannot hold up operators: while always new sources cross their limit, an operator blocks and lifts others,
// and changes rules, through the API of one edge after the other. Each word is in force on every edge within two seconds, as its list of
// mitigations or of rules says and as a request of that source shows; none is undone; and every edge serves. The site must have sources
// named in X-Forwarded-For, and a secret.
func Words(ctx context.Context, s *lab.Site, scale WordsScale) (*Result, error) {
	if len(s.EdgeProcesses) < 2 || len(s.NodeProcesses) == 0 {
		return nil, errors.New("loadgen: check words: want at least two edges and a memcached node")
	}
	c := &Result{Name: "words", Kept: true}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}, Timeout: wordsGiveUp}
	defer client.CloseIdleConnections()
	o := &wordsOperator{client: client}
	during, end := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer end()
	for _, e := range s.EdgeProcesses {
		edge := &wordsEdge{Member: e, changed: make(chan struct{})}
		o.edges = append(o.edges, edge)
	}

	kinds := [...]*wordKind{blockWords, liftWords, changeWords}
	var words [len(kinds)][]*word
	for k, kind := range kinds {
		for i := range scale.Words {
			words[k] = append(words[k], &word{kind: kind, about: kind.about(i), limit: 1000 + i})
		}
	}
	s.Log("blocking %d sources that will be lifted", scale.Words)
	if err := o.prepare(ctx, words[1]); err != nil {
		return nil, err
	}
	if err := everyEdgeKnows(ctx, s, scale.Words); err != nil {
		return nil, err
	}

	s.Log("attack: %.0f new blocks a second", scale.Attack)
	attack := &wordsStorm{}
	helpers.Go(func() { attack.run(during, s, scale.Attack) })
	for _, e := range o.edges {
		helpers.Go(func() { e.watch(during, client) })
	}
	if err := process.Pause(ctx, wordsWarm); err != nil {
		return nil, err
	}
	before, err := o.started(ctx)
	if err != nil {
		return nil, err
	}
	s.Log("and meanwhile %d blocks, %d lifts and %d changes of rules by operators, %v apart", scale.Words, scale.Words, scale.Words, wordsApart)
	began := time.Now()
	var said sync.WaitGroup
	for i := range len(kinds) * scale.Words {
		w, round := words[i%len(kinds)][i/len(kinds)], i/len(kinds)
		said.Go(func() { o.say(during, w, (i+round)%len(o.edges)) })
		if err := process.Pause(ctx, time.Until(began.Add(time.Duration(i+1)*wordsApart))); err != nil {
			break
		}
	}
	said.Wait()
	took := time.Since(began)
	after, err := o.started(ctx)
	if err != nil {
		return nil, err
	}
	end()
	helpers.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if attack.err != nil {
		return nil, attack.err
	}

	reached := math.Inf(1)
	for i := range after {
		reached = min(reached, (after[i].blocks-before[i].blocks)/after[i].at.Sub(before[i].at).Seconds())
	}
	failed, unserved := attack.out.ClientErrors(), attack.unserved()
	c.See("attack: %.0f new blocks/s in force on each of %d edges, for %.1f s; %d requests of %d sources, %d failed; the first request of %d sources was not served",
		reached, len(o.edges), took.Seconds(), attack.out.Sent, attack.sources, failed, unserved)
	if failed > 0 {
		c.See("  what failed: %s", attack.out.Trouble())
	}
	c.Kept = failed == 0 && unserved == 0
	if least := scale.Attack * scale.Least; reached < least {
		c.See("  want %.0f blocks/s: the machine is too busy for this test (requests were sent late by %.3f s, p99)", least, attack.out.Late().P99)
		c.Kept = false
	}
	for k, kind := range kinds {
		line, kept := inTime(words[k])
		c.See("%s by operators: %s", kind.name, line)
		c.Kept = c.Kept && kept
	}

	// What was counted of a lifted source has left its window then, so every edge serves it again.
	if err := process.Pause(ctx, s.Rule.MitigationTimeout+s.Rule.Window); err != nil {
		return nil, err
	}
	last := words
	last[2] = last[2][max(0, scale.Words-wordsRules):] // the last of each rule
	var lost [len(kinds)]int
	for _, e := range o.edges {
		list, err := e.list(ctx, client)
		if err != nil {
			return nil, err
		}
		for k, kind := range kinds {
			for _, w := range last[k] {
				stands, err := kind.stands(o, ctx, e, w, list)
				if err != nil {
					return nil, err
				}
				if !stands {
					lost[k]++
				}
			}
		}
	}
	c.See("afterwards, of %d blocks, %d lifts and %d changed rules on each edge, %d, %d and %d were lost",
		len(last[0]), len(last[1]), len(last[2]), lost[0], lost[1], lost[2])
	c.Kept = c.Kept && lost == [len(kinds)]int{}
	return c, s.Crashed()
}

// inTime says when words were in force.
func inTime(words []*word) (line string, kept bool) {
	var times []time.Duration
	within, why := 0, ""
	for _, w := range words {
		switch {
		case w.err != nil:
			why = fmt.Sprintf("; %s: %v", w.about, w.err)
		default:
			times = append(times, w.took)
			if w.took <= wordsWithin {
				within++
			}
		}
	}
	slices.Sort(times)
	at := func(share float64) time.Duration {
		if len(times) == 0 {
			return 0
		}
		return times[min(int(share*float64(len(times))), len(times)-1)].Round(time.Millisecond)
	}
	return fmt.Sprintf("%d of %d in force on every edge within %v: p50 %v, p99 %v, slowest %v%s",
		within, len(words), wordsWithin, at(0.5), at(0.99), at(1), why), within == len(words)
}

// A wordsStorm is an attack by sources each of which crosses its limit, and then is heard of no more.
type wordsStorm struct {
	sources int // that have begun
	out     *replay.Outcome
	err     error
}

// run sends until ctx ends.
func (a *wordsStorm) run(ctx context.Context, s *lab.Site, perSecond float64) {
	n := int(perSecond * wordsAttack.Seconds())
	t := &trace.Trace{Name: "check", Sources: make([]trace.Source, n)}
	for source := range n {
		at := time.Duration(float64(source) / perSecond * float64(time.Second))
		for i := range s.Rule.Limit + 1 {
			t.Requests = append(t.Requests, trace.Request{At: at + time.Duration(i)*wordsLook, Source: int32(source)})
		}
	}
	trace.Sort(t)
	a.out, a.err = replay.Replay{PoPs: s.Targets[:1], Carrier: s.Carrier}.Run(ctx, t)
	if ctx.Err() != nil && errors.Is(a.err, ctx.Err()) {
		a.err = nil
	}
}

// unserved is of how many sources the first request was not admitted.
func (a *wordsStorm) unserved() (n int) {
	begun := make(map[int32]bool)
	for _, d := range a.out.Decisions {
		if !begun[d.Source] && d.Verdict != judge.Admitted {
			n++
		}
		begun[d.Source] = true
	}
	a.sources = len(begun)
	return n
}
