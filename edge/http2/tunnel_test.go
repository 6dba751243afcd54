package http2_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	frames "golang.org/x/net/http2"

	"sluice/edge/edgetest"
)

// acceptOf is what a server of WebSockets answers to the key in a head (RFC 6455, 4.2.2).
func acceptOf(head string) string {
	_, rest, _ := strings.Cut(head, "\r\nsec-websocket-key: ")
	key, _, _ := strings.Cut(rest, "\r\n")
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func switched(head string) string {
	return "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Protocol: chat\r\nSec-WebSocket-Accept: " + acceptOf(head) + "\r\n\r\n"
}

// startUpgrading is an origin that gives each connection whose request it has answered to serve.
func startUpgrading(t *testing.T, answer func(head string) string, serve func(c net.Conn, r *bufio.Reader)) (url string, heads chan string) {
	t.Helper()
	heads = make(chan string, 64)
	return "http://" + edgetest.ListenEach(t, "tcp4", func(c net.Conn) {
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
		_, _ = io.WriteString(c, answer(head))
		if serve != nil {
			serve(c, r)
		}
	}), heads
}

func echo(c net.Conn, r *bufio.Reader) { _, _ = io.Copy(c, r) }

// connect asks for a WebSocket.
func (f *framesClient) connect(id uint32, more ...string) {
	f.Ask(id, false, append([]string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", "a", ":path", "/chat"}, more...)...)
}

// status waits for the head of an answer.
func (f *framesClient) status(id uint32) string {
	for f.Answers[id] == nil || f.Answers[id].status == "" && !f.Answers[id].over() {
		if !f.read() {
			return "none"
		}
	}
	return f.Answers[id].status
}

// hear waits for so much on a stream.
func (f *framesClient) Hear(id uint32, n int) string {
	for len(f.Answers[id].body) < n && !f.Answers[id].over() && f.read() {
	}
	return string(f.Answers[id].body)
}

// A WebSocket over HTTP/2 is one over HTTP/1.1 to rules and to the origin, whose answer is a success to the client; then both talk until both have
// said that they have done so.
func TestHTTP2Tunnel(t *testing.T) {
	url, heads := startUpgrading(t, switched, echo)
	e := edgetest.Start(t, url, "rules: [{name: r, match: {methods: [GET]}, limit: 2, window: 1h}]")
	f := dialFrames(t, e.OverTLS(edgetest.CertificatesIn(t, t.TempDir())))
	f.connect(1, "sec-websocket-version", "13", "sec-websocket-key", "mine", "sec-websocket-protocol", "chat")
	if s := f.status(1); s != "200" {
		t.Fatalf("%s", f.Answers[1])
	}
	fields := f.Answers[1].fields
	if !strings.HasPrefix(fields["ratelimit"], `"r";r=1`) || fields["sec-websocket-protocol"] != "chat" || fields["sec-websocket-accept"]+fields["upgrade"]+fields["connection"] != "" {
		t.Errorf("%v", fields)
	}
	got := <-heads
	for _, want := range []string{"GET /chat HTTP/1.1\r\nHost: a\r\n", "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", "\r\nsec-websocket-version: 13\r\n", "\r\nsec-websocket-key: ", "\r\nVia: 2.0 sluice\r\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the origin got %q, without %q", got, want)
		}
	}
	if strings.Contains(got, "mine") || strings.Count(got, "ebsocket-key") != 1 || strings.Contains(got, "Transfer-Encoding") {
		t.Errorf("the origin got %q", got)
	}
	for _, text := range []string{"GET / HTTP/1.1\r\n\r\n", "second"} {
		edgetest.Must(t, f.WriteData(1, false, []byte(text)))
	}
	if text := f.Hear(1, 24); text != "GET / HTTP/1.1\r\n\r\nsecond" {
		t.Errorf("%q came back", text)
	}
	if m := e.Metrics(); m["sluice_tunnels"] != 1 || m["sluice_answers_total{code=101,from=origin}"] != 1 || m["sluice_requests_total{rule=r,verdict=pass}"] != 1 {
		t.Errorf("%v", m)
	}
	f.connect(3)
	if s := f.status(3); s != "200" { // another on the same connection
		t.Errorf("%s", f.Answers[3])
	}
	edgetest.Must(t, f.WriteData(1, true, []byte("last")))
	if a := f.Answer(1); !strings.HasSuffix(string(a.body), "secondlast") || !a.whole || a.reset != nil {
		t.Errorf("%v %q", a, a.body)
	}
	edgetest.Must(t, f.WriteData(3, true, nil))
	f.Answer(3)
	f.connect(5)
	if a := f.Answer(5); a.status != "429" {
		t.Errorf("beyond the limit: %v", a)
	}
	if m := e.Rest(); m["sluice_panics_total"] != 0 {
		t.Errorf("%v", m)
	}
	edgetest.Until(t, "no tunnel and no stream is left", func() bool {
		m := e.Metrics()
		return m["sluice_tunnels"] == 0 && m["sluice_http2_streams"] == 0
	})
}

// What is no WebSocket that the edge can pass on is refused, and never answered with a success.
func TestHTTP2NoTunnel(t *testing.T) {
	extended := []string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", "a", ":path", "/chat"}
	with := func(more ...string) []string { return append(append([]string{}, extended...), more...) }
	instead := func(name, value string) []string {
		f := with()
		for i := 0; i < len(f); i += 2 {
			if f[i] == name {
				f[i+1] = value
			}
		}
		return f
	}
	answer := func(text string) func(string) string { return func(string) string { return text } }
	for _, c := range []struct {
		name   string
		fields []string
		answer func(head string) string
		yaml   string
		status string
	}{
		{"another key's answer", extended, func(head string) string { return strings.Replace(switched(head), "Accept: ", "Accept: x", 1) }, "", "502"},
		{"no answer to the key", extended, func(head string) string { return strings.Replace(switched(head), "-Accept", "-Other", 1) }, "", "502"},
		{"another protocol's answer", extended, func(head string) string { return strings.Replace(switched(head), ": WebSocket", ": other", 1) }, "", "502"},
		{"a page in place of a tunnel", extended, answer("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), "", "502"},
		{"nothing in place of a tunnel", extended, answer("HTTP/1.1 204 No Content\r\n\r\n"), "", "502"},
		{"an origin that turns it down", extended, answer("HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno"), "", "403"},
		{"a page of a call of gRPC", with("content-type", "application/grpc"), answer("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), "", "500"},
		{"another protocol", instead(":protocol", "connect-udp"), switched, "", "501"},
		{"no protocol", instead(":protocol", ""), switched, "", "501"},
		{"a protocol with GET", instead(":method", "GET"), switched, "", "400"},
		{"without a path", with()[:8], switched, "", "400"},
		{"a star", instead(":path", "*"), switched, "", "400"},
		{"without an authority", append(with()[:6], ":path", "/chat"), switched, "", "400"},
		{"with a length", with("content-length", "5"), switched, "", "400"},
		{"two protocols", append([]string{":protocol", "websocket"}, extended...), switched, "", "400"},
		{"plain CONNECT", []string{":method", "CONNECT", ":authority", "a:443"}, switched, "", "405"},
		{"a host without tunnels", instead(":authority", "b"), switched, "origins: [{hosts: [a], servers: ['URL']}, {hosts: [b], servers: ['URL'], upgrades: []}]", "501"},
		{"the path for checks", instead(":path", "/check"), switched, "check_path: /check", "400"},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, heads := startUpgrading(t, c.answer, nil)
			e := edgetest.Start(t, url, strings.ReplaceAll(c.yaml, "URL", url))
			f := dialFrames(t, e.OverTLS(edgetest.CertificatesIn(t, t.TempDir())))
			f.Ask(1, false, c.fields...)
			if a := f.Answer(1); a.status != c.status {
				t.Errorf("%v %q", a, a.body)
			}
			if asked := len(heads) > 0; asked != (c.status == "502" || c.status == "403" || c.status == "500") {
				t.Errorf("the origin was asked: %v", asked)
			}
			f.c.Close()
			if m := e.Rest(); m["sluice_tunnels"] != 0 || m["sluice_panics_total"] != 0 {
				t.Errorf("%v", m)
			}
		})
	}
}

// Tunnels are offered only where some origin may be asked for one.
func TestHTTP2TunnelsOffered(t *testing.T) {
	for yaml, want := range map[string]bool{"": true, "origins: [{servers: ['URL'], upgrades: []}]": false, "origins: [{servers: ['h2c://127.0.0.1:9']}]": false} {
		url, _ := startUpgrading(t, switched, echo)
		e := edgetest.Start(t, url, strings.ReplaceAll(yaml, "URL", url))
		f := dialFrames(t, e.OverTLS(edgetest.CertificatesIn(t, t.TempDir())))
		frame, err := f.ReadFrame()
		edgetest.Must(t, err)
		if v, _ := frame.(*frames.SettingsFrame).Value(frames.SettingEnableConnectProtocol); (v == 1) != want {
			t.Errorf("%s: SETTINGS_ENABLE_CONNECT_PROTOCOL is %d", yaml, v)
		}
		if f.connect(1); !want {
			if a := f.Answer(1); a.status != "400" {
				t.Errorf("%s: %v", yaml, a)
			}
		}
	}
}

// What goes through a tunnel waits for the windows of both ends, and arrives whole.
func TestHTTP2TunnelWindows(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	url, _ := startUpgrading(t, switched, func(c net.Conn, r *bufio.Reader) {
		all, _ := io.ReadAll(r)
		_, _ = c.Write(all)
	})
	e := edgetest.Start(t, url, "")
	f := dialFrames(t, e.OverTLS(edgetest.CertificatesIn(t, t.TempDir())))
	f.connect(1)
	if f.status(1) != "200" {
		t.Fatal(f.Answers[1])
	}
	edgetest.Must(t, f.WriteSettingsAck())
	window := map[uint32]int{0: 128 << 10, 1: 16 << 10} // less than there is of all
	take := func() bool {
		frame, err := f.ReadFrame()
		if err != nil {
			return false
		}
		switch frame := frame.(type) {
		case *frames.WindowUpdateFrame:
			window[frame.StreamID] += int(frame.Increment)
		case *frames.DataFrame:
			f.Answers[1].body = append(f.Answers[1].body, frame.Data()...)
			f.Answers[1].whole = frame.StreamEnded()
			edgetest.Must(t, f.WriteWindowUpdate(0, max(1, uint32(len(frame.Data())))))
			edgetest.Must(t, f.WriteWindowUpdate(1, max(1, uint32(len(frame.Data())))))
		}
		return true
	}
	for left := big; len(left) > 0; {
		n := min(len(left), window[0], window[1], 16<<10)
		if n == 0 {
			if !take() {
				t.Fatal("the connection has ended")
			}
			continue
		}
		edgetest.Must(t, f.WriteData(1, n == len(left), left[:n]))
		window[0] -= n
		window[1] -= n
		left = left[n:]
	}
	for !f.Answers[1].whole && take() {
	}
	if !bytes.Equal(f.Answers[1].body, big) {
		t.Errorf("%d bytes came back of %d", len(f.Answers[1].body), len(big))
	}
	e.Rest()
}

// A tunnel that its client resets ends at once, for the origin as well; one that the origin ends may be answered for a while; and one in which nothing
// moves ends after limits.tunnel_timeout.
func TestHTTP2TunnelEnds(t *testing.T) {
	ended := make(chan error, 1)
	for _, c := range []struct {
		name  string
		yaml  string
		serve func(c net.Conn, r *bufio.Reader)
		do    func(f *framesClient)
		reset *frames.ErrCode
	}{
		{"reset", "", func(_ net.Conn, r *bufio.Reader) { _, err := r.ReadByte(); ended <- err }, func(f *framesClient) {
			edgetest.Must(t, f.WriteRSTStream(1, frames.ErrCodeCancel))
		}, nil},
		{"head in a tunnel", "", func(_ net.Conn, r *bufio.Reader) { _, err := r.ReadByte(); ended <- err }, func(f *framesClient) {
			f.Ask(1, true, "x", "y")
			f.Answer(1)
		}, code(frames.ErrCodeProtocol)},
		{"the origin's end", "", func(c net.Conn, r *bufio.Reader) {
			edgetest.Must(t, c.(*net.TCPConn).CloseWrite())
			_, err := r.ReadByte()
			ended <- err
		}, func(f *framesClient) {
			if a := f.Answer(1); !a.whole {
				t.Errorf("%v", a)
			}
			edgetest.Must(t, f.WriteData(1, true, nil))
		}, nil},
		{"nothing moves", "limits: {tunnel_timeout: 1s}", func(_ net.Conn, r *bufio.Reader) { _, err := r.ReadByte(); ended <- err }, func(f *framesClient) {
			for f.Answers[1].reset == nil && f.read() {
			}
		}, code(frames.ErrCodeCancel)},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, _ := startUpgrading(t, switched, c.serve)
			e := edgetest.Start(t, url, c.yaml)
			f := dialFrames(t, e.OverTLS(edgetest.CertificatesIn(t, t.TempDir())))
			f.connect(1)
			if f.status(1) != "200" {
				t.Fatal(f.Answers[1])
			}
			began := time.Now()
			c.do(f)
			if err := <-ended; err == nil {
				t.Error("something came")
			}
			edgetest.Until(t, "it is over", func() bool { return e.Metrics()["sluice_http2_streams"] == 0 })
			if m := e.Rest(); m["sluice_tunnels"] != 0 {
				t.Errorf("%v", m)
			}
			if took := time.Since(began); took > 8*time.Second { // and not after halfOpen
				t.Errorf("it took %v", took)
			}
			if got := f.Answers[1].reset; (got == nil) != (c.reset == nil) || got != nil && *got != *c.reset {
				t.Errorf("%v", f.Answers[1])
			}
			f.Get(3)
			if a := f.Answer(3); a.status == "none" {
				t.Error("its connection has ended")
			}
		})
	}
}

func code(c frames.ErrCode) *frames.ErrCode { return &c }

// An edge that leaves says so, and lets tunnels go on as long as it waits for anybody.
func TestHTTP2TunnelDrain(t *testing.T) {
	url, _ := startUpgrading(t, switched, echo)
	s := edgetest.NewServer(t, edgetest.Parse(t, `origins: [{servers: ["`+url+`"]}]`))
	ln := edgetest.ListenHere(t)
	certificates := edgetest.CertificatesIn(t, t.TempDir())
	done := make(chan error, 1)
	go func() { done <- s.ServeTLS(ln, certificates) }()
	f := dialFrames(t, ln.Addr().String())
	f.connect(1)
	if f.status(1) != "200" {
		t.Fatal(f.Answers[1])
	}
	grace, over := context.WithCancel(context.Background())
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(grace, 0) }()
	for f.goAway == nil && f.read() {
	}
	edgetest.Must(t, f.WriteData(1, false, []byte("hello")))
	if text := f.Hear(1, 5); text != "hello" || *f.goAway != frames.ErrCodeNo {
		t.Errorf("%q after GOAWAY %v", text, f.goAway)
	}
	over()
	f.End()
	if err := <-drained; err == nil || !strings.Contains(err.Error(), "cut") {
		t.Errorf("%v, want an error that connections were cut", err)
	}
	edgetest.Must(t, <-done)
}
