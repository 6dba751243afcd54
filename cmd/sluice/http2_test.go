//go:build system

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"golang.org/x/net/websocket"
)

// serveHTTP2 starts an edge that speaks HTTP/2 over TLS as well, and returns where.
func serveHTTP2(t *testing.T, origin, cert, key, yaml string, args ...string) (p *process, secure string) {
	t.Helper()
	secure = freePort(t)
	return start(t, origin, append(args, "--config", write(t, fmt.Sprintf("listen_tls: %q\ntls: {certificate: %s, key: %s}\n%s", secure, cert, key, yaml)))...), secure
}

// startTalkers is an origin that says hello, and echoes on WebSockets.
func startTalkers(t *testing.T) (url string, asked *atomic.Int64) {
	asked = new(atomic.Int64)
	mux := http.NewServeMux()
	mux.Handle("/ws", websocket.Handler(func(c *websocket.Conn) {
		defer c.Close() // which says goodbye
		_, _ = io.Copy(c, c)
	}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		asked.Add(1)
		fmt.Fprint(w, "hello ", n)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL, asked
}

// A client is a program that speaks HTTP/2, and what it says when all went well.
var clients = []struct {
	name     string
	args     []string // of the program; URL and PORT stand for the edge
	says     string   // so many times
	times    int
	requests int
}{
	{"curl", []string{"curl", "-sk", "--http2", "-Z", "--parallel-max", "20", "-o", "/dev/null", "-w", `%{http_version} %{http_code}\n`, "URL/[1-40]"}, "2 200\n", 40, 40},
	{"curl, a body", []string{"curl", "-sk", "--http2", "--data-binary", "@BODY", "URL/"}, "hello 300000", 1, 1},
	{"nghttp", []string{"nghttp", "-nv", "--no-verify-peer", "-m", "40", "URL/"}, ":status: 200", 40, 40},
	{"h2load", []string{"h2load", "-n", "2000", "-c", "4", "-m", "32", "URL/"}, "2000 succeeded, 0 failed, 0 errored, 0 timeout", 1, 2000},
	{"node", []string{"node", "-e", `
const client = require('http2').connect('URL', {rejectUnauthorized: false});
let left = 21;
const over = () => --left || client.close();
for (let i = 0; i < 20; i++) {
  const r = client.request({':path': '/' + i, ':method': 'POST'});
  r.on('response', h => console.log('node', h[':status'])).on('end', over).resume();
  r.end('x'.repeat(i * 5000));
}
client.on('remoteSettings', s => {
  const r = client.request({':method': 'CONNECT', ':protocol': 'websocket', ':path': '/ws', origin: 'URL', 'sec-websocket-version': '13'}), got = [];
  r.on('response', h => { console.log('node', h[':status']); r.write(Buffer.from([0x81, 0x85, 0, 0, 0, 0, ...Buffer.from('hello')])); });
  r.on('data', d => { got.push(d); if (Buffer.concat(got).toString().endsWith('hello')) { console.log('node', s.enableConnectProtocol && 200); r.close(); over(); } });
});`}, "node 200\n", 22, 21},
	{"python", []string{"/usr/bin/python3", "-c", `
import socket, ssl, h2.connection, h2.config, h2.events
context = ssl._create_unverified_context()
context.set_alpn_protocols(['h2'])
s = context.wrap_socket(socket.create_connection(('127.0.0.1', PORT)))
c = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding='utf-8'))
c.initiate_connection()
left = set()
for i in range(20):
    stream = c.get_next_available_stream_id()
    c.send_headers(stream, [(':method', 'POST'), (':scheme', 'https'), (':authority', 'a'), (':path', '/%d' % i)])
    c.send_data(stream, b'x' * 100 * i, end_stream=True)
    left.add(stream)
while left:
    s.sendall(c.data_to_send())
    for e in c.receive_data(s.recv(65536)):
        if isinstance(e, h2.events.ResponseReceived):
            print('python', dict(e.headers)[':status'])
        elif isinstance(e, h2.events.DataReceived):
            c.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
        elif isinstance(e, h2.events.StreamEnded):
            left.remove(e.stream_id)
c.close_connection()
s.sendall(c.data_to_send())`}, "python 200\n", 20, 20},
}

// Clients of many makes speak HTTP/2 with an edge, and each has all of its answers; browsers have WebSockets over it.
func TestHTTP2Clients(t *testing.T) {
	t.Parallel()
	cert, key := newAuthority(t).issue(t, "sluice")
	url, _ := startTalkers(t)
	log := filepath.Join(t.TempDir(), "access.log")
	p, secure := serveHTTP2(t, url, cert, key, "access_log: {file: "+log+"}\nrules: [{name: r, limit: 1000000, window: 1h}]\n")
	_, port, _ := net.SplitHostPort(secure)
	body := write(t, strings.Repeat("0123456789", 30_000))
	count := func() int { n, _ := strconv.Atoi(p.metric("sluice_http2_requests_total")); return n }
	for _, c := range clients {
		before := count()
		args := make([]string, len(c.args))
		for i, arg := range c.args {
			args[i] = strings.NewReplacer("URL", "https://"+secure, "PORT", port, "BODY", body).Replace(arg)
		}
		said, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
		if n := strings.Count(string(said), c.says); err != nil || n != c.times {
			t.Errorf("%s: %v (.ci/needs installs what is missing); %d times %q, want %d; it says\n%.3000s", c.name, err, n, c.says, c.times, said)
		}
		if n := count() - before; n != c.requests {
			t.Errorf("%s: the edge counts %d requests, want %d", c.name, n, c.requests)
		}
	}
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	for range 20 {
		resp, err := (&http.Client{Transport: transport}).Get("https://" + secure)
		must(t, err)
		if text, err := io.ReadAll(resp.Body); err != nil || resp.ProtoMajor != 2 || string(text) != "hello 0" {
			t.Errorf("Go: %v %q %v", resp, text, err)
		}
		resp.Body.Close()
	}
	b := browse(t, chromedp.Flag("ignore-certificate-errors", true))
	b.open("https://" + secure + "/")
	const talk = `new Promise((yes, no) => { const w = new WebSocket('wss://' + location.host + '/ws'); let got = '';
		w.onopen = () => w.send('x'.repeat(200000)); w.onerror = () => no('error');
		w.onmessage = m => { got += m.data; if (got.length >= 200000) w.close(); }; w.onclose = c => yes(got.length + ' ' + c.wasClean); })`
	if said := eval[string](b, talk); said != "200000 true" {
		t.Errorf("Chromium: %q", said)
	}
	p.until("log of two WebSockets", func() bool {
		text, err := os.ReadFile(log)
		must(t, err)
		n := 0
		for line := range strings.Lines(string(text)) {
			var l struct {
				Path, Protocol string
				Status         int
			}
			if json.Unmarshal([]byte(line), &l) == nil && l.Path == "/ws" && l.Protocol == "HTTP/2.0" && l.Status == 101 {
				n++
			}
		}
		return n == 2
	})
}

// An edge that is ended under load gives all that it has taken its answers: what origins have answered has arrived.
func TestHTTP2StreamsOfAnEdgeThatEnds(t *testing.T) {
	t.Parallel()
	cert, key := newAuthority(t).issue(t, "sluice")
	url, asked := startTalkers(t)
	p, secure := serveHTTP2(t, url, cert, key, "rules: [{name: r, limit: 1000000000, window: 1h}]\n")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	load := exec.CommandContext(ctx, "h2load", "-n", "1000000", "-c", "4", "-m", "16", "https://"+secure+"/")
	var said strings.Builder
	load.Stdout = &said
	must(t, load.Start())
	p.until("under load", func() bool { return asked.Load() > 1000 })
	p.stop(syscall.SIGTERM)
	_ = load.Wait()
	arrived := regexp.MustCompile(`status codes: (\d+) 2xx, 0 3xx, 0 4xx, 0 5xx`).FindStringSubmatch(said.String())
	if arrived == nil || arrived[1] != fmt.Sprint(asked.Load()) {
		t.Errorf("origins have answered %d; h2load says\n%s", asked.Load(), said.String())
	}
}
