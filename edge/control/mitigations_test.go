package control

import (
	"strings"
	"testing"
	"time"

	"sluice/mitigation"
)

// A block says why it refuses nobody, or how much more it refuses than was written.
func TestBlockWarnings(t *testing.T) {
	for _, test := range []struct {
		rule, source string
		d            time.Duration
		warning      string // a part of it; "": there is none
		err          string // a part of it; "": there is none
	}{
		{"r", "192.0.2.7", time.Hour, "", ""},
		{AllRules, "192.0.2.0/24", time.Hour, "", ""},
		{"shadow", "192.0.2.7", time.Hour, "is a shadow", ""},
		{"tag", "192.0.2.7", time.Hour, "only tags", ""},
		{"r", "198.51.100.7", time.Hour, "allowed, which goes before", ""},
		{AllRules, "203.0.113.1", time.Hour, "trusted proxy", ""},
		{AllRules, "192.0.2.1/24", time.Hour, "bits behind its length: this blocks all of 192.0.2.0/24", ""},
		{"r", "2001:db8::1", time.Hour, "told apart by /64: this blocks all of 2001:db8::/64", ""},
		{"none", "192.0.2.7", time.Hour, "", "none"},
		{"off", "192.0.2.7", time.Hour, "", ErrOff.Error()},
		{AllRules, "0.0.0.0/7", time.Hour, "", "too wide"},
		{"r", "192.0.2.7", 0, "", "want more than 0"},
		{"r", "192.0.2.7", mitigation.MaxBlock + 1, "", "at most"},
	} {
		t.Run(test.rule+" "+test.source, func(t *testing.T) {
			c := newPlane(t, `
source: {trust: [203.0.113.1]}
allow: [198.51.100.0/24]
rules:
- {name: r, limit: 1}
- {name: shadow, limit: 1, mode: shadow}
- {name: tag, limit: 1, action: tag}
- {name: off, limit: 1, mode: "off"}
`)
			now := time.Now()
			m, err := c.Block(test.rule, test.source, test.d, "", Operator{}, now)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || len(c.Mitigations(now)) > 0 {
					t.Errorf("%v, want an error of %q; in force: %+v", err, test.err, c.Mitigations(now))
				}
				return
			}
			if err != nil || !strings.Contains(m.Warning, test.warning) || test.warning == "" && m.Warning != "" {
				t.Errorf("%v, warns %q, want %q", err, m.Warning, test.warning)
			}
			if list := c.Mitigations(now.Add(time.Hour - 1)); len(list) != 1 || list[0].Rule != test.rule || list[0].By != "admin" {
				t.Errorf("in force: %+v", list)
			}
			if list := c.Mitigations(now.Add(time.Hour)); len(list) > 0 {
				t.Errorf("after its end: %+v", list)
			}
		})
	}
}

// What refuses a source after a lift is named: another rule's block, and how many blocks lie within a prefix; and what a block means where
// that is not what was written.
func TestWhatALiftLeaves(t *testing.T) {
	c := newPlane(t, `
source: {trust: [127.0.0.1]}
rules:
  - {name: a, limit: 1}
  - {name: b, limit: 1}
`)
	block := func(rule, source, warns string) {
		t.Helper()
		m, err := c.Block(rule, source, time.Hour, "", Operator{}, time.Now())
		if err != nil || (m.Warning == "") != (warns == "") || !strings.Contains(m.Warning, warns) {
			t.Errorf("%s: %+v, %v", source, m, err)
		}
	}
	lift := func(rule, source, warns string) {
		t.Helper()
		l, err := c.Lift(rule, source, Operator{}, time.Now())
		if err != nil || l.Warning != warns {
			t.Errorf("%s: %+v, %v", source, l, err)
		}
	}
	block("a", "192.0.2.7", "")
	block("b", "192.0.2.7", "")
	lift("a", "192.0.2.7", "a block of 192.0.2.7 under b still refuses it")
	lift("a", "192.0.2.8", "")
	lift("b", "192.0.2.7", "")
	block("a", "192.0.2.7", "")
	lift(AllRules, "192.0.2.0/24", "1 block within it stays (sluice blocked --source 192.0.2.0/24 shows it)")
	block("b", "192.0.2.9", "")
	lift("b", "192.0.2.0/24", "2 blocks within it stay (sluice blocked --source 192.0.2.0/24 shows them)")
	lift("b", "192.0.3.0/24", "")
	block("a", "203.0.113.0/8", "this blocks all of 203.0.0.0/8")
	block("a", "127.0.0.1", "this is a trusted proxy")
}

// What another process hands over keeps who said it.
func TestAdopt(t *testing.T) {
	c := newPlane(t, "rules: [{name: r, limit: 2, mitigation_timeout: 1m}]")
	now := time.Now()
	for by, want := range map[string]string{"admin": "admin", "edge": "pop", "pop": "pop"} {
		c.Adopt(Handed{Mitigation: Mitigation{Rule: "r", Source: "192.0.2.1", Start: now, End: now.Add(10 * time.Hour), By: by, Reason: "because"}}, now)
		list := c.Mitigations(now)
		if len(list) != 1 || list[0].By != want || list[0].Reason != "because" || (list[0].End.Sub(now) > 2*time.Minute) != (by == "admin") {
			t.Errorf("by %s: %+v", by, list)
		}
		if _, err := c.Lift("r", "192.0.2.1", Operator{}, now); err != nil {
			t.Fatal(err)
		}
	}
	// Versions before tried other limits beside a rule, whose verdicts refused nobody.
	c.Adopt(Handed{Mitigation: Mitigation{Rule: "r", Source: "192.0.2.1", Mode: "candidate", Start: now, End: now.Add(time.Hour), By: "edge"}}, now)
	if list := c.Mitigations(now); len(list) != 0 {
		t.Errorf("of a limit that was tried: %+v", list)
	}
}
