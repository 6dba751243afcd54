package address_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/edge"
	"sluice/edge/edgetest"
)

// A balancer that nobody has named is warned of while it brings much of the traffic, once a minute, in the log, and
// its requests are counted.
func TestUntrustedProxy(t *testing.T) {
	var warned []string
	s := edgetest.NewServer(t, edgetest.Parse(t, "origins: [{servers: ['"+edgetest.StartRecorder(t, edgetest.Hello).URL()+"']}]"), func(o *edge.Options) {
		o.Warn = func(text string, args ...any) { warned = append(warned, text+fmt.Sprint(args...)) }
	})
	e := edgetest.Serve(t, s)
	c := e.Talk()
	send := func(n int, header string) {
		for i := range n {
			c.Say(fmt.Sprintf("GET / HTTP/1.1\r\nHost: a\r\n"+header+"\r\n", i))
		}
	}
	const least, window, part = 100, time.Minute, 5 // as address.Unbelieved has them
	now := time.Now()
	warnings := func(after time.Duration, want int) {
		t.Helper()
		s.Sweep(now.Add(after))
		if len(warned) != want {
			t.Fatalf("%q, want %d", warned, want)
		}
	}
	send(least-1, "X-Forwarded-For: 192.0.2.%d\r\n")
	warnings(0, 0)
	send(1, "Forwarded: for=192.0.2.%d\r\n")
	warnings(time.Second, 1)
	if !strings.HasPrefix(warned[0], "a peer is not trusted, ") || !strings.Contains(warned[0], "peer127.0.0.1") {
		t.Errorf("%q", warned[0])
	}
	send(least, "X-Forwarded-For: 192.0.2.%d\r\n")
	warnings(window, 1)
	warnings(window+time.Second, 2)
	send(least, "X-Real-IP: 192.0.2.%d\r\n")
	warnings(window+2*time.Second, 2)
	warnings(3*window, 3)
	send(least*part, "X-Real: %d\r\n") // most come without
	send(least, "X-Forwarded-For: 192.0.2.%d\r\n")
	warnings(4*window+time.Second, 3)
	if n := e.Metrics()["sluice_untrusted_forwarded_total"]; n != 4*least {
		t.Errorf("%v counted", n)
	}
}

// Any header may name the client. It is believed of trusted peers alone, goes on to the origin from them alone, and one that names nobody
// is counted and leaves the peer as the source.
func TestSourceHeaderOfChoice(t *testing.T) {
	for _, test := range []struct {
		name, trust, lines string
		source             string // who is counted
		gets               string // what the origin gets of it
		invalid            float64
	}{
		{"trusted", "127.0.0.1", "CF-Connecting-IP: 192.0.2.7\r\ncf_connecting_ip: 192.0.2.8\r\n", "192.0.2.7", "CF-Connecting-IP: 192.0.2.7", 0},
		{"named by the client's Connection", "127.0.0.1", "Connection: cf-connecting-ip\r\nCF-Connecting-IP: 192.0.2.7\r\n", "192.0.2.7", "CF-Connecting-IP: 192.0.2.7", 0},
		{"not trusted", "10.0.0.1", "CF-Connecting-IP: 192.0.2.7\r\nCF_Connecting_IP: 192.0.2.7\r\n", "127.0.0.1", "", 0},
		{"twice", "127.0.0.1", "CF-Connecting-IP: 192.0.2.7\r\nCF-Connecting-IP: 192.0.2.8\r\n", "127.0.0.1", "CF-Connecting-IP: 192.0.2.7 CF-Connecting-IP: 192.0.2.8", 1},
		{"no address", "127.0.0.1", "CF-Connecting-IP: me\r\n", "127.0.0.1", "CF-Connecting-IP: me", 1},
		{"a list", "127.0.0.1", "CF-Connecting-IP: 192.0.2.7, 192.0.2.8\r\n", "127.0.0.1", "CF-Connecting-IP: 192.0.2.7, 192.0.2.8", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := edgetest.StartRecorder(t, edgetest.Hello)
			e := edgetest.Start(t, o.URL(), "source: {header: CF-Connecting-IP, trust: ["+test.trust+"]}\nrules: [{name: r, limit: 5}]")
			e.Talk().Say("GET / HTTP/1.1\r\nHost: a\r\n" + test.lines + "\r\n")
			var gets []string
			for _, line := range strings.Split(o.Requests()[0], "\r\n") {
				if name, _, _ := strings.Cut(line, ":"); strings.EqualFold(strings.ReplaceAll(name, "_", "-"), "cf-connecting-ip") {
					gets = append(gets, line)
				}
			}
			if got := strings.Join(gets, " "); got != test.gets {
				t.Errorf("the origin gets %q, want %q", got, test.gets)
			}
			if st := e.Look(t.Context(), netip.MustParseAddr(test.source)).Rules; len(st) != 1 || st[0].Estimate != 1 {
				t.Errorf("%s stands at %+v", test.source, st)
			}
			if n := e.Metrics()["sluice_source_headers_invalid_total"]; n != test.invalid {
				t.Errorf("%v invalid", n)
			}
		})
	}
}

// Nothing is believed of what is said about clients on a connection whose PROXY header names nobody, in a malformed request neither.
func TestUnnamedPeersHeadersAreIgnored(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), "source: {trust: [127.0.0.1], proxy_protocol: true}\n"+fmt.Sprintf(edgetest.OneRule, 2))
	for range 5 {
		e.Raw("PROXY UNKNOWN\r\nGET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.7\r\nContent-Length: x\r\n\r\n")
	}
	if got := e.Raw("PROXY TCP4 192.0.2.7 192.0.2.200 4000 80\r\n" + edgetest.PlainGet); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("a source that sent nothing: %.40q", got)
	}
}

const unnamedYAML = "source: {trust: [127.0.0.1], proxy_protocol: true}"

// Through a proxy that does not know its clients none of them can be somebody else at each request.
func TestUnnamedClientsAreOneSource(t *testing.T) {
	o := edgetest.StartRecorder(t, edgetest.Hello)
	e := edgetest.Start(t, o.URL(), unnamedYAML+"\nrules: [{name: r, limit: 3, window: 1h}]")
	passed := 0
	for n := range 30 {
		resp, _ := e.Talk().Say(fmt.Sprintf("PROXY UNKNOWN\r\nGET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.%d\r\n\r\n", n))
		if resp.StatusCode == 200 {
			passed++
		}
	}
	if passed != 3 {
		t.Errorf("%d of 30 passed, want 3", passed)
	}
}
