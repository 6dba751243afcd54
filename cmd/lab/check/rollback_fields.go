package check

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"sluice/loadgen/lab"
	"sluice/loadgen/process"
	"sluice/loadgen/scrape"
)

// A fieldChange is a change of the rule while somebody is blocked and somebody has used a part of the limit: who stays blocked, and what
// still counts.
type fieldChange struct {
	patch  string
	counts bool // the rule goes on counting; else it begins afresh
	blocks bool // who was blocked still is
}

var fieldChanges = []fieldChange{
	{`{"limit": 101}`, true, false},
	{`{"match": {"methods": ["GET"]}}`, false, false},
	{`{"mitigation_timeout": "2h"}`, true, true},
	{`{"limit": 99}`, true, true},
	{`{"mitigation_timeout": "30m"}`, true, false},
	{`{"escalate": ["2h"]}`, true, true},
	{`{"estimate": "lower"}`, true, true},
	{`{"count": {"statuses": [401]}}`, false, false},
	{`{"count": {"refused": true}}`, false, false},
	{`{"cost": 2}`, false, false},
	{`{"window": "2m"}`, false, false},
	{`{"sub_windows": 4}`, false, false},
	{`{"algorithm": "fixed"}`, false, false},
	{`{"algorithm": "token_bucket"}`, false, false},
	{`{"mode": "shadow"}`, false, false},
	{`{"windows": [{"limit": 5000, "window": "2h"}]}`, true, true},
	{`{"candidate": {"limit": 50}}`, true, true},
	{`{"first_sight": "wait"}`, true, true},
	{`{"on_store_failure": "share"}`, true, true},
	{`{"check": "sync"}`, true, true},
	{`{"action": "close"}`, true, true},
	{`{"priority": "critical"}`, true, true},
	{`{"response": {"status": 503}}`, true, true},
}

const (
	fieldsUsed = 60 // requests of the one who has used a part of the limit,
	fieldsMore = 48 // and after the change: together more than the limit, and alone, at twice the cost, less
)

// fields makes the changes one after the other, each on the next edge, rolls each back, and says what was otherwise than it should be.
func (r *rollback) fields(ctx context.Context, c *Result) error {
	list := fieldChanges
	if r.scale.Later == 0 {
		list = list[:3]
	}
	right := 0
	for i, f := range list {
		wrong, err := r.field(ctx, i, f)
		if err != nil {
			return err
		}
		if wrong == "" {
			right++
		} else {
			c.See("%s: %s", f.patch, wrong)
		}
		r.Log("%s: %s", f.patch, strings.TrimPrefix(wrong+", as it should be", ", "))
	}
	c.See("%d of %d changes of a rule's fields kept on every edge what counts as before, and nothing else", right, len(list))
	c.Kept = c.Kept && right == len(list)
	return nil
}

func (r *rollback) field(ctx context.Context, i int, f fieldChange) (wrong string, err error) {
	edge := func(i int) *lab.Member { return r.EdgeProcesses[i%len(r.EdgeProcesses)] }
	blocked, active := wordsSource(198, 51, 100, i), wordsSource(203, 0, 113, i)
	send := func(source string, n int) (refused int, err error) {
		o := &wordsOperator{client: r.client}
		for k := range n {
			status, err := o.request(ctx, &wordsEdge{Member: edge(k)}, source)
			if err != nil {
				return 0, err
			}
			if status != http.StatusOK {
				refused++
			}
			if err := process.Pause(ctx, 5*time.Millisecond); err != nil {
				return 0, err
			}
		}
		return refused, nil
	}
	if n, err := send(active, fieldsUsed); err != nil || n > 0 {
		return fmt.Sprintf("%d requests within the limit were refused", n), err
	}
	if n, err := send(blocked, rollbackLimit+20); err != nil || n == 0 {
		return "nobody was blocked", err
	}
	if err := process.Pause(ctx, 200*time.Millisecond); err != nil { // until every edge knows
		return "", err
	}
	if err := r.tell(ctx, edge(i), http.MethodPatch, "/v1/rules/default", f.patch); err != nil {
		return "", err
	}
	if err := process.Pause(ctx, rollbackWithin); err != nil {
		return "", err
	}
	var faults []string
	for _, e := range r.EdgeProcesses {
		var list lab.Mitigations
		if err := scrape.Get(ctx, r.client, e.Admin, "/v1/mitigations", scrape.JSON(&list)); err != nil {
			return "", fmt.Errorf("loadgen: ask %s for its mitigations: %w", e.Name, err)
		}
		is := false
		for _, m := range list {
			is = is || strings.HasPrefix(m.Source, blocked)
		}
		if is != f.blocks {
			faults = append(faults, fmt.Sprintf("blocked on %s is %t", e.Name, is))
		}
	}
	n, err := send(active, fieldsMore)
	if err != nil {
		return "", err
	}
	if counts := n > 0; counts != f.counts {
		faults = append(faults, fmt.Sprintf("%d of %d requests were refused after %d before the change", n, fieldsMore, fieldsUsed))
	}
	return strings.Join(faults, ", "), r.tell(ctx, edge(i+1), http.MethodPost, "/v1/rules/default/rollback", `{"to": 0}`)
}
