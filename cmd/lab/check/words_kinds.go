package check

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"sluice/loadgen/process"
)

// A word is what an operator says of a source or a rule, and what became of it.
type word struct {
	kind  *wordKind
	about string        // the source or the rule
	limit int           // that a rule has from then on: more than before
	took  time.Duration // until it was in force everywhere
	err   error         // it was not, and why
}

// A wordKind is a kind of words: what they are about, how an edge is told, and by what one sees that they are in force.
type wordKind struct {
	name  string
	about func(i int) string
	tell  func(w *word) (method, path, body string)
	// inForce waits until a word that was said at a time is in force on an edge, and returns when that began.
	inForce func(o *wordsOperator, ctx context.Context, e *wordsEdge, w *word, said time.Time) (time.Time, error)
	// stands reports whether it still is, where the edge's list is known.
	stands func(o *wordsOperator, ctx context.Context, e *wordsEdge, w *word, list map[string]time.Time) (bool, error)

	// Of one that is about a source, once it is in force:
	status int  // what a request is answered
	listed bool // whether the source is among the mitigations
}

var (
	blockWords = &wordKind{
		name:  "blocks",
		about: func(i int) string { return wordsSource(198, 51, 100, i) },
		tell: func(w *word) (string, string, string) {
			return http.MethodPut, "/v1/mitigations/default/" + w.about, `{"for":"1h","reason":"check"}`
		},
		inForce: (*wordsOperator).blocked, stands: (*wordsOperator).sourceStands,
		status: http.StatusTooManyRequests, listed: true,
	}
	liftWords = &wordKind{
		name:  "lifts",
		about: func(i int) string { return wordsSource(203, 0, 113, i) },
		tell: func(w *word) (string, string, string) {
			return http.MethodDelete, "/v1/mitigations/default/" + w.about, ""
		},
		inForce: (*wordsOperator).lifted, stands: (*wordsOperator).sourceStands,
		status: http.StatusOK,
	}
	changeWords = &wordKind{
		name:  "changes of rules",
		about: func(i int) string { return fmt.Sprintf("check%d", i%wordsRules) },
		tell: func(w *word) (string, string, string) {
			return http.MethodPut, "/v1/rules/" + w.about, fmt.Sprintf(`{"limit":%d,"match":{"path":"/check"}}`, w.limit)
		},
		inForce: (*wordsOperator).changed, stands: (*wordsOperator).changeStands,
	}
)

// wordsSource is a source of a network, and of those after it.
func wordsSource(a, b, c byte, i int) string {
	return netip.AddrFrom4([4]byte{a, b, c + byte(i/250), byte(1 + i%250)}).String()
}

// blocked is when an edge began to refuse a source: when it learned of the block, as its list says, if a request is refused by then.
// Until the list has it no request is sent, because requests that are served count.
func (o *wordsOperator) blocked(ctx context.Context, e *wordsEdge, w *word, said time.Time) (time.Time, error) {
	learned, at, err := e.awaitList(ctx, w, said)
	if err != nil {
		return at, err
	}
	status, err := o.request(ctx, e, w.about)
	if err == nil && status == w.kind.status {
		return learned, nil
	}
	return o.awaitStatus(ctx, e, w)
}

// lifted is when an edge served a source again, or when its list had it no longer if that was not so when it was asked next.
func (o *wordsOperator) lifted(ctx context.Context, e *wordsEdge, w *word, _ time.Time) (time.Time, error) {
	served, err := o.awaitStatus(ctx, e, w)
	if err != nil {
		return served, err
	}
	_, at, err := e.awaitList(ctx, w, served)
	return at, err
}

// changed is when an edge had a rule as it was changed, or later.
func (o *wordsOperator) changed(ctx context.Context, e *wordsEdge, w *word, _ time.Time) (time.Time, error) {
	for {
		limit, err := o.limit(ctx, e, w.about)
		now := time.Now()
		if err == nil && limit >= w.limit {
			return now, nil
		}
		if process.Pause(ctx, wordsLook) != nil {
			return now, fmt.Errorf("%s has a limit of %d, not %d, after %v", e.Name, limit, w.limit, wordsGiveUp)
		}
	}
}

// sourceStands holds what a source's request is answered, and the list, against a word about it.
func (o *wordsOperator) sourceStands(ctx context.Context, e *wordsEdge, w *word, list map[string]time.Time) (bool, error) {
	status, err := o.request(ctx, e, w.about)
	_, there := list[w.about]
	return there == w.kind.listed && status == w.kind.status, err
}

// changeStands holds a rule against the last change of it.
func (o *wordsOperator) changeStands(ctx context.Context, e *wordsEdge, w *word, _ map[string]time.Time) (bool, error) {
	limit, err := o.limit(ctx, e, w.about)
	return err == nil && limit == w.limit, nil
}
