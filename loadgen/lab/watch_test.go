package lab

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/loadgen/judge"
	"sluice/loadgen/scrape"
)

func TestWatcherTellsWhoKnewWhen(t *testing.T) {
	epoch := time.Unix(1700000000, 0)
	at := func(d time.Duration) string { return epoch.Add(d).Format(time.RFC3339Nano) }
	entry := func(source, by string, start, end, learned time.Duration) string {
		return fmt.Sprintf(`{"rule":"default","source":%q,"start":%q,"end":%q,"learned":%q,"by":%q}`,
			source, at(start), at(end), at(learned), by)
	}
	const s = time.Second
	lists := [][]string{ // what each of two edges says, look by look
		{
			"[" + entry("127.1.1.1", "edge", 1*s, 2*s, 1*s) + "," + entry("127.9.9.9", "edge", 1*s, 2*s, 1*s) + "]",
			"[" + entry("127.1.1.1", "edge", 1*s, 2*s, 1*s) + "," + entry("127.2.2.2", "pop", 5*s, 6*s, 5*s) + "," + entry("127.3.3.3", "admin", 5*s, 9*s, 5*s) + "]",
		},
		{"not JSON", "[" + entry("127.1.1.1", "pop", 1*s, 2*s, 1100*time.Millisecond) + "," + entry("127.2.2.2", "pop", 5*s, 6*s, 5200*time.Millisecond) + "]"},
	}
	w := &watcher{client: http.DefaultClient, seen: make(map[sighting]learned)}
	w.edges = append(w.edges, answering(t, func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "[]") })) // of another PoP
	for i := range lists {
		looks := 0
		w.edges = append(w.edges, answering(t, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/mitigations" {
				http.NotFound(rw, r)
				return
			}
			fmt.Fprint(rw, lists[i][looks])
			looks++
		}))
	}
	for range lists[0] {
		for edge := range w.edges {
			w.look(t.Context(), edge)
		}
	}
	got := w.inForce(epoch, map[string]int32{"127.1.1.1": 0, "127.2.2.2": 1, "127.3.3.3": 2})
	want := []judge.InForce{
		{Source: 0, Edge: 1, Start: 1 * s, At: 1 * s, Until: 2 * s},
		{Source: 0, Edge: 2, Start: 1 * s, At: 1100 * time.Millisecond, Until: 2 * s},
		{Source: 1, Edge: 1, Start: 5 * s, At: 5 * s, Until: 6 * s, Total: true},
		{Source: 2, Edge: 1, Start: 5 * s, At: 5 * s, Until: 9 * s, Operator: true},
		{Source: 1, Edge: 2, Start: 5 * s, At: 5200 * time.Millisecond, Until: 6 * s, Total: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("in force (-want +got):\n%s", diff)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestDeltaOfNodes(t *testing.T) {
	before := []NodeDelta{{Name: "memcached/0", Stats: scrape.NodeStats{"cmd_get": 10, "cmd_set": 9}}}
	after := []NodeDelta{{Name: "memcached/0", Stats: scrape.NodeStats{"cmd_get": 15, "cmd_set": 2}}}
	want := []NodeDelta{{Name: "memcached/0", Stats: scrape.NodeStats{"cmd_get": 5, "cmd_set": 2}}} // restarted: its count is new
	if diff := cmp.Diff(want, Delta(before, after)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// answering serves h until the test ends.
func answering(t *testing.T, h http.HandlerFunc) netip.AddrPort {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return netip.MustParseAddrPort(server.Listener.Addr().String())
}
