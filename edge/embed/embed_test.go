package embed

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/pop/poptest"
)

var client, other = netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.8")

// A program that counts alone admits the limit and refuses the next, blocks whom the rule blocks for as
// long as it says, and tells what is left.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Config{Rules: []Rule{
			{Name: "all", Limit: 5, Window: 10 * time.Second, Block: time.Minute},
			{Name: "tried", Limit: 2, Window: 10 * time.Second, Shadow: true},
		}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint32(5) {
			if v := l.Decide(client); v.Refused || v.Rule != "all" || v.Remaining != 4-i {
				t.Errorf("request %d: %+v", i+1, v)
			}
		}
		v := l.Decide(client)
		if !v.Refused || v.Rule != "all" || v.RetryAfter != time.Minute {
			t.Errorf("request 6: %+v", v)
		}
		headers := map[string]string{}
		v.Headers(func(name, value string) { headers[name] = value })
		if headers["Retry-After"] != "60" || headers["RateLimit"] != `"all";r=0;t=60` ||
			headers["RateLimit-Policy"] != `"all";q=5;w=10` || len(headers) != 3 {
			t.Errorf("headers %v", headers)
		}
		if l.Decide(other).Refused {
			t.Error("another client was refused")
		}
		time.Sleep(time.Minute - time.Nanosecond)
		if !l.Decide(client).Refused {
			t.Error("the block ended early")
		}
		time.Sleep(time.Nanosecond)
		if l.Decide(client).Refused {
			t.Error("the block did not end")
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Three programs that share a node admit the limit of a client together, and a little more at most: each
// is behind by what the two others have admitted since its own last request. What one blocks, all
// refuse.
func TestTogether(t *testing.T) {
	node := poptest.New(1 << 20)
	address, err := node.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	var all [3]*Limiter
	for i := range all {
		all[i], err = New(Config{PoP: "test", Nodes: []string{address}, Secret: []byte("hard to guess"),
			Rules: []Rule{{Name: "all", Limit: 30, Window: time.Hour, Block: time.Hour}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	admitted := 0
	for range 30 {
		for _, l := range all {
			if !l.Decide(client).Refused {
				admitted++
			}
			for l.limiter.Counters.Unreported() > 0 { // until the node has answered
				time.Sleep(time.Millisecond)
			}
		}
	}
	if admitted < 30 || admitted > 32 {
		t.Errorf("%d of 90 were admitted, the limit is 30", admitted)
	}
	for i, l := range all {
		if !l.Decide(client).Refused || l.Decide(other).Refused {
			t.Errorf("program %d does not refuse the client, or refuses another", i+1)
		}
	}
	for _, l := range all {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestBadConfigurations(t *testing.T) {
	rule := Rule{Name: "all", Limit: 5, Window: time.Second}
	for want, c := range map[string]Config{
		"no rule":              {},
		"is empty or another":  {Rules: []Rule{rule, rule}},
		"rule all: limit 0":    {Rules: []Rule{{Name: "all", Window: time.Second}}},
		"rule all: window 1ms": {Rules: []Rule{{Name: "all", Limit: 1, Window: time.Millisecond}}},
		"rule all: block -1s":  {Rules: []Rule{{Name: "all", Limit: 1, Window: time.Second, Block: -time.Second}}},
		"PoP and Secret":       {Rules: []Rule{rule}, Nodes: []string{"127.0.0.1:11211"}, PoP: "fra1"},
		"nonsense:11211":       {Rules: []Rule{rule}, Nodes: []string{"nonsense"}, PoP: "fra1", Secret: []byte("x")},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	l, err := New(Config{Rules: []Rule{{Name: "all", Limit: 1e9, Window: time.Hour}}})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	b.ReportAllocs()
	for b.Loop() {
		l.Decide(client)
	}
}
