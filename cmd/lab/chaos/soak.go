package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"sluice/cmd/lab/check"
	"sluice/loadgen/lab"
	"sluice/loadgen/process"
	"sluice/loadgen/replay"
	"sluice/loadgen/scrape"
)

// Soak is a long run in rounds, with a fault in each, at random but the same for a seed: to the
// tier, to an edge, to a clock or to the origin. The last edge is never ended, so that there is one
// whose memory says something of the whole time.
type Soak struct {
	Rounds int // at least 3
	Length time.Duration
	Seed   uint64
}

// Lab is what a soak runs on: edges that give up an origin after three seconds, which a busy
// machine does not take by itself.
func (k Soak) Lab(l Live, edges, nodes int) lab.Lab {
	s := k.traffic()
	s.Edges, s.Nodes, s.Patience = edges, nodes, 3*time.Second
	return l.lab(s)
}

// traffic is what sources do in a round.
func (k Soak) traffic() *Scenario {
	return &Scenario{
		Story: "soak", FailurePolicy: "local", Limit: 50, Window: 5 * time.Second, Block: 5 * time.Second,
		Steady: 20, Share: 0.9, Attackers: 10, Rate: 25, For: k.Length,
	}
}

// used is what an edge holds when it is at rest. Memory is what is resident, or the size at which
// the garbage collector begins if that is more: until then memory grows without anything being
// kept.
type used struct {
	goroutines, descriptors, memory float64
	pid                             int
}

// calm is how long nothing must have been let go of before an edge is at rest: it keeps idle
// connections to origins for half a minute.
const calm = 35 * time.Second

// Run checks that nothing is lost and nothing grows. In every round the balance is exact, each edge
// has answered what it received since it was started, and no client meets an error but for a fault
// of an edge or of the origin. And at rest after the last round no edge that was there all the time
// holds noticeably more goroutines, descriptors or memory than it did at rest after a quarter of
// the rounds, when it was warm. Rounds shorter than 35 s shorten that rest, and what only breathes
// may be taken for growth.
func (k Soak) Run(ctx context.Context, s *lab.Site) (*check.Result, error) {
	if k.Rounds < 3 {
		return nil,
			fmt.Errorf("loadgen: soak: %d rounds: want at least 3, to compare the last with the first", k.Rounds)
	}
	if len(s.NodeProcesses) == 0 || len(s.EdgeProcesses) < 2 {
		return nil,
			errors.New("loadgen: soak: want a memcached node to go wrong, and an edge beside the one that is never ended")
	}
	c := &check.Result{Name: "soak", Kept: true}
	rng := rand.New(rand.NewPCG(k.Seed, 0x50a1c))
	var warm, last []used
	sent, wrong, errors := 0, 0, 0
	for round := 1; round <= k.Rounds; round++ {
		seed := k.Seed + uint64(round)
		out, err := s.Run(ctx, replay.Replay{Seed: seed, Timeout: 5 * time.Second},
			k.traffic().Traffic(seed), randomFault(s, rng, k.Length))
		if err != nil {
			return nil, err
		}
		sent, errors = sent+out.Sent, errors+out.ClientErrors()
		line, sound := soakRound(round, out)
		if unanswered, err := answersMissing(ctx, s); err != nil {
			return nil, err
		} else if unanswered != "" {
			line, sound = line+"; "+unanswered, false
		}
		if !sound {
			wrong++
		}
		s.Log("%s", line)
		c.See("%s", line)
		if round == (k.Rounds+3)/4 || round == k.Rounds {
			warm = last
			if last, err = atRest(ctx, s, min(calm, k.Length)); err != nil {
				return nil, err
			}
		}
	}
	c.See("%d requests in %d rounds of %v, %d of them failed by faults of edges and of the origin; in %d rounds the balance was off, or a client met an error that no fault explains",
		sent, k.Rounds, k.Length, errors, wrong)
	c.Kept = flat(c, warm, last) && wrong == 0
	return c, nil
}

// answersMissing names edges that have not answered, or given up, as much as they received since
// they were started.
func answersMissing(ctx context.Context, s *lab.Site) (names string, err error) {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for _, e := range s.EdgeProcesses {
		m, err := scrape.MetricsOf(ctx, client, e.Admin)
		if err != nil {
			return "", fmt.Errorf("loadgen: read the metrics of %s: %w", e.Name, err)
		}
		if received, ended := m.Sum("sluice_received_total"),
			m.Sum("sluice_answers_total")+m.Sum("sluice_aborted_total"); received != ended {
			names += fmt.Sprintf("%s received %.0f and ended %.0f; ", e.Name, received, ended)
		}
	}
	return strings.TrimSuffix(names, "; "), nil
}

// soakRound says what happened in a round, and whether it was sound.
func soakRound(round int, out *lab.Outcome) (line string, sound bool) {
	line = fmt.Sprintf("round %d: %s; %d requests", round, strings.Join(out.Happened, ", "),
		out.Sent)
	if err := out.Err(); err != nil {
		return fmt.Sprintf("%s: %v", line, err), false
	}
	if n := out.ClientErrors(); n > 0 {
		return fmt.Sprintf("%s, balance exact, %d client errors: %s", line, n, out.Trouble()), true
	}
	return line + ", balance exact, no client error", true
}

// flat says what each edge holds, and reports whether that is no more than before.
func flat(c *check.Result, warm, last []used) bool {
	all := true
	for i := range last {
		if last[i].pid != warm[i].pid {
			c.See("edge/%d was started anew meanwhile, and is compared with nothing", i)
			continue
		}
		line, flat := last[i].since(warm[i])
		c.See("edge/%d at rest, after a quarter of the rounds and after the last: %s", i, line)
		all = all && flat
	}
	return all
}

// randomFault is one fault and its end, within the first two thirds of a round.
func randomFault(s *lab.Site, rng *rand.Rand, length time.Duration) []lab.Fault {
	at := time.Duration((0.1 + 0.2*rng.Float64()) * float64(length)).Round(time.Millisecond)
	over := at + time.Duration((0.1+0.2*rng.Float64())*float64(length)).Round(time.Millisecond)
	pair := func(kind string, n int, begin, end lab.Action) []lab.Fault {
		return []lab.Fault{{At: at, Action: begin, Kind: kind, Index: n}, {At: over, Action: end,
			Kind: kind, Index: n}}
	}
	dies := [][2]lab.Action{{lab.Kill, lab.Restart}, {lab.Stop, lab.Cont}, {lab.Term, lab.Restart}}
	edges := len(s.EdgeProcesses)
	switch rng.IntN(4) {
	case 0:
		how := dies[rng.IntN(2)]
		return pair("memcached", rng.IntN(len(s.NodeProcesses)), how[0], how[1])
	case 1:
		n, how := rng.IntN(edges), dies[rng.IntN(3)]
		if n == edges-1 {
			how = dies[1]
		}
		return pair("edge", n, how[0], how[1])
	case 2:
		steps := []time.Duration{5 * time.Second, -5 * time.Second, time.Hour, -time.Hour}
		faults := pair("edge", rng.IntN(edges), lab.StepClock, lab.StepClock)
		faults[0].By = steps[rng.IntN(len(steps))]
		faults[1].By = -faults[0].By
		return faults
	}
	how := dies[rng.IntN(2)]
	return pair("origin", 0, how[0], how[1])
}

// atRest waits until the edges have nothing to report and have let go of nothing for some time, and
// gives what each holds then.
func atRest(ctx context.Context, s *lab.Site, calm time.Duration) (held []used, err error) {
	if err := everythingReported(ctx, s); err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	least := math.Inf(1)
	for since := time.Now(); time.Since(since) < calm; {
		if err := process.Pause(ctx, min(time.Second, calm/4)); err != nil {
			return nil, err
		}
		held = held[:0]
		now := 0.0
		for _, e := range s.EdgeProcesses {
			m, err := scrape.MetricsOf(ctx, client, e.Admin)
			if err != nil {
				return nil, fmt.Errorf("loadgen: read the metrics of %s: %w", e.Name, err)
			}
			u := used{
				goroutines: m.Sum("go_goroutines"), descriptors: m.Sum("process_open_fds"),
				memory: max(m.Sum("process_resident_memory_bytes"),
					m.Sum("go_memstats_next_gc_bytes")),
				pid: e.PID(),
			}
			held = append(held, u)
			now += u.goroutines + u.descriptors
		}
		if now < least {
			least, since = now, time.Now()
		}
	}
	return held, nil
}

// everythingReported waits until no edge has hits that the tier has not been told of. An edge may
// keep a few of a source back until their sub-windows are over.
func everythingReported(ctx context.Context, s *lab.Site) error {
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for quiet := 0; quiet < 10; quiet++ {
		if err := process.Pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		m, err := s.Settle(ctx, client)
		if err != nil {
			return err
		}
		if m.Sum("sluice_unreported_hits") > 0 {
			quiet = -1
		}
	}
	return nil
}

// since compares what an edge holds with what it held before: not a tenth more, and not a little
// more of what is little.
func (u used) since(before used) (line string, flat bool) {
	flat = true
	kind := func(name string, was, is, little float64) {
		line += fmt.Sprintf(", %.0f and %.0f %s", was, is, name)
		if is > 1.1*was+little {
			line += " (IT GROWS)"
			flat = false
		}
	}
	kind("goroutines", before.goroutines, u.goroutines, 5)
	kind("descriptors", before.descriptors, u.descriptors, 5)
	kind("MB", before.memory/1e6, u.memory/1e6, 4)
	return line[len(", "):], flat
}
