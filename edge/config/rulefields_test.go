package config

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/edge/rules"
	"sluice/edge/rules/descriptors"
)

// Every field of a rule comes back as it was written, and changes what edges compare: one that reading or writing forgets would be lost
// by a change of the rule.
func TestEveryFieldOfARule(t *testing.T) {
	lower := algorithm.Lower
	changes := map[string]func(*rules.Config){
		"Name":          func(c *rules.Config) { c.Name = "other" },
		"Match.Hosts":   func(c *rules.Config) { c.Match.Hosts = []string{"a.example", "*.b.example"} },
		"Match.Path":    func(c *rules.Config) { c.Match.Path = "/login/*" },
		"Match.Methods": func(c *rules.Config) { c.Match.Methods = []string{"GET", "POST"} },
		"Match.Sources": func(c *rules.Config) {
			c.Match.Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/48")}
		},
		"Match.Headers": func(c *rules.Config) {
			c.Match.Headers = map[string]string{"x-a": "*", "x-b": "b", "x-c": "c*", "x-d": ""}
		},
		"Match.Query":   func(c *rules.Config) { c.Match.Query = map[string]string{"A": "*", "b": "1"} },
		"Match.Cookies": func(c *rules.Config) { c.Match.Cookies = map[string]string{"Sid": "", "b": "1*"} },
		"Match.Not": func(c *rules.Config) {
			c.Match.Not = &rules.Match{Hosts: []string{"*.a.example"}, Path: "/b/*", Methods: []string{"PUT"}, Sources: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/32")},
				Headers: map[string]string{"x-a": "*"}, Query: map[string]string{"q": ""}, Cookies: map[string]string{"c": "d*"}, Plans: []string{"pro"}}
		},
		"Match.Descriptors": func(c *rules.Config) {
			c.Match.Descriptors = &descriptors.Pattern{Domain: "d", Entries: []descriptors.Entry{{Key: "user", Value: "a*"}, {Key: "remote_address"}}}
		},
		"Key":                         func(c *rules.Config) { c.Key = []string{"header:x-api-key", "source"} },
		"Limit":                       func(c *rules.Config) { c.Limit = 7 },
		"Window":                      func(c *rules.Config) { c.Window = rules.Duration(3 * time.Second) },
		"SubWindows":                  func(c *rules.Config) { c.SubWindows = 4 },
		"Estimate":                    func(c *rules.Config) { c.Estimate = &lower },
		"MitigationTimeout":           func(c *rules.Config) { c.MitigationTimeout = rules.Duration(2 * time.Hour) },
		"Escalate":                    func(c *rules.Config) { c.Escalate = []rules.Duration{rules.Duration(time.Hour)} },
		"EscalateWithin":              func(c *rules.Config) { c.EscalateWithin = rules.Duration(time.Minute) },
		"Mode":                        func(c *rules.Config) { c.Mode = rules.Shadow },
		"FirstSight":                  func(c *rules.Config) { c.FirstSight = limiter.Wait },
		"OnStoreFailure":              func(c *rules.Config) { c.OnStoreFailure = limiter.Closed },
		"Count.Statuses":              func(c *rules.Config) { c.Count.Statuses = []int{401, 403} },
		"Candidate.Limit":             func(c *rules.Config) { c.Candidate.Limit = 50 },
		"Candidate.Estimate":          func(c *rules.Config) { c.Candidate.Estimate = &lower },
		"Candidate.MitigationTimeout": func(c *rules.Config) { c.Candidate.MitigationTimeout = new(rules.Duration) },
		"Share":                       func(c *rules.Config) { c.Share = 25 },
		"Check":                       func(c *rules.Config) { c.Check = limiter.Sync },
		"Count.Refused":               func(c *rules.Config) { c.Count.Refused = true },
		"Windows": func(c *rules.Config) {
			c.Windows = []rules.Window{{Limit: 10, Window: rules.Duration(time.Second)}, {Limit: 1000, Window: rules.Duration(time.Hour)}}
		},
		"Prefixes": func(c *rules.Config) {
			c.Prefixes = []rules.Prefix{{Prefix: 32}, {Prefix: 24, Limit: 1000}, {Prefix: 64}, {Prefix: 48}}
		},
		"Action": func(c *rules.Config) { c.Action = rules.Close },
		"Response.Location": func(c *rules.Config) {
			c.Action, c.Response.Status, c.Response.Location = rules.Redirect, 303, "https://busy.example/?from=a"
		},
		"Response.Bodies": func(c *rules.Config) {
			c.Response.Bodies = []rules.Body{{ContentType: "text/html", Body: "<p>no"}, {ContentType: "text/plain", Body: "no"}}
		},
		"Concurrency":          func(c *rules.Config) { c.Concurrency = 20 },
		"Priority":             func(c *rules.Config) { c.Priority = rules.Sheddable },
		"Queue":                func(c *rules.Config) { c.Queue = rules.Duration(100 * time.Millisecond) },
		"Response.Jitter":      func(c *rules.Config) { c.Response.Jitter = 10 },
		"Response.Status":      func(c *rules.Config) { c.Response.Status = 503 },
		"Response.ContentType": func(c *rules.Config) { c.Response.ContentType = "text/plain" },
		"Plans":                func(c *rules.Config) { c.Plans = map[string]rules.PlanLimit{"free": {Limit: 7}, "pro": {Limit: 70}} },
		"Match.Plans":          func(c *rules.Config) { c.Match.Plans = []string{"pro", "free"} },
		"Algorithm":            func(c *rules.Config) { c.Algorithm = rules.Fixed },
		"Burst":                func(c *rules.Config) { c.Algorithm, c.Burst = rules.TokenBucket, 7 },
		"Response.Body":        func(c *rules.Config) { c.Response.Body = "\"no\": {\n" },
		"Cost.Units":           func(c *rules.Config) { c.Cost.Units = 5 },
		"Cost.Bytes":           func(c *rules.Config) { c.Cost.Bytes = 10 << 10 },
		"Cost.Header":          func(c *rules.Config) { c.Cost.Header = "X-Cost" },
		"Tag.Header":           func(c *rules.Config) { c.Action, c.Tag.Header = rules.Tag, "X-Over" },
		"Tag.Value":            func(c *rules.Config) { c.Action, c.Tag.Value = rules.Tag, "yes" },
	}
	for _, field := range leaves(reflect.TypeFor[rules.Config](), "") {
		change := changes[field]
		if change == nil {
			t.Errorf("%s: say here how to change it, and let configfile.go read it, and its JSON have the name that it has there", field)
			continue
		}
		want := rules.Default("r", 100)
		if change(&want); reflect.DeepEqual(want, rules.Default("r", 100)) {
			t.Errorf("%s: the change is none", field)
		}
		text := RuleJSON(want)
		if got, err := ParseRule(want.Name, []byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v\n%s", field, got, err, want, text)
		}
		if n := len(Fields(want)); n > 4 {
			t.Errorf("%s: %d fields are written, with the defaults: %s", field, n, text)
		}
		if standard := []rules.Config{rules.Default("r", 100)}; Hash([]rules.Config{want}) == Hash(standard) || Hash(standard)>>48 != 0 {
			t.Errorf("%s: the hash does not tell it", field)
		}
	}
}

// leaves are the exported fields of a struct, and of structs within.
func leaves(of reflect.Type, under string) (all []string) {
	for i := range of.NumField() {
		switch f := of.Field(i); {
		case !f.IsExported():
		case f.Type.Kind() == reflect.Struct:
			all = append(all, leaves(f.Type, under+f.Name+".")...)
		default:
			all = append(all, under+f.Name)
		}
	}
	return all
}
