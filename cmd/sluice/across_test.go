//go:build system

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/pop/across"
)

const peersKey = "peers share this secret"

// peering is two PoPs that list each other, each with nodes of its own.
type peering struct {
	t      *testing.T
	files  map[string][]string
	nodes  map[string]string
	listen map[string][]string // for peers
	edges  map[string][]*process
}

// startPeering starts fra with so many edges and nodes, and ams.
func startPeering(t *testing.T, edges, nodes map[string]int) *peering {
	t.Helper()
	s := &peering{t: t, files: make(map[string][]string), nodes: make(map[string]string), listen: make(map[string][]string), edges: make(map[string][]*process)}
	dir := t.TempDir()
	key := filepath.Join(dir, "peers.secret")
	if err := os.WriteFile(key, []byte(peersKey), 0o600); err != nil {
		t.Fatal(err)
	}
	for pop, n := range edges {
		for range n {
			s.listen[pop] = append(s.listen[pop], freePort(t))
		}
		var list []string
		for range nodes[pop] {
			list = append(list, startMemcached(t))
		}
		s.nodes[pop] = strings.Join(list, ",")
	}
	for pop, other := range map[string]string{"fra": "ams", "ams": "fra"} {
		secret := filepath.Join(dir, pop+".secret")
		if err := os.WriteFile(secret, []byte(popKey+pop), 0o600); err != nil {
			t.Fatal(err)
		}
		for i, listen := range s.listen[pop] {
			file := filepath.Join(dir, fmt.Sprint(pop, i, ".yaml"))
			text := fmt.Sprintf("edge_id: %s%d\nsource: {trust: [127.0.0.0/8]}\nallow: [192.0.2.200]\npop:\n  name: %s\n  secret_file: %s\n  peers: [{name: %s, edges: [\"%s\"]}]\n  peers_listen: %q\n  peers_secret_file: %s\n"+
				"rules: [{name: all, limit: 5, window: 1m, mitigation_timeout: 30m}, {name: tried, mode: shadow, limit: 1}]\n",
				pop, i, pop, secret, other, strings.Join(s.listen[other], `", "`), listen, key)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s.files[pop] = append(s.files[pop], file)
			s.edges[pop] = append(s.edges[pop], nil)
			s.start(pop, i)
		}
		meet(s.edges[pop]...)
	}
	return s
}

func (s *peering) start(pop string, i int) {
	s.t.Helper()
	s.edges[pop][i] = start(s.t, origin(s.t), "--config", s.files[pop][i], "--memcached", s.nodes[pop])
}

// attack has a source blocked at an edge, by this edge's own verdict.
func (s *peering) attack(p *process, source string) {
	s.t.Helper()
	for range 7 {
		if ask("GET", "http://"+p.front+"/", source) == 429 {
			return
		}
	}
	s.t.Fatalf("%s is not blocked", source)
}

// blocked reports whether all edges of a PoP soon have a source blocked by somebody.
func (s *peering) blocked(pop, source, by string) bool {
	return everywhere(s.edges[pop], func(p *process) bool { return p.blockedBy(source) == by })
}

// reported sends an edge a message past all edges of the peer.
func (p *process) sendBlocks(to, secret string, at time.Time, list ...across.Block) (body []byte, mac string) {
	return across.KeyOf([]byte(secret)).Seal(&across.Message{From: "fra", To: to, Edge: "by hand", At: at, Blocks: list})
}

func post(listen string, body []byte, mac string) (int, string) {
	req, _ := http.NewRequest("POST", "http://"+listen+"/v1/blocks", bytes.NewReader(body))
	req.Header.Set("Sluice-Signature", mac)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// A source that one PoP has blocked is refused by the other on its first request there, at every edge; that goes neither back nor on, a PoP
// that was away hears of it when it is back, operators there have the last word, and one word in the file ends all of it.
func TestPeers(t *testing.T) {
	t.Parallel()
	s := startPeering(t, map[string]int{"fra": 3, "ams": 2}, map[string]int{"fra": 2, "ams": 1})
	fra, ams := s.edges["fra"], s.edges["ams"]
	began := time.Now()
	s.attack(fra[0], "198.51.100.7")
	if !s.blocked("ams", "198.51.100.7", "peer") {
		t.Fatalf("not blocked at the other PoP: %s", fra[0].log)
	}
	t.Logf("blocked at all edges of the other PoP after %v", time.Since(began))
	for i, p := range ams {
		if got := ask("GET", "http://"+p.front+"/", "198.51.100.7"); got != 429 {
			t.Errorf("the first request at edge %d of the other PoP: %d", i, got)
		}
		if got := ask("GET", "http://"+p.front+"/", "198.51.100.8"); got != 200 {
			t.Errorf("another source: %d", got)
		}
	}
	if !everywhere(fra[1:], func(p *process) bool { return p.blockedBy("198.51.100.7") == "pop" }) || fra[0].blockedBy("198.51.100.7") != "edge" {
		t.Error("at home it is not the PoP's own")
	}
	if code, out, _ := sluice("blocked", "--admin", ams[1].back, "--by", "peer"); code != 0 || !strings.Contains(out, "198.51.100.7") {
		t.Errorf("sluice blocked --by peer: %d %s", code, out)
	}
	sum := func(edges []*process, name string, want int) (n int) { // what is done may be counted a moment later
		edges[0].until(fmt.Sprint(name, " ", want), func() bool {
			n = 0
			for _, p := range edges {
				var v int
				_, _ = fmt.Sscan(p.metric(name), &v)
				n += v
			}
			return n >= want
		})
		return n
	}
	sent, received := `sluice_peer_blocks_sent_total\{peer="%s",result="sent"\}`, `sluice_peer_blocks_received_total\{peer="%s",result="%s"\}`
	if n := sum(fra, fmt.Sprintf(sent, "ams"), 1); n != 1 {
		t.Errorf("%d blocks were told of", n)
	}
	if n := sum(ams, fmt.Sprintf(received, "fra", "imposed"), 1); n != 1 {
		t.Errorf("%d blocks were imposed", n)
	}

	// It does not go round: what the other PoP has blocked meanwhile comes, and nothing else.
	s.attack(ams[0], "198.51.100.9")
	if !s.blocked("fra", "198.51.100.9", "peer") {
		t.Error("the way back is not there")
	}
	for result, want := range map[string]int{"imposed": 1, "known": 0} {
		if n := sum(fra, fmt.Sprintf(received, "ams", result), want); n != want {
			t.Errorf("%d blocks came that are %s, want %d", n, result, want)
		}
	}
	if n := sum(ams, fmt.Sprintf(sent, "fra"), 1); n != 1 {
		t.Errorf("%d blocks were told of on the way back", n)
	}

	// What is not signed, old, or somebody else's is refused, and a block of a rule that is not here, or looser, is not imposed.
	now := time.Now()
	block := func(source, rule string, limit uint32) across.Block {
		var b across.Block
		if err := b.UnmarshalJSON(fmt.Appendf(nil, `{"source":%q,"rule":%q,"counts":"%s source enforce","limit":%d,"window":60000000000,"start":%q,"end":%q}`,
			source, rule, rule, limit, now.Format(time.RFC3339Nano), now.Add(20*time.Hour).Format(time.RFC3339Nano))); err != nil {
			t.Fatal(err)
		}
		return b
	}
	listen := s.listen["ams"][0]
	for _, test := range []struct {
		what, to, secret string
		at               time.Duration
		block            across.Block
		status           int
		says             string
	}{
		{"signed by a stranger", "ams", "another secret, of others", 0, block("192.0.2.1", "all", 5), 403, "the signature is wrong"},
		{"from an hour ago", "ams", peersKey, -time.Hour, block("192.0.2.1", "all", 5), 403, "its time is too far"},
		{"for another PoP", "lhr", peersKey, 0, block("192.0.2.1", "all", 5), 403, "for another PoP"},
		{"a rule that is not here", "ams", peersKey, 1, block("192.0.2.1", "none", 5), 200, `"no_rule":1`},
		{"a shadow", "ams", peersKey, 2, block("192.0.2.1", "tried", 5), 200, `"no_rule":1`},
		{"a stricter limit", "ams", peersKey, 3, block("192.0.2.1", "all", 4), 200, `"looser":1`},
		{"everybody", "ams", peersKey, 4, block("0.0.0.0/0", "all", 5), 200, `"other_width":1`},
		{"a good one", "ams", peersKey, 5, block("192.0.2.2", "all", 5), 200, `"imposed":1`},
		{"which comes again", "ams", peersKey, 5, block("192.0.2.2", "all", 5), 403, "older than another"},
	} {
		body, mac := ams[0].sendBlocks(test.to, test.secret, now.Add(test.at), test.block)
		if status, text := post(listen, body, mac); status != test.status || !strings.Contains(text, test.says) {
			t.Errorf("%s: %d %s", test.what, status, text)
		}
	}
	if by := ams[0].blockedBy("192.0.2.1"); by != "" {
		t.Errorf("blocked by %s", by)
	}
	_, body := ams[0].admin("GET", "/v1/mitigations?source=192.0.2.2")
	if end := now.Add(31 * time.Minute).UTC().Format("2006-01-02T15:04"); !strings.Contains(body, `"by": "peer"`) || strings.Contains(body, now.Add(20*time.Hour).Format("2006-01-02T15")) {
		t.Errorf("want an end before %s: %s", end, body)
	}

	// Not even where an operator has spoken of just that prefix can a peer block a whole one; and who is allowed stays so.
	for _, method := range []string{"PUT", "DELETE"} {
		if status, _ := ams[0].say(method, "all/203.0.113.0/24", `{"for": "1h"}`); status != 200 {
			t.Errorf("%s: %d", method, status)
		}
	}
	now = time.Now()
	for i, source := range []string{"203.0.113.0/24", "192.0.2.200"} {
		body, mac := ams[0].sendBlocks("ams", peersKey, now.Add(time.Duration(i)), block(source, "all", 5))
		if status, text := post(listen, body, mac); status != 200 {
			t.Errorf("%d %s", status, text)
		}
	}
	for _, source := range []string{"203.0.113.9", "192.0.2.200"} {
		if got := ask("GET", "http://"+ams[0].front+"/", source); got != 200 {
			t.Errorf("%s: %d", source, got)
		}
	}

	// An operator of the PoP that was told lifts it for good, and only there.
	if status, m := ams[1].say("DELETE", "all/198.51.100.7", ""); status != 200 || m.Edges == nil || m.Edges.Have != 2 {
		t.Errorf("%d %+v", status, m)
	}
	if !s.blocked("ams", "198.51.100.7", "") || fra[0].blockedBy("198.51.100.7") != "edge" {
		t.Error("lifted here means lifted here")
	}

	// Away, and back.
	for _, p := range ams {
		p.stop(syscall.SIGTERM)
	}
	s.attack(fra[1], "198.51.100.10")
	fra[1].until("failing to tell", func() bool { return fra[1].metric(`sluice_peer_send_failures_total\{peer="ams"\}`) > "1" })
	fra[1].eventTexts("no edge of PoP ams accepts blocks")
	for i := range ams {
		s.start("ams", i)
	}
	if !s.blocked("ams", "198.51.100.10", "peer") {
		t.Error("what waited has not come")
	}

	// One word, and nothing of it is left.
	for _, file := range s.files["ams"] {
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, bytes.Replace(text, []byte("  peers:"), []byte("  peers_mode: off\n  peers:"), 1), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !s.blocked("ams", "198.51.100.10", "") {
		t.Error("off, and still blocked")
	}
	for _, p := range ams {
		if got := ask("GET", "http://"+p.front+"/", "198.51.100.10"); got != 200 { // the tier has its bit
			t.Errorf("off, and %d", got)
		}
	}
	mbody, mac := ams[0].sendBlocks("ams", peersKey, time.Now().Add(time.Second), block("192.0.2.9", "all", 5))
	if status, text := post(listen, mbody, mac); status != 403 || !strings.Contains(text, "peers_mode is off") {
		t.Errorf("%d %s", status, text)
	}
	for _, list := range s.edges {
		for _, p := range list {
			p.stop(syscall.SIGTERM)
			if strings.Contains(p.log.String(), "takes effect at the next start") {
				t.Error("the switch waits for the next start")
			}
		}
	}
}

// The secret changes while blocks travel, at a reload or a moment later; what is wrong in its file is told and changes nothing.
func TestPeersSecretChanges(t *testing.T) {
	t.Parallel()
	s := startPeering(t, map[string]int{"fra": 1, "ams": 1}, map[string]int{"fra": 1, "ams": 1})
	fra, ams := s.edges["fra"][0], s.edges["ams"][0]
	key := filepath.Join(filepath.Dir(s.files["fra"][0]), "peers.secret") // of both
	const after = "the secret of this year"
	for i, step := range []struct{ text, want string }{
		{"short", "the secret of peers is wrong: the old one stays in use: pop.peers_secret_file: " + key + ": line 1 has less than 16 bytes"},
		{peersKey + "\n" + after + "\n", "pop.peers_secret_file read again"},
		{after + "\n" + peersKey + "\n", "pop.peers_secret_file read again"},
		{after + "\n", "pop.peers_secret_file read again"},
	} {
		said := func(p *process) int { return strings.Count(p.api("GET", "/v1/events", "").text, step.want) }
		before := []int{said(fra), said(ams)}
		if err := os.WriteFile(key, []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := fra.cmd.Process.Signal(syscall.SIGHUP); err != nil { // the other looks by itself
			t.Fatal(err)
		}
		for i, p := range []*process{fra, ams} {
			p.until("telling of it", func() bool { return said(p) > before[i] })
		}
		source := fmt.Sprint("198.51.100.", 10+i)
		s.attack(fra, source)
		if !s.blocked("ams", source, "peer") {
			t.Errorf("step %d: what is blocked does not come", i)
		}
	}
	for _, test := range []struct {
		secret string
		status int
	}{{peersKey, 403}, {after, 200}} {
		body, mac := ams.sendBlocks("ams", test.secret, time.Now())
		if status, text := post(s.listen["ams"][0], body, mac); status != test.status {
			t.Errorf("under %q: %d %s", test.secret, status, text)
		}
	}
	if n := ams.metric(`sluice_peer_messages_refused_total\{reason="signature"\}`); n != "1" {
		t.Errorf("%s messages were refused", n)
	}
}
