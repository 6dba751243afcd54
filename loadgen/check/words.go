package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/replay"
	"sluice/loadgen/scrape"
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
		return WordsScale{Attack: 200, Words: 10, Least: 0.5}
	}
	return WordsScale{Attack: 1050, Words: 100, Least: 1000. / 1050}
}

// Rule is the rule of the site that goes with it: a source that was lifted may send a request to every edge.
func (WordsScale) Rule(edges int) lab.Rule {
	return lab.Rule{Limit: uint32(edges), Window: time.Second, MitigationTimeout: 2 * time.Second, Mode: judge.Deployed}
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
	o := &wordsOperator{client: client, rule: "default"}
	during, end := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer end()
	for _, e := range s.EdgeProcesses {
		edge := &wordsEdge{Member: e, changed: make(chan struct{})}
		o.edges = append(o.edges, edge)
	}

	blocks, lifts, changes := make([]*word, scale.Words), make([]*word, scale.Words), make([]*word, scale.Words)
	for i := range scale.Words {
		last := byte(1 + i%250)
		blocks[i] = &word{source: netip.AddrFrom4([4]byte{198, 51, byte(100 + i/250), last})}
		lifts[i] = &word{source: netip.AddrFrom4([4]byte{203, 0, byte(113 + i/250), last}), lift: true}
		changes[i] = &word{changes: fmt.Sprintf("check%d", i%wordsRules), limit: 1000 + i}
	}
	s.Log("blocking %d sources that will be lifted", len(lifts))
	if err := o.prepare(ctx, lifts); err != nil {
		return nil, err
	}
	if err := everyEdgeKnows(ctx, s, len(lifts)); err != nil {
		return nil, err
	}

	s.Log("attack: %.0f new blocks a second", scale.Attack)
	attack := &wordsStorm{}
	helpers.Go(func() { attack.run(during, s, scale.Attack) })
	for _, e := range o.edges {
		helpers.Go(func() { e.watch(during, client) })
	}
	if err := pause(ctx, wordsWarm); err != nil {
		return nil, err
	}
	before, err := o.started(ctx)
	if err != nil {
		return nil, err
	}
	s.Log("and meanwhile %d blocks, %d lifts and %d changes of rules by operators, %v apart", len(blocks), len(lifts), len(changes), wordsApart)
	began := time.Now()
	var said sync.WaitGroup
	for i := range 3 * scale.Words {
		w := [][]*word{blocks, lifts, changes}[i%3][i/3]
		said.Go(func() { o.say(during, w, (i+i/3)%len(o.edges)) })
		if err := pause(ctx, time.Until(began.Add(time.Duration(i+1)*wordsApart))); err != nil {
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
	c.see("attack: %.0f new blocks/s in force on each of %d edges, for %.1f s; %d requests of %d sources, %d failed; the first request of %d sources was not served",
		reached, len(o.edges), took.Seconds(), attack.out.Sent, attack.sources, failed, unserved)
	if failed > 0 {
		c.see("  what failed: %s", attack.out.Trouble())
	}
	c.Kept = failed == 0 && unserved == 0
	if least := scale.Attack * scale.Least; reached < least {
		c.see("  want %.0f blocks/s: the machine is too busy for this test (requests were sent late by %.3f s, p99)", least, attack.out.Late().P99)
		c.Kept = false
	}
	for _, kind := range []struct {
		name  string
		words []*word
	}{{"blocks", blocks}, {"lifts", lifts}, {"changes of rules", changes}} {
		line, kept := inTime(kind.words)
		c.see("%s by operators: %s", kind.name, line)
		c.Kept = c.Kept && kept
	}

	// What was counted of a lifted source has left its window then, so every edge serves it again.
	if err := pause(ctx, s.Rule.MitigationTimeout+s.Rule.Window); err != nil {
		return nil, err
	}
	var lost [3]int
	for _, e := range o.edges {
		list, err := e.list(ctx, client)
		if err != nil {
			return nil, err
		}
		for i, words := range [][]*word{blocks, lifts} {
			for _, w := range words {
				status, err := o.request(ctx, e, w.source)
				if err != nil {
					return nil, err
				}
				if _, there := list[w.source.String()]; there == w.lift || status != w.status() {
					lost[i]++
				}
			}
		}
		for _, w := range changes[max(0, len(changes)-wordsRules):] { // the last of each rule
			if limit, err := o.limit(ctx, e, w.changes); err != nil || limit != w.limit {
				lost[2]++
			}
		}
	}
	c.see("afterwards, of %d blocks, %d lifts and %d changed rules on each edge, %d, %d and %d were lost",
		len(blocks), len(lifts), min(wordsRules, len(changes)), lost[0], lost[1], lost[2])
	c.Kept = c.Kept && lost == [3]int{}
	return c, s.Crashed()
}

// A word is what an operator says of a source or a rule, and what became of it.
type word struct {
	source  netip.Addr
	lift    bool
	changes string        // "": no rule, but the source; else the rule
	limit   int           // that it has from then on: more than before
	took    time.Duration // until it was in force everywhere
	err     error         // it was not, and why
}

// about is the source or the rule.
func (w *word) about() string {
	if w.changes != "" {
		return w.changes
	}
	return w.source.String()
}

// status is what a request of the source is answered once the word is in force.
func (w *word) status() int {
	if w.lift {
		return http.StatusOK
	}
	return http.StatusTooManyRequests
}

// inTime says when words were in force.
func inTime(words []*word) (line string, kept bool) {
	var times []time.Duration
	within, why := 0, ""
	for _, w := range words {
		switch {
		case w.err != nil:
			why = fmt.Sprintf("; %s: %v", w.about(), w.err)
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

// A wordsOperator speaks to the API of edges, and as the sources of which it spoke.
type wordsOperator struct {
	client *http.Client
	rule   string
	edges  []*wordsEdge
}

// prepare blocks the sources of words, all at once.
func (o *wordsOperator) prepare(ctx context.Context, words []*word) error {
	errs := make([]error, len(words))
	var all sync.WaitGroup
	for i, w := range words {
		all.Go(func() { errs[i] = o.put(ctx, o.edges[i%len(o.edges)], &word{source: w.source}) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// put tells an edge.
func (o *wordsOperator) put(ctx context.Context, e *wordsEdge, w *word) error {
	method, body := http.MethodPut, `{"for":"1h","reason":"check"}`
	if w.lift {
		method, body = http.MethodDelete, ""
	}
	url := fmt.Sprintf("http://%s/v1/mitigations/%s/%s", e.Admin, o.rule, w.source)
	if w.changes != "" {
		url = fmt.Sprintf("http://%s/v1/rules/%s", e.Admin, w.changes)
		body = fmt.Sprintf(`{"limit":%d,"match":{"path":"/check"}}`, w.limit)
	}
	q, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := o.client.Do(q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, url, answer.Status, text)
	}
	return err
}

// say tells an edge, and watches all of them until the word is in force.
func (o *wordsOperator) say(ctx context.Context, w *word, to int) {
	ctx, cancel := context.WithTimeout(ctx, wordsGiveUp)
	defer cancel()
	said := time.Now()
	at, errs := make([]time.Time, len(o.edges)), make([]error, len(o.edges)+1)
	var all sync.WaitGroup
	for i, e := range o.edges {
		all.Go(func() {
			switch {
			case w.changes != "":
				at[i], errs[i] = o.changed(ctx, e, w)
			case w.lift:
				at[i], errs[i] = o.lifted(ctx, e, w)
			default:
				at[i], errs[i] = o.blocked(ctx, e, w, said)
			}
		})
	}
	errs[len(o.edges)] = o.put(ctx, o.edges[to], w)
	all.Wait()
	for _, err := range errs {
		w.err = cmp.Or(w.err, err)
	}
	for _, t := range at {
		w.took = max(w.took, t.Sub(said))
	}
}

// blocked is when an edge began to refuse a source: when it learned of the block, as its list says, if a request is refused by then.
// Until the list has it no request is sent, because requests that are served count.
func (o *wordsOperator) blocked(ctx context.Context, e *wordsEdge, w *word, said time.Time) (time.Time, error) {
	learned, at, err := e.awaitList(ctx, w, said)
	if err != nil {
		return at, err
	}
	status, err := o.request(ctx, e, w.source)
	if err == nil && status == w.status() {
		return learned, nil
	}
	return o.awaitStatus(ctx, e, w)
}

// lifted is when an edge served a source again, or when its list had it no longer if that was not so when it was asked next.
func (o *wordsOperator) lifted(ctx context.Context, e *wordsEdge, w *word) (time.Time, error) {
	served, err := o.awaitStatus(ctx, e, w)
	if err != nil {
		return served, err
	}
	_, at, err := e.awaitList(ctx, w, served)
	return at, err
}

// changed is when an edge had a rule as it was changed, or later.
func (o *wordsOperator) changed(ctx context.Context, e *wordsEdge, w *word) (time.Time, error) {
	for {
		limit, err := o.limit(ctx, e, w.changes)
		now := time.Now()
		if err == nil && limit >= w.limit {
			return now, nil
		}
		if pause(ctx, wordsLook) != nil {
			return now, fmt.Errorf("%s has a limit of %d, not %d, after %v", e.Name, limit, w.limit, wordsGiveUp)
		}
	}
}

// limit is that of a rule on an edge.
func (o *wordsOperator) limit(ctx context.Context, e *wordsEdge, rule string) (int, error) {
	var r struct{ Limit int }
	err := scrape.Get(ctx, o.client, e.Admin, "/v1/rules/"+rule, scrape.JSON(&r))
	return r.Limit, err
}

// awaitStatus sends requests of a source until one is answered as it should be.
func (o *wordsOperator) awaitStatus(ctx context.Context, e *wordsEdge, w *word) (time.Time, error) {
	for {
		status, err := o.request(ctx, e, w.source)
		now := time.Now()
		if err == nil && status == w.status() {
			return now, nil
		}
		if pause(ctx, wordsLook) != nil {
			return now, fmt.Errorf("%s answers %d, not %d, after %v", e.Name, status, w.status(), wordsGiveUp)
		}
	}
}

// request sends a request of a source.
func (o *wordsOperator) request(ctx context.Context, e *wordsEdge, source netip.Addr) (status int, err error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.Addr.String()+"/", nil)
	if err != nil {
		return 0, err
	}
	q.Header.Set("X-Forwarded-For", source.String())
	answer, err := o.client.Do(q)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

// A wordsCount is how many blocks that no operator has said have come into force on an edge.
type wordsCount struct {
	at     time.Time
	blocks float64
}

// started is that of each edge.
func (o *wordsOperator) started(ctx context.Context) (counts []wordsCount, err error) {
	for _, e := range o.edges {
		m := make(scrape.Metrics)
		if err := scrape.Get(ctx, o.client, e.Admin, "/metrics", m.Parse); err != nil {
			return nil, fmt.Errorf("loadgen: read the metrics of %s: %w", e.Name, err)
		}
		const name = "sluice_mitigations_started_total"
		counts = append(counts, wordsCount{time.Now(), m.Sum(name, "by", "edge") + m.Sum(name, "by", "pop")})
	}
	return counts, nil
}

// A wordsEdge is an edge, and what operators have blocked there as its list said last.
type wordsEdge struct {
	*lab.Member

	mu      sync.Mutex
	asked   time.Time            // for the list
	blocked map[string]time.Time // by source, when the edge learned of it
	changed chan struct{}        // closed with the next list
}

// list asks for what operators have blocked.
func (e *wordsEdge) list(ctx context.Context, client *http.Client) (map[string]time.Time, error) {
	var list lab.Mitigations
	if err := scrape.Get(ctx, client, e.Admin, "/v1/mitigations", scrape.JSON(&list)); err != nil {
		return nil, fmt.Errorf("loadgen: ask %s for its mitigations: %w", e.Name, err)
	}
	blocked := make(map[string]time.Time)
	for _, m := range list {
		if m.By == "admin" {
			blocked[m.Source] = m.Learned
		}
	}
	return blocked, nil
}

// watch asks for the list again and again until ctx ends. One list serves all words: an attack makes it long.
func (e *wordsEdge) watch(ctx context.Context, client *http.Client) {
	for ctx.Err() == nil {
		asked := time.Now()
		if list, err := e.list(ctx, client); err == nil {
			e.mu.Lock()
			e.asked, e.blocked = asked, list
			close(e.changed)
			e.changed = make(chan struct{})
			e.mu.Unlock()
		}
		_ = pause(ctx, wordsList-time.Since(asked))
	}
}

// awaitList waits until a list says what a word does. The edge was asked for it after the given time. If that was the first such
// list, it was so at that time already. Of a block it is known when the edge learned of it.
func (e *wordsEdge) awaitList(ctx context.Context, w *word, since time.Time) (learned, at time.Time, err error) {
	at = since
	for last := since; ; {
		e.mu.Lock()
		asked, changed := e.asked, e.changed
		learned, there := e.blocked[w.source.String()]
		e.mu.Unlock()
		if asked.After(last) {
			if there != w.lift {
				return learned, at, nil
			}
			at, last = time.Now(), asked
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return learned, at, fmt.Errorf("%s lists it otherwise after %v", e.Name, wordsGiveUp)
		}
	}
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
