package http2_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	frames "golang.org/x/net/http2"

	"sluice/edge/edgetest"
)

// What abuses HTTP/2 ends its connection and is charged to its source; others are served meanwhile, and nothing stays.
func TestHTTP2Abuse(t *testing.T) {
	const most = 12_000 // frames of a flood: so many that are small are read over while the connection lingers, or a reset may take the farewell with it
	var reached atomic.Int64
	origin := edgetest.NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
		}
	})
	for _, c := range []struct {
		name, kind string
		Requests   bool // it makes some, which count
		first      func(f *framesClient)
		flood      func(f *framesClient, i int) error
	}{
		{name: "SETTINGS", kind: "control", flood: func(f *framesClient, _ int) error { return f.WriteSettings() }},
		{name: "PING", kind: "control", flood: func(f *framesClient, _ int) error { return f.WritePing(false, [8]byte{1}) }},
		{name: "PRIORITY", kind: "control", flood: func(f *framesClient, i int) error {
			return f.WritePriority(uint32(2*i+1), frames.PriorityParam{StreamDep: 0})
		}},
		{name: "WINDOW_UPDATE", kind: "control", flood: func(f *framesClient, _ int) error { return f.WriteWindowUpdate(0, 1) }},
		{name: "unknown frames", kind: "control", flood: func(f *framesClient, _ int) error { return f.WriteRawFrame(0x77, 0, 0, nil) }},
		{name: "empty DATA", kind: "control", Requests: true, first: func(f *framesClient) {
			f.Ask(1, false, ":method", "POST", ":scheme", "https", ":authority", "a", ":path", "/")
		}, flood: func(f *framesClient, _ int) error { return f.WriteData(1, false, nil) }},
		{name: "CONTINUATION", kind: "continuation", first: func(f *framesClient) {
			f.head(1, true, false, ":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/")
		}, flood: func(f *framesClient, i int) error {
			return f.WriteContinuation(1, false, f.encode(fmt.Sprint("x-", i), strings.Repeat("y", 100)))
		}},
		{name: "empty CONTINUATION", kind: "continuation", first: func(f *framesClient) {
			f.head(1, true, false, ":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/")
		}, flood: func(f *framesClient, _ int) error { return f.WriteContinuation(1, false, nil) }},
		{name: "rapid reset", kind: "resets", Requests: true, flood: func(f *framesClient, i int) error {
			f.Get(uint32(2*i+1), ":x", "")
			return f.WriteRSTStream(uint32(2*i+1), frames.ErrCodeCancel)
		}},
		{name: "rapid reset of what is admitted", kind: "resets", Requests: true, flood: func(f *framesClient, i int) error {
			f.Ask(uint32(2*i+1), true, ":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/slow")
			return f.WriteRSTStream(uint32(2*i+1), frames.ErrCodeCancel)
		}},
		{name: "made you reset: no window", kind: "resets", Requests: true, flood: func(f *framesClient, i int) error {
			f.Ask(uint32(2*i+1), true, ":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/slow")
			return f.WriteRawFrame(frames.FrameWindowUpdate, 0, uint32(2*i+1), make([]byte, 4))
		}},
		{name: "made you reset: window overflow", kind: "resets", Requests: true, flood: func(f *framesClient, i int) error {
			f.Ask(uint32(2*i+1), true, ":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/slow")
			return f.WriteRawFrame(frames.FrameWindowUpdate, 0, uint32(2*i+1), binary.BigEndian.AppendUint32(nil, 1<<31-1))
		}},
		{name: "made you reset: DATA after the end", kind: "resets", Requests: true, flood: func(f *framesClient, i int) error {
			f.Ask(uint32(2*i+1), true, ":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/slow")
			return f.WriteData(uint32(2*i+1), true, []byte("x"))
		}},
		{name: "made you reset: PRIORITY of itself", kind: "resets", Requests: true, flood: func(f *framesClient, i int) error {
			f.Ask(uint32(2*i+1), true, ":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/slow")
			return f.WritePriority(uint32(2*i+1), frames.PriorityParam{StreamDep: uint32(2*i + 1)})
		}},
		{name: "malformed requests", kind: "resets", Requests: true, flood: func(f *framesClient, i int) error {
			f.Ask(uint32(2*i+1), true, ":method", "GET")
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := edgetest.Start(t, origin, "rules: [{name: r, limit: 10000, window: 1h}]")
			addr := e.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))
			other := edgetest.OverHTTP2(t)
			if resp, _ := edgetest.Ask2(t, other, "GET", "https://"+addr+"/", nil); resp.StatusCode != 200 {
				t.Fatal(resp.Status)
			}
			f := dialFrames(t, addr)
			if c.first != nil {
				c.first(f)
			}
			before := remaining(&e.Caller)
			sent := make(chan int)
			go func() {
				n := 0
				for n < most && c.flood(f, n) == nil {
					n++
				}
				sent <- n
			}()
			f.End()
			f.c.Close()
			frames := <-sent
			if !f.calm {
				t.Errorf("after %d frames the connection ended with %v", frames, f.goAway)
			}
			if resp, _ := edgetest.Ask2(t, other, "GET", "https://"+addr+"/", nil); resp.StatusCode != 200 {
				t.Errorf("another client got %s", resp.Status)
			}
			after := remaining(&e.Caller)
			var had, has int
			_, err1 := fmt.Sscan(before, &had)
			_, err2 := fmt.Sscan(after, &has)
			if charged := had - has - 2; err1 != nil || err2 != nil || charged < 1 || !c.Requests && charged != 1 {
				t.Errorf("%s requests were left, and then %s: %d charged", before, after, charged)
			}
			edgetest.Until(t, "nothing is under way", func() bool { return e.Metrics()["sluice_http2_streams"] == 0 })
			m := e.Metrics()
			if m["sluice_http2_abuse_total{kind="+c.kind+"}"] != 1 || m["sluice_panics_total"] != 0 || m["sluice_http2_streams"] != 0 {
				t.Errorf("metrics %v", m)
			}
		})
	}
}

// Who comes back whenever his connection was ended is charged each time, and blocked at the limit; with shed: connection he is not let in any more.
func TestHTTP2AbuseAgain(t *testing.T) {
	const limit = 5
	e := edgetest.Start(t, edgetest.StartRecorder(t, edgetest.Hello).URL(), fmt.Sprintf("shed: connection\nrules: [{name: r, limit: %d, window: 1h, mitigation_timeout: 1h}]", limit))
	addr := e.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))
	ended := 0
	for ; ended < 4*limit; ended++ {
		nc, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			break
		}
		f := speakFrames(t, nc)
		f.head(1, true, false, ":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/")
		for range 40 {
			_ = f.WriteContinuation(1, false, nil)
		}
		if f.End(); !f.calm {
			t.Fatalf("connection %d ended with %v", ended+1, f.goAway)
		}
		nc.Close()
	}
	if ended != limit+1 {
		t.Errorf("%d connections were ended before the source was turned away, want %d", ended, limit+1)
	}
}

// A head that is too large is refused, and its connection goes on; one that a few bytes make enormous, or that cannot be read, ends it.
func TestHTTP2HeadBombs(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "rules: [{name: r, limit: 100, window: 1h}]")
	addr := e.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))
	f := dialFrames(t, addr)
	f.Get(1, "x-bomb", strings.Repeat("y", 3900))
	if a := f.Answer(1); a.status != "200" {
		t.Fatal(a)
	}
	bomb := func(times int) []byte {
		b := append(f.encode(":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/"), bytes.Repeat([]byte{0x80 | 62}, times)...)
		if i := bytes.IndexByte(b, 0x41); i >= 0 { // the table holds x-bomb alone
			t.Fatalf("%x", b[:i+2])
		}
		return b
	}
	edgetest.Must(t, f.WriteHeaders(frames.HeadersFrameParam{StreamID: 3, EndStream: true, EndHeaders: true, BlockFragment: bomb(15)}))
	if a := f.Answer(3); a.status != "431" {
		t.Errorf("a small bomb: %v", a)
	}
	f.Get(5)
	if a := f.Answer(5); a.status != "200" || a.fields["x-ratelimit-remaining"] != "97" {
		t.Errorf("after it: %v %v", a, a.fields)
	}
	f.Ask(11, true, ":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/"+strings.Repeat("x", 33<<10))
	if a := f.Answer(11); a.status != "414" {
		t.Errorf("a long path: %v", a)
	}
	many := []string{":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/"}
	for i := range 129 {
		many = append(many, fmt.Sprint("x", i), "")
	}
	f.Ask(13, true, many...)
	if a := f.Answer(13); a.status != "431" {
		t.Errorf("many lines: %v", a)
	}
	edgetest.Must(t, f.WriteHeaders(frames.HeadersFrameParam{StreamID: 15, EndStream: true, EndHeaders: true, BlockFragment: []byte{0xff, 0xff, 0xff}}))
	f.End()
	if f.goAway == nil || *f.goAway != frames.ErrCodeCompression {
		t.Errorf("what cannot be read: %v", f.goAway)
	}
	for _, over := range []bool{false, true} { // on a new stream, and on one that the edge has ended before its client did
		f = dialFrames(t, addr)
		f.Get(1, "x-bomb", strings.Repeat("y", 3900))
		if a := f.Answer(1); a.status != "200" {
			t.Fatal(a)
		}
		if over {
			f.Ask(3, false, ":method", "GET")
			if a := f.Answer(3); a.status != "400" {
				t.Fatal(a)
			}
		}
		edgetest.Must(t, f.WriteHeaders(frames.HeadersFrameParam{StreamID: 3, EndStream: true, BlockFragment: bomb(15_000)}))
		if f.End(); !f.calm {
			t.Errorf("a bomb: %v", f.goAway)
		}
	}
	if m := e.Metrics(); m["sluice_http2_abuse_total{kind=continuation}"] != 2 {
		t.Errorf("metrics %v", m)
	}
	if n := len(o.Requests()); n != 4 {
		t.Errorf("the origin got %d requests", n)
	}
}

// A client whose windows are open but that reads nothing is cut by the same pace, with all its streams.
func TestHTTP2ReadsNothing(t *testing.T) {
	t.Parallel()
	var under atomic.Int64
	origin := edgetest.NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		under.Add(1)
		defer under.Add(-1)
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	e := edgetest.Start(t, origin, "limits: {idle_timeout: 1s}")
	f := dialFrames(t, e.OverTLS(edgetest.CertificatesIn(t, t.TempDir())), frames.Setting{ID: frames.SettingInitialWindowSize, Val: 1<<31 - 1})
	edgetest.Must(t, f.WriteWindowUpdate(0, 1<<30))
	for i := range uint32(20) {
		f.Get(2*i + 1)
	}
	edgetest.Until(t, "the connection is cut", func() bool { return e.Metrics()["sluice_slow_readers_total"] > 0 })
	edgetest.Until(t, "nothing is under way", func() bool {
		return under.Load() == 0 && e.Metrics()["sluice_http2_streams"] == 0 && e.Metrics()["sluice_http2_connections"] == 0
	})
}

// A client that opens no window holds its streams no longer than one that does not read its answers over HTTP/1.1, and no link of the origin's after
// that; refusals hold none.
func TestHTTP2ClosedWindows(t *testing.T) {
	t.Parallel()
	const streams = 100
	var under, begun atomic.Int64
	origin := edgetest.NetOrigin(t, func(w http.ResponseWriter, r *http.Request) {
		begun.Add(1)
		under.Add(1)
		defer under.Add(-1)
		if r.Host == "big" {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}
	})
	e := edgetest.Start(t, origin, "limits: {idle_timeout: 1s}\nrules: [{name: r, limit: 60, window: 1h}]")
	addr := e.OverTLS(edgetest.CertificatesIn(t, t.TempDir()))
	f := dialFrames(t, addr, frames.Setting{ID: frames.SettingInitialWindowSize, Val: 0})
	for i := range uint32(streams) {
		f.Ask(2*i+1, true, ":method", "GET", ":scheme", "https", ":authority", "big", ":path", "/")
	}
	edgetest.Until(t, "those that are admitted have reached the origin", func() bool { return begun.Load() == 60 })
	if resp := e.Raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(resp, "HTTP/1.1 429") {
		t.Errorf("another client of that source: %q", resp)
	}
	for i := range uint32(streams) {
		if a := f.Answer(2*i + 1); a.reset == nil || *a.reset != frames.ErrCodeCancel || i < 60 && a.status != "200" || i >= 60 && a.status != "429" {
			t.Fatalf("stream %d: %v", i, a)
		}
	}
	edgetest.Until(t, "nothing is under way", func() bool { return under.Load() == 0 && e.Metrics()["sluice_http2_streams"] == 0 })
	if n := e.Metrics()["sluice_slow_readers_total"]; n != streams {
		t.Errorf("%v slow readers", n)
	}
}
