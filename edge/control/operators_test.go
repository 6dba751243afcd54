package control_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/edge/control"
	"sluice/edge/edgetest"
	"sluice/mitigation"
)

// What operators say of prefixes and of all rules, to clients: who is denied, allowed and blocked by it, and until it is taken back.
func TestOperatorsPrefixes(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), `
source: {trust: [127.0.0.1]}
deny: [198.51.100.0/24]
rules:
  - {name: r, match: {path: /r}, limit: 1}
  - {name: k, match: {path: /k}, key: "header:K", limit: 1}
  - {name: s, match: {path: /s}, limit: 1, mode: shadow}
`)
	ask := func(path, client string) int {
		t.Helper()
		resp, _ := e.Get(path, "X-Forwarded-For: "+client, "K: "+client)
		return resp.StatusCode
	}
	say := func(what, source string) {
		t.Helper()
		var err error
		if what == control.Allow || what == control.Deny {
			_, err = e.List(what, source, time.Hour, "because", control.Operator{}, time.Now())
		} else {
			_, err = e.Block(what, source, time.Hour, "because", control.Operator{}, time.Now())
		}
		if err != nil {
			t.Fatalf("%s %s: %v", what, source, err)
		}
	}
	takeBack := func(what, source string) {
		t.Helper()
		back := e.Lift
		if what == control.Allow || what == control.Deny {
			back = e.Unlist
		}
		lifted, err := back(what, source, control.Operator{}, time.Now())
		if err != nil || !lifted.Lifted {
			t.Fatalf("%s %s: %+v, %v", what, source, lifted, err)
		}
	}
	expect := func(path, client string, want int) {
		t.Helper()
		if got := ask(path, client); got != want {
			t.Errorf("%s of %s: %d, want %d", path, client, got, want)
		}
	}
	say("r", "192.0.2.0/24")
	expect("/r", "192.0.2.7", 429)
	expect("/k", "192.0.2.7", 200)
	expect("/r", "192.0.3.7", 200)
	say(control.AllRules, "203.0.113.0/25")
	expect("/r", "203.0.113.1", 429)
	expect("/k", "203.0.113.2", 429)
	expect("/s", "203.0.113.3", 200) // a shadow refuses nobody
	expect("/", "203.0.113.1", 200)  // under no rule
	expect("/r", "203.0.113.129", 200)
	if st := e.Look(t.Context(), netip.MustParseAddr("203.0.113.1")).Rules; len(st) != 2 || st[0].Until == nil || st[1].Until == nil {
		t.Errorf("%+v", st)
	}
	takeBack(control.AllRules, "203.0.113.0/25")
	expect("/r", "203.0.113.1", 200)
	say(control.Deny, "203.0.113.1")
	expect("/", "203.0.113.1", 403)
	expect("/", "203.0.113.2", 200)
	takeBack(control.Deny, "203.0.113.1")
	expect("/", "203.0.113.1", 200)
	say(control.Allow, "203.0.113.0/24")
	expect("/r", "203.0.113.1", 200) // beyond its limit
	say(control.Allow, "198.51.100.7")
	expect("/", "198.51.100.7", 200) // the file denies a shorter prefix
	expect("/", "198.51.100.8", 403)
	if l, err := e.List(control.Allow, "198.51.100.0/24", time.Hour, "", control.Operator{}, time.Now()); err != nil || !strings.Contains(l.Warning, "denied") {
		t.Errorf("%+v, %v", l, err)
	}
	say(control.Deny, "203.0.113.0/30")
	expect("/", "203.0.113.1", 403)
	expect("/r", "203.0.113.9", 200)
	edgetest.Must(t, e.Reload("deny: [198.51.100.0/24]\nrules: [{name: r, match: {path: /r}, limit: 2}]"))
	// A reload, with which another rule has the name, changes nothing of it. And another process takes over all of it.
	if list := e.Listed(control.Allow, time.Now()); len(list) != 3 || list[0].Reason != "because" && list[1].Reason != "because" {
		t.Errorf("%+v", list)
	}
	next := edgetest.NewServer(t, e.Config())
	for m := range e.InForce(time.Now()) {
		next.Adopt(m, time.Now())
	}
	if got, want := len(slices.Collect(next.InForce(time.Now()))), len(slices.Collect(e.InForce(time.Now()))); got != want || want < 5 {
		t.Errorf("%d taken over of %d", got, want)
	}
	if list := next.Mitigations(time.Now()); len(list) != 1 || list[0].Rule != "r" || list[0].Source != "192.0.2.0/24" || list[0].By != "admin" {
		t.Errorf("%+v", list)
	}
	next.Adopt(control.Handed{Mitigation: control.Mitigation{Rule: control.Deny, Source: "192.0.2.1", By: "edge", End: time.Now().Add(time.Hour)}}, time.Now())
	if list := next.Listed(control.Deny, time.Now()); len(list) != 1 {
		t.Errorf("a verdict that denies was taken over: %+v", list)
	}
	now := time.Now()
	for _, bad := range [][2]string{{control.Allow, "0.0.0.0/7"}, {control.Deny, "::/15"}, {control.Allow, "nobody"}, {control.Deny, "#" + strings.Repeat("0", 32)}, {"r", "10.0.0.1"}} {
		if _, err := e.List(bad[0], bad[1], time.Hour, "", control.Operator{}, now); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
	if _, err := e.List(control.Deny, "10.0.0.1", mitigation.MaxBlock+1, "", control.Operator{}, now); err == nil {
		t.Error("longer than operators may")
	}
}

// A lift under all rules ends whatever refuses its source, the edge's own verdicts as well; and what still refuses it is named.
func TestLiftUnderAllRules(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), `
source: {trust: [127.0.0.1]}
rules:
  - {name: a, limit: 1, mitigation_timeout: 1h}
  - {name: b, match: {path: /b}, limit: 1, mitigation_timeout: 1h}
  - {name: k, match: {path: /k}, key: "header:K", limit: 1, mitigation_timeout: 1h}
`)
	ask := func(path string, want int) {
		t.Helper()
		if resp, _ := e.Get(path, "X-Forwarded-For: 192.0.2.7", "K: me"); resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
	lift := func(source, still string) {
		t.Helper()
		l, err := e.Lift(control.AllRules, source, control.Operator{}, time.Now())
		if err != nil || !l.Lifted || (l.Warning == "") != (still == "") || !strings.Contains(l.Warning, still) {
			t.Errorf("%s: %+v, %v", source, l, err)
		}
	}
	ask("/b", 200)
	ask("/b", 429)
	ask("/", 429)
	lift("192.0.2.7", "")
	ask("/b", 200)
	ask("/b", 429)

	block := func(rule, source string) {
		t.Helper()
		if _, err := e.Block(rule, source, time.Hour, "", control.Operator{}, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	block(control.AllRules, "192.0.2.7")
	block(control.AllRules, "192.0.2.0/24")
	lift("192.0.2.7", "192.0.2.0/24")
	ask("/", 429)
	lift("192.0.2.0/24", "")
	ask("/", 200)

	if _, err := e.List(control.Deny, "192.0.2.0/24", time.Hour, "", control.Operator{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	block(control.AllRules, "192.0.2.7")
	lift("192.0.2.7", "denied")
	if _, err := e.Unlist(control.Deny, "192.0.2.0/24", control.Operator{}, time.Now()); err != nil {
		t.Fatal(err)
	}

	// Of an address of IPv6 rules count the network.
	for _, want := range []int{200, 429} {
		if resp, _ := e.Get("/", "X-Forwarded-For: 2001:db8::7"); resp.StatusCode != want {
			t.Errorf("%d, want %d", resp.StatusCode, want)
		}
	}
	lift("2001:db8::8", "")
	if resp, _ := e.Get("/", "X-Forwarded-For: 2001:db8::7"); resp.StatusCode != 200 {
		t.Errorf("after the network was lifted: %d", resp.StatusCode)
	}

	// Who is counted by a key has no address: the rules that know it are asked.
	if _, err := e.Lift("a", "192.0.2.7", control.Operator{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	ask("/k", 200)
	if _, err := e.Lift("a", "192.0.2.7", control.Operator{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	ask("/k", 429)
	for _, m := range e.Mitigations(time.Now()) {
		if m.Rule == "k" {
			lift(m.Source, "")
		}
	}
	ask("/k", 200)
	if _, err := e.Lift(control.AllRules, "#"+strings.Repeat("0", 32), control.Operator{}, time.Now()); err != nil {
		t.Error(err)
	}
	if _, err := e.Lift(control.AllRules, "nobody", control.Operator{}, time.Now()); err == nil {
		t.Error("nobody was lifted")
	}
}

func TestOperatorsBlockAndLift(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), `
rules:
  - {name: r, limit: 3, window: 1m, mitigation_timeout: 1m}
  - {name: k, match: {path: /k}, key: "header:K", limit: 1}
`)
	now := time.Now()
	m, err := e.Block("r", "127.0.0.1", 10*time.Minute, "because", control.Operator{}, now)
	if err != nil || m.By != "admin" || m.Reason != "because" || m.End.Sub(now) != 10*time.Minute {
		t.Fatalf("%+v, %v", m, err)
	}
	if resp, _ := e.Get("/"); resp.StatusCode != 429 {
		t.Errorf("blocked: %d", resp.StatusCode)
	}
	if list := e.Mitigations(time.Now()); len(list) != 1 || list[0].Source != "127.0.0.1" || list[0].Rule != "r" {
		t.Errorf("%+v", list)
	}
	if lifted, err := e.Lift("r", "127.0.0.1", control.Operator{}, time.Now()); !lifted.Lifted || lifted.Edges != nil || err != nil {
		t.Errorf("%+v, %v", lifted, err)
	}
	for i := range 3 { // counts are forgotten too
		if resp, _ := e.Get("/"); resp.StatusCode != 200 {
			t.Errorf("request %d after the lift: %d", i, resp.StatusCode)
		}
	}
	if st := e.Look(t.Context(), netip.MustParseAddr("127.0.0.1")).Rules; len(st) != 1 || st[0].Estimate != 3 || st[0].Remaining != 0 || st[0].Until != nil {
		t.Errorf("%+v", st)
	}
	for _, bad := range []struct{ rule, source string }{{"none", "1.2.3.4"}, {"r", "1.2.3"}, {"r", "10.0.0.0/7"}, {"k", "1.2.3.4"}} {
		if _, err := e.Block(bad.rule, bad.source, time.Minute, "", control.Operator{}, now); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	for _, d := range []time.Duration{0, -1, mitigation.MaxBlock + 1} {
		if _, err := e.Block("r", "1.2.3.4", d, "", control.Operator{}, now); err == nil {
			t.Errorf("%v was accepted", d)
		}
	}
}

// What an operator has blocked stays blocked by him, whatever becomes of the rule's limits.
func TestOperatorsBlockSurvivesReload(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "rules: [{name: r, limit: 2, mitigation_timeout: 10m}]")
	if _, err := e.Block("r", "127.0.0.1", 5*time.Minute, "because", control.Operator{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, after := range []string{
		"rules: [{name: r, limit: 3, mitigation_timeout: 10m}]",
		"rules: [{name: r, limit: 3, mitigation_timeout: 1m}]",
		"rules: [{name: r, limit: 3, window: 2m, mitigation_timeout: 1m}]",
		"rules: [{name: r, limit: 300, window: 1m, mitigation_timeout: 1m, mode: shadow}]",
		"rules: [{name: r, limit: 2, mitigation_timeout: 10m}]",
	} {
		edgetest.Must(t, e.Reload(after))
		list := e.Mitigations(time.Now())
		if len(list) != 1 || list[0].By != "admin" || list[0].Reason != "because" {
			t.Errorf("%s: %+v", after, list)
		}
	}
	if resp, _ := e.Get("/"); resp.StatusCode != 429 {
		t.Errorf("%d", resp.StatusCode)
	}
	edgetest.Must(t, e.Reload("rules: [{name: other, limit: 2}]"))
	if list := e.Mitigations(time.Now()); len(list) != 0 {
		t.Errorf("of a rule that is gone: %+v", list)
	}
}

// A lift under a rule lifts all of its limits: who is lifted starts afresh, and is not refused for a wider prefix that edges have blocked.
func TestLiftOfSeveralLimits(t *testing.T) {
	e := edgetest.StartWithEvents(t, edgetest.SeveralLimits)
	from := func(source string) int {
		resp, _ := e.Get("/", "X-Forwarded-For: "+source)
		return resp.StatusCode
	}
	flood := func(prefix string) {
		t.Helper()
		for i := range 9 {
			from(fmt.Sprint(prefix, 1+i%3))
		}
		for range 4 {
			from(prefix + "1")
		}
		if got := e.Blocked(); !strings.Contains(got, "r/24/20m "+prefix+"0/24") {
			t.Fatalf("blocked: %s", got)
		}
	}
	for prefix, rule := range map[string]string{"198.51.100.": "r", "203.0.113.": "*"} {
		lift := func(source string) (control.Lifted, error) {
			return e.Lift(rule, source, control.Operator{}, time.Now())
		}
		flood(prefix)
		l, err := lift(prefix + "1")
		if got := from(prefix + "1"); err != nil || !l.Lifted || l.Warning != "" || got != 200 {
			t.Errorf("%s: %+v, %v, then %d", rule, l, err, got)
		}
		flood(prefix)
		if l, err := lift(prefix + "0/24"); err != nil || !l.Lifted || strings.Contains(e.Blocked(), "/24") {
			t.Errorf("%s: %+v, %v, and still %s", rule, l, err, e.Blocked())
		}
		for i := range 3 {
			_, _ = lift(fmt.Sprint(prefix, 1+i))
		}
	}
	// What an operator has said of the prefix is his to lift.
	if _, err := e.Block("r", "192.0.2.0/24", time.Hour, "", control.Operator{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if got := e.Blocked(); got != "r 192.0.2.0/24" || from("192.0.2.77") != 429 {
		t.Errorf("blocked: %s", got)
	}
	if _, err := e.Lift("r", "192.0.2.77", control.Operator{}, time.Now()); err != nil || from("192.0.2.77") != 429 {
		t.Errorf("lifted with it: %v", err)
	}
}

// What a client has used says that an operator has blocked it, on whatever plan it is, as the client is told.
func TestUsageOfABlockedClient(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), `
plans: {key: "header:X-Api-Key", default: free}
rules:
  - {name: api, key: "header:X-Api-Key", limit: 10, plans: {free: 3}}
`)
	if _, err := e.BlockKey(&control.Key{KeyPart: control.KeyPart{Key: "header:X-Api-Key", Value: "k"}}, "api", time.Hour, "", control.Operator{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if resp, _ := e.Get("/", "X-Api-Key: k"); resp.StatusCode != 429 {
		t.Fatalf("blocked, and answered %d", resp.StatusCode)
	}
	for key, blocked := range map[string]bool{"k": true, "other": false} {
		used, err := e.Usage(t.Context(), control.Client{Key: key})
		if err != nil || len(used.Rules) != 1 || used.Rules[0].Limit != 3 || (used.Rules[0].Until != nil) != blocked || (used.Rules[0].Remaining == 0) != blocked {
			t.Errorf("%s: %+v, %v", key, used, err)
		}
	}
}
