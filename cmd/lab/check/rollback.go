package check

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"time"

	"sluice/loadgen/judge"
	"sluice/loadgen/lab"
	"sluice/loadgen/process"
	"sluice/loadgen/replay"
	"sluice/loadgen/scrape"
	"sluice/loadgen/trace"
)

const (
	rollbackWithin = 2 * time.Second // until no edge blocks anybody
	rollbackLimit  = 100
	rollbackRate   = 200 // requests a second
	rollbackEach   = 6   // of each source, more than a second apart
)

// A RollbackScale is how large Rollback is.
type RollbackScale struct {
	Trials int
	Length time.Duration // of the traffic of a trial
	Later  time.Duration // after the last trial, until an edge starts again
}

// RollbackScales are the full form of Rollback and a short one, of some seconds.
func RollbackScales(short bool) RollbackScale {
	if short {
		return RollbackScale{Trials: 2, Length: 6 * time.Second}
	}
	return RollbackScale{Trials: 20, Length: 8 * time.Second, Later: 2 * time.Minute}
}

// Rule is the rule of the site that goes with it.
func (RollbackScale) Rule() lab.RuleConfig {
	return lab.RuleConfig{Limit: rollbackLimit, Window: time.Minute, MitigationTimeout: time.Hour, Mode: judge.Deployed}
}

// Rollback checks that a limit which was too low for a moment blocks nobody afterwards. While many sources send a few requests each, an
// operator lowers the limit to 1 on one edge, and rolls that back on another a few seconds later. Two seconds after that no edge has a
// mitigation, each edge serves each source, and so does one that is killed and started again minutes later and reads what the tier has. Then
// each field of the rule is changed and rolled back, while somebody is blocked and somebody has used a part of the limit.
// The site must have sources named in X-Forwarded-For, and a secret.
func Rollback(ctx context.Context, s *lab.Site, scale RollbackScale) (*Result, error) {
	if len(s.EdgeProcesses) < 2 || len(s.NodeProcesses) == 0 {
		return nil, errors.New("loadgen: check rollback: want at least two edges and a memcached node")
	}
	c := &Result{Name: "rollback", Kept: true}
	client := &http.Client{Transport: &http.Transport{}, Timeout: wordsGiveUp}
	defer client.CloseIdleConnections()
	r := &rollback{Site: s, scale: scale, client: client, rng: rand.New(rand.NewPCG(1, 1)), sources: int(scale.Length.Seconds() * rollbackRate / rollbackEach)}
	clean := 0
	for trial := range scale.Trials {
		line, err := r.trial(ctx, trial)
		if err != nil {
			return nil, err
		}
		s.Log("trial %d: %s", trial+1, line)
		c.See("trial %2d: %s", trial+1, line)
		if line.clean() {
			clean++
		}
	}
	last := s.EdgeProcesses[len(s.EdgeProcesses)-1]
	s.Log("%v later %s starts again", scale.Later, last.Name)
	if err := process.Pause(ctx, scale.Later); err != nil {
		return nil, err
	}
	if err := last.Restart(ctx); err != nil {
		return nil, err
	}
	all := scale.Trials * r.sources
	refused, err := r.refused(ctx, len(s.EdgeProcesses)-1, 0, all)
	if err != nil {
		return nil, err
	}
	held, err := r.held(ctx)
	if err != nil {
		return nil, err
	}
	c.See("%d of %d trials left nobody blocked", clean, scale.Trials)
	c.See("%v later %s was killed and started again: of %d sources it refused %d; the edges have %v mitigations", scale.Later, last.Name, all, refused, held)
	c.Kept = clean == scale.Trials && refused == 0 && sum(held) == 0
	if err := r.fields(ctx, c); err != nil {
		return nil, err
	}
	return c, s.Crashed()
}

// rollback is a Rollback that runs.
type rollback struct {
	*lab.Site
	scale   RollbackScale
	client  *http.Client
	rng     *rand.Rand
	sources int // of a trial
}

// rollbackTrial is what a trial has seen.
type rollbackTrial struct {
	lowered  time.Duration // for how long the limit was low
	blocked  int           // requests that were refused meanwhile
	held     []int         // mitigations of each edge two seconds after the rollback
	refused  []int         // sources whose next request each edge refused
	after    []int         // mitigations of each edge after that
	answered int
}

func (t *rollbackTrial) clean() bool {
	return sum(t.held)+sum(t.refused)+sum(t.after) == 0 && t.blocked > 0
}

func (t *rollbackTrial) String() string {
	return fmt.Sprintf("limit 1 for %v, %d of %d requests refused; %v after the rollback mitigations on the edges %v, then sources refused %v, mitigations %v",
		t.lowered.Round(time.Millisecond), t.blocked, t.answered, rollbackWithin, t.held, t.refused, t.after)
}

func (r *rollback) trial(ctx context.Context, n int) (*rollbackTrial, error) {
	t := &trace.Trace{Name: "check", Sources: make([]trace.Source, r.scale.Trials*r.sources)}
	for i := range r.sources * rollbackEach {
		t.Requests = append(t.Requests, trace.Request{At: time.Duration(i) * time.Second / rollbackRate, Source: int32(n*r.sources + i%r.sources)})
	}
	type sent struct {
		out *replay.Outcome
		err error
	}
	traffic := make(chan sent, 1)
	go func() {
		out, err := replay.Replay{PoPs: r.Targets[:1], Carrier: r.Carrier, PerConnection: 1}.Run(ctx, t)
		traffic <- sent{out, err}
	}()
	result, err := r.change(ctx, n)
	all := <-traffic
	if err := errors.Join(err, all.err); err != nil {
		return nil, err
	}
	result.answered = all.out.Answered
	for _, d := range all.out.Decisions {
		if d.Verdict == judge.Limited || d.Verdict == judge.Mitigated {
			result.blocked++
		}
	}
	for edge := range r.EdgeProcesses {
		refused, err := r.refused(ctx, edge, n*r.sources, (n+1)*r.sources)
		if err != nil {
			return nil, err
		}
		result.refused = append(result.refused, refused)
	}
	result.after, err = r.held(ctx)
	return result, err
}

// change lowers the limit and rolls that back while the traffic goes on.
func (r *rollback) change(ctx context.Context, n int) (*rollbackTrial, error) {
	edge := func(i int) *lab.Member { return r.EdgeProcesses[i%len(r.EdgeProcesses)] }
	if err := process.Pause(ctx, 1500*time.Millisecond); err != nil { // each source has sent one
		return nil, err
	}
	began := time.Now()
	if err := r.tell(ctx, edge(n), http.MethodPatch, "/v1/rules/default", `{"limit": 1}`); err != nil {
		return nil, err
	}
	if err := process.Pause(ctx, 500*time.Millisecond+time.Duration(r.rng.Int64N(int64(2*time.Second)))); err != nil {
		return nil, err
	}
	if err := r.tell(ctx, edge(n+1), http.MethodPost, "/v1/rules/default/rollback", `{"to": 0}`); err != nil {
		return nil, err
	}
	result := &rollbackTrial{lowered: time.Since(began)}
	if err := process.Pause(ctx, rollbackWithin); err != nil {
		return nil, err
	}
	var err error
	result.held, err = r.held(ctx)
	return result, err
}

func (r *rollback) tell(ctx context.Context, m *lab.Member, method, path, body string) error {
	o := &wordsOperator{client: r.client}
	return o.put(ctx, &wordsEdge{Member: m}, &word{kind: &wordKind{tell: func(*word) (string, string, string) { return method, path, body }}})
}

// held is how many mitigations each edge has.
func (r *rollback) held(ctx context.Context) (n []int, err error) {
	for _, e := range r.EdgeProcesses {
		var list lab.Mitigations
		if err := scrape.Get(ctx, r.client, e.Admin, "/v1/mitigations", scrape.JSON(&list)); err != nil {
			return nil, fmt.Errorf("loadgen: ask %s for its mitigations: %w", e.Name, err)
		}
		n = append(n, len(list))
	}
	return n, nil
}

// refused sends an edge two requests of each of some sources, the second when the tier has answered about the first, and says how many
// sources it refused.
func (r *rollback) refused(ctx context.Context, edge, from, to int) (int, error) {
	t := &trace.Trace{Name: "check", Sources: make([]trace.Source, r.scale.Trials*r.sources)}
	for source := from; source < to; source++ {
		at := time.Duration(source-from) * time.Millisecond
		for _, at := range [...]time.Duration{at, at + 200*time.Millisecond} {
			t.Requests = append(t.Requests, trace.Request{At: at, Source: int32(source)})
		}
	}
	trace.Sort(t)
	out, err := replay.Replay{PoPs: [][]netip.AddrPort{{r.Targets[0][edge]}}, Carrier: r.Carrier}.Run(ctx, t)
	if err != nil {
		return 0, err
	}
	if failed := out.ClientErrors(); failed > 0 || len(out.Decisions) != len(t.Requests) {
		return 0, fmt.Errorf("loadgen: check rollback: %d of %d requests failed: %s", failed, len(t.Requests), out.Trouble())
	}
	refused := make(map[int32]bool)
	for _, d := range out.Decisions {
		if d.Verdict != judge.Admitted {
			refused[d.Source] = true
		}
	}
	return len(refused), nil
}

func sum(list []int) (n int) {
	for _, i := range list {
		n += i
	}
	return n
}
