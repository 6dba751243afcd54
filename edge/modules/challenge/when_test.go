package challenge

import (
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/edgetest"
	"sluice/edge/limiter"
	"sluice/edge/rules"
	"sluice/mitigation"
)

// A row is latency for a while, and whether everybody is challenged at its end.
type row struct {
	latency time.Duration
	lasts   time.Duration
	want    bool
}

// levelOf is how fast an origin is under a bound of 800 ms; less than 0: nobody knows.
func levelOf(latency time.Duration) level {
	switch {
	case latency > 800*time.Millisecond:
		return slow
	case latency > calmOf(800*time.Millisecond):
		return near
	}
	return calm
}

func TestTrigger(t *testing.T) {
	const fast, near, slow = 100 * time.Millisecond, 700 * time.Millisecond, time.Second
	for name, rows := range map[string][]row{
		"a moment is no reason":     {{slow, 2 * time.Second, false}, {fast, time.Minute, false}},
		"three seconds are":         {{slow, 4 * time.Second, true}},
		"nobody asks":               {{-1, time.Hour, false}},
		"it holds two minutes":      {{slow, 4 * time.Second, true}, {fast, 115 * time.Second, true}, {fast, 10 * time.Second, false}},
		"quiet is calm":             {{slow, 4 * time.Second, true}, {-1, 3 * time.Minute, false}},
		"near the bound is no calm": {{slow, 4 * time.Second, true}, {near, time.Hour, true}, {fast, 62 * time.Second, false}},
		"the second time it holds four": {{slow, 4 * time.Second, true}, {fast, 125 * time.Second, false},
			{slow, 4 * time.Second, true}, {fast, 230 * time.Second, true}, {fast, 10 * time.Second, false}},
		"long after, two again": {{slow, 4 * time.Second, true}, {fast, 20 * time.Minute, false},
			{slow, 4 * time.Second, true}, {fast, 125 * time.Second, false}},
	} {
		tr, now := trigger{over: 800 * time.Millisecond}, noon
		for i, r := range rows {
			for end := now.Add(r.lasts); now.Before(end); now = now.Add(time.Second) {
				tr.step(levelOf(r.latency), now)
			}
			if tr.on != r.want {
				t.Errorf("%s, row %d: %t, want %t", name, i, tr.on, r.want)
			}
		}
	}
}

// An origin that is slow whenever not everybody is challenged, and fast otherwise, has them
// challenged all the same: in six hours it begins less than 20 times. Latency that is about the
// bound does not flap either.
func TestTriggerDoesNotFlap(t *testing.T) {
	began := func(latency func(on bool) time.Duration) (n int, on time.Duration) {
		tr := trigger{over: 800 * time.Millisecond}
		for at := time.Duration(0); at < 6*time.Hour; at += time.Second {
			was := tr.on
			if tr.step(levelOf(latency(was)), noon.Add(at)); tr.on && !was {
				n++
			}
			if tr.on {
				on += time.Second
			}
		}
		return n, on
	}
	n, on := began(func(on bool) time.Duration {
		if on {
			return 100 * time.Millisecond
		}
		return 2 * time.Second
	})
	if n > 20 || on < 350*time.Minute {
		t.Errorf("a scraper that waits: %d times, %v of 6 hours", n, on)
	}
	r := rand.New(rand.NewPCG(1, 2))
	if n, _ = began(func(bool) time.Duration {
		return time.Duration(600+r.IntN(400)) * time.Millisecond
	}); n > 1 {
		t.Errorf("about the bound: %d times", n)
	}
}

// A rule is in force against everybody as its trigger says, leaves an operator's order alone, and
// stays out where he has ended it.
func TestWhenIsAnOrderOfTheEdge(t *testing.T) {
	m := Module([][16]byte{{1}})
	of := &module{keys: keys, counts: make(map[string]*counts)}
	c, err := (config.Parser{Modules: edge.Modules{m, WhenModule()}.Config()}).Parse("f", []byte(
		"origins: [{servers: [\"http://127.0.0.1:1\"]}]\nrules:\n"+
			"- {name: page, key: path, limit: 100, action: challenge, when: {origin_latency_p95: 800ms}}\n"))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	defaults := c.RuleDefaults()
	set, err := rules.New(c.Rules, defaults, func(string) *rules.Tally { return rules.NewTally() })
	must(err)
	p, err := of.under(c)
	must(err)
	blocks := mitigation.New(100, func() {})
	p.setup = &edge.Setup{Limiter: &limiter.Limiter{Blocks: blocks},
		Rules: func() *rules.Set { return set }}
	all, now, pace := make(map[string]*watched), noon, p.list[0].pace
	pass := func(lasts, latency time.Duration) { // less than 0: no answer comes
		for end := now.Add(lasts); now.Before(end); now = now.Add(time.Second) {
			for range 10 {
				if pace.begun.Add(1); latency >= 0 {
					pace.took(latency, true)
				}
			}
			p.watch(all, now)
		}
	}
	k := mitigation.Key{Rule: set.ByName("page").Counter.ID, Source: rules.Everybody}
	want := func(name, who string) {
		t.Helper()
		bit, in := blocks.Get(k, now)
		if in != (who != "") || bit.Who != who && in {
			t.Errorf("%s: %t by %q, want by %q", name, in, bit.Who, who)
		}
	}
	pass(time.Minute, 100*time.Millisecond)
	want("fast", "")
	pass(time.Minute, 600*time.Millisecond)
	want("under the bound", "")
	pass(20*time.Second, 2*time.Second)
	want("slow", whenName)
	pass(10*time.Minute, 2*time.Second)
	want("slow for long", whenName)
	pass(4*time.Minute, 100*time.Millisecond)
	want("fast again", "")

	now = now.Add(time.Hour)
	blocks.Start(k, mitigation.Bit{Start: now, End: now.Add(time.Minute), By: mitigation.ByAdmin,
		Who: "ann"}, now)
	pass(30*time.Second, 2*time.Second)
	want("ordered by hand", "ann")
	pass(time.Minute, 2*time.Second)
	want("the order is over", whenName)
	blocks.Lift(k, now)
	pass(10*time.Minute, 2*time.Second)
	want("ended by hand", "")
	pass(2*time.Minute, 100*time.Millisecond)
	pass(20*time.Second, 2*time.Second)
	want("after a calm", whenName)
	// An origin that answers nobody is slow, for as long as it does
	pass(10*time.Minute, 100*time.Millisecond)
	want("fast for long", "")
	pass(10*time.Second, -1)
	want("silent", whenName)
	pass(10*time.Minute, -1)
	want("silent for long", whenName)
	for pace.ended.Load() < pace.begun.Load() { // they are given up
		pace.took(time.Minute, false)
	}
	pass(10*time.Minute, 100*time.Millisecond)
	want("fast after that", "")
	for range 100 { // who leaves at once says nothing
		pace.begun.Add(1)
		pace.took(time.Millisecond, false)
	}
	if n := pace.sample(); n.begun != n.ended || n.answered != n.ended-100 {
		t.Errorf("%+v", n)
	}
}

// An attempt at an origin is timed for the rules about its host, unless the request has a body: with
// a slow one a client could have everybody challenged.
func TestAttemptsAreTimed(t *testing.T) {
	whole := make(chan bool)
	origin := edgetest.NetOrigin(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, err := io.Copy(io.Discard, r.Body)
			whole <- err == nil
		}
	})
	use := edge.Modules{Module([][16]byte{{1}}), WhenModule()}
	c, err := (config.Parser{Modules: use.Config()}).Parse("f", []byte(
		"origins: [{servers: [\""+origin+"\"]}]\nrules:\n"+
			"- {name: all, key: path, limit: 100, action: challenge, when: {origin_latency_p95: 800ms}}\n"+
			"- {name: one, match: {hosts: [a.example]}, key: path, limit: 100, action: challenge, when: {origin_latency_p95: 1s}}\n"))
	edgetest.Must(t, err)
	m := &module{keys: keys, counts: make(map[string]*counts)}
	p, err := m.under(c)
	edgetest.Must(t, err)
	use = append(use, edge.Module{Name: "test", Prepare: func(*edge.Setup) (edge.Points, error) {
		return edge.Points{Observers: []edge.Observer{{Watch: p.observe}}}, nil
	}})
	e := edgetest.Serve(t, edgetest.NewServer(t, c, edgetest.Using(use...)))
	want := func(name string, all, one uint64) {
		t.Helper()
		e.Rest() // all requests are over
		for i, n := range []uint64{all, one} {
			if s := p.list[i].pace.sample(); s.begun != n || s.ended != n || s.answered != n {
				t.Errorf("%s: rule %s has %+v, want %d of each", name, p.list[i].name, s, n)
			}
		}
	}
	talk := e.Talk()
	defer talk.Close()
	talk.Say("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
	want("a request", 1, 1)
	talk.Say("GET / HTTP/1.1\r\nHost: b.example\r\n\r\n")
	want("of another host", 2, 1)
	_, err = io.WriteString(talk, "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\nab")
	edgetest.Must(t, err)
	_, err = io.WriteString(talk, "c")
	edgetest.Must(t, err)
	if !<-whole {
		t.Error("the origin did not get the body")
	}
	talk.Hear(http.MethodPost)
	want("a body", 2, 1)
}
