package geo_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/edge/control"
	"sluice/edge/edgetest"
	"sluice/edge/modules/geo"
	"sluice/edge/modules/geo/geotest"
)

// databases makes two, and the configuration that names them.
func databases(t testing.TB) (yaml, countries string) {
	t.Helper()
	dir := t.TempDir()
	countries, systems := filepath.Join(dir, "country.mmdb"), filepath.Join(dir, "asn.mmdb")
	geotest.Countries(t, countries, map[string]string{"192.0.2.0/24": "DE", "198.51.100.0/24": "FR", "2001:db8::/32": "NO"})
	geotest.Systems(t, systems, map[string]uint32{"192.0.2.0/25": 64500, "2001:db8::/48": 64501})
	return fmt.Sprintf("source: {trust: [127.0.0.1]}\ngeo: {country: %s, asn: %s}\n", countries, systems), countries
}

// A rule may be about countries and autonomous systems. Who is looked up is the client that a trusted proxy names.
func TestMatchGeo(t *testing.T) {
	origin := edgetest.StartRecorder(t, edgetest.Hello).URL()
	yaml, countries := databases(t)
	module := geo.Module(nil)
	e := edgetest.StartUsing(t, origin, yaml+`rules:
- {name: europe, limit: 1000, match: {countries: [DE, FR]}}
- {name: norway, limit: 1000, match: {countries: [NO]}}
- {name: elsewhere, limit: 1000, match: {not: {countries: [DE, FR, NO]}}}
- {name: host, limit: 1000, match: {asns: [64500, AS64501]}}
- {name: no-host, limit: 1000, match: {not: {asns: [64500]}}}
- {name: both, limit: 1000, match: {countries: [DE], asns: [64500], not: {sources: [192.0.2.7]}}}
`, module)
	f := func(client, want string) {
		t.Helper()
		before := verdicts(e)
		e.Get("/", "X-Forwarded-For: "+client)
		var names []string
		for _, rule := range []string{"europe", "norway", "elsewhere", "host", "no-host", "both"} {
			if verdicts(e)[rule] > before[rule] {
				names = append(names, rule)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s is under %s, want %s", client, got, want)
		}
	}
	f("192.0.2.1", "europe host both")
	f("::ffff:192.0.2.1", "europe host both")
	f("192.0.2.7", "europe host")
	f("192.0.2.200", "europe no-host")
	f("198.51.100.1", "europe no-host")
	f("2001:db8::1", "norway host no-host")
	f("2001:db8:1::1", "norway no-host")
	f("203.0.113.1", "elsewhere no-host") // nothing is known of it
	f("127.0.0.1", "elsewhere no-host")

	geotest.Countries(t, countries, map[string]string{"203.0.113.0/24": "FR"})
	module.Reload(t.Context(), nil)()
	f("203.0.113.1", "europe no-host")
	f("192.0.2.1", "elsewhere host")
	edgetest.Must(t, os.WriteFile(countries, []byte("an error page"), 0o600))
	module.Reload(t.Context(), nil)()
	f("203.0.113.1", "europe no-host")
	var state control.State
	if module.State(&state); len(state.Unread) != 1 || state.Unread[0].Field != "geo.country" || state.Unread[0].From != countries {
		t.Errorf("%+v", state.Unread)
	}
}

// verdicts are the requests that each rule has let pass.
func verdicts(e *edgetest.Edge) map[string]float64 {
	n := make(map[string]float64)
	for name, v := range e.Metrics() {
		if rule, is := strings.CutPrefix(name, "sluice_requests_total{rule="); is && strings.HasSuffix(rule, ",verdict=pass}") {
			n[strings.TrimSuffix(rule, ",verdict=pass}")] = v
		}
	}
	return n
}

// The lists deny and allow may have countries and autonomous systems, beside prefixes. Deny goes before.
func TestListGeo(t *testing.T) {
	origin := edgetest.StartRecorder(t, edgetest.Hello).URL()
	yaml, countries := databases(t)
	module := geo.Module(nil)
	e := edgetest.StartUsing(t, origin, yaml+`
deny: [203.0.113.9, "country:FR", "asn:64501"]
allow: ["country:NO", "asn:64500", "country:FR"]
rules: [{name: all, limit: 1, window: 1h}]
`, module)
	f := func(client, want string) {
		t.Helper()
		for _, want := range strings.Fields(want) {
			if answer, _ := e.Get("/", "X-Forwarded-For: "+client); fmt.Sprint(answer.StatusCode) != want {
				t.Errorf("%s: %d, want %s", client, answer.StatusCode, want)
			}
		}
	}
	f("203.0.113.9", "403")
	f("198.51.100.1", "403")          // FR, which is in both
	f("2001:db8::1", "403")           // NO and AS 64501
	f("2001:db8:1::1", "200 200 200") // NO alone
	f("192.0.2.1", "200 200 200")     // AS 64500
	f("::ffff:192.0.2.1", "200 200")  // the same
	f("192.0.2.200", "200 429 429")   // DE, and of no system
	f("203.0.113.1", "200 429")       // nothing is known of it
	geotest.Countries(t, countries, map[string]string{"192.0.2.200/32": "FR"})
	module.Reload(t.Context(), nil)()
	f("192.0.2.200", "403")
	f("2001:db8:1::1", "200 429") // in no country any more; nothing counted while it was allowed
}

// A rule may count by country or autonomous system. Of whom nothing is known, each counts for himself.
func TestKeyGeo(t *testing.T) {
	origin := edgetest.StartRecorder(t, edgetest.Hello).URL()
	yaml, _ := databases(t)
	for _, s := range []struct{ key, clients, want string }{
		{"country", "192.0.2.1 192.0.2.200 198.51.100.1 192.0.2.1", "200 200 200 429"},
		{"country", "203.0.113.1 203.0.113.2 203.0.113.1 203.0.113.1 203.0.113.2", "200 200 200 429 200"},
		{"country", "2001:db8::1 2001:db8:1::1 2001:db8:2::1", "200 200 429"},
		{"asn", "192.0.2.1 ::ffff:192.0.2.2 192.0.2.3 192.0.2.200", "200 200 429 200"},
		{"[country, \"header:X-Key\"]", "192.0.2.1 192.0.2.200 198.51.100.1 192.0.2.1", "200 200 200 429"},
		{"[asn, country]", "192.0.2.1 192.0.2.2 2001:db8::1 192.0.2.3", "200 200 200 429"},
		{"[source, country]", "192.0.2.1 192.0.2.2 192.0.2.1 192.0.2.1", "200 200 200 429"},
	} {
		e := edgetest.StartUsing(t, origin, yaml+"rules: [{name: r, limit: 2, window: 1h, key: "+s.key+"}]\n", geo.Module(nil))
		var got []string
		for _, client := range strings.Fields(s.clients) {
			answer, _ := e.Get("/", "X-Key: k", "X-Forwarded-For: "+client)
			got = append(got, fmt.Sprint(answer.StatusCode))
		}
		if got := strings.Join(got, " "); got != s.want {
			t.Errorf("%s: %s: %s, want %s", s.key, s.clients, got, s.want)
		}
	}
}
