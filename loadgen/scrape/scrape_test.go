package scrape

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const exposition = `# HELP sluice_received_total Requests received.
# TYPE sluice_received_total counter
sluice_received_total 10
sluice_answers_total{code="200",from="origin"} 6
sluice_answers_total{code="429",from="limit"} 3
sluice_answers_total{code="400",from="edge"} 1 1700000000000
sluice_aborted_total 0
sluice_origin_requests_total{code="200",origin="http://127.0.0.1:1 {odd} place"} 6
sluice_tier_operations_total{node="a",op="incr",result="done"} 1.2e+01
sluice_tier_operations_total{node="b",op="incr",result="unknown"} 1
sluice_tier_operations_total{node="b",op="get",result="done"} 5
sluice_decision_seconds_bucket{le="+Inf"} 4

what is this
sluice_nothing NaN-sense
`

func TestMetrics(t *testing.T) {
	m := make(Metrics)
	for range 2 { // two edges that say the same
		if err := m.Parse(strings.NewReader(exposition)); err != nil {
			t.Fatal(err)
		}
	}
	f := func(got, want float64) {
		t.Helper()
		if got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	f(m.Sum("sluice_received_total"), 20)
	f(m.Sum("sluice_answers_total"), 20)
	f(m.Sum("sluice_answers_total", "code", "429"), 6)
	f(m.Sum("sluice_answers_total", "from", "origin", "code", "200"), 12)
	f(m.Sum("sluice_answers_total", "from", "origin", "code", "429"), 0)
	f(m.Sum("sluice_answers"), 0)
	f(m.Sum("sluice_origin_requests_total"), 12)
	f(m.Sum("sluice_nothing"), 0)
	if diff := cmp.Diff(map[string]float64{"incr": 26, "get": 10}, m.By("sluice_tier_operations_total", "op")); diff != "" {
		t.Errorf("tier operations (-want +got):\n%s", diff)
	}
	earlier := Metrics{"sluice_received_total": 5}
	f(m.Minus(earlier).Sum("sluice_received_total"), 15)
	f(m.Minus(earlier).Sum("sluice_answers_total"), 20)
}

func TestMemcachedStats(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			var b [64]byte
			n, _ := c.Read(b[:])
			if string(b[:n]) == "stats\r\n" {
				fmt.Fprint(c, "STAT pid 12\r\nSTAT version 1.6.18\r\nSTAT cmd_get 3\r\nSTAT incr_hits 4\r\nSTAT rusage_user 0.25\r\nEND\r\n")
			}
			c.Close()
		}
	}()
	addr := netip.MustParseAddrPort(ln.Addr().String())
	got, err := Memcached(addr)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(NodeStats{"pid": 12, "cmd_get": 3, "incr_hits": 4}, got); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	if n := got.Commands(); n != 7 {
		t.Errorf("%d commands, want 7", n)
	}
	if err := MemcachedAnswers(addr); err == nil {
		t.Error("a server that closes counts as ready")
	}
}
