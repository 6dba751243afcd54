//go:build system

package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sluice/cmd/internal/labtest"
)

// Labs mostly wait, and say what is so however late they are, so they run beside each other.
func TestMain(m *testing.M) { labtest.Main(m) }

func TestLabChecks(t *testing.T) {
	t.Parallel()
	p := labtest.Start(t, labtest.Trials(t), "sluice-trial", "--edges", "3", "--memcached", "2", "--limit", "20", "--window", "1m", "--mitigation-timeout", "10m", "--check", "shared", "--short")
	if err := p.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, p.Out, p.Err)
	}
	p.LeavesNothing(t)
	if !strings.Contains(p.Out.String(), "check shared: kept") {
		t.Errorf("it says %s", p.Out)
	}
}

// The short form of what the checks do 20 times at 2,000 requests/s.
func TestLabChecksRestarts(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"upgrades", "restarts", "upgrades --http2", "restarts --http2"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			name, _, streams := strings.Cut(args, " ")
			kind := "pipelined"
			if streams {
				kind = "HTTP/2, many at once"
			}
			p := labtest.Start(t, labtest.Trials(t), "sluice-trial", append([]string{"--times", "2", "--rate", "300", "--check"}, strings.Fields(args)...)...)
			if err := p.Wait(); err != nil {
				t.Fatalf("%v\n%s%s", err, p.Out, p.Err)
			}
			p.LeavesNothing(t)
			if !strings.Contains(p.Out.String(), "check "+name+": kept") || !strings.Contains(p.Out.String(), kind) {
				t.Errorf("it says %s", p.Out)
			}
		})
	}
}

// What operators say is in force everywhere and stays so under attack. In how much time is not asked here: other tests run as well.
func TestLabChecksWords(t *testing.T) {
	t.Parallel()
	p := labtest.Start(t, labtest.Trials(t), "sluice-trial", "--check", "words", "--short")
	err := p.Wait()
	p.LeavesNothing(t)
	said := p.Out.String()
	if !strings.Contains(said, "afterwards, of 10 blocks, 10 lifts and 10 changed rules on each edge, 0, 0 and 0 were lost") ||
		strings.Count(said, "in force on every edge within 2s: p50 ") != 3 || strings.Contains(said, "check words: kept") != (err == nil) {
		t.Errorf("%v; it says %s%s", err, p.Out, p.Err)
	}
}

// A limit that was lowered for a moment and rolled back blocks nobody.
func TestLabChecksRollback(t *testing.T) {
	t.Parallel()
	p := labtest.Start(t, labtest.Trials(t), "sluice-trial", "--check", "rollback", "--short")
	err := p.Wait()
	p.LeavesNothing(t)
	if said := p.Out.String(); err != nil || !strings.Contains(said, "2 of 2 trials left nobody blocked") || !strings.Contains(said, "of 400 sources it refused 0; the edges have [0 0 0] mitigations") ||
		!strings.Contains(said, "3 of 3 changes of a rule's fields kept on every edge what counts as before, and nothing else") {
		t.Errorf("%v; it says %s%s", err, p.Out, p.Err)
	}
}

// The short form of what clients can do to an edge.
func TestLabChecksTheFront(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"slow":        "200 slow readers of as many sources  200 cut",
		"bodies":      ": 0 with a wrong digest, or none",
		"descriptors": "accepts failed; a new client was served",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := labtest.Start(t, labtest.Trials(t), "sluice-trial", "--check", name, "--short")
			if err := p.Wait(); err != nil {
				t.Fatalf("%v\n%s%s", err, p.Out, p.Err)
			}
			p.LeavesNothing(t)
			if !strings.Contains(p.Out.String(), "check "+name+": kept") || !strings.Contains(p.Out.String(), want) {
				t.Errorf("it says %s", p.Out)
			}
		})
	}
}

// An origin that suffers keeps its critical clients, before real edges. They have no race detector, with which they would be what suffers; and
// where the machine has too much else to do for an origin that is well, the check says so, and is made again.
func TestLabChecksShedding(t *testing.T) {
	t.Parallel()
	dir := labtest.PlainTrials(t)
	var p *labtest.Process
	var err error
	for range 5 {
		p = labtest.Start(t, dir, "sluice-trial", "--check", "shedding", "--short")
		err = p.Wait()
		p.LeavesNothing(t)
		if err == nil || !strings.Contains(p.Err.String(), "disturbed: ") {
			break
		}
	}
	if err != nil {
		t.Fatalf("%v\n%s%s", err, p.Out, p.Err)
	}
	if said := p.Out.String(); !strings.Contains(said, "check shedding: kept") || !strings.Contains(said, "without shedding") {
		t.Errorf("it says %s", said)
	}
}

// No window has more than the limit of a rule that promises it, before an origin that notes when requests arrive.
func TestLabChecksExact(t *testing.T) {
	t.Parallel()
	p := labtest.Start(t, labtest.Trials(t), "sluice-trial", "--check", "exact", "--short")
	if err := p.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, p.Out, p.Err)
	}
	p.LeavesNothing(t)
	if said := p.Out.String(); !strings.Contains(said, "check exact: kept") || !strings.Contains(said, "algorithm: exact, limit: 3, window: 1h") {
		t.Errorf("it says %s", said)
	}
}

// What three edges find out about their own wrong decisions is what the judge of a replay finds, who sees every answer.
// The judge dates a request by when it was sent, an edge by when it decided: where requests take long, the two cannot be compared, and what one edge
// judges at which cost is left. Both are compared in virtual time by TestAgreesWithTheJudge of cmd/sluice/internal/auditor.
func TestLabChecksAudit(t *testing.T) {
	t.Parallel()
	cost := regexp.MustCompile(`audit: (\d+) of (\d+) commands to the tier`)
	for range 2 {
		p := labtest.Start(t, labtest.PlainTrials(t), "sluice-trial", "--check", "audit", "--limit", "12", "--window", "2s", "--mitigation-timeout", "2s", "--duration", "8s")
		err := p.Wait()
		p.LeavesNothing(t)
		said := p.Out.String()
		spent := cost.FindStringSubmatch(said)
		if spent == nil || !strings.Contains(said, "3 edges, ") || !strings.Contains(said, "; 1 edges judge, ") {
			t.Fatalf("%v\n%s%s", err, said, p.Err)
		}
		audit, _ := strconv.Atoi(spent[1])
		if all, _ := strconv.Atoi(spent[2]); audit == 0 || audit > all/100 {
			t.Errorf("it cost %s", spent[0])
		}
		if err == nil && strings.Contains(said, "check audit: kept") {
			return
		}
		if !strings.Contains(said, "disturbed: ") && !strings.Contains(said, " 0 wrong (0 allowed, 0 limited): 0.0000 %\n  audit: ") {
			t.Fatalf("%v\n%s%s", err, said, p.Err)
		}
		t.Log(said)
	}
}
