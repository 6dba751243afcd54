package check

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"sluice/loadgen/lab"
	"sluice/loadgen/process"
	"sluice/loadgen/replay"
	"sluice/loadgen/scrape"
	"sluice/loadgen/trace"
)

// Soak is a long run in rounds, with a random fault in each. The faults are to the tier: no client need notice one, and no edge is
// started anew, whose memory would then say nothing.
type Soak struct {
	Rounds int // at least 3
	Length time.Duration
	Seed   uint64                                          // of the faults
	Replay replay.Replay                                   // but for its edges and its carrier, which are the site's
	Trace  func(round int) (trace *trace.Trace, err error) // the traffic of a round, as long as that
}

// used is what an edge holds when it is at rest. Memory is what is resident, or the size at which the garbage collector begins if that
// is more: until then memory grows without anything being kept.
type used struct{ goroutines, descriptors, memory float64 }

// calm is how long nothing must have been let go of before an edge is at rest: it keeps idle connections to origins for half a minute.
const calm = 35 * time.Second

// Run checks that nothing is lost and nothing grows. In every round the balance is exact and no client meets an error. And at
// rest after the last round no edge holds noticeably more goroutines, descriptors or memory than it did at rest after a third of
// the rounds, when it was warm. Rounds shorter than 35 s shorten that rest, and what only breathes may be taken for growth.
func (k Soak) Run(ctx context.Context, s *lab.Site) (*Result, error) {
	if k.Rounds < 3 {
		return nil, fmt.Errorf("loadgen: check soak: %d rounds: want at least 3, to compare the last with the first", k.Rounds)
	}
	if len(s.NodeProcesses)+len(s.ProxyProcesses) == 0 {
		return nil, errors.New("loadgen: check soak: there is no memcached node to go wrong")
	}
	c := &Result{Name: "soak", Kept: true}
	rng := rand.New(rand.NewPCG(k.Seed, 0x50a1c))
	var warm, last []used
	sent, wrong := 0, 0
	for round := 1; round <= k.Rounds; round++ {
		trace, err := k.Trace(round)
		if err != nil {
			return nil, err
		}
		out, err := s.Run(ctx, k.Replay, trace, tierFault(s, rng, k.Length))
		if err != nil {
			return nil, err
		}
		sent += out.Sent
		line, sound := soakRound(round, out)
		if !sound {
			wrong++
		}
		s.Log("%s", line)
		c.See("%s", line)
		if round == (k.Rounds+2)/3 || round == k.Rounds {
			warm = last
			if last, err = atRest(ctx, s, min(calm, k.Length)); err != nil {
				return nil, err
			}
		}
	}
	c.See("%d requests in %d rounds of %v; in %d rounds something was lost, or a client met an error", sent, k.Rounds, k.Length, wrong)
	c.Kept = c.flat(warm, last) && wrong == 0
	return c, nil
}

// soakRound says what happened in a round, and whether it was sound.
func soakRound(round int, out *lab.Outcome) (line string, sound bool) {
	line = fmt.Sprintf("round %d: %s; %d requests", round, strings.Join(out.Happened, ", "), out.Sent)
	if err := out.Err(); err != nil {
		return fmt.Sprintf("%s: %v", line, err), false
	}
	return line + ", balance exact, no client error", true
}

// flat says what each edge holds, and reports whether that is no more than before.
func (c *Result) flat(warm, last []used) bool {
	all := true
	for i := range last {
		line, flat := last[i].since(warm[i])
		c.See("edge/%d at rest, after a third of the rounds and after the last: %s", i, line)
		all = all && flat
	}
	return all
}

// tierFault is one fault and its end, within the first two thirds of a round.
func tierFault(s *lab.Site, rng *rand.Rand, length time.Duration) []lab.Fault {
	kind, begin, end := "memcached", lab.Kill, lab.Restart
	n := rng.IntN(len(s.NodeProcesses) + len(s.ProxyProcesses))
	if n >= len(s.NodeProcesses) {
		kind, n = "twemproxy", n-len(s.NodeProcesses)
	}
	if rng.IntN(2) == 0 {
		begin, end = lab.Stop, lab.Cont
	}
	at := time.Duration((0.1 + 0.2*rng.Float64()) * float64(length))
	over := at + time.Duration((0.1+0.2*rng.Float64())*float64(length))
	return []lab.Fault{{At: at.Round(time.Millisecond), Action: begin, Kind: kind, Index: n}, {At: over.Round(time.Millisecond), Action: end, Kind: kind, Index: n}}
}

// atRest waits until the edges have nothing to report and have let go of nothing for some time, and gives what each holds then.
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
				memory: max(m.Sum("process_resident_memory_bytes"), m.Sum("go_memstats_next_gc_bytes")),
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

// since compares what an edge holds with what it held before: not a tenth more, and not a little more of what is little.
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
