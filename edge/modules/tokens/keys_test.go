package tokens

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sluice/counter"
	"sluice/edge"
	"sluice/edge/config"
	"sluice/edge/message"
	"sluice/edge/rules"
	"sluice/edge/rules/key"
)

// TestKeysOfOtherVersions: who is counted by a claim is the same source as under versions to which claims were no facts. Edges of both count together
// while a PoP is upgraded, and what is blocked stays so.
func TestKeysOfOtherVersions(t *testing.T) {
	const other = "https://a.example/B=c"
	const nobody = "-" // has no token
	secret, from := key.NewSecret([16]byte{1}), netip.MustParseAddr("192.0.2.1")
	source := counter.SourceOf(from, 32, 64)
	for _, test := range []struct{ key, value, want string }{
		{"jwt:sub", "anna", "#ecebed4b3c8e5c12527526522bbbd557"},
		{"jwt:sub", "", "#d8c119944037bffe3b23a9cff883c7e3"},
		{"jwt:sub", nobody, "#6d1609e873b17e5aa89bba75d0e5bb59"},
		{"jwt:sub host", "anna", "#00d03d6eb934de53d8ffa2b97cfe3bab"},
		{"jwt:sub host", "", "#6173a29f841cc7a13d039ba84953510f"},
		{"jwt:sub host", nobody, "#1b42408f85ab9c1db417e9d45b7c70c4"},
		{"source jwt:" + other, "anna", "#d2ab9b9d94150167799ab36bf854a1c3"},
		{"source jwt:" + other, "", "#f761d1a7e2a8ac1c6cd74852a2ad516a"},
		{"source jwt:" + other, nobody, "#f669356a53e10345c990d503fac3d403"},
	} {
		f := claim()
		f.Find = func(buf []byte, _ *key.View) []byte {
			if test.value == nobody {
				return buf
			}
			buf = appendClaim(buf, other, []byte(test.value))
			return appendClaim(buf, "sub", []byte(test.value))
		}
		var parts []key.Part
		var values []key.Value
		for _, text := range strings.Fields(test.key) {
			p, err := key.Parse(text, f)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, p)
			said := map[string]string{"source": from.String(), "host": "example.com"}
			if p.Fact() != nil {
				said[text] = test.value
			}
			v, err := key.ParseValue(p, said[text], func(netip.Addr) counter.Source { return source })
			if err != nil != (test.value == "" && p.Fact() != nil) {
				t.Fatal(err)
			}
			values = append(values, v)
		}
		got, _, bad := secret.Digest(parts, &key.View{Request: &message.Request{Host: []byte("example.com")}}, source, nil)
		if got.String() != test.want || bad != nil {
			t.Errorf("%s of %q: a request is counted for %v, want %v", test.key, test.value, got, test.want)
		}
		if named, is := secret.DigestOfValues(parts, values); is && test.value == "anna" && named != got {
			t.Errorf("%s: operators name %v, want %v", test.key, named, got)
		}
	}
}

// Rules by claims are the same as under those versions: their JSON, the hash of all of them, and the names and numbers of their counters, of which
// digests are made.
func TestRulesOfOtherVersions(t *testing.T) {
	c, err := config.Parser{Modules: edge.Modules{Module()}.Config()}.Parse("a.yaml", []byte(`jwt: {keys_file: k}
rules:
- {name: user, key: "jwt:sub", limit: 10}
- {name: both, key: ["jwt:Sub", "header:X-A"], limit: 3, match: {path: /a}, windows: [{limit: 9, window: 1h}], cost: 2}
- {name: s, mode: shadow, key: "jwt:https://a.example/B=c", limit: 4, concurrency: 2}
`))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.New(c.Rules, c.RuleDefaults(), func(string) *rules.Tally { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if h := config.Hash(set.Configs()); h != 1164767917290 {
		t.Errorf("their hash is %d", h)
	}
	var got []string
	for r, l := range set.EachLimit() {
		got = append(got, fmt.Sprintf("%d %s %s", l.Counter.ID, l.Counter.Identity(), config.RuleJSON(r.Config)))
		if r.InFlight != nil {
			got = append(got, r.InFlight.Name)
		}
	}
	const both = `{"cost":2,"estimate":"nearest","key":["jwt:Sub","header:X-A"],"limit":3,"match":{"path":"/a"},"name":"both","windows":[{"limit":9,"window":"1h"}]}`
	want := []string{
		`1939019559 user jwt:sub enforce/60000000000/12/16 {"estimate":"nearest","key":["jwt:sub"],"limit":10,"name":"user"}`,
		`2207961277 both jwt:Sub,header:x-a enforce bd6d3d59eda12213/60000000000/12/16 ` + both,
		`3018429871 both jwt:Sub,header:x-a enforce bd6d3d59eda12213/3600000000000/12/16 ` + both,
		`2884038168 s jwt:https://a.example/B=c shadow/60000000000/12/16 {"concurrency":2,"estimate":"nearest","key":["jwt:https://a.example/B=c"],"limit":4,"mode":"shadow","name":"s"}`,
		"s jwt:https://a.example/B=c shadow",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Operators name a claim that no rule counts by, and are told so without it.
func TestLongClaim(t *testing.T) {
	p, err := key.Parse("jwt:sub", claim())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = key.ParseValue(p, strings.Repeat("SECRET", 50), nil); err == nil || err.Error() != "the value of jwt:sub: it is longer than 256 bytes, which no rule counts by" {
		t.Error(err)
	}
}

// A header is the one that is written, whatever its name ends in. Authorization is one like others: beside a
// cookie it is an error, as it is without keys, and not dropped in silence.
func TestHeader(t *testing.T) {
	for text, want := range map[string]string{
		"{keys_file: k}": "authorization", "{keys_file: k, header: Authorization}": "authorization",
		"{keys_file: k, header: X-Authorization}":          "x-authorization",
		"{keys_file: k, header: Authorization, cookie: c}": "header and cookie together",
		"{header: Authorization}":                          "no keys_file",
	} {
		c, err := config.Parser{Modules: edge.Modules{Module()}.Config()}.Parse("a.yaml", []byte("jwt: "+text+"\norigins: [{servers: ['http://127.0.0.1:1']}]"))
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", text, err, want)
			}
		} else if got := string(config.SettingsOf[Settings](c, name).place().Name); got != want {
			t.Errorf("%s: the token is in %s, want %q", text, got, want)
		}
	}
}
