package rules

import (
	"strings"
	"testing"
	"time"

	"sluice/counter"
	"sluice/edge/address"
	"sluice/edge/limiter"
	"sluice/edge/rules/descriptors"
	"sluice/mitigation"
)

// descriptorsOf reads "domain key=value key".
func descriptorsOf(text string) *descriptors.Pattern {
	words := strings.Fields(text)
	d := &descriptors.Pattern{Domain: words[0]}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		d.Entries = append(d.Entries, descriptors.Entry{Key: key, Value: value})
	}
	return d
}

func describedSet(t testing.TB, list ...string) (*Set, error) {
	t.Helper()
	var configs []Config
	for _, text := range list {
		c := Default(strings.ReplaceAll(text, " ", "."), 10)
		c.Match.Descriptors = descriptorsOf(text)
		configs = append(configs, c)
	}
	return New(configs, Defaults{}, func(string) *Tally { return NewTally() })
}

// A rule about descriptors is about no request of HTTP.
func TestDescriptorsOfNoRequest(t *testing.T) {
	s, err := describedSet(t, "d user")
	must(t, err)
	if got := s.index.Find(nil, []byte("a"), []byte("/"), []byte("GET"), false); len(got) != 0 {
		t.Errorf("a request of HTTP is under %v", got[0].Config.Name)
	}
}

func TestTwoRulesAboutOneDescriptor(t *testing.T) {
	if _, err := describedSet(t, "d user", "d user=*"); err == nil || !strings.Contains(err.Error(), "is about the same") {
		t.Errorf("%v", err)
	}
}

// The tier is told of all hits of a call at once: in the smallest reports they would take a round trip for every 256, and other edges would
// admit more meanwhile.
func TestOneReportForACall(t *testing.T) {
	c := Default("r", 10_000)
	c.Match.Descriptors = descriptorsOf("d user")
	s, err := New([]Config{c}, Defaults{}, func(string) *Tally { return NewTally() })
	must(t, err)
	q := descriptors.Descriptor{Entries: []descriptors.Entry{{Key: "user", Value: "a"}}, Hits: 9000}
	var d Decision
	d.AddDescriptor(testSecret, s, address.NewSources(address.Config{IPv4Prefix: 32, IPv6Prefix: 64}), "d", &q)
	table, now := counter.New(counter.Options{Counters: 1 << 10, Tier: true}), time.Unix(1_800_000_000, 0)
	l := limiter.Limiter{Counters: table, Blocks: mitigation.New(1<<10, nil)}
	if l.Decide(&d.Decision, now); d.Refused() {
		t.Fatal("it is refused")
	}
	report, _ := table.Reports().Take(counter.Counter{Rule: d.Results[0].CountedBy(), Source: d.Results[0].Source}, now)
	if report.N != 1 || report.Parts[0].Hits != 9000 && report.Parts[0].Hits>>32 != 9000 {
		t.Errorf("%d parts, the first of %#x", report.N, report.Parts[0].Hits)
	}
}

// Whom a rule counts: the address that is its one open value, else a digest of all values, by which those of another are others.
func TestSourcesOfDescriptors(t *testing.T) {
	s, err := describedSet(t, "d remote_address", "d masked_remote_address", "d remote_address user", "d plan=gold remote_address", "d user")
	must(t, err)
	sources, seen := address.NewSources(address.Config{IPv4Prefix: 32, IPv6Prefix: 64}), make(map[string]string)
	f := func(asked, want string) {
		t.Helper()
		d := descriptorsOf(asked)
		q := descriptors.Descriptor{Entries: d.Entries, Hits: 1}
		var decision Decision
		if i := decision.AddDescriptor(testSecret, s, sources, "d", &q); i != 0 {
			t.Fatalf("%s: result %d", asked, i)
		}
		got := decision.Results[0].Source.String()
		if want == "#" {
			if !strings.HasPrefix(got, "#") || seen[got] != "" {
				t.Errorf("%s counts for %s, as %q", asked, got, seen[got])
			}
			seen[got] = asked
		} else if got != want {
			t.Errorf("%s counts for %s, want %s", asked, got, want)
		}
	}
	f("d remote_address=192.0.2.7", "192.0.2.7")
	f("d remote_address=::ffff:192.0.2.7", "192.0.2.7")
	f("d remote_address=2001:db8::7", "2001:db8::/64")
	f("d masked_remote_address=192.0.2.0/24", "192.0.2.0/24")
	f("d plan=gold remote_address=192.0.2.7", "192.0.2.7")
	f("d remote_address=nowhere", "#")
	f("d remote_address=192.0.2.7 user=a", "#")
	f("d remote_address=192.0.2.7 user=b", "#")
	f("d user=a", "#")
	f("d user=", "#")
	f("d user=192.0.2.7", "#")
}

// Descriptors that count one source under one rule are one result, and a limit that comes with one has a counter apart.
func TestResultsOfDescriptors(t *testing.T) {
	s, err := describedSet(t, "d user")
	must(t, err)
	sources := address.NewSources(address.Config{IPv4Prefix: 32, IPv6Prefix: 64})
	var d Decision
	f := func(q descriptors.Descriptor, at int, hits uint32) {
		t.Helper()
		if got := d.AddDescriptor(testSecret, s, sources, "d", &q); got != at || d.Results[got].Hits != hits {
			t.Errorf("%+v: result %d of %+v, want %d with %d hits", q, got, d.Results, at, hits)
		}
	}
	entries := []descriptors.Entry{{Key: "user", Value: "a"}}
	f(descriptors.Descriptor{Entries: entries, Hits: 2}, 0, 2)
	f(descriptors.Descriptor{Entries: entries, Hits: 3}, 0, 5)
	f(descriptors.Descriptor{Entries: entries, Hits: 1 << 31}, 0, 11) // one more than the limit
	f(descriptors.Descriptor{Entries: entries, Hits: 1, Limit: 1000, Window: time.Hour}, 1, 1)
	f(descriptors.Descriptor{Entries: entries, Hits: 1, Limit: 1001, Window: time.Hour}, 2, 1)
	f(descriptors.Descriptor{Entries: entries, Hits: 0, Limit: 1 << 31, Window: time.Second}, 3, 0)
	for i, want := range []struct {
		limit  uint32
		window time.Duration
	}{1: {1000, time.Hour}, 2: {1001, time.Hour}, 3: {1_000_000_000, time.Second}} {
		if c := d.Results[i].Counter; i > 0 && (c.Limit != want.limit || c.Window != want.window) {
			t.Errorf("result %d counts by %d in %v, want %d in %v", i, c.Limit, c.Window, want.limit, want.window)
		}
	}
	if d.Results[0].Counter != nil {
		t.Errorf("the first result has a limit of its own")
	}
}

// A limit that comes with a descriptor means what its rule's means.
func TestLimitOfDescriptorByTheRulesAlgorithm(t *testing.T) {
	c := Default("r", 10)
	c.Match.Descriptors, c.Algorithm = descriptorsOf("d user"), Fixed
	s, err := New([]Config{c}, Defaults{}, func(string) *Tally { return NewTally() })
	must(t, err)
	var d Decision
	d.AddDescriptor(testSecret, s, address.NewSources(address.Config{IPv4Prefix: 32, IPv6Prefix: 64}), "d", &descriptors.Descriptor{Entries: []descriptors.Entry{{Key: "user", Value: "a"}}, Hits: 1, Limit: 5, Window: time.Minute})
	for at, want := range map[time.Duration]bool{59 * time.Second: true, time.Minute: false} { // the minute of the clock ends
		table := counter.New(counter.Options{})
		ask := []counter.Reservation{{Rule: d.Results[0].Counter, Source: d.Results[0].Source, Hits: 5}}
		minute := time.Unix(1_700_000_040, 0)
		_ = table.Reserve(ask, minute.Add(50*time.Second))
		if v, _ := table.Peek(ask[0].Rule, ask[0].Source, minute.Add(at)); v.Over != want {
			t.Errorf("after %v over: %t, want %t", at, v.Over, want)
		}
		d.Results[0].Reservation = &ask[0]
	}
	d.Sample()
	if _, n, sum := s.Rules[0].Tally.Used.Snapshot(); n != 1 || sum != 1 {
		t.Errorf("%d samples, of %v of the limit together, want one of all of it", n, sum)
	}
}
