package edge

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"sluice/counter"
	"sluice/counter/algorithm"
	"sluice/edge/limiter"
	"sluice/edge/rules"
	"sluice/edge/rules/descriptors"
	"sluice/mitigation"
)

// fieldChange is a change of one field of a rule under traffic, and what becomes of what was counted and of who was blocked.
type fieldChange struct {
	from     func(*rules.Config) // what the rule says before, beside the usual; nil: nothing
	to       func(*rules.Config)
	afresh   bool // numbers mean something else: counters and blocks are others
	lifts    bool // it allows more
	tightens bool // the way back allows more
}

// fieldChanges are of every field that a rule has. A field that is not here fails the test: say whether it changes what a number of the
// rule's means, and if so put it into Config.countsBy or the identity of counters.
var fieldChanges = map[string][]fieldChange{
	"Name":              {{to: func(c *rules.Config) { c.Name = "other" }, afresh: true}},
	"Match.Hosts":       {{to: func(c *rules.Config) { c.Match.Hosts = []string{"a.example"} }, afresh: true}},
	"Match.Path":        {{to: func(c *rules.Config) { c.Match.Path = "/login" }, afresh: true}, {to: func(c *rules.Config) { c.Match.Path = "/*" }}},
	"Match.Methods":     {{to: func(c *rules.Config) { c.Match.Methods = []string{"POST"} }, afresh: true}},
	"Match.Sources":     {{to: func(c *rules.Config) { c.Match.Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} }, afresh: true}},
	"Match.Headers":     {{to: func(c *rules.Config) { c.Match.Headers = map[string]string{"x-a": "*"} }, afresh: true}},
	"Match.Query":       {{to: func(c *rules.Config) { c.Match.Query = map[string]string{"a": "1"} }, afresh: true}},
	"Match.Cookies":     {{to: func(c *rules.Config) { c.Match.Cookies = map[string]string{"a": "1"} }, afresh: true}},
	"Match.Not":         {{to: func(c *rules.Config) { c.Match.Not = &rules.Match{Path: "/b"} }, afresh: true}},
	"Match.Plans":       {{to: func(c *rules.Config) { c.Match.Plans = []string{"free"} }, afresh: true}},
	"Match.Descriptors": {{to: func(c *rules.Config) { c.Match.Descriptors = aPattern }, afresh: true}},
	"Key":               {{to: func(c *rules.Config) { c.Key = []string{"header:x-b"} }, afresh: true}},
	"Limit": {
		{to: func(c *rules.Config) { c.Limit = 5 }, lifts: true}, {to: func(c *rules.Config) { c.Limit = 3 }, tightens: true},
		{to: func(c *rules.Config) { c.Limit = 100_000 }, afresh: true}, // wider lanes
		{from: aBucket, to: func(c *rules.Config) { c.Limit = 5 }, afresh: true},
	},
	"Window": {
		{to: func(c *rules.Config) { c.Window = rules.Duration(2 * time.Minute) }, afresh: true},
		{to: func(c *rules.Config) { c.Window, c.SubWindows = rules.Duration(20*time.Second), 4 }, afresh: true}, // of the same length as before
	},
	"SubWindows": {{to: func(c *rules.Config) { c.SubWindows = 4 }, afresh: true}},
	"Estimate":   {{to: func(c *rules.Config) { c.Estimate = new(algorithm.Lower) }}},
	"MitigationTimeout": {
		{to: func(c *rules.Config) { c.MitigationTimeout = rules.Duration(20 * time.Minute) }, tightens: true},
		{to: func(c *rules.Config) { c.MitigationTimeout = rules.Duration(time.Minute) }, lifts: true},
		{to: func(c *rules.Config) { c.MitigationTimeout = 0 }, lifts: true},
	},
	"Escalate":       {{to: func(c *rules.Config) { c.Escalate = []rules.Duration{rules.Duration(time.Hour)} }, tightens: true}},
	"EscalateWithin": {{to: func(c *rules.Config) { c.EscalateWithin = rules.Duration(time.Minute) }}},
	"Mode":           {{to: func(c *rules.Config) { c.Mode = rules.Shadow }, afresh: true}, {to: func(c *rules.Config) { c.Mode = rules.Off }, afresh: true}},
	"FirstSight":     {{to: func(c *rules.Config) { c.FirstSight = limiter.Wait }}},
	"OnStoreFailure": {{to: func(c *rules.Config) { c.OnStoreFailure = limiter.Closed }}},
	"Count.Statuses": {{to: func(c *rules.Config) { c.Count.Statuses = []int{401} }, afresh: true}},
	"Count.Refused":  {{to: func(c *rules.Config) { c.Count.Refused = true }, afresh: true}},
	"Candidate.Limit": {
		{to: func(c *rules.Config) { c.Candidate.Limit = 2 }},
	},
	"Candidate.Estimate":          {{to: func(c *rules.Config) { c.Candidate.Estimate = new(algorithm.Lower) }}},
	"Candidate.MitigationTimeout": {{to: func(c *rules.Config) { c.Candidate.MitigationTimeout = new(rules.Duration) }}},
	"Share":                       {{from: func(c *rules.Config) { c.Share = 99 }, to: func(c *rules.Config) { c.Share = 98 }, lifts: true}},
	"Action":                      {{to: func(c *rules.Config) { c.Action = rules.Close }}, {to: func(c *rules.Config) { c.Action = rules.Tag }}},
	"Response.Status":             {{to: func(c *rules.Config) { c.Response.Status = 503 }}},
	"Response.ContentType":        {{to: func(c *rules.Config) { c.Response.ContentType = "text/plain" }}},
	"Response.Body":               {{to: func(c *rules.Config) { c.Response.Body = "no" }}},
	"Response.Bodies":             {{to: func(c *rules.Config) { c.Response.Bodies = []rules.Body{{ContentType: "text/html", Body: "no"}} }}},
	"Response.Bodies.ContentType": {{from: bodies, to: func(c *rules.Config) { c.Response.Bodies = []rules.Body{{ContentType: "text/css", Body: "no"}} }}},
	"Response.Bodies.Body":        {{from: bodies, to: func(c *rules.Config) { c.Response.Bodies = []rules.Body{{ContentType: "text/html", Body: "go away"}} }}},
	"Response.Jitter":             {{to: func(c *rules.Config) { c.Response.Jitter = 10 }}},
	"Response.Location": {
		{to: func(c *rules.Config) {
			c.Action, c.Response.Status, c.Response.Location = rules.Redirect, 303, "/busy"
		}},
	},
	"Plans":       {{from: func(c *rules.Config) { c.Key = []string{"header:x-api-key"} }, to: func(c *rules.Config) { c.Plans = map[string]rules.PlanLimit{"pro": {Limit: 70}} }}},
	"Plans.Limit": {{from: pro, to: func(c *rules.Config) { c.Plans = map[string]rules.PlanLimit{"pro": {Limit: 71}} }}}, // of a plan that nobody is on here
	"Windows":     {{to: func(c *rules.Config) { c.Windows = []rules.Window{{Limit: 40, Window: rules.Duration(time.Hour)}} }}},
	"Prefixes":    {{to: func(c *rules.Config) { c.Prefixes = []rules.Prefix{{Prefix: 32}, {Prefix: 24, Limit: 1000}} }}},
	"Cost.Units":  {{to: func(c *rules.Config) { c.Cost.Units = 2 }, afresh: true}},
	"Cost.Bytes":  {{to: func(c *rules.Config) { c.Cost.Bytes = 1024 }, afresh: true}},
	"Cost.Header": {{to: func(c *rules.Config) { c.Cost.Header = "X-Cost" }, afresh: true}},
	"Tag.Header":  {{from: tags, to: func(c *rules.Config) { c.Tag.Header = "X-Over" }}},
	"Tag.Value":   {{from: tags, to: func(c *rules.Config) { c.Tag.Value = "yes" }}},
	"Algorithm":   {{to: func(c *rules.Config) { c.Algorithm, c.SubWindows = rules.Fixed, 12 }, afresh: true}, {to: aBucket, afresh: true}},
	"Burst": {
		{from: aBucket, to: func(c *rules.Config) { c.Burst = 5 }, afresh: true},
		{from: func(c *rules.Config) { c.Algorithm, c.Limit, c.Burst = rules.TokenBucket, 1000, 4 }, to: func(c *rules.Config) { c.Burst = 5 }, afresh: true}, // both drain within a second
	},
	"Check":       {{to: func(c *rules.Config) { c.Check = limiter.Sync }}},
	"Priority":    {{to: func(c *rules.Config) { c.Priority = rules.Sheddable }}},
	"Queue":       {{to: func(c *rules.Config) { c.Queue = rules.Duration(100 * time.Millisecond) }}},
	"Concurrency": {{to: func(c *rules.Config) { c.Concurrency = 20 }}},
}

var aPattern = &descriptors.Pattern{Domain: "d", Entries: []descriptors.Entry{{Key: "user", Value: "a*"}}}

func aBucket(c *rules.Config) { c.Algorithm, c.Burst = rules.TokenBucket, 4 }

func bodies(c *rules.Config) {
	c.Response.Bodies = []rules.Body{{ContentType: "text/html", Body: "no"}}
}

func pro(c *rules.Config) {
	c.Key, c.Plans = []string{"header:x-api-key"}, map[string]rules.PlanLimit{"pro": {Limit: 70}}
}

func tags(c *rules.Config) { c.Action = rules.Tag }

// TestFieldsOfARuleChanged: each field of a rule, changed under traffic and back: either the rule goes on counting, and who was blocked stays
// blocked unless more is allowed, or it begins afresh, and nobody is blocked for numbers that meant something else.
func TestFieldsOfARuleChanged(t *testing.T) {
	fields := fieldsOf(reflect.TypeFor[rules.Config](), "")
	for _, field := range slices.Concat(slices.Collect(maps.Keys(fieldChanges)), slices.Collect(maps.Keys(furtherChanges))) {
		if !slices.Contains(fields, field) {
			t.Errorf("%s is no field of a rule", field)
		}
	}
	for _, field := range fields {
		if fieldChanges[field] == nil && furtherChanges[field] == nil {
			t.Errorf("%s: say in fieldChanges what becomes of counts and blocks when it is changed", field)
		}
		for _, change := range fieldChanges[field] {
			t.Run(field, func(t *testing.T) { change.test(t) })
		}
	}
}

// fieldsOf are the exported fields of a struct, and of structs within, of which it may have several.
func fieldsOf(of reflect.Type, under string) (all []string) {
	for i := range of.NumField() {
		switch f := of.Field(i); {
		case !f.IsExported():
		case f.Type.Kind() == reflect.Struct:
			all = append(all, fieldsOf(f.Type, under+f.Name+".")...)
		case (f.Type.Kind() == reflect.Slice || f.Type.Kind() == reflect.Map) && f.Type.Elem().Kind() == reflect.Struct:
			all = append(append(all, under+f.Name), fieldsOf(f.Type.Elem(), under+f.Name+".")...)
		default:
			all = append(all, under+f.Name)
		}
	}
	return all
}

func (f *fieldChange) test(t *testing.T) {
	before := rules.Default("r", 4)
	before.MitigationTimeout = rules.Duration(10 * time.Minute)
	if f.from != nil {
		f.from(&before)
	}
	after := before
	f.to(&after)
	s := newServer(t, parse(t, "origins: [{servers: ['http://127.0.0.1:9']}]\nplans: {key: header:x-api-key, default: free, store: sqlite:"+t.TempDir()+"/plans.db}\nrules: []"))
	apply := func(r rules.Config) {
		t.Helper()
		c := *s.Config()
		c.Rules = []rules.Config{r}
		must(t, s.Apply(&c))
	}
	of := func(addr string) counter.Source { return s.snap.Load().sources.Of(netip.MustParseAddr(addr)) }
	active, busy, late := of("192.0.2.1"), of("192.0.2.2"), of("192.0.2.3")
	now := time.Now()
	ask := func(source counter.Source) bool {
		r := s.snap.Load().rules.Rules[0]
		var d limiter.Decision
		d.Add(&r.Rule, source)
		s.limiter.Decide(&d, now)
		return d.Verdict == limiter.Passed
	}
	stands := func(what string, counts, busyIs, lateIs bool) {
		t.Helper()
		list := s.snap.Load().rules.Rules
		if len(list) == 0 { // off
			list = []*rules.Rule{{Rule: limiter.Rule{Rule: mitigation.Rule{Counter: new(algorithm.Rule)}}}}
		}
		v, _ := s.limiter.Counters.Peek(list[0].Counter, active, now)
		if want := map[bool]float64{true: 3}[counts]; v.Estimate < want-0.1 || v.Estimate > want {
			t.Errorf("%s: %v of the 3 requests count, want %v", what, v.Estimate, want)
		}
		blocked := func(source counter.Source) bool {
			return !s.limiter.Bits.Until(mitigation.Key{Rule: list[0].Counter.ID, Source: source}, now).IsZero()
		}
		if got := [2]bool{blocked(busy), blocked(late)}; got != [2]bool{busyIs, lateIs} {
			t.Errorf("%s: blocked are %t, want %t", what, got, [2]bool{busyIs, lateIs})
		}
		told := 0
		for _, m := range s.Mitigations(now) {
			if m.Mode != rules.Tried {
				told++
			}
		}
		if want := map[bool]int{true: 1}[busyIs] + map[bool]int{true: 1}[lateIs]; told != want {
			t.Errorf("%s: %d blocks are told of, want %d", what, told, want)
		}
	}
	apply(before)
	for range 3 {
		if !ask(active) {
			t.Fatal("refused within the limit")
		}
	}
	for range 6 {
		ask(busy)
	}
	stands("before", true, true, false)
	apply(after)
	stands("changed", !f.afresh, !f.afresh && !f.lifts, false)
	blocks := after.MitigationTimeout > 0 && !f.afresh
	if blocks { // a verdict under the changed rule
		for range 6 {
			ask(late)
		}
		stands("blocked under the change", true, !f.lifts, true)
	}
	apply(before)
	stands("and back", true, !f.afresh && !f.lifts, blocks && !f.tightens)
	if !ask(active) || ask(active) {
		t.Error("after the way back, of two requests not the first alone is within the limit")
	}
}
