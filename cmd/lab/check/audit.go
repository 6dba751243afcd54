package check

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/process"
	"sluice/loadgen/replay"
	"sluice/loadgen/scrape"
	"sluice/loadgen/trace"
)

// Audit holds what edges find out about their own wrong decisions against a judge who sees every answer.
type Audit struct {
	Replay replay.Replay // but for its edges and its carrier, which are the site's
	Trace  *trace.Trace
	Judge  func(*lab.Outcome) judge.Figures
}

// How long edges gather before they judge, and after how long they have judged at the latest.
const (
	auditGathers = 4 * time.Second
	auditSettles = 2*auditGathers + 3*time.Second
)

// Run checks that edges that audit every source find the same share of wrong decisions as the judge, but for what they call uncertain, and that
// this costs at most one in a hundred of the commands to the tier. It begins once a window is behind them.
func (k Audit) Run(ctx context.Context, s *lab.Site) (*Result, error) {
	c := &Result{Name: "audit"}
	if len(s.NodeProcesses) == 0 || s.AuditOneIn != 1 {
		return nil, errors.New("loadgen: check audit: want memcached nodes, and edges that audit every source")
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	s.Log("waiting until the edge that judges knows all hits of a window")
	n := float64(len(s.EdgeProcesses))
	if _, err := await(ctx, s, client, 2*auditSettles, func(m scrape.Metrics) bool {
		return m.Sum("sluice_tier_edges") == n*n && m.Sum("sluice_audit_judges") == 1
	}); err != nil {
		return nil, err
	}
	if err := process.Pause(ctx, s.Rule.Window+auditGathers); err != nil {
		return nil, err
	}
	before, err := s.Settle(ctx, client)
	if err != nil {
		return nil, err
	}
	out, err := s.Run(ctx, k.Replay, k.Trace, nil)
	if err != nil {
		return nil, err
	}
	f := k.Judge(out)
	s.Log("waiting until all of it is judged")
	after, err := await(ctx, s, client, auditSettles, func(now scrape.Metrics) bool {
		return now.Minus(before).Sum("sluice_audit_decisions_total") >= float64(f.Decisions)
	})
	if err != nil {
		return nil, err
	}
	m := after.Minus(before)
	kinds := m.By("sluice_audit_wrong_total", "kind")
	decisions, uncertain := m.Sum("sluice_audit_decisions_total"), m.Sum("sluice_audit_uncertain_total")
	found := share(kinds["allowed"]+kinds["limited"], decisions)
	bound, differs := share(uncertain, decisions), math.Abs(found-f.WrongPerDecision)
	spent, all := m.Sum("sluice_audit_commands_total"), m.Sum("sluice_tier_operations_total")
	c.See("%d edges, %d memcached nodes; %d requests, %d under a block", len(s.EdgeProcesses), len(s.NodeProcesses), f.Requests, f.Mitigated)
	c.See("judge: %d decisions, %d wrong (%d allowed, %d limited): %.4f %%", f.Decisions, f.Wrong, f.WronglyAllowed, f.WronglyLimited, 100*f.WrongPerDecision)
	c.See("audit: %.0f decisions, %.0f wrong (%.0f allowed, %.0f limited): %.4f %%, of which it is sure to %.4f %% (%.0f uncertain); %.0f not judged",
		decisions, kinds["allowed"]+kinds["limited"], kinds["allowed"], kinds["limited"], 100*found, 100*bound, uncertain, m.Sum("sluice_audit_skipped_total"))
	c.See("they differ by %.4f %%", 100*differs)
	c.See("audit: %.0f of %.0f commands to the tier: %.2f %%, want at most 1 %%", spent, all, 100*share(spent, all))
	c.See("audit: %.0f blocks were noticed, on an edge each; %.0f edges judge, want 1", m.Sum("sluice_detection_seconds_count"), after.Sum("sluice_audit_judges"))
	late, took := out.Late().P99, judge.SecondsOf(out.Latency).P99
	if busy := s.Rule.Window.Seconds() / 50; late > busy || took > busy {
		c.See("disturbed: the machine was too busy: requests were sent up to %.0f ms late and took up to %.0f ms (p99)", 1000*late, 1000*took)
	}
	c.Kept = out.Err() == nil && f.Wrong > 0 && math.Abs(decisions-float64(f.Decisions)) <= float64(f.Decisions)/100 &&
		differs <= bound && spent <= all/100 && after.Sum("sluice_audit_judges") == 1
	return c, errors.Join(out.Err(), s.Crashed())
}

// await returns what the edges' metrics say when they are as they should be, or after so long.
func await(ctx context.Context, s *lab.Site, client *http.Client, most time.Duration, yes func(scrape.Metrics) bool) (scrape.Metrics, error) {
	for end := time.Now().Add(most); ; {
		m, err := s.Settle(ctx, client)
		if err != nil || yes(m) || time.Now().After(end) {
			return m, err
		}
		if err := process.Pause(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// share is a part of a whole; 0 of nothing.
func share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}
