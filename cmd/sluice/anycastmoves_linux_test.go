//go:build system

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/cmd/internal/labtest"
)

// place is a PoP with one edge in a network of its own, behind the router that the test's network is.
type place struct {
	t       *testing.T
	name    string
	net     int // 10.0.NET.2, and the router is 10.0.NET.1
	inside  string
	edge    *exec.Cmd
	folder  string
	socket  string
	written *labtest.Buffer
}

// runHere runs a program of the router's network to its end.
func runHere(t *testing.T, line string) string {
	t.Helper()
	words := strings.Fields(line)
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v (this needs iproute2, util-linux and bird2)\n%s", line, err, out)
	}
	return string(out)
}

// begin starts a program that ends with the test.
func begin(t *testing.T, written io.Writer, env []string, words ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), written, written
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v", words[0], err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

func (p *place) in(words ...string) []string {
	return append([]string{"nsenter", "-t", p.inside, "-n"}, words...)
}

// settle makes the network of a PoP, and starts its BIRD with the example's configuration.
func settle(t *testing.T, name string, n int, written *labtest.Buffer) *place {
	p := &place{t: t, name: name, net: n, folder: t.TempDir(), written: written}
	holder := begin(t, written, nil, "unshare", "-n", "sleep", "300")
	p.inside = fmt.Sprint(holder.Process.Pid)
	eventually(t, "a network", written, func() bool {
		here, _ := os.Readlink("/proc/self/ns/net")
		there, err := os.Readlink("/proc/" + p.inside + "/ns/net")
		return err == nil && there != here
	})
	runHere(t, fmt.Sprintf("ip link add pop%d type veth peer name up netns %s", n, p.inside))
	runHere(t, fmt.Sprintf("ip addr add 10.0.%d.1/24 dev pop%d", n, n))
	runHere(t, fmt.Sprintf("ip link set pop%d up", n))
	for _, line := range []string{"link set lo up", "addr add 192.0.2.1/32 dev lo", fmt.Sprintf("addr add 10.0.%d.2/24 dev up", n), "link set dev up up",
		fmt.Sprintf("route add default via 10.0.%d.1", n)} {
		runHere(t, strings.Join(p.in("ip", line), " "))
	}
	text, err := os.ReadFile("../../deploy/anycast/bird.conf")
	must(t, err)
	own := strings.NewReplacer("198.51.100.11", fmt.Sprintf("10.0.%d.2", n), "198.51.100.1 ", fmt.Sprintf("10.0.%d.1 ", n), "log syslog all;", "").Replace(string(text))
	config := filepath.Join(p.folder, "bird.conf")
	p.socket = filepath.Join(p.folder, "bird.ctl")
	must(t, os.WriteFile(config, []byte(own), 0o600))
	begin(t, written, nil, p.in("bird", "-f", "-c", config, "-s", p.socket, "-P", filepath.Join(p.folder, "pid"))...)
	begin(t, written, nil, p.in("memcached", "-u", "nobody", "-l", "127.0.0.1", "-m", "16")...)
	return p
}

// serve starts the edge, and what announces it.
func (p *place) serve(peer *place, secret string) {
	config := filepath.Join(p.folder, "sluice.yaml")
	must(p.t, os.WriteFile(config, fmt.Appendf(nil, `
listen: "192.0.2.1:80"
admin: "127.0.0.1:8081"
origins: [{servers: ["http://10.0.%d.1:9000"]}]
rules: [{name: everything, limit: 60, window: 1m, mitigation_timeout: 5m}]
pop:
  name: %s
  memcached: ["127.0.0.1:11211"]
  secret_file: %s
  peers: [{name: %s, edges: ["10.0.%d.2:8082"]}]
  peers_listen: "10.0.%d.2:8082"
  peers_secret_file: %s
`, p.net, p.name, secret, peer.name, peer.net, p.net, secret), 0o600))
	p.edge = begin(p.t, p.written, []string{"SLUICE_UNDER_TEST=1"}, p.in(os.Args[0], "--config", config, "--notice", "20s")...)
	begin(p.t, p.written, []string{"BIRDC=birdc -s " + p.socket, "PROTOCOLS=sluice4", "INTERVAL=0.25"}, p.in("../../deploy/anycast/announce.sh")...)
}

func eventually(t *testing.T, what string, written *labtest.Buffer, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not %s after %v; the programs say:\n%s", what, patience, written)
		}
	}
}

// Two PoPs announce one address over BGP to a router: BIRD on all three, and a real edge and memcached in each PoP. While a client is attacking, the
// edge of the nearer PoP is told to end. The route moves before the edge is gone, so no good request is lost; the attacker is refused at the other
// PoP at once, and one that was near its limit has there what is left.
func TestAnycastMoves(t *testing.T) {
	if !labtest.Namespace(t) {
		return
	}
	written := new(labtest.Buffer)
	must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
	secret := write(t, popKey)
	fra, ams := settle(t, "fra1", 1, written), settle(t, "ams1", 2, written)
	folder := t.TempDir()
	config, socket := filepath.Join(folder, "bird.conf"), filepath.Join(folder, "bird.ctl")
	must(t, os.WriteFile(config, []byte(`
router id 10.0.1.1;
protocol device {}
protocol kernel { ipv4 { import none; export all; }; }
protocol bgp fra1 { local 10.0.1.1 as 64511; neighbor 10.0.1.2 as 64512; ipv4 { import all; export none; preference 200; }; }
protocol bgp ams1 { local 10.0.2.1 as 64511; neighbor 10.0.2.2 as 64512; ipv4 { import all; export none; }; }
`), 0o600))
	begin(t, written, nil, "bird", "-f", "-c", config, "-s", socket, "-P", filepath.Join(folder, "pid"))
	for _, p := range []*place{fra, ams} {
		l, err := net.Listen("tcp", fmt.Sprintf("10.0.%d.1:9000", p.net))
		must(t, err)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, p.name) })}
		go func() { _ = server.Serve(l) }()
		t.Cleanup(func() { _ = server.Close() })
	}
	fra.serve(ams, secret)
	ams.serve(fra, secret)

	// ask asks from an address, over a connection of its own: which PoP's origin answered, or the status.
	ask := func(source string) string {
		client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}).DialContext}}
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://192.0.2.1/", nil)
		must(t, err)
		resp, err := client.Do(req)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK {
			return fmt.Sprint(resp.StatusCode)
		}
		return string(text)
	}
	routes := func() int {
		out, _ := exec.Command("birdc", "-s", socket, "show", "route", "for", "192.0.2.1", "all").CombinedOutput()
		return bytes.Count(out, []byte("BGP.as_path"))
	}
	eventually(t, "announced by both PoPs", written, func() bool { return routes() == 2 })
	eventually(t, "answered by the nearer PoP", written, func() bool { return ask("198.18.0.1") == "fra1" })

	const attacker, mover = "198.18.9.9", "198.18.8.8"
	for range 55 {
		if got := ask(mover); got != "fra1" {
			t.Fatalf("near its limit: %s", got)
		}
	}
	eventually(t, "blocked", written, func() bool { return ask(attacker) == "429" })
	// A block is under way for a quarter of a second, and so is the count of who is near its limit.
	told := func(path string) []byte {
		out, _ := exec.Command("nsenter", ams.in("curl", "-s", "http://127.0.0.1:8081"+path)[1:]...).Output()
		return out
	}
	eventually(t, "told to the other PoP", written, func() bool {
		var seen struct{ Rules []struct{ Remaining int } }
		_ = json.Unmarshal(told("/v1/sources/"+mover), &seen)
		return bytes.Contains(told("/metrics"), []byte(`sluice_peer_blocks_received_total{peer="fra1",result="imposed"} 1`)) &&
			len(seen.Rules) == 1 && seen.Rules[0].Remaining <= 5+60/6
	})

	began := time.Now()
	must(t, fra.edge.Process.Signal(syscall.SIGTERM))
	kept, all, moved := 0, 0, time.Duration(0)
	cut := ""                                                                // a request that was under way as the route moved: its packets went to the PoP that does not know its connection
	for at, tick := 0, time.NewTicker(20*time.Millisecond); at < 20; all++ { // some after the route has moved
		switch got := ask(fmt.Sprintf("198.18.1.%d", all%200+1)); got {
		case "ams1":
			if moved == 0 {
				moved = time.Since(began)
			}
			at++
			kept++
		case "fra1":
			kept++
			if cut != "" {
				t.Errorf("a good request before the route moved: %s", cut)
			}
		default:
			if cut != "" || at > 0 || !strings.Contains(got, "connection reset by peer") {
				t.Errorf("a good request after %v: %s", time.Since(began), got)
			}
			cut = got
		}
		if time.Since(began) > patience {
			t.Fatalf("the route has not moved; the programs say:\n%s", written)
		}
		<-tick.C
	}
	if got := ask(attacker); got != "429" {
		t.Errorf("the attacker gets %s at the other PoP", got)
	}
	left := 0
	for range 60 {
		if ask(mover) == "ams1" {
			left++
		}
	}
	if left > 5+60/6 {
		t.Errorf("a source that had 5 left has %d", left)
	}
	if n := routes(); n != 1 {
		t.Errorf("%d routes", n)
	}
	t.Logf("the route moved %v after SIGTERM; %d of %d good requests were answered; a source that had 5 of 60 left had %d", moved.Round(10*time.Millisecond), kept, all, left)
}
