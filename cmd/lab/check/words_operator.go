package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"sluice/loadgen/lab"
	"sluice/loadgen/process"
	"sluice/loadgen/scrape"
)

// A wordsOperator speaks to the API of edges, and as the sources of which it spoke.
type wordsOperator struct {
	client *http.Client
	edges  []*wordsEdge
}

// prepare blocks the sources of words, on each edge one after the other: its listener for operators has few connections.
func (o *wordsOperator) prepare(ctx context.Context, words []*word) error {
	errs := make([]error, len(words))
	var all sync.WaitGroup
	for first, e := range o.edges {
		all.Go(func() {
			for i := first; i < len(words); i += len(o.edges) {
				errs[i] = o.put(ctx, e, &word{kind: blockWords, about: words[i].about})
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// put tells an edge.
func (o *wordsOperator) put(ctx context.Context, e *wordsEdge, w *word) error {
	method, path, body := w.kind.tell(w)
	url := fmt.Sprintf("http://%s%s", e.Admin, path)
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
			at[i], errs[i] = w.kind.inForce(o, ctx, e, w, said)
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

// limit is that of a rule on an edge.
func (o *wordsOperator) limit(ctx context.Context, e *wordsEdge, rule string) (int, error) {
	var r struct{ Limit int }
	err := scrape.Get(ctx, o.client, e.Admin, "/v1/rules/"+rule, scrape.JSON(&r))
	return r.Limit, err
}

// awaitStatus sends requests of a source until one is answered as it should be.
func (o *wordsOperator) awaitStatus(ctx context.Context, e *wordsEdge, w *word) (time.Time, error) {
	for {
		status, err := o.request(ctx, e, w.about)
		now := time.Now()
		if err == nil && status == w.kind.status {
			return now, nil
		}
		if process.Pause(ctx, wordsLook) != nil {
			return now, fmt.Errorf("%s answers %d, not %d, after %v", e.Name, status, w.kind.status, wordsGiveUp)
		}
	}
}

// request sends a request of a source.
func (o *wordsOperator) request(ctx context.Context, e *wordsEdge, source string) (status int, err error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.Addr.String()+"/", nil)
	if err != nil {
		return 0, err
	}
	q.Header.Set("X-Forwarded-For", source)
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
		m, err := scrape.MetricsOf(ctx, o.client, e.Admin)
		if err != nil {
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
		_ = process.Pause(ctx, wordsList-time.Since(asked))
	}
}

// awaitList waits until a list says what a word does. The edge was asked for it after the given time. If that was the first such
// list, it was so at that time already. Of a block it is known when the edge learned of it.
func (e *wordsEdge) awaitList(ctx context.Context, w *word, since time.Time) (learned, at time.Time, err error) {
	at = since
	for last := since; ; {
		e.mu.Lock()
		asked, changed := e.asked, e.changed
		learned, there := e.blocked[w.about]
		e.mu.Unlock()
		if asked.After(last) {
			if there == w.kind.listed {
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
