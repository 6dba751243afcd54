// Package rulestest has every field of a rule, for tests that a field must not be forgotten by: how
// it is written otherwise than by default, and what becomes of counts and blocks when it is
// changed. Who adds a field says both here.
package rulestest

import (
	"net/netip"
	"reflect"
	"time"

	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/edge/rules"
	"sluice/edge/rules/descriptors"
	"sluice/edge/rules/match"
)

// Written makes a field of a rule another than by default, as files may have it.
var Written = map[string]func(*rules.Config){
	"Name":          func(c *rules.Config) { c.Name = "other" },
	"Match.Hosts":   func(c *rules.Config) { c.Match.Hosts = []string{"a.example", "*.b.example"} },
	"Match.Path":    func(c *rules.Config) { c.Match.Path = "/login/*" },
	"Match.Methods": func(c *rules.Config) { c.Match.Methods = []string{"GET", "POST"} },
	"Match.Sources": func(c *rules.Config) {
		c.Match.Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"),
			netip.MustParsePrefix("2001:db8::/48")}
	},
	"Match.Headers": func(c *rules.Config) {
		c.Match.Headers = map[string]match.Value{"x-a": {Text: "*"}, "x-b": {Text: "b"},
			"x-c": {Text: "c*"}, "x-d": {Text: ""}, "x-e": {Contains: []string{"e", "f"}},
			"x-f": {OneOf: []string{"~f"}}, "x-g": {Text: "~^g+$"}}
	},
	"Match.Query": func(c *rules.Config) {
		c.Match.Query = map[string]match.Value{"A": {Text: "*"}, "b": {Text: "1"}}
	},
	"Match.Cookies": func(c *rules.Config) {
		c.Match.Cookies = map[string]match.Value{"Sid": {Text: ""}, "b": {Text: "1*"}}
	},
	"Match.Not": func(c *rules.Config) {
		c.Match.Not = &match.Config{Hosts: []string{"*.a.example"}, Path: "/b/*",
			Methods: []string{"PUT"},
			Sources: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/32")},
			Headers: map[string]match.Value{"x-a": {Text: "*"}},
			Query:   map[string]match.Value{"q": {}},
			Cookies: map[string]match.Value{"c": {Suffix: []string{"d"}}}, Plans: []string{"pro"}}
	},
	"Response.Headers": func(c *rules.Config) {
		c.Response.Headers = map[string]string{"X-Why": "{{origin}}, {{retry_after}}"}
	},
	"Match.Paths": func(c *rules.Config) {
		c.Match.Not = &match.Config{}
		for _, path := range []string{"/b/*", "~[.]png$"} {
			if err := c.Match.Not.AddPath(path); err != nil {
				panic(err)
			}
		}
	},
	"Match.Descriptors": func(c *rules.Config) {
		c.Match.Descriptors = &descriptors.Pattern{Domain: "d",
			Entries: []descriptors.Entry{{Key: "user", Value: "a*"}, {Key: "remote_address"}}}
	},
	"Key":               func(c *rules.Config) { c.Key = []string{"header:x-api-key", "source"} },
	"Limit":             func(c *rules.Config) { c.Limit = 7 },
	"Window":            func(c *rules.Config) { c.Window = rules.Duration(3 * time.Second) },
	"SubWindows":        func(c *rules.Config) { c.SubWindows = 4 },
	"Estimate":          func(c *rules.Config) { c.Estimate = new(algorithm.Lower) },
	"MitigationTimeout": func(c *rules.Config) { c.MitigationTimeout = rules.Duration(2 * time.Hour) },
	"Escalate":          func(c *rules.Config) { c.Escalate = []rules.Duration{rules.Duration(time.Hour)} },
	"EscalateWithin":    func(c *rules.Config) { c.EscalateWithin = rules.Duration(time.Minute) },
	"Mode":              func(c *rules.Config) { c.Mode = rules.Shadow },
	"FirstSight":        func(c *rules.Config) { c.FirstSight = limiter.Wait },
	"OnStoreFailure":    func(c *rules.Config) { c.OnStoreFailure = limiter.Closed },
	"Count.Statuses":    func(c *rules.Config) { c.Count.Statuses = []int{401, 403} },
	"Share":             func(c *rules.Config) { c.Share = 25 },
	"ShowKey":           func(c *rules.Config) { c.ShowKey, c.Key = 4, []string{"header:A"} },
	"Check":             func(c *rules.Config) { c.Check, c.Algorithm = limiter.Sync, rules.Exact },
	"Count.Refused":     func(c *rules.Config) { c.Count.Refused = true },
	"Windows": func(c *rules.Config) {
		c.Windows = []rules.Window{{Limit: 10, Window: rules.Duration(time.Second)},
			{Limit: 1000, Window: rules.Duration(time.Hour)}}
	},
	"Prefixes": func(c *rules.Config) {
		c.Prefixes = []rules.Prefix{{Prefix: 32}, {Prefix: 24, Limit: 1000}, {Prefix: 64},
			{Prefix: 48}}
	},
	"Action": func(c *rules.Config) { c.Action = rules.Close },
	"Response.Location": func(c *rules.Config) {
		c.Action, c.Response.Status, c.Response.Location = rules.Redirect, 303,
			"https://busy.example/?from=a"
	},
	"Response.Bodies": func(c *rules.Config) {
		c.Response.Bodies = []rules.Body{{ContentType: "text/html", Body: "<p>no"},
			{ContentType: "text/plain", Body: "no"}}
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
	"Cost.JSON":            func(c *rules.Config) { c.Cost.JSON = []string{"usage.total_tokens"} },
	"Cost.SSE":             func(c *rules.Config) { c.Cost.JSON, c.Cost.SSE = []string{"a", "b"}, true },
	"Cost.Estimate":        func(c *rules.Config) { c.Cost.JSON, c.Cost.Estimate = []string{"a"}, 9 },
	"Tag.Header":           func(c *rules.Config) { c.Action, c.Tag.Header = rules.Tag, "X-Over" },
	"Tag.Value":            func(c *rules.Config) { c.Action, c.Tag.Value = rules.Tag, "yes" },
}

// A Change is one of a field of a rule under traffic, and what becomes of what was counted and of
// who was blocked.
type Change struct {
	From     func(*rules.Config) // what the rule says before, beside the usual; nil: nothing
	To       func(*rules.Config)
	Afresh   bool // numbers mean something else: counters and blocks are others
	Lifts    bool // it allows more
	Tightens bool // the way back allows more
}

// Changes are of every field that a rule has. A field that is not here fails the test: say whether
// it changes what a number of the rule's means, and if so put it into Config.countsBy or the
// identity of counters.
var Changes = map[string][]Change{
	"Name": {{To: func(c *rules.Config) { c.Name = "other" }, Afresh: true}},
	"Match.Hosts": {{To: func(c *rules.Config) { c.Match.Hosts = []string{"a.example"} },
		Afresh: true}},
	"Match.Path": {{To: func(c *rules.Config) { c.Match.Path = "/login" }, Afresh: true},
		{To: func(c *rules.Config) { c.Match.Path = "/*" }}},
	"Match.Methods": {{To: func(c *rules.Config) { c.Match.Methods = []string{"POST"} },
		Afresh: true}},
	"Match.Sources": {{To: func(c *rules.Config) { c.Match.Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} }, Afresh: true}},
	"Response.Headers": {{To: func(c *rules.Config) {
		c.Response.Headers = map[string]string{"X-Why": "so"}
	}}},
	"Match.Paths": {{To: func(c *rules.Config) {
		c.Match.Not = &match.Config{Paths: []string{"/b", "/c/*"}}
	}, Afresh: true}},
	"Match.Headers": {{To: func(c *rules.Config) {
		c.Match.Headers = map[string]match.Value{"x-a": {Text: "*"}}
	}, Afresh: true}},
	"Match.Query": {{To: func(c *rules.Config) {
		c.Match.Query = map[string]match.Value{"a": {Text: "1"}}
	}, Afresh: true}},
	"Match.Cookies": {{To: func(c *rules.Config) {
		c.Match.Cookies = map[string]match.Value{"a": {Text: "1"}}
	}, Afresh: true}},
	"Match.Not": {{To: func(c *rules.Config) { c.Match.Not = &match.Config{Path: "/b"} },
		Afresh: true}},
	"Match.Plans": {{To: func(c *rules.Config) { c.Match.Plans = []string{"free"} }, Afresh: true}},
	"Match.Descriptors": {{To: func(c *rules.Config) { c.Match.Descriptors = aPattern },
		Afresh: true}},
	"Key": {{To: func(c *rules.Config) { c.Key = []string{"header:x-b"} }, Afresh: true}},
	"Limit": {
		{To: func(c *rules.Config) { c.Limit = 5 },
			Lifts: true}, {To: func(c *rules.Config) { c.Limit = 3 }, Tightens: true},
		{To: func(c *rules.Config) { c.Limit = 100_000 }, Afresh: true}, // wider lanes
		{From: aBucket, To: func(c *rules.Config) { c.Limit = 5 }, Afresh: true},
	},
	"Window": {
		{To: func(c *rules.Config) { c.Window = rules.Duration(2 * time.Minute) }, Afresh: true},
		{To: func(c *rules.Config) { c.Window, c.SubWindows = rules.Duration(20*time.Second), 4 }, Afresh: true}, // of the same length as before
	},
	"SubWindows": {{To: func(c *rules.Config) { c.SubWindows = 4 }, Afresh: true}},
	"Estimate":   {{To: func(c *rules.Config) { c.Estimate = new(algorithm.Lower) }}},
	"MitigationTimeout": {
		{To: func(c *rules.Config) { c.MitigationTimeout = rules.Duration(20 * time.Minute) },
			Tightens: true},
		{To: func(c *rules.Config) { c.MitigationTimeout = rules.Duration(time.Minute) },
			Lifts: true},
		{To: func(c *rules.Config) { c.MitigationTimeout = 0 }, Lifts: true},
	},
	"Escalate":       {{To: func(c *rules.Config) { c.Escalate = []rules.Duration{rules.Duration(time.Hour)} }, Tightens: true}},
	"EscalateWithin": {{To: func(c *rules.Config) { c.EscalateWithin = rules.Duration(time.Minute) }}},
	"Mode": {{To: func(c *rules.Config) { c.Mode = rules.Shadow },
		Afresh: true}, {To: func(c *rules.Config) { c.Mode = rules.Off }, Afresh: true}},
	"FirstSight":     {{To: func(c *rules.Config) { c.FirstSight = limiter.Wait }}},
	"OnStoreFailure": {{To: func(c *rules.Config) { c.OnStoreFailure = limiter.Closed }}},
	"Count.Statuses": {{To: func(c *rules.Config) { c.Count.Statuses = []int{401} }, Afresh: true}},
	"Count.Refused":  {{To: func(c *rules.Config) { c.Count.Refused = true }, Afresh: true}},
	"Share": {{From: func(c *rules.Config) { c.Share = 99 },
		To: func(c *rules.Config) { c.Share = 98 }, Lifts: true}},
	"ShowKey": {{From: func(c *rules.Config) { c.Key = []string{"header:A"} },
		To: func(c *rules.Config) { c.ShowKey = 4 }}},
	"Action": {{To: func(c *rules.Config) { c.Action = rules.Close }},
		{To: func(c *rules.Config) { c.Action = rules.Tag }}},
	"Response.Status":      {{To: func(c *rules.Config) { c.Response.Status = 503 }}},
	"Response.ContentType": {{To: func(c *rules.Config) { c.Response.ContentType = "text/plain" }}},
	"Response.Body":        {{To: func(c *rules.Config) { c.Response.Body = "no" }}},
	"Response.Bodies":      {{To: func(c *rules.Config) { c.Response.Bodies = []rules.Body{{ContentType: "text/html", Body: "no"}} }}},
	"Response.Bodies.ContentType": {{From: bodies, To: func(c *rules.Config) {
		c.Response.Bodies = []rules.Body{{ContentType: "text/css", Body: "no"}}
	}}},
	"Response.Bodies.Body": {{From: bodies, To: func(c *rules.Config) {
		c.Response.Bodies = []rules.Body{{ContentType: "text/html", Body: "go away"}}
	}}},
	"Response.Jitter": {{To: func(c *rules.Config) { c.Response.Jitter = 10 }}},
	"Response.Location": {
		{To: func(c *rules.Config) {
			c.Action, c.Response.Status, c.Response.Location = rules.Redirect, 303, "/busy"
		}},
	},
	"Plans": {{From: func(c *rules.Config) { c.Key = []string{"header:x-api-key"} },
		To: func(c *rules.Config) { c.Plans = map[string]rules.PlanLimit{"pro": {Limit: 70}} }}},
	"Plans.Limit": {{From: pro, To: func(c *rules.Config) { c.Plans = map[string]rules.PlanLimit{"pro": {Limit: 71}} }}}, // of a plan that nobody is on here
	"Windows": {{To: func(c *rules.Config) {
		c.Windows = []rules.Window{{Limit: 40, Window: rules.Duration(time.Hour)}}
	}}},
	"Prefixes": {{To: func(c *rules.Config) {
		c.Prefixes = []rules.Prefix{{Prefix: 32}, {Prefix: 24, Limit: 1000}}
	}}},
	"Cost.Units":  {{To: func(c *rules.Config) { c.Cost.Units = 2 }, Afresh: true}},
	"Cost.Bytes":  {{To: func(c *rules.Config) { c.Cost.Bytes = 1024 }, Afresh: true}},
	"Cost.Header": {{To: func(c *rules.Config) { c.Cost.Header = "X-Cost" }, Afresh: true}},
	"Cost.JSON":   {{To: func(c *rules.Config) { c.Cost.JSON = []string{"a"} }, Afresh: true}},
	"Cost.SSE": {{To: func(c *rules.Config) { c.Cost.JSON, c.Cost.SSE = []string{"a"}, true },
		Afresh: true}},
	"Cost.Estimate": {{To: func(c *rules.Config) { c.Cost.JSON, c.Cost.Estimate = []string{"a"}, 9 },
		Afresh: true}},
	"Tag.Header": {{From: tags, To: func(c *rules.Config) { c.Tag.Header = "X-Over" }}},
	"Tag.Value":  {{From: tags, To: func(c *rules.Config) { c.Tag.Value = "yes" }}},
	"Algorithm": {{To: func(c *rules.Config) { c.Algorithm, c.SubWindows = rules.Fixed, 12 },
		Afresh: true}, {To: aBucket, Afresh: true}},
	"Burst": {
		{From: aBucket, To: func(c *rules.Config) { c.Burst = 5 }, Afresh: true},
		{From: func(c *rules.Config) { c.Algorithm, c.Limit, c.Burst = rules.TokenBucket, 1000, 4 }, To: func(c *rules.Config) { c.Burst = 5 }, Afresh: true}, // both drain within a second
	},
	"Check": {{To: func(c *rules.Config) { c.Check, c.Algorithm = limiter.Sync, rules.Exact },
		Afresh: true}},
	"Priority":    {{To: func(c *rules.Config) { c.Priority = rules.Sheddable }}},
	"Queue":       {{To: func(c *rules.Config) { c.Queue = rules.Duration(100 * time.Millisecond) }}},
	"Concurrency": {{To: func(c *rules.Config) { c.Concurrency = 20 }}},
}

var aPattern = &descriptors.Pattern{Domain: "d",
	Entries: []descriptors.Entry{{Key: "user", Value: "a*"}}}

func aBucket(c *rules.Config) { c.Algorithm, c.Burst = rules.TokenBucket, 4 }

func bodies(c *rules.Config) {
	c.Response.Bodies = []rules.Body{{ContentType: "text/html", Body: "no"}}
}

func pro(c *rules.Config) {
	c.Key, c.Plans = []string{"header:x-api-key"}, map[string]rules.PlanLimit{"pro": {Limit: 70}}
}

func tags(c *rules.Config) { c.Action = rules.Tag }

// Fields are the exported fields of a struct, and of structs within.
func Fields(of reflect.Type, under string) (all []string) {
	for i := range of.NumField() {
		switch f := of.Field(i); {
		case !f.IsExported() || f.Name == "Own" || f.Name == "Facts": // they are of modules
		case f.Type.Kind() == reflect.Struct:
			all = append(all, Fields(f.Type, under+f.Name+".")...)
		default:
			all = append(all, under+f.Name)
		}
	}
	return all
}

// Parts are Fields, and those of what a field may have several of.
func Parts(of reflect.Type, under string) (all []string) {
	for i := range of.NumField() {
		switch f := of.Field(i); {
		case !f.IsExported() || f.Name == "Own" || f.Name == "Facts":
		case f.Type.Kind() == reflect.Struct:
			all = append(all, Parts(f.Type, under+f.Name+".")...)
		case f.Type == reflect.TypeFor[map[string]match.Value](): // one value, in several ways
			all = append(all, under+f.Name)
		case (f.Type.Kind() == reflect.Slice || f.Type.Kind() == reflect.Map) &&
			f.Type.Elem().Kind() == reflect.Struct:
			all = append(append(all, under+f.Name), Parts(f.Type.Elem(), under+f.Name+".")...)
		default:
			all = append(all, under+f.Name)
		}
	}
	return all
}
