package rules

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/edge/message"
	"sluice/edge/rules/key"
	"sluice/edge/rules/match"
)

// TestConditions asks whether a rule is about a request: yes, no, or 400 where origins may not read it alike.
func TestConditions(t *testing.T) {
	one := func(name, pattern string) map[string]match.Value {
		return map[string]match.Value{name: {Text: pattern}}
	}
	agent := func(v match.Value) match.Config {
		return match.Config{Headers: map[string]match.Value{"user-agent": v}}
	}
	sid := func(v match.Value) match.Config { return match.Config{Cookies: map[string]match.Value{"sid": v}} }
	page := func(v match.Value) match.Config { return match.Config{Query: map[string]match.Value{"page": v}} }
	robots := match.Value{Contains: []string{"GPTBot", "Claude Bot"}}
	header := func(pattern string) match.Config { return match.Config{Headers: one("x-key", pattern)} }
	cookie := func(pattern string) match.Config { return match.Config{Cookies: one("sid", pattern)} }
	query := func(pattern string) match.Config { return match.Config{Query: one("page", pattern)} }
	not := func(m match.Config) match.Config { return match.Config{Not: &m} }
	in := match.Config{Sources: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	for _, test := range []struct {
		name    string
		m       match.Config
		request string // path and query, then header lines
		want    string
	}{
		{"a part, whatever its case", agent(robots), "/|User-Agent: Mozilla/5.0 (compatible; gptbot/1.1)", "yes"},
		{"another part", agent(robots), "/|User-Agent: claude bot", "yes"},
		{"no such part", agent(robots), "/|User-Agent: GPT Bot", "no"},
		{"a part of a header that is not there", agent(robots), "/", "no"},
		{"a part of a long value", agent(robots), "/|User-Agent: " + strings.Repeat("x ", 2000) + "gptbot", "yes"},
		{"no such part of a long value", agent(robots), "/|User-Agent: " + strings.Repeat("x ", 2000), "no"},
		{"not a part, byte for byte", not(agent(robots)), "/|User-Agent: a GPTBot b", "no"},
		{"not a part, in other letters", not(agent(robots)), "/|User-Agent: a gptbot b", "yes"},
		{"an expression", agent(match.Value{Text: "~(?i)(google|bing)bot"}), "/|User-Agent: x GoogleBot", "yes"},
		{"an expression has a case", agent(match.Value{Text: "~(google|bing)bot"}), "/|User-Agent: x GoogleBot", "no"},
		{"an expression takes no long value for another", agent(match.Value{Text: "~^curl"}), "/|User-Agent: " + strings.Repeat("x", match.MaxSearchedValue+1), "yes"},
		{"not an expression", not(agent(match.Value{Text: "~^(google|bing)bot"})), "/|User-Agent: bingbot", "no"},
		{"not an expression, of a long value", not(agent(match.Value{Text: "~^x"})), "/|User-Agent: " + strings.Repeat("x", match.MaxSearchedValue+1), "yes"},
		{"a tilde as it is", agent(match.Value{OneOf: []string{"a*", "~a"}}), "/|User-Agent: ~A", "yes"},
		{"a star as it is", agent(match.Value{OneOf: []string{"a*", "~a"}}), "/|User-Agent: ab", "no"},
		{"the end of a cookie", sid(match.Value{Suffix: []string{".a", ".b"}}), "/|Cookie: sid=1.B", "yes"},
		{"another end of a cookie", sid(match.Value{Suffix: []string{".a", ".b"}}), "/|Cookie: sid=.b1", "no"},
		{"an encoded part of a cookie", sid(match.Value{Contains: []string{"ab"}}), "/|Cookie: sid=x%61bx", "yes"},
		{"the beginning of a parameter", page(match.Value{Prefix: []string{"1", "2"}}), "/?page=%32x", "yes"},
		{"not the beginning of a parameter", not(page(match.Value{Prefix: []string{"1", "2"}})), "/?page=2x", "no"},
		{"one of several parameters", page(match.Value{OneOf: []string{"1", "2"}}), "/?page=2;page=2", "yes"},
		{"parameters that differ", page(match.Value{Contains: []string{"1"}}), "/?page=1&page=2", "400"},
		{"a header", header("*"), "/|X-Key: 1", "yes"},
		{"an empty one is there", header("*"), "/|X-Key:", "yes"},
		{"a missing one", header("*"), "/", "no"},
		{"a dropped one", header("*"), "/|X-Key: 1|Connection: x-key", "no"},
		{"underscores are hyphens for some", header("*"), "/|X_Key: 1", "yes"},
		{"a value", header("a1"), "/|x-KEY: a1", "yes"},
		{"in other letters", header("a1"), "/|X-Key: A1", "yes"},
		{"a longer one", header("a1"), "/|X-Key: a12", "no"},
		{"a prefix", header("a1*"), "/|X-Key: A12", "yes"},
		{"a shorter one", header("a1*"), "/|X-Key: a", "no"},
		{"nothing", header(""), "/|X-Key:", "yes"},
		{"nothing and none", header(""), "/", "no"},
		{"twice alike", header("a"), "/|X-Key: a|X-Key: a", "yes"},
		{"twice otherwise", header("*"), "/|X-Key: a|X-Key: b", "400"},
		{"credentials", match.Config{Headers: one("authorization", "Bearer *")}, "/|Authorization: bEARER   x", "yes"},
		{"those that are encoded", match.Config{Headers: one("authorization", "Basic YTpi")}, "/|Authorization: basic YTpi", "yes"},
		{"no base64", match.Config{Headers: one("authorization", "Basic YTpi")}, "/|Authorization: basic Y.Tpi", "400"},
		{"without", not(header("*")), "/", "yes"},
		{"not without", not(header("*")), "/|X-key: 1", "no"},
		{"without, for who tells an underscore", not(header("*")), "/|X_Key: 1", "yes"},
		{"without what is dropped", not(header("*")), "/|X-Key: 1|Connection: x-key", "yes"},
		{"without a value", not(header("a")), "/|X-Key: a", "no"},
		{"in other letters it is another for some", not(header("a")), "/|X-Key: A", "yes"},
		{"twice it is a list for some", not(header("a")), "/|X-Key: a|X-Key: a", "yes"},
		{"without, and there in two ways", not(header("a")), "/|X-Key: a|X_Key: b", "400"},
		{"without a prefix", not(header("a*")), "/|X-Key: ab", "no"},
		{"without a longer prefix", not(header("ab*")), "/|X-Key: a", "yes"},
		{"without an empty one", not(header("")), "/", "yes"},

		{"a cookie", cookie("*"), "/|Cookie: a=b; sid=", "yes"},
		{"another", cookie("*"), "/|Cookie: a=sid; tsid=1", "no"},
		{"in one of its spellings", cookie("ab"), `/|Cookie: SID="%61b"`, "yes"},
		{"whose value is odd, which does not matter", cookie("*"), `/|Cookie: sid=a\b`, "yes"},
		{"and does", cookie("ab"), `/|Cookie: sid=a\b`, "400"},
		{"two cookies", cookie("*"), "/|Cookie: sid=1|Cookie: sid=2", "400"},
		{"no cookie", not(cookie("*")), "/|Cookie: sid=1", "no"},
		{"no such cookie for who tells letters", not(cookie("*")), "/|Cookie: SID=1", "yes"},
		{"not that value", not(cookie("ab")), "/|Cookie: sid=%61b", "yes"},

		{"a parameter", query("*"), "/x?a=b&page", "yes"},
		{"of the query alone", query("*"), "/page=1", "no"},
		{"of an absolute target", query("1"), "http://h/x?page=1", "yes"},
		{"encoded", query("1"), "/?%70age=%31", "yes"},
		{"in other letters, after a space", query("1"), "/?+PAGE=1", "yes"},
		{"an array", query("1"), "/?page%5B%5D=1", "yes"},
		{"ended by a null byte", query("1"), "/?page%00x=1", "yes"},
		{"a longer name", query("1"), "/?pages=1", "no"},
		{"a longer value", query("1"), "/?page=11", "no"},
		{"a prefix of one", query("1*"), "/?page=%311", "yes"},
		{"after a semicolon", query("1"), "/?x=1;page=1", "yes"},
		{"before one", query("1"), "/?page=1;x", "yes"},
		{"twice", query("*"), "/?page=1&page=2", "400"},
		{"twice for some", query("3"), "/?page=1;page=2", "400"},
		{"twice alike in a query", query("1"), "/?page=1&page=1", "yes"},
		{"decoded by some", query("*"), "/?%u0070age=1", "400"},
		{"ended in its value", query("1"), "/?page=1%00", "400"},
		{"none", not(query("*")), "/?pages=1", "yes"},
		{"not none", not(query("*")), "/?page=1", "no"},
		{"none for who knows semicolons", not(query("1")), "/?page=1;x", "yes"},
		{"nor for who does not", not(query("1")), "/?x;page=1", "yes"},
		{"none for who tells letters", not(query("*")), "/?Page=1", "yes"},

		{"from there", in, "/", "yes"},
		{"from elsewhere", match.Config{Sources: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}, "/", "no"},
		{"not from there", not(in), "/", "no"},
		{"all of it", match.Config{Path: "/a/*", Headers: one("x-key", "*"), Not: &match.Config{Path: "/a/b", Methods: []string{"PUT"}, Hosts: []string{"*.b.example"}}}, "/a/c|X-Key: 1", "yes"},
		{"not that path", not(match.Config{Path: "/a/b"}), "/a/b", "no"},
		{"however it is written", not(match.Config{Path: "/a/b"}), "/%61//b", "no"},
		{"but in every reading", not(match.Config{Path: "/a/b"}), "/a%2fb", "yes"},
		{"nor below that", not(match.Config{Path: "/a/*"}), "/a/b", "no"},
		{"but that", not(match.Config{Path: "/a/*"}), "/a", "yes"},
		{"not that method", not(match.Config{Methods: []string{"GET"}}), "/", "no"},
		{"not that host", not(match.Config{Hosts: []string{"example.com"}}), "/", "no"},
		{"nor one of these", not(match.Config{Hosts: []string{"*.com"}}), "/", "no"},
		{"another host", not(match.Config{Hosts: []string{"*.example.com"}}), "/", "yes"},
		{"any of what is left out", not(match.Config{Path: "/a", Headers: one("x-key", "*")}), "/b|X-Key: 1", "no"},
	} {
		b := newBench(t, ruleOf("r", 5, func(c *Config) { c.Match = test.m }))
		lines := strings.Split(test.request, "|")
		target := []byte(lines[0])
		path, readings := message.AppendPath(nil, target)
		q := &message.Request{Target: target, Head: *headOf(t, lines[1:]...)}
		b.d.Match(b.rules, b.host, path, target, b.method, readings)
		got := "no"
		if no := b.d.AddRules(key.Secret{}, q, netip.MustParseAddr("192.0.2.1"), ip("192.0.2.1")); no != nil {
			got = "400"
		} else if len(b.d.Results) > 0 {
			got = "yes"
		}
		if got != test.want {
			t.Errorf("%s: %s: %s, want %s", test.name, test.request, got, test.want)
		}
	}
}

// What a rule has looked at must not come in a trailer, also where it was not there.
func TestLookedAt(t *testing.T) {
	b := newBench(t, ruleOf("r", 5, func(c *Config) { c.Match.Headers = map[string]match.Value{"x-key": {Text: "*"}} }))
	b.decide(ip("192.0.2.1"), epoch)
	var names message.Names
	if b.d.AddHeaders(&names); len(b.d.Rules) > 0 || !names.Has([]byte("X-Key")) {
		t.Errorf("%d rules have looked at %v", len(b.d.Rules), names)
	}
}

// BenchmarkConditions is what the conditions of a rule cost: a browser's head, and one of each kind.
func BenchmarkConditions(b *testing.B) {
	q := &message.Request{Target: []byte("/search?lang=en&page=2&sort=price&q=shoes"), Head: *headOf(b,
		"Host: example.com", "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0", "Accept: text/html,application/xhtml+xml",
		"Accept-Language: en-US,en;q=0.5", "Accept-Encoding: gzip, deflate, br", "Referer: https://example.com/", "X-Api-Key: abcdef",
		"Cookie: theme=dark; session=0123456789abcdef0123456789abcdef; consent=1", "Sec-Fetch-Dest: document", "Sec-Fetch-Mode: navigate", "Cache-Control: max-age=0")}
	for _, test := range []struct {
		name string
		m    match.Config
	}{
		{"none", match.Config{}}, {"source", match.Config{Sources: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}},
		{"header", match.Config{Headers: map[string]match.Value{"x-api-key": {Text: "abc*"}}}}, {"cookie", match.Config{Cookies: map[string]match.Value{"session": {Text: "0123*"}}}},
		{"query", match.Config{Query: map[string]match.Value{"page": {Text: "2"}}}}, {"not", match.Config{Not: &match.Config{Headers: map[string]match.Value{"x-internal": {Text: "*"}}}}},
	} {
		b.Run(test.name, func(b *testing.B) {
			r := newBench(b, ruleOf("r", 5, func(c *Config) { c.Match = test.m }))
			client := netip.MustParseAddr("192.0.2.1")
			source := ip("192.0.2.1")
			b.ReportAllocs()
			for b.Loop() {
				r.d.Reset()
				if r.d.Match(r.rules, r.host, r.path, q.Target, r.method, 0); r.d.AddRules(key.Secret{}, q, client, source) != nil || len(r.d.Rules) != 1 {
					b.Fatal(r.d.Rules)
				}
			}
		})
	}
}

// A rule is about the same requests, and counts them for the same, whatever other rules look at them.
func TestManyRulesSeeAsEachAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "A", "b", "a_b", "a.b"}
	pieces := []string{"a", "A", "b", "_", ".", "[", "+", "%61", "=1", "=1", "=2", "=" + strings.Repeat("%31", 30), "&", "&", ";", ";", "&a=1", "&b=1"}
	text := func() string {
		var b strings.Builder
		for range r.IntN(10) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		return b.String()
	}
	var all []Config
	for i, name := range names {
		for j, pattern := range []string{"*", "1*", strings.Repeat("1", 30)} {
			one := map[string]match.Value{name: {Text: pattern}}
			for k, m := range []match.Config{{Query: one}, {Cookies: one}, {Not: &match.Config{Query: one}}, {Not: &match.Config{Cookies: one}}} {
				all = append(all, ruleOf(fmt.Sprint("match ", i, j, k), 5, func(c *Config) { c.Match = m }))
			}
		}
		all = append(all, ruleOf(fmt.Sprint("parameter ", i), 5, func(c *Config) { c.Key = []string{"query:" + name} }),
			ruleOf(fmt.Sprint("parameter and cookie ", i), 5, func(c *Config) { c.Key = []string{"query:" + name, "cookie:" + name} }))
	}
	all = append(all, ruleOf("credentials", 5, func(c *Config) { c.Match.Headers = map[string]match.Value{"authorization": {Text: "basic *"}} }),
		ruleOf("who", 5, func(c *Config) { c.Key = []string{"header:authorization", "query:a"} }))
	setOf := func(list ...Config) *Set {
		set, err := New(list, Defaults{}, newTally)
		must(t, err)
		return set
	}
	var alone []*Set
	for _, c := range all {
		alone = append(alone, setOf(c))
	}
	var d Decision
	ask := func(set *Set, q *message.Request) (about []string, ok bool) {
		d.Reset()
		d.Match(set, nil, []byte("/"), q.Target, []byte("GET"), 0)
		ok = d.AddRules(key.Secret{}, q, netip.MustParseAddr("192.0.2.1"), ip("192.0.2.1")) == nil
		for i, result := range d.Results {
			about = append(about, fmt.Sprint(d.Rules[i].Config.Name, " ", result.Source))
		}
		return about, ok
	}
	together, refused := 0, 0
	for range 100 {
		var some []int
		for range 12 {
			some = append(some, r.IntN(len(all)))
		}
		slices.Sort(some)
		some = slices.Compact(some)
		var list []Config
		for _, i := range some {
			list = append(list, all[i])
		}
		many := setOf(list...)
		for range 40 {
			q := &message.Request{Target: []byte("/?" + text()), Head: *headOf(t, "Cookie: "+text(), "Cookie: "+text(), "Authorization: Basic "+strings.Repeat("YTpi", r.IntN(40)))}
			var want []string
			wantOK := true
			for _, i := range some {
				var about []string
				if about, wantOK = ask(alone[i], q); !wantOK {
					break
				}
				want = append(want, about...)
			}
			got, ok := ask(many, q)
			switch {
			case ok != wantOK || ok && !slices.Equal(got, want):
				t.Fatalf("%s %v: %q %t, want %q %t", q.Target, q.Head.Lines, got, ok, want, wantOK)
			case !ok:
				refused++
			default:
				together += len(got)
			}
		}
	}
	if together < 2000 || refused < 200 {
		t.Errorf("only %d, and %d were refused", together, refused)
	}
}

// BenchmarkLongest is what 30 KB, and as many header lines as there may be, cost that a client has chosen, under one rule, fifty and a thousand: many parameters, one long one, cookies, credentials.
func BenchmarkLongest(b *testing.B) {
	long := func(text string) string { return strings.Repeat(text, 30_000/len(text)) }
	one := func(name string, i int) map[string]match.Value {
		return map[string]match.Value{fmt.Sprint(name, i): {Text: "*"}}
	}
	for _, test := range []struct {
		name, query string
		lines       []string
		change      func(c *Config, i int)
	}{
		{"parameters", long("pagf01=&"), nil, func(c *Config, i int) { c.Match.Query = one("page", i) }},
		{"ampersands", long("&"), nil, func(c *Config, i int) { c.Match.Query = one("page", i) }},
		{"semicolons", long("page1=1;"), nil, func(c *Config, i int) { c.Match.Query = one("page", i) }},
		{"query keys", long("pagf01=&"), nil, func(c *Config, i int) { c.Key = []string{fmt.Sprint("query:page", i)} }},
		{"value", "page=" + long("%61"), nil, func(c *Config, i int) {
			c.Match.Query = map[string]match.Value{"page": {Text: fmt.Sprint("a", i, "*")}}
		}},
		{"cookies", "", []string{"Cookie: " + long("sie=1;")}, func(c *Config, i int) { c.Match.Cookies = one("sid", i) }},
		{"headers", "", slices.Repeat([]string{"X-Condition-X: some value"}, 125), func(c *Config, i int) { c.Match.Headers = one("x-condition-", i) }},
		{"credentials", "", []string{"Authorization: Basic " + long("YTpi")}, func(c *Config, i int) { c.Match.Headers = map[string]match.Value{"authorization": {Text: "Basic *"}} }},
	} {
		for _, n := range []int{1, 50, 1000} {
			b.Run(fmt.Sprintf("%s/rules=%d", test.name, n), func(b *testing.B) {
				var list []Config
				for i := range n {
					list = append(list, ruleOf(fmt.Sprint(i), 5, func(c *Config) { test.change(c, i) }))
				}
				r := newBench(b, list...)
				q := &message.Request{Target: []byte("/?" + test.query), Head: *headOf(b, test.lines...)}
				client, source := netip.MustParseAddr("192.0.2.1"), ip("192.0.2.1")
				b.ReportAllocs()
				for b.Loop() {
					r.d.Reset()
					r.d.Match(r.rules, r.host, r.path, q.Target, r.method, 0)
					r.d.AddRules(key.Secret{}, q, client, source)
				}
			})
		}
	}
}

// BenchmarkKey is what a key costs beside that of a source.
func BenchmarkKey(b *testing.B) {
	q := &message.Request{Host: []byte("example.com"), Path: []byte("/v1/users/7"), Target: []byte("/v1/users/7?lang=en&tenant=acme&page=2"),
		Head: *headOf(b, "Host: example.com", "User-Agent: bench", "Accept: */*", "X-Api-Key: abcdef", "Cookie: theme=dark; session=0123456789abcdef")}
	for _, part := range []string{"source", "header:x-api-key", "cookie:session", "query:tenant", "host", "path:2", "global", "jwt:sub"} {
		b.Run(part, func(b *testing.B) {
			r := newBench(b, ruleOf("r", 5, func(c *Config) { c.Key = []string{part} }))
			client, source := netip.MustParseAddr("192.0.2.1"), ip("192.0.2.1")
			b.ReportAllocs()
			for b.Loop() {
				r.d.Reset()
				if r.d.Match(r.rules, r.host, q.Path, q.Target, r.method, 0); r.d.AddRules(key.Secret{}, q, client, source) != nil {
					b.Fatal("no key")
				}
			}
		})
	}
}
