package rival

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"sluice/loadgen/answer"
	"sluice/loadgen/judge"
	"sluice/loadgen/process"
	"sluice/loadgen/replay"
	"sluice/loadgen/trace"
)

// Cost is the processor time that a request took, in seconds, and that a second at rest took before
// the first.
type Cost struct {
	Name    string  `json:"name"` // of the program
	Version string  `json:"version,omitempty"`
	CPU     float64 `json:"cpu_per_request"`
	AtRest  float64 `json:"cpu_at_rest"`
}

// rest is how long a limiter is watched before anybody asks it anything.
const rest = time.Second

// Run replays a trace on instances of any limiter, with one address a source, and measures what its
// processes use meanwhile. ByStatus says that they tell no verdicts: they are not Sluice.
func Run(ctx context.Context, r replay.Replay, t *trace.Trace, targets []netip.AddrPort,
	parts []Part, byStatus bool) (*replay.Outcome, []Cost, error) {
	r.PoPs, r.Carrier, r.ByStatus = [][]netip.AddrPort{targets}, replay.Loopback, byStatus
	idle, err := used(parts)
	if err != nil {
		return nil, nil, err
	}
	if err := process.Pause(ctx, rest); err != nil {
		return nil, nil, err
	}
	before, err := used(parts)
	if err != nil {
		return nil, nil, err
	}
	out, err := r.Run(ctx, t)
	if err != nil {
		return out, nil, err
	}
	after, err := used(parts)
	if err != nil {
		return out, nil, err
	}
	var costs []Cost
	for i, p := range parts {
		costs = append(costs, Cost{Name: p.Name, Version: p.Version, CPU: (after[i] - before[i]).
			Seconds() / float64(max(out.Answered, 1)),
			AtRest: (before[i] - idle[i]).Seconds() / rest.Seconds()})
	}
	return out, costs, nil
}

// used is the processor time of each part so far.
func used(parts []Part) ([]time.Duration, error) {
	out := make([]time.Duration, len(parts))
	for i, p := range parts {
		for _, pid := range p.PIDs {
			cpu, err := process.CPUTime(pid)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.Name, err)
			}
			out[i] += cpu
		}
	}
	return out, nil
}

// Judge holds what a limiter answered against the exact log of what it counts. All are judged by
// what clients see: an edge knows that a source is over once it refuses it, and has its block in
// force. Grain is how exactly it knows when a source would be admitted again.
func Judge(out *replay.Outcome, limit uint32, window, timeout, grain time.Duration, instances int,
	refused bool) judge.Figures {
	f := judge.Judge(judge.Deployed, judge.Options{
		Limit: limit, Window: window, Timeout: timeout, Edges: instances, Slack: answer.ClockSlack,
		Grain: grain, Grace: answer.Grace(window), Refused: refused,
	}, out.Decisions, nil)
	late := out.Late()
	f.SendError = &late
	return f
}
