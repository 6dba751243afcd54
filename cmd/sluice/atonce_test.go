//go:build system

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/edge/events"
)

// overtaken is what the API says to whose value does not stand.
type overtaken struct {
	Overtaken []struct {
		Field         string
		Yours, Stands json.RawMessage
		Who, Edge     string
	}
}

// newest is the newest version of a rule.
func (p *process) newest(path string) (version uint64) {
	var past []struct{ Version uint64 }
	must(p.t, json.Unmarshal([]byte(p.api("GET", path+"/history", "").text), &past))
	for _, v := range past {
		version = max(version, v.Version)
	}
	return version
}

// Two operators change one rule at two edges of three, up to 150 ms apart: its timeout the one and its limit the other, or both its limit. Of
// different fields both stand. Of one field one does, and the other operator is told whose; where his was in force on all edges
// before the other's was said, who replaces it is told. What is said to be in
// force on all edges is so when it is said.
func TestTwoOperatorsAtOnce(t *testing.T) {
	t.Parallel()
	const lanes, tries = 4, 12 // of each of both kinds
	var edges []*process
	nodes, site := startMemcached(t)+","+startMemcached(t), origin(t)
	for _, file := range writePoP(t, 3) {
		edges = append(edges, start(t, site, "--config", file, "--memcached", nodes))
	}
	meet(edges...)
	var mu sync.Mutex
	var reported, merged, later int
	var longest time.Duration
	var all sync.WaitGroup
	for lane := range lanes {
		rng := rand.New(rand.NewPCG(uint64(lane), 7))
		path := fmt.Sprint("/v1/rules/r", lane)
		if a := edges[1].api("PUT", path, `{"limit":5}`); a.status != 200 || a.Edges.Have != 3 {
			t.Fatalf("%+v", a)
		}
		all.Go(func() {
			for n := range tries {
				same, apart := n%2 == 0, time.Duration(rng.IntN(151))*time.Millisecond
				if n < 2 {
					apart = 0
				}
				first, second := fmt.Sprintf(`{"mitigation_timeout":"%ds"}`, 100+n), fmt.Sprintf(`{"limit":%d}`, 2000+n)
				if same {
					first = fmt.Sprintf(`{"limit":%d}`, 1000+n)
				}
				var a, b ruleAnswer
				var aTook time.Duration
				var bSent, aDone time.Time
				var both sync.WaitGroup
				began := time.Now()
				both.Go(func() {
					a = edges[2].api("PATCH", path, first, "X-Operator", "ada")
					aDone, aTook = time.Now(), time.Since(began)
				})
				time.Sleep(apart) // no state to wait for: how far apart the two are is what is tried, of processes that have a real clock
				bSent = time.Now()
				b = edges[0].api("PATCH", path, second, "X-Operator", "bob")
				bTook := time.Since(bSent)
				if b.Edges != nil && b.Edges.Have == 3 { // at once, on all
					for i, p := range edges {
						if got := p.api("GET", path, ""); got.Limit != b.Limit {
							// Then the other came after it, and its history says so once that is in force.
							p.until(fmt.Sprintf("%s, then %s %v later: a limit of %d was said to be in force on all edges, and edge %d has %d and nothing newer",
								first, second, apart, b.Limit, i, got.Limit), func() bool { return p.newest(path) > b.Version })
						}
					}
				}
				both.Wait()
				var lostA, lostB overtaken
				must(t, json.Unmarshal([]byte(a.text), &lostA))
				must(t, json.Unmarshal([]byte(b.text), &lostB))
				rule := edges[1].api("GET", path, "")
				// Who is told that another's value stands does not wait for all edges; nobody waits for longer than two seconds.
				early := func(r ruleAnswer, lost overtaken, took time.Duration) bool {
					return r.Edges == nil || r.Edges.Have != 3 && (len(r.Edges.Missing) == 0 || len(lost.Overtaken) == 0 && took < 2*time.Second)
				}
				if a.status != 200 || b.status != 200 || early(a, lostA, aTook) || early(b, lostB, bTook) {
					t.Errorf("%d %+v, %d %+v: %s %s", a.status, a.Edges, b.status, b.Edges, a.text, b.text)
				}
				for answer, lost := range map[*ruleAnswer]overtaken{&a: lostA, &b: lostB} {
					if len(lost.Overtaken) > 0 && strings.Contains(answer.text, "this takes its place") {
						t.Errorf("what does not stand is said to take a place: %s", answer.text)
					}
				}
				mu.Lock()
				longest = max(longest, aTook, bTook)
				switch {
				case !same:
					merged++
					var got struct {
						Timeout string `json:"mitigation_timeout"`
					}
					must(t, json.Unmarshal([]byte(rule.text), &got))
					want := (time.Duration(100+n) * time.Second).String()
					if is, err := time.ParseDuration(got.Timeout); rule.Limit != 2000+n || err != nil || is.String() != want || len(lostA.Overtaken)+len(lostB.Overtaken) > 0 {
						t.Errorf("%s, and %s %v later: %s\n%s\n%s", first, second, apart, rule.text, a.text, b.text)
					}
				case rule.Limit == 1000+n && len(lostB.Overtaken) == 0: // its edge came to it only when the other was on all
					if text := strings.Join(a.Warnings, " "); !strings.Contains(text, fmt.Sprintf("limit was set to %d by bob at edge0", 2000+n)) {
						t.Errorf("%s stands, and neither it nor %s %v later was told of the other: %s\n%s", first, second, apart, a.text, b.text)
					}
					later++
				case rule.Limit == 1000+n: // edges' clocks differ, or it was the same millisecond
					if len(lostB.Overtaken) != 1 || lostB.Overtaken[0].Who != "ada" || lostB.Overtaken[0].Edge != "edge2" || len(b.Warnings) == 0 {
						t.Errorf("%s stands, and %s %v later was told nothing of it: %s", first, second, apart, b.text)
					}
					reported++
				case rule.Limit == 2000+n && len(lostA.Overtaken) == 0: // on all edges before the other was said, who is told what he replaces
					if text := strings.Join(b.Warnings, " "); !aDone.Before(bSent) && !strings.Contains(text, fmt.Sprintf("limit was set to %d by ada at edge2", 1000+n)) {
						t.Errorf("%s stands, and neither it nor %s %v before was told of the other: %s\n%s", second, first, apart, a.text, b.text)
					}
					later++
				case rule.Limit == 2000+n:
					if lost := lostA.Overtaken[0]; len(lostA.Overtaken) != 1 || lost.Field != "limit" || string(lost.Stands) != fmt.Sprint(2000+n) ||
						lost.Who != "bob" || lost.Edge != "edge0" || a.Limit != 2000+n || len(a.Warnings) == 0 {
						t.Errorf("%s stands, and %s %v before was told something else: %s", second, first, apart, a.text)
					}
					reported++
				default:
					t.Errorf("neither %s nor %s stands: %s", first, second, rule.text)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("%d pairs of different fields came together; of %d of one field %d were told, and %d were in force before the other was said; the longest answer took %v", merged, reported+later, reported, later, longest)
	if longest > 6*time.Second { // none waits longer than two, whoever answers, but for what a busy machine adds
		t.Errorf("an operator waited for %v", longest)
	}
	for i, p := range edges { // nobody is said to have done what the other did
		var happened []events.Event
		must(t, json.Unmarshal([]byte(p.api("GET", "/v1/events", "").text), &happened))
		his := map[string]int{}
		for _, e := range happened {
			for _, f := range e.Changed {
				his[e.Who]++
				limit, _ := strconv.Atoi(f.To)
				if f.Field != "limit" && (f.Field != "mitigation_timeout" || e.Who != "ada") || limit >= 2000 && e.Who != "bob" || limit >= 1000 && limit < 2000 && e.Who != "ada" {
					t.Errorf("edge %d, at %v: %s %s by %q: %s %s → %s", i, e.Time, e.Text, e.Rule, e.Who, f.Field, f.From, f.To)
				}
			}
		}
		if his["ada"] == 0 || his["bob"] == 0 {
			t.Errorf("edge %d tells of %v", i, his)
		}
	}
	for _, p := range edges {
		p.stop(syscall.SIGTERM)
	}
}
