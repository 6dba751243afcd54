package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sluice/cmd/internal/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }

func TestLabChecks(t *testing.T) {
	p := labtest.Start(t, labtest.Binaries(t), "sluice-trial", "--edges", "3", "--memcached", "2", "--limit", "20", "--window", "1m", "--mitigation-timeout", "10m", "--check", "shared", "--short")
	if err := p.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, p.Out, p.Err)
	}
	p.LeavesNothing(t)
	if !strings.Contains(p.Out.String(), "check shared: kept") {
		t.Errorf("it says %s", p.Out)
	}
}

func TestLabChecksRestarts(t *testing.T) {
	for _, name := range []string{"upgrades", "restarts"} {
		p := labtest.Start(t, labtest.Binaries(t), "sluice-trial", "--check", name, "--times", "2", "--rate", "300")
		if err := p.Wait(); err != nil {
			t.Fatalf("%v\n%s%s", err, p.Out, p.Err)
		}
		p.LeavesNothing(t)
		if !strings.Contains(p.Out.String(), "check "+name+": kept") || !strings.Contains(p.Out.String(), "pipelined") {
			t.Errorf("it says %s", p.Out)
		}
	}
}

func TestLabSoak(t *testing.T) {
	p := labtest.Start(t, labtest.Binaries(t), "sluice-trial", "--edges", "2", "--memcached", "2", "--limit", "20", "--window", "1s", "--mitigation-timeout", "1s",
		"--check", "soak", "--times", "3", "--duration", "1s", "--rate", "300")
	err := p.Wait()
	p.LeavesNothing(t)
	said := p.Out.String()
	if n := len(regexp.MustCompile(`round \d: [0-9a-z.]+ (kill memcached/\d, .* restart|stop memcached/\d, .* cont) memcached/\d`).FindAllString(said, -1)); n != 3 {
		t.Errorf("%d of three rounds had a fault and its end", n)
	}
	if strings.Count(said, "balance exact, no client error") != 3 || strings.Count(said, "descriptors") != 2 ||
		strings.Contains(said, "check soak: kept") != (err == nil) {
		t.Errorf("%v; it says %s%s", err, p.Out, p.Err)
	}
}

func TestLabChecksWords(t *testing.T) {
	p := labtest.Start(t, labtest.Binaries(t), "sluice-trial", "--check", "words", "--short")
	err := p.Wait()
	p.LeavesNothing(t)
	said := p.Out.String()
	if !strings.Contains(said, "afterwards, of 10 blocks, 10 lifts and 10 changed rules on each edge, 0, 0 and 0 were lost") ||
		strings.Count(said, "in force on every edge within 2s: p50 ") != 3 || strings.Contains(said, "check words: kept") != (err == nil) {
		t.Errorf("%v; it says %s%s", err, p.Out, p.Err)
	}
}

func TestLabChecksRollback(t *testing.T) {
	p := labtest.Start(t, labtest.Binaries(t), "sluice-trial", "--check", "rollback", "--short")
	err := p.Wait()
	p.LeavesNothing(t)
	if said := p.Out.String(); err != nil || !strings.Contains(said, "2 of 2 trials left nobody blocked") || !strings.Contains(said, "of 400 sources it refused 0; the edges have [0 0 0] mitigations") ||
		!strings.Contains(said, "3 of 3 changes of a rule's fields kept on every edge what counts as before, and nothing else") {
		t.Errorf("%v; it says %s%s", err, p.Out, p.Err)
	}
}

func TestLabChecksTheFront(t *testing.T) {
	for name, want := range map[string]string{
		"slow":        "200 slow readers of as many sources  200 cut",
		"bodies":      ": 0 with a wrong digest, or none",
		"descriptors": "accepts failed; a new client was served",
	} {
		p := labtest.Start(t, labtest.Binaries(t), "sluice-trial", "--check", name, "--short")
		if err := p.Wait(); err != nil {
			t.Fatalf("%v\n%s%s", err, p.Out, p.Err)
		}
		p.LeavesNothing(t)
		if !strings.Contains(p.Out.String(), "check "+name+": kept") || !strings.Contains(p.Out.String(), want) {
			t.Errorf("it says %s", p.Out)
		}
	}
}

func TestLabChecksShedding(t *testing.T) {
	dir := labtest.Plain(t)
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

func TestLabChecksExact(t *testing.T) {
	p := labtest.Start(t, labtest.Binaries(t), "sluice-trial", "--check", "exact", "--short")
	if err := p.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, p.Out, p.Err)
	}
	p.LeavesNothing(t)
	if said := p.Out.String(); !strings.Contains(said, "check exact: kept") || !strings.Contains(said, "algorithm: exact, limit: 3, window: 1h") {
		t.Errorf("it says %s", said)
	}
}

// The judge dates a request by when it was sent, an edge by when it decided: where requests take long, the two cannot be compared, and what one edge
// judges at which cost is left. Both are compared in virtual time by TestAgreesWithTheJudge of cmd/sluice/internal/auditor.
func TestLabChecksAudit(t *testing.T) {
	cost := regexp.MustCompile(`audit: (\d+) of (\d+) commands to the tier`)
	for range 3 {
		p := labtest.Start(t, labtest.Plain(t), "sluice-trial", "--check", "audit", "--limit", "12", "--window", "2s", "--mitigation-timeout", "2s", "--duration", "8s")
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
