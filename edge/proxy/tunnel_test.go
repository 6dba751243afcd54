package proxy_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"sluice/edge/edgetest"
)

func TestTunnel(t *testing.T) {
	url, heads := edgetest.StartEcho(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\r\nfirst ")
	e := edgetest.Start(t, url, "rules: [{name: r, limit: 2, window: 1h}]")
	c := e.Talk()
	_, _ = io.WriteString(c, edgetest.UpgradeGet+"early ") // before the answer: kept for the tunnel
	var head string
	for !strings.HasSuffix(head, "\r\n\r\n") {
		line, err := c.R.ReadString('\n')
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
	all, err := io.ReadAll(c.R)
	if want := "first early GET / HTTP/1.1\r\n\r\n"; err != nil || string(all) != want {
		t.Errorf("through the tunnel: %q, %v, want %q", all, err, want)
	}
	if m := e.Rest(); m["sluice_answers_total{code=101,from=origin}"] != 1 || m["sluice_requests_total{rule=r,verdict=pass}"] != 1 {
		t.Errorf("metrics: %v", m)
	}
	for _, o := range e.Upstreams().All {
		if len(o.Idle) > 0 {
			t.Error("the tunnel's connection is kept for others")
		}
	}
}

// A 101 that nobody asked for, or for something else than was asked, is no answer.
func TestUnsolicitedUpgrades(t *testing.T) {
	for _, test := range []struct{ name, yaml, request, Answer, status string }{
		{"not asked", "", edgetest.PlainGet, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", "502"},
		{"another protocol", "", edgetest.UpgradeGet, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n", "502"},
		{"no protocol", "", edgetest.UpgradeGet, "HTTP/1.1 101 Switching Protocols\r\n\r\n", "502"},
		{"HTTP/1.0", "", edgetest.UpgradeGet, "HTTP/1.0 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", "502"},
		{"turned down", "", strings.Replace(edgetest.UpgradeGet, "keep-alive", "close", 1), "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", "403"},
		{"h2c", "", strings.Replace(edgetest.UpgradeGet, "WebSocket", "h2c", 1), "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", "502"},
	} {
		t.Run(test.name, func(t *testing.T) {
			url, _ := edgetest.StartEcho(t, test.Answer)
			e := edgetest.Start(t, url, test.yaml)
			resp, _ := e.Talk().Say(test.request)
			if resp.Status[:3] != test.status {
				t.Errorf("%s, want %s", resp.Status, test.status)
			}
			e.Rest()
		})
	}
}

// A wish to switch that is not granted here ends here: the request is an ordinary one.
func TestUpgradesNotPassedOn(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "origins: [{servers: ['"+o.URL()+"'], upgrades: []}]")
	for _, request := range []string{
		edgetest.UpgradeGet,
		strings.Replace(edgetest.UpgradeGet, "GET", "POST", 1),
		strings.Replace(edgetest.UpgradeGet, "Upgrade: WebSocket", "Upgrade: h2c", 1),
		strings.Replace(edgetest.UpgradeGet, "keep-alive, Upgrade", "keep-alive", 1),
	} {
		if resp, body := e.Talk().Say(request); resp.StatusCode != 200 || body != "hello" {
			t.Errorf("%q: %d", request, resp.StatusCode)
		}
	}
	for _, got := range o.Requests() {
		if strings.Contains(got, "pgrade") {
			t.Errorf("the origin got %q", got)
		}
	}
}

// Who asks to switch and is answered otherwise has asked an ordinary question: its connection to the origin serves the next request. Else a
// header would be enough to have a connection made for each of them, and hundreds kept.
func TestUpgradesTurnedDown(t *testing.T) {
	for _, answer := range []string{edgetest.Hello(0, ""), "HTTP/1.1 426 Upgrade Required\r\nUpgrade: HTTP/2.0\r\nContent-Length: 0\r\n\r\n"} {
		o := edgetest.StartRecorder(t, func(int, string) string { return answer })
		e := edgetest.Start(t, o.URL(), "")
		c := e.Talk()
		for i := range 600 {
			request := edgetest.UpgradeGet
			if i%2 == 1 {
				request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
			}
			if resp, _ := c.Say(request); resp.StatusCode >= 500 {
				t.Fatalf("request %d: %s", i, resp.Status)
			}
			e.Rest() // a connection is given back after the client has the last byte
		}
		if n := o.Connections(); n != 1 {
			t.Errorf("%.12s: %d connections to the origin for 600 requests, one after the other, want 1", answer, n)
		}
	}
}
