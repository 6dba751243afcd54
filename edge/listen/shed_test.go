package listen_test

import (
	"io"
	"net/netip"
	"testing"
	"time"

	"sluice/edge/control"
	"sluice/edge/edgetest"
)

// A connection of a client that operators allow is not shed for what it has done.
func TestAllowedIsNotShed(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "shed: connection\nrules: [{name: r, limit: 1, mitigation_timeout: 1h}]")
	e.Get("/")
	if resp, _ := e.Get("/"); resp.StatusCode != 429 {
		t.Fatal(resp.StatusCode)
	}
	if answer := e.Raw("GET / HTTP/1.1\r\nHost: a\r\n\r\n"); answer != "" {
		t.Errorf("not shed: %q", answer)
	}
	if _, err := e.List(control.Allow, "127.0.0.0/8", time.Hour, "", control.Operator{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if resp, _ := e.Get("/"); resp.StatusCode != 200 {
		t.Errorf("allowed: %d", resp.StatusCode)
	}
}

// Connections are not closed at accept for a rule that is not about everybody.
func TestShareDoesNotShed(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "shed: connection\nrules: [{name: r, limit: 1, share: 99}]")
	if _, err := e.Block("r", "127.0.0.1", time.Minute, "", control.Operator{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if resp, _ := e.Get("/"); resp.StatusCode != 200 && resp.StatusCode != 429 {
		t.Errorf("%d", resp.StatusCode)
	}
}

// Connections of a prefix that is blocked are closed at accept as those of a source are.
func TestShedOfAPrefix(t *testing.T) {
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), "shed: connection\nrules: [{name: r, limit: 2, window: 1h, mitigation_timeout: 1h, prefixes: [32, {prefix: 24, limit: 3}]}]")
	for i := range byte(4) {
		if served := e.Served(netip.AddrFrom4([4]byte{127, 0, 0, 10 + i})); served != (i < 3) {
			t.Errorf("request %d is served: %t", i, served)
		}
	}
	for source, want := range map[string]bool{"127.0.0.77": true, "127.0.1.77": false} {
		c := e.From(netip.MustParseAddr(source))
		_, _ = io.WriteString(c, edgetest.PlainGet)
		if got, _ := io.ReadAll(c.R); (len(got) == 0) != want {
			t.Errorf("blocked: %s; %s got %q", e.Blocked(), source, got)
		}
	}
}

// The refusal that starts a mitigation closes its connection; after it the source gets no answer until it is lifted.
func TestShedConnections(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	for yaml, closes := range map[string]bool{
		"shed: connection\nrules: [{name: r, limit: 1, window: 1h}]":                                 true,
		"rules: [{name: r, limit: 1, window: 1h}]":                                                   false,
		"shed: connection\nrules: [{name: r, match: {methods: [GET]}, limit: 1, window: 1h}]":        false,
		"shed: connection\nsource: {trust: [127.0.0.0/8]}\nrules: [{name: r, limit: 1, window: 1h}]": false,
		"shed: connection\nrules: [{name: r, limit: 1, window: 1h, mitigation_timeout: 0s}]":         false,
	} {
		e := edgetest.Start(t, o.URL(), yaml)
		c := e.Talk()
		c.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, _ := c.Say("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp.StatusCode != 429 || resp.Close != closes {
			t.Errorf("%s: %d, close %t", yaml, resp.StatusCode, resp.Close)
		}
		if got := e.Raw(edgetest.PlainGet); (got == "") != closes {
			t.Errorf("%s: a new connection got %q", yaml, got)
		}
		if closes {
			now := e.Mitigations(time.Now())
			if len(now) != 1 || e.Metrics()["sluice_connections_refused_total{cap=mitigated}"] == 0 {
				t.Errorf("%v %v", now, e.Metrics())
			}
		}
	}
}
