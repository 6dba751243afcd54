package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"sluice/edge/config"
	"sluice/edge/edgetest/golden"
)

// What is written for each edge, plain and over TLS: the same protocol and cipher, and nothing of TLS where there is none. And where all
// close connections, each by its own means.
func TestConfigurations(t *testing.T) {
	p := &Peers{bed: &bed{dir: "/run/peers", originAt: netip.MustParseAddrPort("127.0.0.1:8000"), pem: "/run/peers/edge.pem"}}
	var b bytes.Buffer
	for _, c := range []struct{ work, nginx, haproxy, sluice string }{
		{"refuse", "nginx", "haproxy", "sluice"},
		{"refuse tls", "nginx", "haproxy", "sluice"},
		{"refuse tls h2", "nginx", "haproxy", "sluice"},
		{"refuse new", "nginx 444", "haproxy reject", "sluice shed"},
	} {
		work := PeerCase{c.work, 64, 1}
		sluice := p.sluice(c.sluice, "127.0.0.1:8001", netip.MustParseAddrPort("127.0.0.1:8002"), work)
		if c, err := config.Parse("sluice.conf", []byte(sluice)); err != nil {
			t.Error(err)
		} else if err := c.Check(); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(&b, "# nginx\n%s\n# HAProxy\n%s\n# Sluice\n%s\n", p.nginx(c.nginx, "127.0.0.1:8001", work), p.haproxy(c.haproxy, "127.0.0.1:8001", work), sluice)
	}
	fmt.Fprintf(&b, "# Caddy\n%s\n", p.caddy("127.0.0.1:8001"))
	golden.Check(t, "configurations.txt", b.Bytes())
}

// Ratios are medians of those within a round, not ratios of medians; and who closes connections is held against who does so too.
func TestPeersText(t *testing.T) {
	c := PeerCase{"proxy tls", 64, 1}
	row := func(edge string, rounds ...PeerFigures) PeerFigures {
		f := PeerFigures{PeerCase: c, Edge: edge, measured: rounds}
		f.settle()
		return f
	}
	rows := []PeerFigures{
		row("nginx", PeerFigures{CPU: 10e-6, P99: 2e-3, Busy: 1}, PeerFigures{CPU: 20e-6, P99: 4e-3, Busy: 0.8}, PeerFigures{CPU: 40e-6, P99: 8e-3, Busy: 0.9}),
		row("sluice", PeerFigures{CPU: 15e-6, P99: 5e-3, Busy: 1}, PeerFigures{CPU: 40e-6, P99: 6e-3, Busy: 1}, PeerFigures{CPU: 40e-6, P99: 20e-3, Busy: 1}),
		row("sluice memcached", PeerFigures{CPU: 30e-6, Tier: 5e-6, P99: 5e-3, Busy: 1}, PeerFigures{CPU: 60e-6, Tier: 8e-6, P99: 6e-3, Busy: 1},
			PeerFigures{CPU: 80e-6, Tier: 6e-6, P99: 20e-3, Busy: 1}),
		row("nginx 444", PeerFigures{CPU: 5e-6, P99: 1e-3, Busy: 1}, PeerFigures{CPU: 5e-6, P99: 1e-3, Busy: 1}, PeerFigures{CPU: 5e-6, P99: 1e-3, Busy: 1}),
		row("sluice shed", PeerFigures{CPU: 4e-6, P99: 2e-3, Busy: 1}, PeerFigures{CPU: 4e-6, P99: 2e-3, Busy: 1}, PeerFigures{CPU: 4e-6, P99: 2e-3, Busy: 1}),
	}
	compare(rows)
	var text, data bytes.Buffer
	versions := []string{"nginx 1.2.3", "Go 1.26"}
	if err := WritePeers(&text, rows, versions); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "peers.txt", text.Bytes())
	e := json.NewEncoder(&data)
	e.SetIndent("", "  ")
	if err := e.Encode(PeersJSON{versions, rows}); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "peers.json", data.Bytes())
}

// Beside another executable of the edge each round gives a ratio, and the middle one counts.
func TestPeersBefore(t *testing.T) {
	rows := []PeerFigures{{Edge: Before, measured: []PeerFigures{{CPU: 10}, {CPU: 20}, {CPU: 10}}}, {Edge: "sluice", measured: []PeerFigures{{CPU: 11}, {CPU: 21}, {CPU: 30}}}}
	compare(rows)
	if got := rows[1].ByBefore; got != 1.1 {
		t.Errorf("%v of before, want 1.1", got)
	}
	var text bytes.Buffer
	if err := WritePeers(&text, rows, nil); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text.String(), "\n")
	if !strings.HasSuffix(lines[0], "/before") || !strings.HasSuffix(lines[1], "1.000") || !strings.HasSuffix(lines[2], "1.100") {
		t.Errorf("the last column is not the ratio:\n%s", &text)
	}
	p := Peers{Sluice: "/bin/sh", Before: "/bin/true", bed: &bed{dir: t.TempDir()}}
	for name, want := range map[string]string{"sluice": "/bin/sh", Before: "/bin/true"} {
		proc, err := p.edge(name, "127.0.0.1:8001", netip.MustParseAddrPort("127.0.0.1:8002"), PeerCase{"proxy", 64, 1})
		if err != nil || proc.Path != want {
			t.Errorf("%s is %v, want %s (%v)", name, proc.Path, want, err)
		}
	}
}
