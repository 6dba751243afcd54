package edge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge/control"
)

// blocks are the mitigations in force: rule, the name of its limit where that is another, and source.
func (e *edgeUnderTest) blocked() string {
	var list []string
	for m := range e.InForce(time.Now()) {
		list = append(list, strings.Join(strings.Fields(m.Rule+" "+m.Policy+" "+m.Source), " "))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

const severalLimits = "verdict_header: true\nsource: {trust: [127.0.0.1]}\nrules: [{name: r, limit: 4, window: 1h, mitigation_timeout: 1h, " +
	"windows: [{limit: 3, window: 20m}], prefixes: [32, {prefix: 24, limit: 6}]}]"

// What clients and operators are told of a rule with several limits: the rule by its name, and which of its limits it was.
func TestSeveralLimitsInHeaders(t *testing.T) {
	e := startTold(t, severalLimits)
	f := func(source string, want ...string) {
		t.Helper()
		resp, body := e.get("/", "X-Forwarded-For: "+source)
		got := fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("RateLimit"), " ", resp.Header.Get("X-Ratelimit-Limit"), " ", resp.Header.Get("Sluice-Verdict"), " ", body)
		for _, part := range append(want, strings.Split(`200 "r`, " ")[1]) {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %s, want %s", source, got, part)
			}
		}
		policy := `"r";q=4;w=3600, "r/20m";q=3;w=1200, "r/24";q=6;w=3600, "r/24/20m";q=5;w=1200`
		if strings.Contains(source, ":") {
			policy = `"r";q=4;w=3600, "r/20m";q=3;w=1200`
		}
		if got := resp.Header.Get("RateLimit-Policy"); got != policy {
			t.Errorf("%s, want %s", got, policy)
		}
	}
	f("192.0.2.1", `200 "r/20m";r=2;t=1200 3 pass;`, `;rule="r";policy="r/20m"`)
	f("192.0.2.1", `200 "r/20m";r=1;t=1200 3`)
	f("192.0.2.1", `200 "r/20m";r=0;t=1200 3`)
	f("192.0.2.1", `429 "r/20m";r=0;t=`, `"rule":"r","message"`, ` 3 limited;`, `;rule="r";policy="r/20m"`)
	f("192.0.2.2", `200 "r/24/20m";r=1;t=1200 5 pass;`)
	f("192.0.2.3", `200 "r/24/20m";r=0;t=1200 5 pass;`)
	f("192.0.2.4", `429 "r/24/20m";r=0`, `"rule":"r","message"`, ` 5 limited;`)
	f("2001:db8::1", `200 "r/20m";r=2;t=1200 3 pass;`)

	const both = "r r/20m 192.0.2.1, r r/24/20m 192.0.2.0/24"
	if got := e.blocked(); got != both {
		t.Errorf("%s, want %s", got, both)
	}
	m := e.rest()
	for name, want := range map[string]float64{
		"sluice_requests_total{rule=r,verdict=pass}": 6, "sluice_requests_total{rule=r,verdict=limited}": 2,
		"sluice_mitigations_active{mode=enforce,rule=r}": 2, "sluice_mitigations_started_total{by=edge,mode=enforce,rule=r}": 2,
	} {
		if m[name] != want {
			t.Errorf("%s is %v, want %v", name, m[name], want)
		}
	}
	list := e.Events().Since(0)
	if len(list) != 2 || list[0].Rule != "r" || list[0].Policy != "r/24/20m" || list[1].Policy != "r/20m" || list[1].Limit != 3 ||
		!strings.Contains(list[0].Text, "6 requests in 20m, 5 are allowed") || list[0].Source != "192.0.2.0/24" {
		t.Errorf("%+v", list)
	}
	var stands []string
	for _, st := range e.Look(t.Context(), netip.MustParseAddr("192.0.2.2")).Rules {
		stands = append(stands, fmt.Sprint(st.Rule, " ", st.Policy, " ", st.Source, " ", st.Estimate, "/", st.Limit, " ", st.Until != nil, " ", st.Block != nil))
	}
	const want = "r  192.0.2.2 1/4 false false, r r/20m 192.0.2.2 1/3 false false, r r/24 192.0.2.0/24 5/6 false false, r r/24/20m 192.0.2.0/24 5/5 true true"
	if got := strings.Join(stands, ", "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if near := e.Nearest(9, time.Now())["r"]; near.Policy != "r/24" || near.Estimate != 5 {
		t.Errorf("%+v", near)
	}
	if n := len(e.Counted()); n != 4 {
		t.Errorf("%d limits count", n)
	}

	// The next process on this edge's place takes blocks for what they are, and leaves out those of limits that are gone.
	for yaml, want := range map[string]string{severalLimits: both, strings.Replace(severalLimits, ", {prefix: 24, limit: 6}", "", 1): "r r/20m 192.0.2.1"} {
		next := startTold(t, yaml)
		for m := range e.InForce(time.Now()) {
			next.Adopt(m, time.Now())
		}
		if got := next.blocked(); got != want {
			t.Errorf("adopted %s, want %s", got, want)
		}
	}
}

// A lift under a rule lifts all of its limits: who is lifted starts afresh, and is not refused for a wider prefix that edges have blocked.
func TestLiftOfSeveralLimits(t *testing.T) {
	e := startTold(t, severalLimits)
	from := func(source string) int {
		resp, _ := e.get("/", "X-Forwarded-For: "+source)
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
		if got := e.blocked(); !strings.Contains(got, "r/24/20m "+prefix+"0/24") {
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
		if l, err := lift(prefix + "0/24"); err != nil || !l.Lifted || strings.Contains(e.blocked(), "/24") {
			t.Errorf("%s: %+v, %v, and still %s", rule, l, err, e.blocked())
		}
		for i := range 3 {
			_, _ = lift(fmt.Sprint(prefix, 1+i))
		}
	}
	// What an operator has said of the prefix is his to lift.
	if _, err := e.Block("r", "192.0.2.0/24", time.Hour, "", control.Operator{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if got := e.blocked(); got != "r 192.0.2.0/24" || from("192.0.2.77") != 429 {
		t.Errorf("blocked: %s", got)
	}
	if _, err := e.Lift("r", "192.0.2.77", control.Operator{}, time.Now()); err != nil || from("192.0.2.77") != 429 {
		t.Errorf("lifted with it: %v", err)
	}
}

// A candidate is asked beside each limit, and counts a request once.
func TestCandidateOfSeveralLimits(t *testing.T) {
	e := startTold(t, strings.Replace(severalLimits, "limit: 4,", "limit: 4, candidate: {limit: 1, mitigation_timeout: 30m},", 1))
	for range 3 {
		e.get("/", "X-Forwarded-For: 192.0.2.1")
	}
	m := e.rest()
	for name, want := range map[string]float64{
		"sluice_candidate_requests_total{rule=r,verdict=pass}": 1, "sluice_candidate_requests_total{rule=r,verdict=limited}": 1,
		"sluice_candidate_requests_total{rule=r,verdict=mitigated}": 1, "sluice_candidate_alone_total{rule=r}": 2,
		"sluice_mitigations_active{mode=candidate,rule=r}": 1, "sluice_mitigations_started_total{by=edge,mode=candidate,rule=r}": 1,
	} {
		if m[name] != want {
			t.Errorf("%s is %v, want %v", name, m[name], want)
		}
	}
	if _, err := e.Lift("r", "192.0.2.1", control.Operator{}, time.Now()); err != nil || e.blocked() != "" {
		t.Errorf("%v, and still %s", err, e.blocked())
	}
}

// Of a rule that is read again each limit goes on by itself: a block stays unless its limit is gone or admits more.
func TestReloadOfSeveralLimits(t *testing.T) {
	f := func(yaml, want string) {
		t.Helper()
		e := startTold(t, severalLimits)
		for _, source := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"} {
			e.get("/", "X-Forwarded-For: "+source)
		}
		must(t, e.apply(yaml))
		if got := e.blocked(); got != want {
			t.Errorf("%s: %s, want %s", yaml, got, want)
		}
	}
	with := func(old, new string) string {
		if !strings.Contains(severalLimits, old) {
			t.Fatal(old)
		}
		return strings.Replace(severalLimits, old, new, 1)
	}
	f(severalLimits, "r r/20m 192.0.2.1, r r/24/20m 192.0.2.0/24")
	f(with("limit: 3,", "limit: 2,"), "r r/20m 192.0.2.1, r r/24/20m 192.0.2.0/24")
	f(with("limit: 6", "limit: 8"), "r r/20m 192.0.2.1")
	f(with("[32, {prefix: 24, limit: 6}]", "[32, {prefix: 23, limit: 6}]"), "r r/20m 192.0.2.1")
	f(with("windows: [{limit: 3, window: 20m}], ", ""), "")
	f(with("windows: [{limit: 3, window: 20m}]", "windows: [{limit: 3, window: 10m}, {limit: 2, window: 1m}]"), "")
	f(with("limit: 4,", "limit: 5,"), "r r/20m 192.0.2.1, r r/24/20m 192.0.2.0/24") // 3 x 6/5 is as many as 3 x 6/4, rounded up
	f(with("mitigation_timeout: 1h", "mitigation_timeout: 30m"), "")
}

// Connections of a prefix that is blocked are closed at accept as those of a source are.
func TestShedOfAPrefix(t *testing.T) {
	e := startEdge(t, startRecorder(t, hello).url(), "shed: connection\nrules: [{name: r, limit: 2, window: 1h, mitigation_timeout: 1h, prefixes: [32, {prefix: 24, limit: 3}]}]")
	r := e.snap.Load().rules.Rules[0]
	for i := range 4 {
		d := &e.exchanges.New().(*exchange).decision
		d.Rules = append(d.Rules, r)
		a := netip.AddrFrom4([4]byte{127, 0, 0, byte(10 + i)})
		d.AddRules(e.secret, nil, a, counter.SourceOf(a, 32, 64))
		e.limiter.Decide(&d.Decision, time.Now())
	}
	if !e.shedPeer(netip.MustParseAddr("127.0.0.77")) || e.shedPeer(netip.MustParseAddr("127.0.1.77")) {
		t.Errorf("blocked: %s", e.blocked())
	}
}
