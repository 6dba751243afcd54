package rules

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/edge/message"
	"sluice/edge/rules/key"
	"sluice/edge/rules/match"
	"sluice/mitigation"
)

// Ten thousand rules are no error: they are ready soon, and a request does not look at all of them.
func TestManyRules(t *testing.T) {
	var list []Config
	for i := range 10_000 {
		r := Default(fmt.Sprint("r", i), 5)
		switch i % 4 {
		case 0:
			r.Match.Path = fmt.Sprintf("/p%d", i)
		case 1:
			r.Match.Path = fmt.Sprintf("/p%d/*", i)
		case 2:
			r.Match.Hosts = []string{fmt.Sprintf("h%d.example", i)}
		case 3:
			r.Match.Hosts = []string{fmt.Sprintf("*.h%d.example", i)}
		}
		list = append(list, r)
	}
	start := time.Now()
	set, err := New(list, Defaults{}, newTally)
	if took := time.Since(start); err != nil || took > 20*time.Second {
		t.Fatalf("%v after %v", err, took)
	}
	for _, test := range []struct {
		host, path string
		want       []string
	}{
		{"a", "/p8", []string{"r8"}}, {"a", "/p9/x/y", []string{"r9"}}, {"a", "/p9", nil}, {"h10.example", "/p8", []string{"r8", "r10"}},
		{"x.y.h11.example", "/", []string{"r11"}}, {"h11.example", "/", nil}, {"a", "/", nil},
	} {
		var got []string
		for _, r := range set.index.Find(nil, []byte(test.host), []byte(test.path), []byte("GET"), false) {
			got = append(got, r.Config.Name)
		}
		if fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s%s: %v, want %v", test.host, test.path, got, test.want)
		}
	}
}

func BenchmarkMatchManyRules(b *testing.B) {
	var list []Config
	for i := range 10_000 {
		r := Default(fmt.Sprint("r", i), 5)
		r.Match.Path = fmt.Sprintf("/p%d/*", i)
		list = append(list, r)
	}
	set, err := New(list, Defaults{}, newTally)
	must(b, err)
	var found []*Rule
	host, path, method := []byte("example.com"), []byte("/p77/some/path"), []byte("GET")
	b.ReportAllocs()
	for b.Loop() {
		found = set.index.Find(found[:0], host, path, method, false)
	}
}

// Regular expressions see MaxSearched bytes of a request, in all readings of its path together. Whether they find something in more is not found out,
// but where a rule with one is about all else of the request, and only there, it cannot be told to be none of its matter.
func TestLongPaths(t *testing.T) {
	set, err := New([]Config{
		ruleOf("all", 5), ruleOf("exact", 5, func(c *Config) { c.Match.Path = "/x" }),
		ruleOf("found", 5, func(c *Config) {
			c.Match.Path, c.Match.Hosts, c.Match.Methods = "~^/(export|a).*z?$", []string{"api.example"}, []string{"POST"}
			c.Match.Sources, c.Match.Not = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, &match.Config{Path: "/images/*"}
		}),
	}, Defaults{}, newTally)
	must(t, err)
	path := func(begins string, n int) string { return begins + strings.Repeat("y", n-len(begins)) }
	for _, test := range []struct {
		name, host, method, target, client, want string
	}{
		{"as long as may be", "api.example", "POST", path("/export", MaxSearched), "192.0.2.1", "all found"},
		{"and not found", "api.example", "POST", path("/x", MaxSearched), "192.0.2.1", "all"},
		{"too long", "api.example", "POST", path("/export", MaxSearched+1), "192.0.2.1", "too long"},
		{"too long, whatever it is", "api.example", "POST", path("/x", MaxSearched+1), "192.0.2.1", "too long"},
		{"a long query", "api.example", "POST", path("/export?", 8000), "192.0.2.1", "all found"},
		{"an absolute target", "api.example", "POST", path("http://api.example/export", MaxSearched+18), "192.0.2.1", "all found"},
		{"three readings", "api.example", "POST", path("/export;", MaxSearched/3), "192.0.2.1", "all found"},
		{"three readings, too long", "api.example", "POST", path("/export;", MaxSearched/3+1), "192.0.2.1", "too long"},
		{"six readings", "api.example", "POST", path("//a;", MaxSearched/6), "192.0.2.1", "all found"},
		{"six readings, too long", "api.example", "POST", path("//a;", MaxSearched/6+1), "192.0.2.1", "too long"},
		{"two hosts", "api.example www.example", "POST", path("/export", MaxSearched/2), "192.0.2.1", "all found"},
		{"two hosts, too long", "api.example www.example", "POST", path("/export", MaxSearched/2+1), "192.0.2.1", "too long"},
		{"another host", "www.example", "POST", path("/export", 8000), "192.0.2.1", "all"},
		{"another method", "api.example", "GET", path("/export", 8000), "192.0.2.1", "all"},
		{"another source", "api.example", "POST", path("/export", 8000), "198.51.100.1", "all"},
		{"left out", "api.example", "POST", path("/images/", 8000), "192.0.2.1", "all"},
	} {
		var d Decision
		canonical, readings := message.AppendPath(nil, []byte(test.target))
		client := netip.MustParseAddr(test.client)
		for _, host := range strings.Fields(test.host) {
			d.Match(set, []byte(host), canonical, []byte(test.target), []byte(test.method), readings)
		}
		got := "too long"
		if no := d.AddRules(key.Secret{}, &message.Request{Target: []byte(test.target)}, client, ip(test.client)); no != nil && no != message.TooLong {
			t.Fatalf("%s: %s", test.name, no.Code)
		} else if no == nil {
			var names []string
			for _, r := range d.Rules {
				names = append(names, r.Config.Name)
			}
			got = strings.Join(names, " ")
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// BenchmarkRegexps is what the longest paths cost under fifty regular expressions, all of which look at every byte: of one reading, of six, and beside
// it what 8 KiB take where nothing bounds them.
func BenchmarkRegexps(b *testing.B) {
	var list []Config
	for i := range 50 {
		list = append(list, ruleOf(fmt.Sprint(i), 5, func(c *Config) { c.Match.Path = fmt.Sprintf("~(a|b)+[a-f]*/x%d$", i) }))
	}
	r := newBench(b, list...)
	for _, test := range []struct{ name, target string }{
		{"one reading", "/" + strings.Repeat("ab", MaxSearched/2-1) + "/"}, {"six readings", "//a;" + strings.Repeat("ab", MaxSearched/12-4) + "/"}, {"too long", "/" + strings.Repeat("ab", 4000)},
	} {
		b.Run(test.name, func(b *testing.B) {
			target := []byte(test.target)
			path, readings := message.AppendPath(nil, target)
			b.ReportAllocs()
			for b.Loop() {
				r.d.Reset()
				r.d.Match(r.rules, r.host, path, target, r.method, readings)
			}
		})
	}
	b.Run("naive", func(b *testing.B) {
		path := []byte("/" + strings.Repeat("ab", 4000))
		for b.Loop() {
			r.rules.index.Find(nil, r.host, path, r.method, false)
		}
	})
}

// BenchmarkBlocked is what a request costs of a source that is blocked whatever it asks for, beside fifty regular expressions and a path that they see
// whole; naive is the same where rules are matched first; passes is the first look, of a source that is not blocked.
func BenchmarkBlocked(b *testing.B) {
	list := []Config{ruleOf("all", 5)}
	for i := range 50 {
		list = append(list, ruleOf(fmt.Sprint(i), 5, func(c *Config) { c.Match.Path = fmt.Sprintf("~(a|b)+[a-f]*/x%d$", i) }))
	}
	r := newBench(b, list...)
	now, client, source, other := time.Now(), netip.MustParseAddr("192.0.2.1"), ip("192.0.2.1"), ip("192.0.2.2")
	r.limiter.Blocks.Start(mitigation.Key{Rule: r.rules.Everything[0].Counter.ID, Source: source}, mitigation.Bit{Start: now, End: now.Add(time.Hour)}, now)
	path := []byte("/" + strings.Repeat("ab", MaxSearched/2-1) + "/")
	decide := func() {
		if r.d.AddRules(key.Secret{}, &r.request, client, source); len(r.d.Rules) == 0 {
			b.Fatal("no rule")
		}
		if r.limiter.Decide(&r.d.Decision, now); !r.d.Refused() {
			b.Fatal("not refused")
		}
	}
	b.Run("blocked", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.d.Reset()
			if !r.d.MatchBlocked(r.rules, &r.limiter, key.Secret{}, client, source, nil, now) {
				b.Fatal("not blocked")
			}
			decide()
		}
	})
	b.Run("naive", func(b *testing.B) {
		for b.Loop() {
			r.d.Reset()
			r.d.Match(r.rules, r.host, path, path, r.method, 0)
			decide()
		}
	})
	b.Run("passes", func(b *testing.B) {
		for b.Loop() {
			if r.d.MatchBlocked(r.rules, &r.limiter, key.Secret{}, client, other, nil, now) {
				b.Fatal("blocked")
			}
		}
	})
}
