package edge

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
)

const upgradeGet = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: x\r\n\r\n"

// startEcho is an origin that answers the head of every request with answer and then sends back what it gets.
func startEcho(t *testing.T, answer string) (url string, heads chan string) {
	t.Helper()
	ln := listenHere(t)
	heads = make(chan string, 16)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r, head := bufio.NewReader(c), ""
				for !strings.HasSuffix(head, "\r\n\r\n") {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					head += line
				}
				heads <- head
				_, _ = io.WriteString(c, answer)
				_, _ = io.Copy(c, r)
			}()
		}
	}()
	return "http://" + ln.Addr().String(), heads
}

func TestTunnel(t *testing.T) {
	url, heads := startEcho(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\r\nfirst ")
	e := startEdge(t, url, "rules: [{name: r, limit: 2, window: 1h}]")
	c := e.talk()
	_, _ = io.WriteString(c, upgradeGet+"early ") // before the answer: kept for the tunnel
	var head string
	for !strings.HasSuffix(head, "\r\n\r\n") {
		line, err := c.r.ReadString('\n')
		if err != nil {
			t.Fatalf("%q: %v", head, err)
		}
		head += line
	}
	for _, want := range []string{"HTTP/1.1 101 Switching Protocols\r\n", "Connection: Upgrade\r\n", "Upgrade: WebSocket\r\n", "Sec-WebSocket-Accept: y\r\n", "RateLimit: \"r\";r=1;"} {
		if !strings.Contains(head, want) {
			t.Errorf("no %q in %q", want, head)
		}
	}
	if got := <-heads; !strings.Contains(got, "\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n") || !strings.Contains(got, "Sec-WebSocket-Key: x") {
		t.Errorf("the origin got %q", got)
	}
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n")
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	all, err := io.ReadAll(c.r)
	if want := "first early GET / HTTP/1.1\r\n\r\n"; err != nil || string(all) != want {
		t.Errorf("through the tunnel: %q, %v, want %q", all, err, want)
	}
	if m := e.rest(); m["sluice_answers_total{code=101,from=origin}"] != 1 || m["sluice_requests_total{rule=r,verdict=pass}"] != 1 {
		t.Errorf("metrics: %v", m)
	}
	for _, o := range e.Upstreams().All {
		if len(o.Idle) > 0 {
			t.Error("the tunnel's connection is kept for others")
		}
	}
}

// A 101 that nobody asked for, or for something else than was asked, is no answer.
func TestUnaskedUpgrades(t *testing.T) {
	for _, test := range []struct{ name, yaml, request, answer, status string }{
		{"not asked", "", plainGet, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", "502"},
		{"another protocol", "", upgradeGet, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n", "502"},
		{"no protocol", "", upgradeGet, "HTTP/1.1 101 Switching Protocols\r\n\r\n", "502"},
		{"HTTP/1.0", "", upgradeGet, "HTTP/1.0 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", "502"},
		{"turned down", "", strings.Replace(upgradeGet, "keep-alive", "close", 1), "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", "403"},
		{"h2c", "", strings.Replace(upgradeGet, "WebSocket", "h2c", 1), "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", "502"},
	} {
		t.Run(test.name, func(t *testing.T) {
			url, _ := startEcho(t, test.answer)
			e := startEdge(t, url, test.yaml)
			resp, _ := e.talk().say(test.request)
			if resp.Status[:3] != test.status {
				t.Errorf("%s, want %s", resp.Status, test.status)
			}
			e.rest()
		})
	}
}

// A wish to switch that is not granted here ends here: the request is an ordinary one.
func TestUpgradesNotPassedOn(t *testing.T) {
	o := startRecorder(t, hello)
	e := startEdge(t, o.url(), "origins: [{servers: ['"+o.url()+"'], upgrades: []}]")
	for _, request := range []string{
		upgradeGet,
		strings.Replace(upgradeGet, "GET", "POST", 1),
		strings.Replace(upgradeGet, "Upgrade: WebSocket", "Upgrade: h2c", 1),
		strings.Replace(upgradeGet, "keep-alive, Upgrade", "keep-alive", 1),
	} {
		if resp, body := e.talk().say(request); resp.StatusCode != 200 || body != "hello" {
			t.Errorf("%q: %d", request, resp.StatusCode)
		}
	}
	for _, got := range o.requests() {
		if strings.Contains(got, "pgrade") {
			t.Errorf("the origin got %q", got)
		}
	}
}

// Who asks to switch and is answered otherwise has asked an ordinary question: its connection to the origin serves the next request. Else a
// header would be enough to have a connection made for each of them, and hundreds kept.
func TestUpgradesTurnedDown(t *testing.T) {
	for _, answer := range []string{hello(0, ""), "HTTP/1.1 426 Upgrade Required\r\nUpgrade: HTTP/2.0\r\nContent-Length: 0\r\n\r\n"} {
		o := startRecorder(t, func(int, string) string { return answer })
		e := startEdge(t, o.url(), "")
		c := e.talk()
		for i := range 600 {
			request := upgradeGet
			if i%2 == 1 {
				request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
			}
			if resp, _ := c.say(request); resp.StatusCode >= 500 {
				t.Fatalf("request %d: %s", i, resp.Status)
			}
			e.rest() // a connection is given back after the client has the last byte
		}
		if n := o.connections(); n != 1 {
			t.Errorf("%.12s: %d connections to the origin for 600 requests, one after the other, want 1", answer, n)
		}
	}
}
